//! A thread's handle on a domain: snapshots, updates, and collecting. A *section* is a snapshot or a transaction in
//! progress.

use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;

use archipelago_platform::atomic::{AtomicPtr, Ordering};
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use archipelago_platform::touch;

use super::horizon::Horizon;
use super::patience::Patience;
use super::pool::Pool;
use super::record::Record;
use super::ring::FRESH;
use super::shared::{Pass, Shared};
use super::slot::Slot;
use super::version::{Copied, Master, Raw, Version, Versioned, is_end, payload};
use super::writes::{Made, Pending};

/// A handle that finds its log locked by another thread tries again after its next commit. Once it has committed this
/// many bytes since it last had the log, it waits for the lock instead. The other thread waits for no section, but may
/// be preempted.
const FAR: usize = 32 * 1024;

/// The longest pauses of a transaction after its commit. In a pause, other threads make room. `LONGEST_PAUSE` limits a
/// pause for threads that have to end a section, which may be long. `LONGEST_PAUSE_WITHIN` limits a pause for threads
/// that have to end a short step in this module.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE_WITHIN: Duration = Duration::from_millis(50);

/// If handles outnumber processors, a thread yields its processor voluntarily, outside a section, after it has worked
/// this long. Otherwise the scheduler mostly preempts it inside a section, and the horizon does not move until the
/// thread runs again, after all others. The time is far shorter than a scheduler's time slice of some milliseconds, and
/// far longer than a yield costs.
const TURN: Duration = Duration::from_micros(200);

/// Counts of a handle since its registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Transactions committed.
    pub commits: u64,
    /// Attempts at transactions that were aborted, by conflict, panic or otherwise.
    pub aborts: u64,
}

/// A thread's access to a [`Domain`](super::Domain), with one section at a time, which the borrow checker enforces.
pub struct Handle {
    pub(super) shared: Arc<Shared>,
    is_counted: bool,
    slot: Arc<Slot>,
    /// The slot's record, cached to save an indirection.
    pub(super) record: Arc<Record>,
    /// The latest local time.
    last: u64,
    pub(super) pool: Pool,
    /// The number of versions committed since this handle last handed its versions to the log. The last of them are in
    /// `overflow`, if the ring has no room.
    fresh: usize,
    fresh_bytes: usize,
    overflow: Vec<Version>,
    /// The write set of the current transaction, reused for its memory.
    pub(super) writes: Vec<Pending>,
    /// The objects made in the current transaction; the vector is reused, too.
    pub(super) made: Vec<Made>,
    /// Copies read instead of masters since the last collection.
    copies_read: Cell<u64>,
    /// The horizon after the last collection that `copies_read` caused.
    horizon_met: u64,
    pub(super) counts: Counts,
    /// Copies that were linked and unlinked without having been visible.
    pub(super) unlinked: Vec<Version>,
    /// The lock word that caused the last attempt to fail.
    pub(super) met: u64,
    /// The horizon at the end of the last pause that did not move it.
    in_vain: u64,
    /// When this thread last yielded its processor.
    turn: Instant,
    /// The index of the slot whose log this handle last tried to help with. It is the handle's own index at first, so
    /// each handle begins with its neighbour's log.
    to_help: usize,
}

// SAFETY: a handle owns its record, its pool, and the versions in `overflow`; nothing in it belongs to a thread.
unsafe impl Send for Handle {}

