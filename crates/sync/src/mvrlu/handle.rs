//! A thread's handle on a domain: snapshots, updates, and its turn at collecting.

use core::cell::Cell;
use core::ptr::NonNull;

use archipelago_platform::atomic::{AtomicPtr, Ordering};
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;

use super::domain::{Inner, Pass};
use super::log::Version;
use super::patience::Patience;
use super::pool::Pool;
use super::record::Record;
use super::ring::FRESH;
use super::tx::{Made, Pending, Tx};
use super::version::{Copied, Link, Raw, Versioned, is_end, payload};

/// Bytes committed since its log was last to be had, from which a thread waits for the one that has the log. That one waits
/// for no section, but may have lost its processor.
const FAR: usize = 32 * 1024;

/// How long a transaction pauses after its commit for others to make room, at most: for their sections, which may be long, and
/// for what they do in this module, which is not.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE_WITHIN: Duration = Duration::from_millis(50);

/// Attempts at a transaction that found the domain's memory full, with a collection before each, until it fails.
const FULL_ATTEMPTS: usize = 8;

/// Why a transaction was not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// Another one holds an object, or has changed it since this one's snapshot. Trying again helps.
    Conflict,
    /// The domain's memory cap does not allow another version.
    Full,
}

impl core::fmt::Display for Abort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Abort::Conflict => "another transaction holds an object or has changed it: try again",
            Abort::Full => "versions take all the memory the domain may have: end long snapshots, or raise memory_cap",
        })
    }
}

impl core::error::Error for Abort {}

/// The domain's memory cap left no room for a transaction, however often old versions were collected before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        Abort::Full.fmt(f)
    }
}

impl core::error::Error for Full {}

/// What a handle has done since it was registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions committed.
    pub commits: u64,
    /// Attempts at transactions that were aborted, by conflict, panic or otherwise.
    pub aborts: u64,
}

/// A way into a [`Domain`](super::Domain): one section at a time, by construction.
pub struct Handle {
    pub(super) domain: Arc<Inner>,
    pub(super) record: Arc<Record>,
    /// The latest local time.
    last: u64,
    pub(super) pool: Pool,
    /// Versions committed since the log took over, of which the last are here, if the record has no room for them.
    fresh: usize,
    fresh_bytes: usize,
    overflow: Vec<Version>,
    /// The write set under way, kept for its memory.
    pub(super) writes: Vec<Pending>,
    /// The objects made in the transaction under way, likewise.
    pub(super) made: Vec<Made>,
    /// Copies read instead of masters since the last collection.
    copies_read: Cell<u32>,
    /// Where the horizon was after the last collection that these led to.
    horizon_met: u64,
    pub(super) counts: Counts,
    /// Copies that were linked and taken out of their chains again without having been visible.
    pub(super) unlinked: Vec<Version>,
    /// The lock word that made the last attempt fail.
    pub(super) met: u64,
    /// The horizon that a pause did not move.
    in_vain: u64,
}

// SAFETY: a handle owns its record, its pool, and the versions in `overflow`; nothing in it belongs to a thread.
unsafe impl Send for Handle {}

impl Handle {
    pub(super) fn new(domain: Arc<Inner>) -> Self {
        let record = domain.take_record();
        Self {
            domain,
            record,
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
        }
    }

