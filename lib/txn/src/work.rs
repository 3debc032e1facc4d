//! A transaction without the types of rows: its reads, its writes, and its commit.
//!
//! # A commit
//! 1. Latch the records that are written, in the order of addresses. A latch is a short lock in the record's head. A
//!    thread that waits for a latch holds only latches of smaller addresses, so there is no deadlock.
//! 2. SeqCst fence; load the clock; SeqCst fence (`Epochs::enter`). The scheme validates the reads, and gaps are looked
//!    up again. Then the log, if there is one, gets the transaction's record.
//! 3. Install all versions, unlatching record by record. No users' code runs from the first installation to the last.
//! 4. Afterwards, with no latch held: release locks and holds, unlink records of absent keys, and retire replaced
//!    versions. Unlinking and retiring run destructors of rows, so they come after all that another transaction may
//!    wait for has been released.
//!
//! Before step 3 no version is published, so a failed commit only frees its versions. MV-RLU differs: it links versions
//! before it validates (`scheme/mvrlu.rs`).

use core::cell::Cell;
use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};

use archipelago_platform::atomic::Ordering;
use archipelago_platform::thread;
use archipelago_sync::rcu::Guard;
use rustc_hash::FxHashMap;

use crate::codec::Encoded;
use crate::epochs::Needs;
use crate::error::Error;
use crate::gap::Gap;
use crate::memory::Memory;
use crate::record::{self, Head, Latch, Record, Version};
use crate::scheme::{Conflict, Mode, Moment, Scheme};
use crate::shared::{Inside, Shared};
use crate::tree::Tree;
use crate::writes::{Write, Writes};

/// The result of a transaction's access to a record.
pub(crate) enum Look<S: Scheme> {
    /// The record has been unlinked from its index.
    Dead,
    /// The version that the transaction sees; null if it reads a snapshot that sees no version.
    At(*mut Version<S>),
}

/// A record that a transaction uses, and its index. Both outlive the transaction.
pub struct RecordRef<S: Scheme> {
    pub(crate) record: *const Record<S>,
    pub(crate) tree: *const dyn Tree<S>,
}

impl<S: Scheme> Clone for RecordRef<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Scheme> Copy for RecordRef<S> {}

pub struct Work<'t, S: Scheme> {
    shared: &'t Shared<S>,
    pub(crate) guard: Guard<'t>,
    /// The moment as of which the transaction reads, if it reads a snapshot.
    snapshot: Option<u64>,
    /// The clock's value when the transaction began. Only schemes with `BACKDATES` use it: their commits may precede,
    /// in the serialization order, commits that they have not seen.
    started: u64,
    arrival: u64,
    reads: Vec<(*const Record<S>, *mut Version<S>)>,
    gaps: Vec<Box<dyn Gap<S>>>,
    pub(crate) writes: Writes<S>,
    /// Whether the versions that the transaction has written now belong to the records, so that the transaction must
    /// not free them.
    handed_over: bool,
    /// The position of a record's lock in `locked`.
    locks: FxHashMap<*const Record<S>, usize>,
    /// The locks, in the order in which they were taken and are released. The order of `locks` depends on addresses, so
    /// equal simulations would differ.
    locked: Vec<(Mode, RecordRef<S>)>,
    /// The record because of which this transaction has to be retried, and the mode in which the transaction uses it.
    /// Before the retry, the thread waits for a bounded time until the record is available in this mode.
    missed: Cell<Option<(*const Record<S>, Mode)>>,
    /// Records that the transaction's holds keep in their indexes. A record may occur several times.
    held: Vec<RecordRef<S>>,
    /// Pending (uncommitted) versions that later writes of this transaction replaced, each with its position in
    /// `writes`. Savepoints restore them.
    undo: Vec<(usize, *mut Version<S>)>,
    /// Pending versions that are no longer needed, but to which the closure may have references.
    retained: Vec<*mut Version<S>>,
    doomed: bool,
    /// Whether a step has met the limit on memory.
    full: bool,
    /// Whether the transaction is serializable. If so, its commit validates the reads (in multi-version schemes only if
    /// the transaction writes).
    validates: bool,
    /// A record whose version the transaction has read and another transaction has replaced since. The transaction may
    /// still end, but must not write.
    stale: Option<*const Record<S>>,
    /// The latest epoch on which reads depend. In multi-version schemes it covers all reads. In the other schemes it
    /// covers only reads of records to which nothing was committed yet: the epochs of other reads are in the versions
    /// that `reads` notes.
    newest: u64,
    /// Records that only this transaction may write, in multi-version schemes.
    owned: Vec<*const Record<S>>,
    /// What a commit has left for the transaction's end.
    done: Done<S>,
    /// Marks the thread as being in a transaction.
    inside: Option<Inside<'t>>,
}