impl Handle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        shared.handles().fetch_add(1, Ordering::Relaxed);
        Self::make(shared, true)
    }

    /// Makes a handle for the domain's own thread, which statistics do not count.
    #[cfg(not(loom))]
    pub(super) fn uncounted(shared: Arc<Shared>) -> Self {
        Self::make(shared, false)
    }

    fn make(shared: Arc<Shared>, is_counted: bool) -> Self {
        let slot = shared.take_slot();
        let to_help = slot.record.owner as usize;
        Self {
            shared,
            is_counted,
            to_help,
            record: slot.record.clone(),
            slot,
            last: 0,
            pool: Pool::new(),
            fresh: 0,
            fresh_bytes: 0,
            overflow: Vec::new(),
            writes: Vec::new(),
            made: Vec::new(),
            copies_read: Cell::new(0),
            horizon_met: 0,
            counts: Counts::default(),
            unlinked: Vec::new(),
            met: 0,
            in_vain: 0,
            turn: Instant::now(),
        }
    }

    #[inline]
    pub(super) fn horizon(&self) -> &Horizon {
        self.shared.horizon()
    }

    /// Hands to the log the copies that were unlinked without having been visible. Called outside the section, in which
    /// the copies were accessed.
    #[inline]
    pub(super) fn hand_in_unlinked(&mut self) {
        if !self.unlinked.is_empty() {
            self.detach_unlinked();
        }
    }

    #[cold]
    fn detach_unlinked(&mut self) {
        let horizon = self.shared.horizon();
        let are_many = self.slot.log(horizon.budget()).detach(horizon, &mut self.unlinked);
        if are_many {
            self.pass();
        }
    }

    /// In a domain with two versions per object (RLU), outside the section: waits for readers and writes the commit
    /// back, or defers the write-back.
    #[cold]
    pub(super) fn write_back_or_defer(&mut self, stamp: u64) {
        (self.fresh, self.fresh_bytes) = (0, 0);
        let Self { shared, slot, pool, overflow, .. } = self;
        shared.write_back_or_defer(slot, stamp, overflow, pool);
    }

    /// With two versions: writes back the commits that this handle has deferred. Waits for sections that began before
    /// the last of them.
    pub(super) fn write_back_own(&mut self) {
        let Self { shared, slot, pool, .. } = self;
        let horizon = shared.horizon();
        let mut log = slot.log(horizon.budget());
        let reached = horizon.wait_for(log.deferred_to());
        log.write_back_all(horizon, reached, pool);
    }

    /// Returns this handle's counts.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let number = domain.alloc(0);
    /// let mut handle = domain.register();
    /// handle.update(|tx| Ok(*tx.lock(number)? += 1))?;
    /// assert_eq!(handle.counts().commits, 1);
    /// # handle.update(|tx| unsafe { tx.retire(number) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Collects all logs, as far as sections allow, repeatedly: if no other section is open, each object has one
    /// version afterwards and all others are freed. Logs that another thread is collecting are skipped. O(versions).
    ///
    /// With [two versions](crate::rlu), it writes back deferred commits.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let number = domain.alloc(0);
    /// let mut handle = domain.register();
    /// (0..10).try_for_each(|_| handle.update(|tx| Ok(*tx.lock(number)? += 1)))?;
    /// handle.collect();
    /// assert_eq!(domain.stats().versions, 0);
    /// # handle.update(|tx| unsafe { tx.retire(number) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    pub fn collect(&mut self) {
        for _ in 0..3 {
            self.hand_in();
            self.enter();
            let Self { shared, record, pool, .. } = self;
            // SAFETY: inside a section.
            unsafe { shared.collect_all(record, |_| true, pool) };
            self.record.leave();
        }
    }

    /// Outside the section: scans and collects all logs, unless another thread is doing so.
    #[cold]
    pub(super) fn collect_everybody(&mut self) {
        self.enter();
        let Self { shared, record, pool, .. } = self;
        // SAFETY: inside a section.
        unsafe { shared.collect_everybody(record, pool) };
        self.record.leave();
    }

    #[inline]
    pub(super) fn enter(&mut self) -> u64 {
        let horizon = self.shared.horizon();
        self.last = self.record.enter(horizon.clock(), self.last, || horizon.entry_barrier());
        self.last
    }

    /// Ends the section, and then collects if this handle has met many copies.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.record.leave();
        let watermark = self.horizon().tuning().dereference_watermark;
        if self.copies_read.get() >= u64::from(watermark) && watermark != u32::MAX {
            self.collect_after_reading();
        }
    }

    /// If the horizon has not moved since the last call, another thread was in a section throughout, and has probably
    /// been preempted in it. Yielding lets that thread run.
    #[cold]
    fn collect_after_reading(&mut self) {
        self.copies_read.set(0);
        // The first collection unlinks versions from chains, the next ones free them.
        self.collect_everybody();
        self.collect_everybody();
        let horizon = self.horizon().known();
        if core::mem::replace(&mut self.horizon_met, horizon) == horizon {
            thread::yield_now();
        }
        self.end_turn();
    }

    /// Hands committed versions to the log. Returns whether the log has grown to its watermark.
    fn hand_in(&mut self) -> bool {
        (self.fresh, self.fresh_bytes) = (0, 0);
        let Self { shared, slot, overflow, .. } = self;
        let horizon = shared.horizon();
        let mut log = slot.log(horizon.budget());
        log.take_fresh();
        overflow.drain(..).for_each(|version| log.append(version));
        log.wants_scan(horizon.low())
    }

    /// Takes over versions that were just committed, inside the section that committed them.
    #[inline]
    pub(super) fn committed(&mut self, version: Version) {
        self.fresh += 1;
        self.fresh_bytes += version.bytes();
        // Another thread may append a version from the ring to the log at any time, so while `overflow` is not empty,
        // new versions are added to `overflow` to keep the order.
        if !self.overflow.is_empty() || !self.horizon().is_multi_version() || !self.slot.put(version) {
            self.overflow.push(version);
        }
    }

    /// Outside the section, after a commit.
    #[inline]
    pub(super) fn hand_in_if_many(&mut self) {
        if self.fresh >= FRESH || self.fresh_bytes >= self.horizon().low() {
            self.hand_in_and_collect();
        }
    }

    #[cold]
    fn hand_in_and_collect(&mut self) {
        // A helping thread may have the log; then the next commit tries again.
        let is_free = self.slot.try_log(self.horizon().budget()).is_some();
        if !is_free && self.fresh_bytes < FAR {
            return;
        }
        let is_due = self.hand_in();
        if is_due || self.horizon().tuning().concurrent {
            self.collect_own();
        }
    }

    /// Outside the section: collects this handle's log and helps with another, or collects all logs if
    /// [`Tuning::concurrent`](super::Tuning::concurrent) is off.
    fn collect_own(&mut self) {
        if self.horizon().tuning().concurrent {
            let pass = self.pass();
            self.end_turn();
            self.make_room(pass);
        } else {
            self.collect_everybody();
        }
    }

    /// Outside the section: collects this handle's log, and one other log in rotation.
    fn pass(&mut self) -> Option<Pass> {
        self.enter();
        let Self { shared, slot, record, pool, to_help, .. } = self;
        // SAFETY: inside a section.
        let pass = unsafe { shared.collect(slot, record, pool) };
        // SAFETY: as above.
        unsafe { shared.help_one(to_help, record, pool) };
        self.record.leave();
        pass
    }

    /// Outside the section: yields the processor if it is time to.
    fn end_turn(&mut self) {
        // Loom has no clock.
        if !cfg!(loom) && self.horizon().has_more_handles_than_processors() && self.turn.elapsed() >= TURN {
            thread::yield_now();
            self.turn = Instant::now();
        }
    }

    /// Pauses while this handle's log exceeds its share because other threads are preempted.
    #[inline]
    fn make_room(&mut self, pass: Option<Pass>) {
        let Some(mut pass) = pass else { return };
        let mut patience = Patience::new();
        let mut steps = 0;
        while self.shared.is_crowded(&pass, self.in_vain) {
            if patience.slept() >= LONGEST_PAUSE {
                self.in_vain = pass.horizon;
            }
            if patience.slept() >= LONGEST_PAUSE_WITHIN {
                return;
            }
            patience.sleep();
            steps += 1;
            // One of all waiting threads advances the horizon. Versions that wait for walks may be freed although the
            // horizon does not move.
            if self.shared.look_for_all() == pass.horizon && steps % 8 != 0 {
                continue;
            }
            self.slot.log(self.horizon().budget()).want_scan();
            let Some(next) = self.pass() else { return };
            pass = next;
        }
    }

    /// Returns the version of an object that a snapshot at `local` sees. It is valid as long as the snapshot's section.
    ///
    /// # Safety
    /// This handle is inside a section at `local`, and `'a` ends before the section does. The object belongs to this
    /// domain, and is not freed before the section ends.
    #[inline]
    pub(super) unsafe fn see<'a, T: Versioned>(&self, object: Raw<T>, local: u64) -> &'a T {
        // SAFETY: the caller's promise.
        unsafe { self.see_with(object, local, size_of::<T>(), |value| value) }
    }

    /// Returns what `read` returns for the version of an object that a snapshot at `local` sees. If this is the master,
    /// `read` is inlined, and accesses the object's own address. `read` reads the first `bytes` bytes, or fewer.
    ///
    /// # Safety
    /// As for [`see`](Self::see).
    #[inline]
    pub(super) unsafe fn see_with<'a, T: Versioned, R>(
        &self,
        object: Raw<T>,
        local: u64,
        bytes: usize,
        read: impl Fn(&'a T) -> R,
    ) -> R {
        // SAFETY: the caller's promise.
        let master = unsafe { object.master() };
        // Acquire: pairs with the Release of linking or of write-back.
        if !is_end(master.head.newest.load(Ordering::Acquire)) {
            // SAFETY: the caller's promise.
            return unsafe { self.see_copy(master, local, bytes, read) };
        }
        // SAFETY: the caller's promise, and there is no copy.
        read(unsafe { value_of(master, bytes) })
    }

    /// Not inlined, so that the compiler does not join this path with that of masters.
    ///
    /// # Safety
    /// As for [`see`](Self::see).
    #[inline(never)]
    unsafe fn see_copy<'a, T: Versioned, R>(
        &self,
        master: &'a Master<T>,
        local: u64,
        bytes: usize,
        read: impl Fn(&'a T) -> R,
    ) -> R {
        // SAFETY: the caller's promise.
        let Some(copy) = (unsafe { self.walk(&master.head.newest, local) }) else {
            // SAFETY: the caller's promise, and no copy is visible at `local`.
            return read(unsafe { value_of(master, bytes) });
        };
        // SAFETY: as below.
        unsafe { copy.as_ref() }.watch.read();
        touch(payload::<T>(copy).as_ptr(), bytes);
        // SAFETY: the copy is chosen at `local`, so it is kept until the section ends; copies of a `T` contain a `T`,
        // whose bytes were complete before the stamp.
        read(unsafe { payload::<T>(copy).as_ref() })
    }

    /// Returns the newest copy of a chain that is visible at `local`.
    ///
    /// # Safety
    /// As for [`see`](Self::see).
    unsafe fn walk(&self, newest: &AtomicPtr<Copied>, local: u64) -> Option<NonNull<Copied>> {
        self.copies_read.set(self.copies_read.get() + 1);
        let clock = self.horizon().clock();
        self.walking(|| {
            // Loaded again, since a copy that was linked before the walk began may be pruned.
            let mut copy = copy_of(newest.load(Ordering::Acquire));
            while let Some(here) = copy {
                // SAFETY: the copy was reached in a walk at `local`, for which pruned copies are kept. Other copies
                // above a visible one are stamped above `local`. So they are not superseded at or before the horizon,
                // or they were not unlinked before our section began.
                let header = unsafe { here.as_ref() };
                header.header.read();
                // SAFETY: as above.
                if unsafe { header.is_visible(local, clock) } {
                    break;
                }
                copy = copy_of(header.older.load(Ordering::Acquire));
            }
            copy
        })
    }

    /// Runs `walk`. Copies that it meets are not freed before its end, although another thread may prune them.
    #[inline]
    pub(super) fn walking<R>(&self, walk: impl FnOnce() -> R) -> R {
        // With two versions no copy is pruned.
        match self.horizon().is_multi_version() {
            true => self.record.walk(|| self.horizon().reader_barrier(), walk),
            false => walk(),
        }
    }
}

