//! A transaction without the types of rows: what it has read and written, and its commit.
//!
//! # A commit
//! 1. Latch what is written, in the order of addresses. (Who waits for a latch holds only smaller addresses: no deadlock.)
//! 2. SeqCst fence; load the clock; SeqCst fence. The scheme judges what was read, and gaps are looked at again.
//! 3. Install all versions, unlatching record by record. No code of users runs from the first to the last of them.
//! 4. Afterwards, with nothing latched: retire what was replaced, take out records that are absent.
//!
//! Until 3 no version has been published, so that giving up is to free them.

use archipelago_platform::atomic::{Ordering, fence};
use archipelago_sync::rcu::Guard;
use rustc_hash::FxHashMap;

use crate::codec::Encoded;
use crate::epochs;
use crate::error::Error;
use crate::gap::Gap;
use crate::record::{self, Head, Latch, Record, Version};
use crate::scheme::{Conflict, Mode, Moment, Scheme};
use crate::shared::Shared;
use crate::tree::Tree;
use crate::writes::{Write, Writes};

/// What a transaction finds at a record.
pub(crate) enum Look<S: Scheme> {
    /// The record has been taken out: look the key up again.
    Dead,
    /// The version; null if a snapshot sees none.
    At(*mut Version<S>),
}

/// A record that a transaction has to do with, and its index. Both are there while the transaction is.
pub struct Place<S: Scheme> {
    pub(crate) record: *const Record<S>,
    pub(crate) tree: *const dyn Tree<S>,
}

impl<S: Scheme> Clone for Place<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Scheme> Copy for Place<S> {}

pub struct Work<'t, S: Scheme> {
    shared: &'t Shared<S>,
    guard: Guard<'t>,
    /// Of a transaction that reads a snapshot.
    snapshot: Option<u64>,
    /// The clock when it began.
    started: u64,
    arrival: u64,
    reads: Vec<(*const Record<S>, *mut Version<S>)>,
    gaps: Vec<Box<dyn Gap<S>>>,
    writes: Writes<S>,
    locks: FxHashMap<*const Record<S>, (Mode, Place<S>)>,
    /// The lock that was in the way.
    missed: Option<(*const Record<S>, Mode)>,
    /// Records that it keeps in their indexes, some of them several times.
    held: Vec<Place<S>>,
    /// Versions of its own that it replaced, with the write: for savepoints.
    undo: Vec<(usize, *mut Version<S>)>,
    /// Versions of its own that are not needed any more, but may have been lent.
    retained: Vec<*mut Version<S>>,
    doomed: bool,
}

impl<'t, S: Scheme> Work<'t, S> {
    pub(crate) fn begin(shared: &'t Shared<S>, with_snapshot: bool, arrival: u64) -> Self {
        let guard = shared.home().domain.pin();
        let snapshot = with_snapshot.then(|| shared.epochs.open());
        let started = shared.epochs.now();
        // With the fences of commits: see `scheme/tictoc.rs`.
        fence(Ordering::SeqCst);
        Self {
            shared,
            guard,
            snapshot,
            started,
            arrival,
            // One allocation for most transactions.
            reads: Vec::with_capacity(16),
            gaps: Vec::new(),
            writes: Writes::new(),
            locks: FxHashMap::default(),
            missed: None,
            held: Vec::new(),
            undo: Vec::new(),
            retained: Vec::new(),
            doomed: false,
        }
    }