impl<'t, S: Scheme> Work<'t, S> {
    /// # Panics
    /// If the thread is already in a transaction of the database.
    pub(crate) fn begin(shared: &'t Shared<S>, with_snapshot: bool, arrival: u64) -> Self {
        let inside = shared.step_inside();
        let guard = shared.home().domain.pin();
        let epochs = shared.epochs();
        let snapshot = if S::VERSIONS { Some(epochs.begin()) } else { with_snapshot.then(|| epochs.open()) };
        let started = if S::BACKDATES { epochs.settled_now() } else { 0 };
        Self {
            shared,
            guard,
            snapshot,
            started,
            arrival,
            // The capacity suffices for most transactions without a second allocation.
            reads: Vec::with_capacity(16),
            gaps: Vec::new(),
            writes: Writes::new(),
            handed_over: false,
            locks: FxHashMap::default(),
            locked: Vec::new(),
            missed: Cell::new(None),
            held: Vec::new(),
            undo: Vec::new(),
            retained: Vec::new(),
            doomed: false,
            full: false,
            validates: !with_snapshot,
            stale: None,
            newest: 0,
            owned: Vec::new(),
            done: Done::default(),
            inside: Some(inside),
        }
    }

    pub(crate) fn shared(&self) -> &'t Shared<S> {
        self.shared
    }

    /// Returns whether the transaction has noted reads or gaps, which the commit has to validate.
    pub(crate) fn validates(&self) -> bool {
        !(self.reads.is_empty() && self.gaps.is_empty())
    }

    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn doom<T>(&mut self) -> Result<T, Conflict> {
        self.doomed = true;
        Err(Conflict)
    }

    /// Fails if an earlier step met a conflict.
    pub(crate) fn check(&self) -> Result<(), Conflict> {
        if self.doomed { Err(Conflict) } else { Ok(()) }
    }

    pub(crate) fn memory(&self) -> &'t Memory {
        &self.shared.home().memory
    }

    /// Fails if the limit on memory is reached.
    pub(crate) fn check_room(&mut self) -> Result<(), Error> {
        self.check()?;
        if self.memory().is_full() {
            self.full = true;
            return Err(Error::Full);
        }
        Ok(())
    }

    /// Returns whether a step has met the limit on memory.
    pub(crate) fn was_full(&self) -> bool {
        self.full
    }

    // ---- Reading and writing --------------------------------------------------------------------------------------

    /// Accesses a record, to read it or to write it.
    pub(crate) fn look(&mut self, place: RecordRef<S>, mode: Mode) -> Result<Look<S>, Conflict> {
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
        // Reads of locked records are noted, too: before the transaction is acknowledged, the log must have the
        // versions that it has read.
        self.reads.push((place.record, head.version()));
        // SAFETY: a head's version, inside of the guard.
        if unsafe { &*head.version() }.is_origin() {
            self.newest = self.newest.max(gone(place));
        }
        Ok(Look::At(head.version()))
    }

    /// Returns a record's head. If the transaction is to write the record and the head is not dead, the record stays in
    /// its index until the transaction's end.
    ///
    /// A record with a row needs no hold. If another transaction removes the row, the removal holds the record until a
    /// grace period after its commit. This grace period does not end before this transaction's section.
    fn head(&mut self, place: RecordRef<S>, mode: Mode) -> Head<S> {
        // SAFETY: found in its index inside of the guard.
        let record = unsafe { &*place.record };
        let head = record.to_read();
        // SAFETY: a head's version, inside of the guard.
        if mode == Mode::Share || head.is_dead() || !unsafe { &*head.version() }.is_absent() {
            return head;
        }
        // A record that this transaction has just linked is held already.
        if self.held.last().is_none_or(|held| !core::ptr::eq(held.record, place.record)) {
            record.hold();
            self.held.push(place);
        }
        // The call waits for the latch of a thread that unlinks the record, also in schemes whose readers do not wait
        // for latches: see `tree.rs`.
        record.settled()
    }

    fn look_back(&mut self, place: RecordRef<S>, mode: Mode, snapshot: u64) -> Result<Look<S>, Conflict> {
        self.own(place, mode)?;
        let head = self.head(place, mode);
        if head.is_dead() {
            return Ok(Look::Dead);
        }
        // SAFETY: a head's version, inside of the guard; the snapshot is open.
        let seen = unsafe { self.shared.epochs().visible(head.version(), snapshot) };
        // The first to commit wins.
        if mode == Mode::Exclude && seen != head.version() {
            return self.doom();
        }
        if S::VERSIONS {
            self.note_read(place, mode, (seen, seen == head.version()), snapshot);
        }
        Ok(Look::At(seen))
    }

    /// Notes a version that the commit has to validate. If the transaction owns the record, no note is needed: no other
    /// transaction can replace the version.
    fn note_read(&mut self, place: RecordRef<S>, mode: Mode, (seen, is_newest): (*mut Version<S>, bool), moment: u64) {
        // SAFETY: seen inside of the guard.
        let committed = unsafe { seen.as_ref() }.filter(|seen| !seen.is_origin());
        // The transaction sees only stamps up to its moment. So the moment is an upper bound if the stamp is not in the
        // version yet (`mvrlu.rs`), and for the stamp of a removal.
        let needs = committed.map_or_else(|| gone(place), Version::needs).min(moment);
        self.newest = self.newest.max(needs);
        if self.validates && is_newest && mode == Mode::Share {
            self.reads.push((place.record, seen));
        }
        if self.validates && !is_newest {
            self.stale = Some(place.record);
        }
    }

    /// In multi-version schemes, makes sure that no other transaction writes the record before this one ends. Fails if
    /// another transaction owns the record.
    fn own(&mut self, place: RecordRef<S>, mode: Mode) -> Result<(), Conflict> {
        if !S::VERSIONS || mode == Mode::Share {
            return Ok(());
        }
        // SAFETY: as in `head`.
        match unsafe { &*place.record }.own(thread::slot().index as u32 + 1) {
            Ok(true) => self.owned.push(place.record),
            Ok(false) => {}
            Err(Conflict) => {
                self.missed.set(Some((place.record, mode)));
                return self.doom();
            }
        }
        Ok(())
    }

    /// Locks a record, if the scheme has locks.
    fn lock(&mut self, place: RecordRef<S>, mode: Mode) -> Result<(), Conflict> {
        if !S::LOCKS {
            return Ok(());
        }
        let at = self.locks.get(&place.record).copied();
        let held = at.map(|at| self.locked[at].0);
        if held.is_some_and(|held| held >= mode) {
            return Ok(());
        }
        // SAFETY: as in `look`.
        let taken = S::take(unsafe { &*place.record }, mode, held, self.arrival);
        if taken.is_err() {
            self.missed.set(Some((place.record, mode)));
            return self.doom();
        }
        match at {
            Some(at) => self.locked[at].0 = mode,
            None => {
                self.locks.insert(place.record, self.locked.len());
                self.locked.push((mode, place));
            }
        }
        Ok(())
    }

    /// Notes the write of `pending`, which the transaction then owns, over `seen`, which `look` returned.
    pub(crate) fn stage(&mut self, place: RecordRef<S>, seen: *mut Version<S>, pending: *mut Version<S>) {
        match self.writes.find(place.record) {
            Some(at) => {
                self.undo.push((at, self.writes[at].pending));
                self.writes[at].pending = pending;
            }
            None => self.writes.push(Write { place, seen, pending }),
        }
    }

    /// Takes over a hold on a record.
    pub(crate) fn note_held(&mut self, place: RecordRef<S>) {
        self.held.push(place);
    }

    /// Notes a gap. Transactions that read a snapshot need no such notes.
    pub(crate) fn note_gap(&mut self, gap: impl FnOnce() -> Box<dyn Gap<S>>) {
        if self.validates {
            self.gaps.push(gap());
        }
    }

    /// Returns a position to which the transaction can be rolled back.
    pub(crate) fn mark(&self) -> (usize, usize) {
        (self.writes.len(), self.undo.len())
    }

    /// Undoes the writes since `mark`. Reads and locks stay.
    pub(crate) fn roll_back_to(&mut self, (writes, undo): (usize, usize)) {
        while self.undo.len() > undo {
            let (at, before) = self.undo.pop().expect("there are more");
            self.retained.push(core::mem::replace(&mut self.writes[at].pending, before));
        }
        while let Some(write) = self.writes.pop_above(writes) {
            self.retained.push(write.pending);
        }
    }

    // ---- What schemes validate ------------------------------------------------------------------------------------

    /// Returns the committed versions that were read, with their records.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (&Record<S>, &Version<S>)> {
        // SAFETY: both are alive inside of the guard.
        self.reads.iter().map(|&(record, seen)| unsafe { (&*record, &*seen) })
    }

    /// Returns the versions that the transaction replaces, and the scheme's data about gaps of their indexes.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = (&Version<S>, &S::Gap)> {
        // SAFETY: as in `reads`. `look` returns null for the first version of a record to be written only in
        // transactions that read a snapshot. For these transactions `latch` has stored the head's version.
        self.writes.iter().filter(|write| !write.seen.is_null()).map(|w| unsafe { (&*w.seen, (*w.place.tree).gap()) })
    }

    /// Returns the scheme's data about gaps of the indexes in which keys were absent.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = &S::Gap> {
        self.gaps.iter().map(|gap| gap.tree().gap())
    }

    pub(crate) fn owns(&self, record: &Record<S>) -> bool {
        self.writes.find(record).is_some()
    }

    /// Returns whether a record's head is the version `seen`, and no other transaction has latched it. During this
    /// transaction's commit, a latch on a record that it writes is its own. When the reads of a failed closure are
    /// validated, such a latch is another transaction's.
    pub(crate) fn is_current(&self, record: &Record<S>, seen: &Version<S>, latched: bool) -> bool {
        let head = record.head();
        let same = !head.is_dead() && core::ptr::eq(head.version(), seen);
        same && (!head.is_latched() || (latched && self.owns(record)))
    }

    /// Notes the record of a conflict: a retry before the record's owner has ended would conflict again.
    pub(crate) fn note_missed(&self, record: &Record<S>) {
        self.missed.set(Some((record, Mode::Share)));
    }

    /// Returns whether the gaps are still empty, and whether the scheme allows them with `stamp`.
    pub(crate) fn gaps_hold(&self, stamp: u64, moment: Moment) -> bool {
        let latched = moment.latched;
        let mut fresh = |record: &Record<S>| {
            // In schemes that link, latches are short, and this commit holds none.
            let head = if S::LINKS { record.settled() } else { record.head() };
            // SAFETY: a head's version inside of the guard.
            let version = unsafe { &*head.version() };
            // The head must be an origin even if this transaction writes the record: another transaction may have
            // committed to the record after this one found the key absent.
            let may = || (latched && self.owns(record)) || (!head.is_latched() && S::admits(version, stamp));
            // If this commit has linked a version at the record, the check was made when the transaction became the
            // record's owner.
            let linked = || S::LINKS && latched && self.owns(record);
            let under = || S::under(version, moment, self.shared.epochs()).is_some_and(Version::is_origin);
            let is = head.is_dead() || (version.is_origin() && may()) || linked() || under();
            if !is {
                self.note_missed(record);
            }
            is
        };
        self.gaps.iter().all(|gap| gap.holds(&mut fresh))
    }

    // ---- The end --------------------------------------------------------------------------------------------------

    /// Returns whether the reads are consistent. Only then may an error or a panic of the closure be reported.
    pub(crate) fn is_sound(&self) -> bool {
        let moment = Moment { epoch: self.shared.epochs().now(), rank: 0, latched: false };
        !self.doomed && (self.snapshot.is_some() || S::judge(self, moment).is_ok())
    }

    /// Returns the transaction's log record; `None` without a log, or if it writes to no logged table. Runs users'
    /// code, while the transaction holds no latch.
    fn encode(&self) -> Option<Encoded> {
        self.shared.log()?;
        let mut encoded = Encoded::default();
        for (number, write) in self.writes.iter().enumerate() {
            // SAFETY: both are alive inside of the guard; the pending version belongs to this transaction.
            let (record, tree) = unsafe { (&*write.place.record, &*write.place.tree) };
            // SAFETY: as above.
            if let Some(at) = unsafe { tree.encode(record, write.pending, &mut encoded.bytes) } {
                encoded.serials.push((number, at));
            }
        }
        (!encoded.serials.is_empty()).then_some(encoded)
    }

    /// Returns the latest epoch on which the versions that the transaction has read depend. For absent keys, an upper
    /// bound is used.
    fn newest_read(&self) -> u64 {
        let rows = self.reads().map(|(_, seen)| seen.needs());
        let gaps = self.gaps.iter().map(|gap| gap.tree().gone().epoch.load(Ordering::Relaxed));
        // Transactions that are not validated have noted no gaps.
        let moment = self.snapshot.filter(|_| !self.validates);
        let rows = if S::VERSIONS { 0 } else { rows.max().unwrap_or(0) };
        gaps.chain(moment).fold(rows.max(self.newest), u64::max)
    }

    /// Commits. Returns the epoch that has to be durable before the transaction is acknowledged. After an error nothing
    /// has changed.
    pub(crate) fn commit(mut self) -> Result<u64, Error> {
        self.check()?;
        if self.writes.is_empty() {
            return if self.is_sound() { Ok(self.newest_read()) } else { Err(Error::Conflict) };
        }
        if let Some(record) = self.stale {
            // The transaction that linked the replacing version may still run. The retry waits, for a bounded time, for
            // that transaction's end.
            // SAFETY: alive inside of the guard.
            self.note_missed(unsafe { &*record });
            return Err(Error::Conflict);
        }
        // Latches are taken in this order. Sorting invalidates the numbers in `undo`, which is not needed any more.
        self.writes.sort();
        // The locks are requested before the commit announces itself. A thread that ends an epoch waits for announced
        // commits, and may itself hold locks; so an announced commit must not wait for locks.
        if S::LOCKS && self.snapshot.is_some() {
            for place in self.writes.iter().map(|write| write.place).collect::<Vec<_>>() {
                self.lock(place, Mode::Exclude)?;
            }
        }
        let encoded = match catch_unwind(AssertUnwindSafe(|| self.encode())) {
            Ok(encoded) => encoded,
            // Rows that were computed from inconsistent reads may break the invariants on which the encoding relies.
            Err(panic) if self.is_sound() => resume_unwind(panic),
            Err(_) => return Err(Error::Conflict),
        };
        // Nothing of an unlogged transaction becomes durable, so it depends only on what it has read.
        let unlogged = encoded.is_none() && self.shared.log().is_some();
        let needs = unlogged.then(|| self.newest_read());
        if let Some(needs) = needs {
            // SAFETY: the pending versions are this transaction's, and are not published yet.
            self.writes.iter().for_each(|write| unsafe { &*write.pending }.depend(needs));
        }
        // The announcement lasts from before the load of the epoch until the log has the record.
        let committing = encoded.is_some().then(|| self.shared.step_up());
        let mut done = Done { dropped: Vec::with_capacity(self.writes.len()), ..Done::default() };
        let epoch = S::install(&mut self, encoded, &mut done);
        drop(committing);
        self.leave(done);
        epoch.map(|epoch| needs.unwrap_or(epoch))
    }

    /// Latches, validates, logs and installs. Returns the epoch. After an error nothing is published.
    pub(crate) fn install_latched(&mut self, encoded: Option<Encoded>, done: &mut Done<S>) -> Result<u64, Error> {
        let latched = self.latch()?;
        let epoch = self.shared.epochs().enter();
        let stamp = S::judge(self, Moment { epoch, rank: 0, latched: true })?;
        // The last step that can fail. It precedes all publication, so that a transaction that reads these writes, and
        // commits in this epoch or a later one, is never durable without them.
        self.log(epoch, encoded)?;
        self.hand_over();
        for (place, pending, latch) in latched.into_install() {
            self.install((place, pending, latch), (epoch, stamp), done);
        }
        Ok(epoch)
    }

    /// Passes the written versions to the records: from here on the transaction does not free them.
    pub(crate) fn hand_over(&mut self) {
        self.handed_over = true;
    }

    /// Appends the transaction's log record, if it has one, to the log.
    pub(crate) fn log(&self, epoch: u64, encoded: Option<Encoded>) -> Result<(), Error> {
        match (self.shared.log(), encoded) {
            (Some(log), Some(encoded)) => log.append(epoch, &self.numbered(encoded)),
            _ => Ok(()),
        }
    }

    /// Sets the serials of logged versions, while all records are latched.
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

    /// Latches the written records, and checks that their heads have not changed.
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
        // SAFETY: the version belongs to this transaction, and is not published yet.
        let version = unsafe { &*pending };
        version.begin.store(epoch, Ordering::Relaxed);
        S::stamp(version, stamp);
        if version.is_absent() || S::VERSIONS {
            latch.hold();
            done.later.push(place);
        }
        latch.install(pending);
        self.prune(&latch, place, done);
        archipelago_platform::hint::point("txn::installed");
    }

    /// Prunes a chain to which a version was added.
    ///
    /// In multi-version schemes pruning runs after a grace period. A long transaction delays grace periods. So if a
    /// chain has become long, versions that no running transaction needs are pruned from it at once.
    pub(crate) fn prune(&self, latch: &Latch<'_, S>, place: RecordRef<S>, done: &mut Done<S>) {
        let epochs = self.shared.epochs();
        if !S::VERSIONS {
            epochs.prune(latch, place.tree, &Needs::above(u64::MAX), &mut done.dropped);
        } else if is_long(latch) {
            epochs.prune(latch, place.tree, &epochs.needs(), &mut done.dropped);
        }
    }

    /// Leaves the remaining work of a commit for the transaction's end.
    pub(crate) fn leave(&mut self, done: Done<S>) {
        self.done = done;
    }

    /// Does the remaining work of a commit. Runs users' destructors, whose panics are caught.
    fn settle(&mut self) {
        let Done { dropped, later } = core::mem::take(&mut self.done);
        // SAFETY: the versions were unlinked from their chains under latches.
        dropped.into_iter().for_each(|version| unsafe { record::retire(&self.guard, version, self.memory()) });
        for place in later {
            // SAFETY: the record was latched inside of the guard, and the commit took a hold on it for this call.
            unsafe { (*place.tree).unlink_later(&*place.record, &self.guard) };
        }
    }
}

