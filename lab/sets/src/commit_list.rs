//! The commits of Versioned Programming: one list for all of them. A commit's place in the list is its *epoch*, the
//! logical time at which its changes become visible. The same list shows whether two commits conflict. So a time cannot
//! be had without a look at the commits before it, and no clock can give it.
//!
//! - A *snapshot* walks the list to its end. It sees the commits that it has passed.
//! - A *commit* walks on from its snapshot. If a commit that it meets has changed an object that it changes, too, it
//!   fails. At the list's end it appends itself by one exchange: this decides it.
//! - A walk writes the epoch into each record that has none yet. Otherwise versions of a commit whose thread was
//!   stopped after the exchange would be invisible to snapshots that passed the commit.
//!
//! # Why every record but the last has its epoch
//! The thread that appends a record has passed the record before it, and has written the epoch there.
//!
//! # Orderings
//! A record's content, and the versions that lead to it, are written before the record is appended with Release. A walk
//! reads each link with Acquire. So a snapshot sees all that commits up to its epoch have done. A walk that begins at
//! [`recent`](CommitList::recent) sees what came before, too: the thread that moved `recent` (Release) had passed it,
//! and `recent` is read with Acquire. The epoch itself could be read and written with Relaxed. A thread needs the epoch
//! only of records that it has passed, and it has then read the epoch there or written it.
//!
//! # When a record is freed
//! Walks come to a record from the record before it, from `recent`, or from the session's last epoch. The last is used
//! only if it is not before `recent`, which is read in the section of the walk. Versions lead to the record until the
//! committer has written the epoch into them. So a record is retired when both are so: `recent` has passed it, and its
//! committer has finished. The later of the two threads retires it. A section that begins afterwards finds no way to
//! it.

use core::marker::PhantomData;
use core::ptr;

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::plain::Plain;
use archipelago_platform::touch;
use archipelago_platform::watch::Watch;
use archipelago_sync::rcu::Guard;

/// The epoch of what was there before all commits.
pub(crate) const FIRST: u64 = 1;

/// In a record's word: `recent` has passed the record.
const PASSED: u64 = 1;
/// In a record's word: the committer has written the epoch into the commit's versions.
const FINISHED: u64 = 2;
/// The place of the epoch in a record's word. The epoch is 0 until it is known.
const EPOCH: u32 = 2;

/// How many objects a record has in its own cache line. An update of a tree changes up to four.
const FEW: usize = 4;

/// A commit, or an attempt at one.
#[repr(align(64))]
pub(crate) struct Record {
    next: AtomicPtr<Record>,
    /// The epoch, [`PASSED`] and [`FINISHED`].
    word: AtomicU64,
    /// The addresses of the objects that the commit changes; 0 for none.
    few: Plain<[usize; FEW]>,
    /// Further addresses.
    more: Plain<Box<[usize]>>,
    watch: Watch,
}

impl Drop for Record {
    fn drop(&mut self) {
        self.watch.gone();
    }
}

impl Record {
    /// Makes a record of a commit that changes these objects.
    pub(crate) fn new(objects: impl Iterator<Item = usize>) -> Box<Self> {
        let mut objects = objects.fuse();
        let few = core::array::from_fn(|_| objects.next().unwrap_or(0));
        let record = Box::new(Self {
            next: AtomicPtr::new(ptr::null_mut()),
            word: AtomicU64::new(0),
            few: Plain::new(few),
            more: Plain::new(objects.collect()),
            watch: Watch::new(),
        });
        record.watch.write();
        record
    }

    /// Returns the epoch, or 0 if the commit is not decided, or no thread has passed it yet.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.watch.read();
        self.word.load(Ordering::Acquire) >> EPOCH
    }

    /// Returns whether both commits change a common object.
    fn conflicts(&self, with: &Self) -> bool {
        self.watch.read();
        self.objects().any(|object| with.objects().any(|other| other == object))
    }

    #[inline]
    fn objects(&self) -> impl Iterator<Item = usize> {
        let few = self.few.iter().copied().take_while(|object| *object != 0);
        let is_full = self.few[FEW - 1] != 0;
        few.chain(is_full.then(|| self.rest().iter().copied()).into_iter().flatten())
    }

    #[cold]
    fn rest(&self) -> &[usize] {
        touch(self.more.as_ptr(), size_of_val(&**self.more));
        &self.more
    }
}

/// A place in the list.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    record: *mut Record,
    epoch: u64,
}

impl Moment {
    /// A moment before all commits, where no walk begins.
    pub(crate) const NEVER: Self = Self { record: ptr::null_mut(), epoch: 0 };

    #[inline]
    pub(crate) fn epoch(self) -> u64 {
        self.epoch
    }

    /// Returns the next commit's moment, and sees to it that its record has the epoch.
    ///
    /// # Safety
    /// The moment was returned in the caller's section, and is not [`NEVER`](Self::NEVER).
    #[inline]
    unsafe fn next(self) -> Option<Self> {
        // SAFETY: the caller's promise; see the module's text.
        let record = unsafe { &*self.record }.next.load(Ordering::Acquire);
        // SAFETY: as above: a record that is appended later than a record that the section can reach is retired later.
        let next = unsafe { record.as_ref() }?;
        let epoch = self.epoch + 1;
        if next.epoch() == 0 {
            // If this fails, another thread has written the same epoch.
            let (set, unset) = (epoch << EPOCH, 0);
            _ = next.word.compare_exchange(unset, set, Ordering::AcqRel, Ordering::Acquire);
        }
        Some(Self { record, epoch })
    }
}