    pub(crate) fn shared(&self) -> &'t Shared<S> {
        self.shared
    }

    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn doom<T>(&mut self) -> Result<T, Conflict> {
        self.doomed = true;
        Err(Conflict)
    }

    /// Says that nothing is done any more after a conflict.
    pub(crate) fn check(&self) -> Result<(), Conflict> {
        if self.doomed { Err(Conflict) } else { Ok(()) }
    }

    // ---- Reading and writing --------------------------------------------------------------------------------------

    /// Looks at a record, to read it or to write it.
    pub(crate) fn look(&mut self, place: Place<S>, mode: Mode) -> Result<Look<S>, Conflict> {
        self.check()?;
        if let Some(at) = self.writes.find(place.record) {
            return Ok(Look::At(self.writes[at].pending));
        }
        if let Some(snapshot) = self.snapshot {
            return self.look_back(place, mode, snapshot);
        }
        self.lock(place, mode)?;
        let head = self.head(place, mode);
        if head.is_dead() {
            return Ok(Look::Dead);
        }
        // Also of what is locked: the commit waits until the log has what it has read.
        self.reads.push((place.record, head.version()));
        Ok(Look::At(head.version()))
    }

    /// The head of a record; dead, or of one that stays in its index as long as the transaction lasts if that is to write it.
    ///
    /// One with a row needs no hold for it: who removes the row holds the record until a grace period after that, and our
    /// section is part of the period.
    fn head(&mut self, place: Place<S>, mode: Mode) -> Head<S> {
        // SAFETY: found in its index inside of the guard.
        let record = unsafe { &*place.record };
        let head = record.settled();
        // SAFETY: a head's version, inside of the guard.
        if mode == Mode::Share || head.is_dead() || !unsafe { &*head.version() }.is_absent() {
            return head;
        }
        record.hold();
        self.held.push(place);
        record.settled()
    }

    fn look_back(&mut self, place: Place<S>, mode: Mode, snapshot: u64) -> Result<Look<S>, Conflict> {
        let head = self.head(place, mode);
        if head.is_dead() {
            return Ok(Look::Dead);
        }
        // SAFETY: a settled head's version, inside of the guard; the snapshot is open.
        let seen = unsafe { epochs::visible(head.version(), snapshot) };
        // The first to commit wins.
        if mode == Mode::Exclude && seen != head.version() {
            return self.doom();
        }
        Ok(Look::At(seen))
    }

    /// Locks a record, if the scheme has locks.
    fn lock(&mut self, place: Place<S>, mode: Mode) -> Result<(), Conflict> {
        if !S::LOCKS {
            return Ok(());
        }
        let held = self.locks.get(&place.record).map(|lock| lock.0);
        if held.is_some_and(|held| held >= mode) {
            return Ok(());
        }
        // SAFETY: as in `look`.
        let taken = S::take(unsafe { &*place.record }, mode, held, self.arrival);
        if taken.is_err() {
            self.missed = Some((place.record, mode));
            return self.doom();
        }
        self.locks.insert(place.record, (mode, place));
        // With those that take records out: see `tree.rs`.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Writes `pending`, which becomes ours, over `seen`, which `look` has shown.
    pub(crate) fn stage(&mut self, place: Place<S>, seen: *mut Version<S>, pending: *mut Version<S>) {
        match self.writes.find(place.record) {
            Some(at) => {
                self.undo.push((at, self.writes[at].pending));
                self.writes[at].pending = pending;
            }
            None => self.writes.push(Write { place, seen, pending }),
        }
    }

    /// Takes over a hold on a record.
    pub(crate) fn note_held(&mut self, place: Place<S>) {
        self.held.push(place);
    }

    /// Notes what was found to be absent. Snapshots need no such notes.
    pub(crate) fn note_gap(&mut self, gap: impl FnOnce() -> Box<dyn Gap<S>>) {
        if self.snapshot.is_none() {
            self.gaps.push(gap());
        }
    }

    /// A place to roll back to.
    pub(crate) fn mark(&self) -> (usize, usize) {
        (self.writes.len(), self.undo.len())
    }

    /// Forgets what was written since `mark`. What was read and locked stays so.
    pub(crate) fn roll_back_to(&mut self, (writes, undo): (usize, usize)) {
        while self.undo.len() > undo {
            let (at, before) = self.undo.pop().expect("there are more");
            self.retained.push(core::mem::replace(&mut self.writes[at].pending, before));
        }
        while let Some(write) = self.writes.pop_above(writes) {
            self.retained.push(write.pending);
        }
    }

    // ---- What schemes judge by ------------------------------------------------------------------------------------

    /// What was read of committed versions.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (&Record<S>, &Version<S>)> {
        // SAFETY: both are alive inside of the guard.
        self.reads.iter().map(|&(record, seen)| unsafe { (&*record, &*seen) })
    }

    /// The versions that its own replace, and their indexes' gaps.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = (&Version<S>, &S::Gap)> {
        // SAFETY: as in `reads`; the first version that `look` shows of a record to be written is not null but in snapshots,
        // where `latch` has put the head's.
        self.writes.iter().filter(|write| !write.seen.is_null()).map(|w| unsafe { (&*w.seen, (*w.place.tree).gap()) })
    }

    /// The indexes in which something was absent.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = &S::Gap> {
        self.gaps.iter().map(|gap| gap.tree().gap())
    }

    pub(crate) fn owns(&self, record: &Record<S>) -> bool {
        self.writes.find(record).is_some()
    }

    /// Returns whether a record's head is what was seen, and no other transaction has latched it. The latch of what this one
    /// writes is its own only at its commit: before, when an error is judged, it is another's.
    pub(crate) fn is_current(&self, record: &Record<S>, seen: &Version<S>, latched: bool) -> bool {
        let head = record.head();
        let same = !head.is_dead() && core::ptr::eq(head.version(), seen);
        same && (!head.is_latched() || (latched && self.owns(record)))
    }

    /// Returns whether what was absent still is, and may be by what the scheme knows of `stamp`.
    pub(crate) fn gaps_hold(&self, stamp: u64, latched: bool) -> bool {
        let mut fresh = |record: &Record<S>| {
            let head = record.head();
            // SAFETY: a head's version inside of the guard.
            let version = unsafe { &*head.version() };
            // What it writes itself must have an origin, too: another may have come first after the look that found nothing.
            let may = || (latched && self.owns(record)) || (!head.is_latched() && S::admits(version, stamp));
            head.is_dead() || (version.is_origin() && may())
        };
        self.gaps.iter().all(|gap| gap.holds(&mut fresh))
    }

    // ---- The end --------------------------------------------------------------------------------------------------

    /// Returns whether what was read goes together: an error or a panic of the user's may be told only then.
    pub(crate) fn is_sound(&self) -> bool {
        let moment = Moment { epoch: self.shared.epochs.now(), latched: false };
        !self.doomed && (self.snapshot.is_some() || S::judge(self, moment).is_ok())
    }

    /// What the log is to have of the transaction: nothing without a log, or if it writes to no table that is logged. Runs
    /// users' code, with nothing latched.
    fn encode(&self) -> Option<Encoded> {
        self.shared.log()?;
        let mut encoded = Encoded::default();
        for (number, write) in self.writes.iter().enumerate() {
            // SAFETY: alive inside of the guard; the pending version is ours.
            let (record, tree) = unsafe { (&*write.place.record, &*write.place.tree) };
            // SAFETY: as above.
            if let Some(at) = unsafe { tree.encode(record, write.pending, &mut encoded.bytes) } {
                encoded.serials.push((number, at));
            }
        }
        (!encoded.serials.is_empty()).then_some(encoded)
    }

    /// The last epoch from which the transaction has read something; of absent keys at least that.
    fn newest_read(&self) -> u64 {
        let rows = self.reads().map(|(_, seen)| seen.begin.load(Ordering::Relaxed));
        let gaps = self.gaps.iter().map(|gap| gap.tree().gone().epoch.load(Ordering::Relaxed));
        rows.chain(gaps).chain(self.snapshot).max().unwrap_or(0)
    }

    /// Commits; returns the epoch that has to be durable before the transaction is acknowledged. After an error nothing has been
    /// changed.
    pub(crate) fn commit(mut self) -> Result<u64, Error> {
        self.check()?;
        if self.writes.is_empty() {
            return if self.is_sound() { Ok(self.newest_read()) } else { Err(Error::Conflict) };
        }
        // The order of latches. What is to be undone is told by numbers, but nothing is any more.
        self.writes.sort();
        // Before it says that it is committing: who ends an epoch waits for those that are, and may itself hold locks.
        if S::LOCKS && self.snapshot.is_some() {
            for place in self.writes.iter().map(|write| write.place).collect::<Vec<_>>() {
                self.lock(place, Mode::Exclude)?;
            }
        }
        let encoded = self.encode();
        // Until the log has it. From before the epoch is loaded.
        let committing = encoded.is_some().then(|| self.shared.step_up());
        let mut done = Done { dropped: Vec::with_capacity(self.writes.len()), removed: Vec::new() };
        let epoch;
        {
            let latched = self.latch()?;
            fence(Ordering::SeqCst);
            epoch = self.shared.epochs.now();
            fence(Ordering::SeqCst);
            let stamp = S::judge(&self, Moment { epoch, latched: true })?;
            if let (Some(log), Some(encoded)) = (self.shared.log(), encoded) {
                // The last step that can fail. Before anything can be read by others, so that what they commit in this epoch or
                // a later one is never durable without it.
                log.append(epoch, &self.numbered(encoded))?;
                drop(committing);
            }
            // From here on the versions are the records', and not this transaction's to free.
            self.writes.clear();
            for (place, pending, latch) in latched.into_install() {
                self.install((place, pending, latch), (epoch, stamp), &mut done);
            }
        }
        self.settle(done);
        Ok(epoch)
    }

    /// Gives the versions that are logged their serials, with all latched.
    fn numbered(&self, mut encoded: Encoded) -> Vec<u8> {
        for (number, at) in core::mem::take(&mut encoded.serials) {
            let write = &self.writes[number];
            // SAFETY: the latched head's version and our own, inside of the guard.
            let (seen, pending, tree) = unsafe { (&*write.seen, &*write.pending, &*write.place.tree) };
            let mut before = seen.serial.load(Ordering::Relaxed);
            if seen.is_origin() {
                before = before.max(tree.gone().serial.load(Ordering::Relaxed));
            }
            pending.serial.store(before + 1, Ordering::Relaxed);
            encoded.set(at, before + 1);
        }
        encoded.bytes
    }

    /// Latches what is written, and sees whether it is what it was.
    fn latch(&mut self) -> Result<Latched<'t, S>, Conflict> {
        let mut latched = Latched(Vec::with_capacity(self.writes.len()));
        for write in &mut *self.writes {
            // SAFETY: alive inside of the guard, which ends after the latch.
            let latch = unsafe { &*write.place.record }.latch().ok_or(Conflict)?;
            // SAFETY: a latched head's version.
            let head = unsafe { &*latch.version() };
            let holds = match self.snapshot {
                Some(snapshot) => head.begin.load(Ordering::Relaxed) <= snapshot,
                None => core::ptr::eq(head, write.seen),
            };
            write.seen = latch.version();
            S::freeze(head);
            latched.0.push((write.place, write.pending, latch));
            if !holds {
                return Err(Conflict);
            }
        }
        Ok(latched)
    }

    /// Installs and unlatches one version.
    fn install(&self, (place, pending, mut latch): Written<'_, S>, (epoch, stamp): (u64, u64), done: &mut Done<S>) {
        // SAFETY: ours, and not published yet.
        let version = unsafe { &*pending };
        version.begin.store(epoch, Ordering::Relaxed);
        S::stamp(version, stamp);
        if version.is_absent() {
            latch.record().hold();
            done.removed.push(place);
        }
        latch.install(pending);
        self.shared.epochs.prune(&latch, place.tree, &mut done.dropped);
        archipelago_platform::hint::point("txn::installed");
    }

    /// What is left to do after a commit, with nothing latched. Runs users' destructors, whose panics end there.
    fn settle(&mut self, Done { dropped, removed }: Done<S>) {
        // SAFETY: they were taken out of their chains under latches.
        dropped.into_iter().for_each(|version| unsafe { record::retire(&self.guard, version) });
        for place in removed {
            // SAFETY: the record was latched inside of the guard, and is held for it.
            unsafe { (*place.tree).unlink_later(&*place.record, &self.guard) };
        }
    }
}