/// For a record to which nothing was committed yet: returns an epoch on which the absence of the key depends. If the
/// key had a record before, the removal of its row was committed to that record, and is durable when this epoch is.
fn gone<S: Scheme>(place: RecordRef<S>) -> u64 {
    // SAFETY: the index outlives the transaction.
    unsafe { &*place.tree }.gone().epoch.load(Ordering::Relaxed)
}

/// The work that a commit leaves for its end: versions to retire, and records to prune or unlink after a grace period.
pub struct Done<S: Scheme> {
    pub(crate) dropped: Vec<*mut Version<S>>,
    pub(crate) later: Vec<RecordRef<S>>,
}

/// A chain with more versions than this is long.
const LONG: usize = 8;

fn is_long<S: Scheme>(latch: &Latch<'_, S>) -> bool {
    // SAFETY: versions in the chain are alive, and only the latch's holder takes them out.
    let older =
        |version: &*mut Version<S>| unsafe { version.as_ref() }.map(|version| version.older.load(Ordering::Relaxed));
    core::iter::successors(Some(latch.version()), older).take_while(|version| !version.is_null()).nth(LONG).is_some()
}

/// A record that is written, its new version, and its latch.
type Written<'r, S> = (RecordRef<S>, *mut Version<S>, Latch<'r, S>);