/// Returns the master's value.
///
/// # Safety
/// As for [`Handle::see`]. No version at or before the section's time is in the chain.
#[inline]
unsafe fn value_of<T>(master: &Master<T>, bytes: usize) -> &T {
    master.head.watch.read();
    touch(master.value.get(), bytes);
    // SAFETY: the master's value is the section's: it is overwritten only when all sections are at or above the oldest
    // stamp in the chain.
    unsafe { &*master.value.get() }
}

/// Returns the copy to which a word of a chain points, or `None` at the end.
#[inline]
fn copy_of(word: *mut Copied) -> Option<NonNull<Copied>> {
    match is_end(word) {
        true => None,
        false => NonNull::new(word),
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let is_due = self.hand_in();
        // A thread that registers for each transaction would otherwise never have a log that is long enough to be
        // collected.
        if is_due && self.horizon().is_multi_version() {
            self.collect_own();
        }
        self.pool.empty(self.shared.horizon().budget());
        self.shared.leave_slot(self.slot.clone());
        if self.is_counted {
            self.shared.handles().fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, miri, archipelago_sim))))]
mod tests {
    use super::*;
    use crate::crowd::processors;
    use crate::mvrlu::{Domain, Tuning};

    /// Returns whether a handle has yielded its processor in many updates, while `others` other handles exist.
    fn gives_way(others: usize) -> bool {
        let domain = Domain::new();
        let _others: Vec<Handle> = (0..others).map(|_| domain.register()).collect();
        let link = domain.alloc(0_u64);
        let mut handle = domain.register();
        let began = handle.turn;
        for _ in 0..100_000 {
            let updated = handle.update(|tx| {
                *tx.lock(link)? += 1;
                Ok(())
            });
            updated.expect("there is no cap");
        }
        let gave = handle.turn > began;
        // SAFETY: not used any more.
        handle.update(|tx| unsafe { tx.retire(link) }).expect("there is no cap");
        gave
    }

    #[test]
    fn turns_end_between_sections_where_handles_outnumber_processors() {
        assert!(gives_way(processors()), "one handle more than processors");
        assert!(processors() == 1 || !gives_way(0), "one handle");
    }

    /// A watermark that is off stays off, also in a handle that has read 2^32 copies.
    #[test]
    fn no_number_of_reads_causes_a_collection_that_is_turned_off() {
        let tuning = Tuning { dereference_watermark: u32::MAX, ..Tuning::default() };
        let domain = Domain::builder().tuning(tuning).build();
        let link = domain.alloc(0_u64);
        let [mut reader, mut writer] = [(); 2].map(|()| domain.register());
        writer.update(|tx| tx.lock(link).map(|object| *object = 1)).expect("there is no cap");
        reader.copies_read.set(u64::from(u32::MAX) - 1);
        for _ in 0..3 {
            assert_eq!(*reader.read().get(link), 1);
        }
        assert_eq!((domain.stats().versions, reader.copies_read.get()), (1, u64::from(u32::MAX) + 2));
        // SAFETY: not used any more.
        writer.update(|tx| unsafe { tx.retire(link) }).expect("there is no cap");
    }
}