    /// Begins a read-only section: all objects of the domain as they are at this moment. Never waits, is never aborted.
    #[inline]
    pub fn read(&mut self) -> Snapshot<'_> {
        let local = self.enter();
        Snapshot { handle: self, local }
    }

    /// Runs `body` as a transaction until it commits, with pauses between attempts that were aborted by conflict; with
    /// the body's result. Other writers can make it try again, readers cannot. Snapshot isolation; see
    /// [`update_serializable`](Self::update_serializable).
    ///
    /// To give up, let the body return `Ok` with a value that says so before it locks anything.
    ///
    /// # Errors
    /// [`Full`], if the domain has a memory cap and versions take it up.
    ///
    /// # Panics
    /// With what `body` panicked with. The transaction is aborted then.
    #[inline]
    pub fn update<R>(&mut self, body: impl FnMut(&mut Tx<'_>) -> Result<R, Abort>) -> Result<R, Full> {
        self.retry(body, |handle, body| handle.attempt(false, body))
    }

    /// As [`update`](Self::update), and serializable among all transactions that commit this way: an attempt is aborted
    /// if anything that the body read by [`Tx::get`] was changed before the commit. What is read through
    /// [`Tx::snapshot`] is not watched.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn update_serializable<R>(&mut self, body: impl FnMut(&mut Tx<'_>) -> Result<R, Abort>) -> Result<R, Full> {
        self.retry(body, |handle, body| handle.attempt(true, body))
    }

    /// One attempt at [`update`](Self::update).
    ///
    /// # Errors
    /// What the body returned, or [`Abort::Conflict`].
    #[inline]
    pub fn try_update<R>(&mut self, body: impl FnOnce(&mut Tx<'_>) -> Result<R, Abort>) -> Result<R, Abort> {
        let result = self.attempt(false, body);
        if matches!(result, Err(Abort::Conflict)) {
            self.help_holder();
        }
        result
    }

    #[inline]
    fn attempt<R>(
        &mut self,
        serializable: bool,
        body: impl FnOnce(&mut Tx<'_>) -> Result<R, Abort>,
    ) -> Result<R, Abort> {
        let mut tx = Tx::begin(self, serializable);
        let result = body(&mut tx)?;
        tx.commit().map(|()| result)
    }

    /// Outside the section: a helper may hold the log and wait for it to end.
    #[inline]
    pub(super) fn hand_in_unlinked(&mut self) {
        if !self.unlinked.is_empty() {
            self.detach_unlinked();
        }
    }

    #[cold]
    fn detach_unlinked(&mut self) {
        let tick = self.domain.clock().stamp();
        let are_many = self.record.log(self.domain.budget()).detach(tick, &mut self.unlinked);
        if are_many {
            self.domain.look();
            self.pass();
        }
    }

    #[inline]
    fn retry<R, B>(&mut self, mut body: B, attempt: impl Fn(&mut Self, &mut B) -> Result<R, Abort>) -> Result<R, Full> {
        let mut patience = Patience::new();
        let mut full = 0;
        loop {
            match attempt(self, &mut body) {
                Ok(result) => return Ok(result),
                Err(Abort::Full) if full == FULL_ATTEMPTS => return Err(Full),
                Err(Abort::Full) => {
                    full += 1;
                    self.collect();
                }
                Err(Abort::Conflict) => self.help_holder(),
            }
            patience.wait();
        }
    }

    /// With two versions, who holds the object met may have deferred its write-back.
    #[inline]
    fn help_holder(&mut self) {
        if !self.domain.is_multi_version() {
            let Self { domain, pool, met, .. } = self;
            domain.write_back_of_holder(core::mem::take(met), pool);
        }
    }

    /// With two versions, outside the section: waits for readers and writes back what was committed, or puts that off.
    #[cold]
    pub(super) fn write_back_or_defer(&mut self, stamp: u64) {
        (self.fresh, self.fresh_bytes) = (0, 0);
        let Self { domain, record, pool, overflow, .. } = self;
        domain.write_back_or_defer(record, stamp, overflow, pool);
    }

    /// With two versions: writes back what this handle has put off, which waits for sections before its last commit.
    pub(super) fn write_back_own(&mut self) {
        let Self { domain, record, pool, .. } = self;
        record.log(domain.budget()).write_back_all(domain, pool);
    }

    /// What this handle has done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Collects all logs, as far as sections allow: so often that without sections elsewhere each object is back to one
    /// version, all others freed. A log that another thread is collecting at the time is left to that one. O(versions).
    ///
    /// With [two versions](crate::rlu), writes back what commits have put off.
    pub fn collect(&mut self) {
        for _ in 0..3 {
            // Outside the section, as above.
            self.hand_in();
            self.enter();
            let Self { domain, record, pool, .. } = self;
            // SAFETY: inside a section.
            unsafe { domain.collect_all(record, |_| true, pool) };
            self.record.leave();
        }
    }

    /// Outside the section: scans and collects all logs, unless somebody is at it.
    #[cold]
    pub(super) fn collect_everybody(&mut self) {
        self.enter();
        let Self { domain, record, pool, .. } = self;
        // SAFETY: inside a section.
        unsafe { domain.collect_everybody(record, pool) };
        self.record.leave();
    }

    #[inline]
    pub(super) fn enter(&mut self) -> u64 {
        let Self { domain, record, .. } = self;
        self.last = record.enter(domain.clock(), self.last, || domain.entry_barrier());
        self.last
    }

    /// Ends the section; then it is this handle's turn at collecting, if it has met many copies.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.record.leave();
        if self.copies_read.get() >= self.domain.tuning().dereference_watermark {
            self.collect_after_reading();
        }
    }

    /// If the horizon stands where it stood the last time, somebody was in a section all along, and has probably lost its
    /// processor there: gives that thread this one.
    #[cold]
    fn collect_after_reading(&mut self) {
        self.copies_read.set(0);
        // Out of the chains, and then out of the logs.
        self.collect_everybody();
        self.collect_everybody();
        let horizon = self.domain.horizon();
        if core::mem::replace(&mut self.horizon_met, horizon) == horizon {
            thread::yield_now();
        }
    }

    fn hand_in(&mut self) {
        (self.fresh, self.fresh_bytes) = (0, 0);
        let Self { domain, record, overflow, .. } = self;
        let mut log = record.log(domain.budget());
        log.take_fresh();
        overflow.drain(..).for_each(|version| log.append(version));
    }

    /// Takes over versions just committed; in the section that committed them.
    #[inline]
    pub(super) fn committed(&mut self, version: Version) {
        self.fresh += 1;
        self.fresh_bytes += version.bytes();
        // What is put there, another thread may append to the log at once; so nothing passes the overflow.
        if !self.overflow.is_empty() || !self.domain.is_multi_version() || !self.record.put(version) {
            self.overflow.push(version);
        }
    }

    /// Outside the section, after a commit.
    #[inline]
    pub(super) fn hand_in_if_many(&mut self) {
        if self.fresh >= FRESH || self.fresh_bytes >= self.domain.low() {
            self.hand_in_and_collect();
        }
    }

    #[cold]
    fn hand_in_and_collect(&mut self) {
        // Somebody who helps may have the log: then the next commit tries again.
        let is_free = self.record.try_log(self.domain.budget()).is_some();
        if !is_free && self.fresh_bytes < FAR {
            return;
        }
        self.hand_in();
        if self.domain.tuning().concurrent {
            if let Some(pass) = self.pass() {
                self.make_room(pass);
            }
        } else if self.record.log(self.domain.budget()).wants_scan(self.domain.low()) {
            self.collect_everybody();
        }
    }

    /// Outside the section: collects this handle's log, and another one in turn.
    fn pass(&mut self) -> Option<Pass> {
        self.enter();
        let Self { domain, record, pool, .. } = self;
        // SAFETY: inside a section.
        let pass = unsafe { domain.collect(record, record, pool) };
        // SAFETY: as above.
        unsafe { domain.help_one(record, pool) };
        self.record.leave();
        pass
    }

    /// Pauses while this handle's log has grown beyond its share because other threads do not run.
    #[inline]
    fn make_room(&mut self, mut pass: Pass) {
        let mut patience = Patience::new();
        let mut steps = 0;
        while self.domain.is_crowded(&pass, self.in_vain) {
            if patience.slept() >= LONGEST_PAUSE {
                self.in_vain = pass.horizon;
            }
            if patience.slept() >= LONGEST_PAUSE_WITHIN {
                return;
            }
            patience.sleep();
            steps += 1;
            // Of all that wait one looks; and what waits for walks may go although the horizon stands.
            if self.domain.look_for_all() == pass.horizon && steps % 8 != 0 {
                continue;
            }
            self.record.log(self.domain.budget()).want_scan();
            let Some(next) = self.pass() else { return };
            pass = next;
        }
    }

    /// The version of an object that a snapshot at `local` sees, for as long as that snapshot's section.
    ///
    /// # Safety
    /// This handle is inside a section at `local`, and `'a` ends before it. The object is of this domain, and not freed
    /// before the section ends.
    #[inline]
    pub(super) unsafe fn see<'a, T: Versioned>(&self, object: Raw<T>, local: u64) -> &'a T {
        // SAFETY: the caller's promise.
        let master = unsafe { object.master() };
        // Acquire: pairs with the Release that linked, or wrote back.
        if !is_end(master.head.newest.load(Ordering::Acquire)) {
            // SAFETY: the caller's promise.
            if let Some(copy) = unsafe { self.walk(&master.head.newest, local) } {
                // SAFETY: as below.
                unsafe { copy.as_ref() }.watch.read();
                // SAFETY: chosen at `local`, so kept until the section ends; copies of a `T` hold a `T`, whose bytes
                // were complete before it was stamped.
                return unsafe { payload::<T>(copy).as_ref() };
            }
        }
        master.head.watch.read();
        // SAFETY: no version at or before `local` is in the chain, so the master's value is this section's: it is
        // overwritten only when all sections are at or above the oldest stamp in the chain.
        unsafe { &*master.value.get() }
    }

    /// The newest copy of a chain that is visible at `local`.
    ///
    /// # Safety
    /// As for [`see`](Self::see).
    unsafe fn walk(&self, newest: &AtomicPtr<Copied>, local: u64) -> Option<NonNull<Copied>> {
        self.copies_read.set(self.copies_read.get() + 1);
        let clock = self.domain.clock();
        self.walking(|| {
            // Read anew: what was there before the walk began may be pruned.
            let mut copy = copy_of(newest.load(Ordering::Acquire));
            while let Some(here) = copy {
                // SAFETY: reached in a walk at `local`: pruned copies are kept for it, and others above a visible one are
                // stamped above `local`, so not superseded at or before the horizon, or unlinked not before our section
                // began.
                let header = unsafe { here.as_ref() };
                // SAFETY: as above.
                if unsafe { header.is_visible(local, clock) } {
                    break;
                }
                copy = copy_of(header.older.load(Ordering::Acquire));
            }
            copy
        })
    }

    /// Runs `walk` so that copies it meets are not freed before its end, although somebody may prune them.
    #[inline]
    pub(super) fn walking<R>(&self, walk: impl FnOnce() -> R) -> R {
        // With two versions nothing is pruned.
        match self.domain.is_multi_version() {
            true => self.record.walk(|| self.domain.reader_barrier(), walk),
            false => walk(),
        }
    }
}