/// The written records, latched, their replaced versions frozen. Dropping the value thaws the versions and unlatches
/// the records.
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

impl<S: Scheme> Default for Done<S> {
    fn default() -> Self {
        Self { dropped: Vec::new(), later: Vec::new() }
    }
}

impl<S: Scheme> Drop for Work<'_, S> {
    /// Releases locks, holds and ownership, and ends the transaction. Only then are versions freed that were not
    /// committed, and replaced versions retired: this runs destructors of rows, which may use the database or wait for
    /// another thread.
    fn drop(&mut self) {
        for &(mode, place) in &self.locked {
            // SAFETY: alive inside of the guard.
            S::release(unsafe { &*place.record }, mode, self.arrival);
        }
        // SAFETY: as above.
        self.held.iter().for_each(|place| unsafe { &*place.record }.let_go());
        // SAFETY: as above.
        self.owned.iter().for_each(|&record| unsafe { &*record }.disown());
        if S::VERSIONS {
            self.shared.epochs().end();
        }
        self.inside = None;
        let locked = self.locked.iter().map(|lock| lock.1);
        for place in self.held.iter().copied().chain(locked) {
            // SAFETY: as above.
            unsafe { (*place.tree).unlink(&*place.record, &self.guard) };
        }
        if let Some(snapshot) = self.snapshot.filter(|_| !S::VERSIONS) {
            self.shared.close(snapshot);
        }
        let written = if self.handed_over { &[] } else { &*self.writes };
        let own = written.iter().map(|write| write.pending).chain(self.undo.iter().map(|undo| undo.1));
        // SAFETY: none of them was published, and the closure, which may have had references to them, has ended.
        own.chain(self.retained.iter().copied()).for_each(|version| unsafe { record::free(version, self.memory()) });
        self.settle();
        if let Some((record, mode)) = self.missed.get() {
            // SAFETY: as above.
            S::linger(unsafe { &*record }, mode, self.arrival);
        }
    }
}