/// What a commit leaves to do: versions to retire, and records to take out.
struct Done<S: Scheme> {
    dropped: Vec<*mut Version<S>>,
    removed: Vec<Place<S>>,
}

/// A record that is written, its new version, and its latch.
type Written<'r, S> = (Place<S>, *mut Version<S>, Latch<'r, S>);

/// What is written, latched and frozen; given up by drop.
struct Latched<'r, S: Scheme>(Vec<Written<'r, S>>);

impl<'r, S: Scheme> Latched<'r, S> {
    fn into_install(mut self) -> Vec<Written<'r, S>> {
        core::mem::take(&mut self.0)
    }
}

impl<S: Scheme> Drop for Latched<'_, S> {
    fn drop(&mut self) {
        // SAFETY: versions of latched heads.
        self.0.iter().for_each(|(_, _, latch)| S::thaw(unsafe { &*latch.version() }));
    }
}

impl<S: Scheme> Drop for Work<'_, S> {
    /// Rolls back what was not committed, and lets go of the rest.
    fn drop(&mut self) {
        let own = self.writes.iter().map(|write| write.pending).chain(self.undo.iter().map(|undo| undo.1));
        // SAFETY: none of them was published, and the closure to which they were lent has ended.
        own.chain(self.retained.iter().copied()).for_each(|version| unsafe { record::free(version) });
        for (&record, &(mode, _)) in &self.locks {
            // SAFETY: alive inside of the guard.
            S::release(unsafe { &*record }, mode, self.arrival);
        }
        // SAFETY: as above.
        self.held.iter().for_each(|place| unsafe { &*place.record }.let_go());
        let locked = self.locks.values().map(|lock| lock.1);
        for place in self.held.iter().copied().chain(locked) {
            // SAFETY: as above.
            unsafe { (*place.tree).unlink(&*place.record, &self.guard) };
        }
        if let Some(snapshot) = self.snapshot {
            self.shared.close(snapshot);
        }
        if let Some((record, mode)) = self.missed {
            // SAFETY: as above.
            S::linger(unsafe { &*record }, mode, self.arrival);
        }
    }
}