/// The copy that a word of a chain is a pointer to.
#[inline]
fn copy_of(word: *mut Copied) -> Option<NonNull<Copied>> {
    match is_end(word) {
        true => None,
        false => NonNull::new(word),
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.hand_in();
        self.pool.empty(self.domain.budget());
        self.domain.leave_record(self.record.clone());
    }
}

/// All objects of a domain as they were when it was taken. What it gives lives as long as it does.
///
/// A snapshot that lives long keeps one version of each object that is changed meanwhile, and no more.
/// A forgotten one (`mem::forget`) does so until the handle is used again or dropped.
pub struct Snapshot<'h> {
    handle: &'h mut Handle,
    local: u64,
}

impl Snapshot<'_> {
    /// The object, as it was when the snapshot was taken. A load more than a pointer's where the object has no versions
    /// beside its master.
    ///
    /// # Panics
    /// If the link is of another domain.
    #[inline]
    pub fn get<T: Versioned>(&self, link: Link<T>) -> &T {
        // SAFETY: links are to objects that are not freed while anybody may follow them: who retires or aborts promises.
        let object = unsafe { link.raw(self.handle.domain.id()) };
        // SAFETY: as above; just checked.
        unsafe { self.get_raw(object) }
    }

    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// The object is of this domain, and not freed before this snapshot ends.
    #[inline]
    pub unsafe fn get_raw<T: Versioned>(&self, object: Raw<T>) -> &T {
        // SAFETY: the handle is in the section of this snapshot, until its drop.
        unsafe { self.handle.see(object, self.local) }
    }

    /// The time of the snapshot, by the domain's clock: it sees commits stamped at or before it. For tests and logs.
    pub fn time(&self) -> u64 {
        self.local
    }
}

impl Drop for Snapshot<'_> {
    #[inline]
    fn drop(&mut self) {
        self.handle.leave();
    }
}