/// The list.
pub(crate) struct CommitList {
    /// The record of a multiple of `kept`: the latest whose committer has come so far.
    recent: CachePadded<AtomicPtr<Record>>,
    /// After how many commits `recent` moves. A session that has missed fewer commits walks from its own last epoch, as
    /// in the published program.
    kept: u64,
    owns: PhantomData<Record>,
}

impl Drop for CommitList {
    fn drop(&mut self) {
        let mut at = self.recent.load(Ordering::Relaxed);
        while !at.is_null() {
            // SAFETY: records from `recent` on are boxes that are not retired; no other thread uses the list.
            at = unsafe { Box::from_raw(at) }.next.load(Ordering::Relaxed);
        }
    }
}

impl CommitList {
    pub(crate) fn new(kept: u64) -> Self {
        let record = Record::new(core::iter::empty());
        record.word.store(FIRST << EPOCH | FINISHED, Ordering::Relaxed);
        let recent = CachePadded::new(AtomicPtr::new(Box::into_raw(record)));
        Self { recent, kept: kept.max(1), owns: PhantomData }
    }

    /// Returns the moment after the latest commit, for a caller whose last moment was `last`.
    ///
    /// # Safety
    /// The caller is in a section of the list's domain.
    #[inline]
    pub(crate) unsafe fn now(&self, last: Moment) -> Moment {
        let recent = self.recent.load(Ordering::Acquire);
        // SAFETY: `recent` was not passed yet when it was read in this section, so it is not freed.
        let epoch = unsafe { &*recent }.epoch();
        let mut at = if last.epoch >= epoch { last } else { Moment { record: recent, epoch } };
        // SAFETY: `last` is not before `recent`, so it was not passed either.
        while let Some(next) = unsafe { at.next() } {
            at = next;
        }
        at
    }

    /// Decides a commit that was made on the snapshot at `from`. Returns its moment, or nothing if it conflicts with a
    /// commit after the snapshot. Then no walk has come to the record.
    ///
    /// # Safety
    /// `from` is of the caller's section. The record is a box, and is not in the list.
    pub(crate) unsafe fn append(&self, record: *mut Record, from: Moment) -> Option<Moment> {
        let mut at = from;
        loop {
            // SAFETY: the caller's promise.
            while let Some(next) = unsafe { at.next() } {
                // SAFETY: as above.
                if unsafe { (*next.record).conflicts(&*record) } {
                    return None;
                }
                at = next;
            }
            // SAFETY: as above. Release: walks that come to the record see it, and the versions that were put in their
            // chains before.
            let end = unsafe { &(*at.record).next };
            if end.compare_exchange(ptr::null_mut(), record, Ordering::Release, Ordering::Relaxed).is_ok() {
                return Some(Moment { record, epoch: at.epoch + 1 });
            }
        }
    }

    /// Ends the commit at this moment, whose versions have their epoch.
    ///
    /// # Safety
    /// The caller has appended the record in the section of `guard`, calls this once, and keeps no reference to the
    /// record afterwards. No version leads to the record.
    pub(crate) unsafe fn finish(&self, moment: Moment, guard: &Guard<'_>) {
        // SAFETY: not retired before this.
        let word = unsafe { &(*moment.record).word };
        // The epoch may be there already.
        let before = word.fetch_or(moment.epoch << EPOCH | FINISHED, Ordering::AcqRel);
        if before & PASSED != 0 {
            // SAFETY: `recent` has passed it, and the caller's promise: nothing leads to it.
            unsafe { guard.retire_box(moment.record) };
        } else if moment.epoch.is_multiple_of(self.kept) {
            // SAFETY: the caller's promise.
            unsafe { self.pass(moment, guard) };
        }
    }

    /// Moves `recent` to a moment, and gives up the records before it.
    ///
    /// # Safety
    /// The moment is of the section of `guard`.
    unsafe fn pass(&self, to: Moment, guard: &Guard<'_>) {
        let mut at = self.recent.load(Ordering::Acquire);
        loop {
            // SAFETY: as in `now`.
            if unsafe { &*at }.epoch() >= to.epoch {
                return;
            }
            // Release: what this thread has passed is seen by walks that begin here.
            match self.recent.compare_exchange(at, to.record, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => at = now,
            }
        }
        while at != to.record {
            // SAFETY: only the thread that has moved `recent` over a record marks the record as passed.
            let record = unsafe { &*at };
            let next = record.next.load(Ordering::Acquire);
            if record.word.fetch_or(PASSED, Ordering::AcqRel) & FINISHED != 0 {
                // SAFETY: the committer has finished, so no version leads to it; and `recent` is beyond it.
                unsafe { guard.retire_box(at) };
            }
            at = next;
        }
    }
}
