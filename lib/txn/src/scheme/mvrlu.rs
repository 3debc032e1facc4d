//! Multi-version concurrency control whose versions are linked before they are stamped, after MV-RLU (Kim, Mathew,
//! Kashyap, Ramanathan, Min: MV-RLU: Scaling Read-Log-Update with Multi-Versioning, ASPLOS 2019; thesis, sections 3.3
//! to 3.6).
//!
//! As in `hekaton.rs`, a transaction reads as of the moment at which it began, and owns each record from its first
//! write of it on. But readers do not wait for latches. A commit links its versions (its *set*), which all point to one
//! word: the set's stamp. Storing the stamp makes all versions of the set visible at once.
//!
//! `words/set.rs` has the word's states.
//!
//! # Why the order of stamps is an order of serialization
//! 1. *A reader of moment `m` sees all of a set with a stamp up to `m`, and nothing of a set with a greater stamp.* The
//!    draw of the stamp follows all links, so a reader whose `m` is at or above the stamp sees the links
//!    (`archipelago_sync::clock`). If the reader finds `LINKING`, it has missed the writer's store that precedes its
//!    next draw, so this draw is above `m`. In the other states the atomic exchanges of the word decide.
//! 2. *The versions that a commit T has read are the newest at its stamp `t`.* T links, draws `t`, waits until all
//!    clocks are past `t`, and looks again at each record that it has read and does not own. There are three cases:
//!    - *The head is the version that T has read.* Then T has missed any set W that is linked at the record later. W
//!      links before it draws, and T looks after its own draw, so `t` is below W's stamp (`archipelago_sync::clock`).
//!      So records that are owned but not linked need no check.
//!    - *The version that T has read is directly below a linked head.* T loads the word of the head's set, like a
//!      reader of the moment `t`. If the answer is that the set is before `t`, T gives up. If not, the answer is final,
//!      and the version that T has read is the newest at `t`, whether the set commits or fails.
//!    - *All other cases*: T gives up, even if the stamps of all versions between the two are above `t`. No thread has
//!      announced the moment `t`, so pruning may have unlinked a version between the two. (Pruning never unlinks the
//!      version directly below a linked head, see `Epochs::prune`.)
//!
//!    T validates absent keys in the same way, with origins as the versions that it has read. A record is latched
//!    before it is unlinked from its index. T waits for such latches (it holds none itself), so T finds the record
//!    dead, or precedes all commits to the key's next record.
//! 3. *Some commit succeeds.* Among sets, a commit waits only for those that are `FIRM` with a stamp below its own, or
//!    are about to get a stamp. So commits do not wait in a circle. A commit fails only because another transaction has
//!    committed, or owns a record. Of two transactions that have each read what the other writes, at least the one with
//!    the lower stamp commits: it finds the other's set above its own stamp. (The processors' clocks may give both the
//!    same stamp. Then the addresses of their words decide which is lower.)
//!
//! The paper makes transactions serializable by also locking the records that they read (`try_lock_const`), which
//! writes to each such record. The validation here loads one word of each record. Transactions that only read need no
//! validation: they are serialized at their moment.

use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};

use archipelago_platform::atomic::Ordering;
use archipelago_platform::hint::point;

use super::{Conflict, Moment, Scheme};
use crate::codec::Encoded;
use crate::epochs::Epochs;
use crate::error::Error;
use crate::record::{Record, Version};
use crate::words::set::{Set, Time};
use crate::work::{Done, Work};

/// Multi-version concurrency control whose readers rarely wait: for long reads concurrent with writers.
#[derive(Clone, Copy, Debug)]
pub enum MvRlu {}

/// A flag in a version's `begin`: the other bits are the address of the set's word.
const LINKED: u64 = 1 << 63;

impl Time for Epochs<MvRlu> {
    fn draw(&self) -> u64 {
        Epochs::draw(self)
    }

    fn settle(&self, stamp: u64) {
        Epochs::settle(self, stamp);
    }

    fn shows(&self, stamp: u64, moment: u64) -> bool {
        Epochs::shows(self, stamp, moment)
    }
}

impl Scheme for MvRlu {
    const NAME: &'static str = "mv-rlu";
    const VERSIONS: bool = true;
    const LINKS: bool = true;
    /// The set's word, in the first version of a set.
    type Stamps = Set;
    type Lock = ();
    type Gap = ();

    fn sees(version: &Version<Self>, moment: u64, epochs: &Epochs<Self>) -> bool {
        // Acquire: pairs with the Release of `publish`.
        let begin = version.begin.load(Ordering::Acquire);
        if begin & LINKED == 0 {
            return epochs.shows(begin, moment);
        }
        // SAFETY: read of a version inside of the guard.
        unsafe { set_of(begin) }.is_before((moment, usize::MAX), epochs)
    }

    fn under<'v>(head: &'v Version<Self>, moment: Moment, epochs: &Epochs<Self>) -> Option<&'v Version<Self>> {
        // Acquire, and before the load of `begin`: a version below the head is pruned only after the pruning thread saw
        // the stamp in `begin`, and by a Release store.
        let under = head.older.load(Ordering::Acquire);
        let begin = head.begin.load(Ordering::Acquire);
        // SAFETY: read of a version inside of the guard.
        if begin & LINKED == 0 || unsafe { set_of(begin) }.is_before((moment.epoch, moment.rank), epochs) {
            return None;
        }
        // SAFETY: in the chain inside of the guard.
        unsafe { under.as_ref() }
    }

    fn install(work: &mut Work<'_, Self>, encoded: Option<Encoded>, done: &mut Done<Self>) -> Result<u64, Error> {
        // SAFETY: the first version of this set, which no other thread frees before it has its stamp.
        let set = unsafe { &(*work.writes[0].pending).stamps };
        work.hand_over();
        link(work, set, done);
        // Gaps are looked up again, which encodes keys: users' code that may panic.
        let decided = catch_unwind(AssertUnwindSafe(|| decide(work, set, encoded)));
        match decided {
            Ok(Ok(stamp)) => publish(work, stamp),
            Ok(Err(_)) | Err(_) => unlink(work, set, done),
        }
        decided.unwrap_or_else(|panic| {
            work.leave(core::mem::take(done));
            resume_unwind(panic)
        })
    }

    fn judge(work: &Work<'_, Self>, moment: Moment) -> Result<u64, Conflict> {
        let holds = |record, seen| is_newest(record, seen, moment, work);
        if let Some((record, _)) = work.reads().find(|&(record, seen)| !holds(record, seen)) {
            work.note_missed(record);
            return Err(Conflict);
        }
        if work.gaps_hold(0, moment) { Ok(0) } else { Err(Conflict) }
    }
}

/// Returns whether `seen` is the newest version of a record at `moment`, which is a stamp that has been drawn.
fn is_newest(record: &Record<MvRlu>, seen: &Version<MvRlu>, moment: Moment, work: &Work<'_, MvRlu>) -> bool {
    // A record is latched, and unlinked, before another record can be linked for its key.
    let head = if seen.is_absent() { record.settled() } else { record.head() };
    // SAFETY: a head's version inside of the guard.
    let version = unsafe { &*head.version() };
    let is = |version: &Version<MvRlu>| core::ptr::eq(version, seen);
    // A version that this commit has linked points to the commit's own word. The commit must not ask this word, since
    // it would wait for itself.
    let is_under = || MvRlu::under(version, moment, work.shared().epochs()).is_some_and(is);
    !head.is_dead() && (is(version) || work.owns(record) || is_under())
}

/// Returns the word of the set to which a `begin` points.
///
/// # Safety
/// `begin` has the flag [`LINKED`], and was read from a version that was in a chain since the caller's guard began.
unsafe fn set_of<'g>(begin: u64) -> &'g Set {
    // SAFETY: `link` exposed the address of the set's first version. This version is freed only a grace period after
    // all versions of the set have their stamps or are unlinked.
    unsafe { &*core::ptr::with_exposed_provenance((begin & !LINKED) as usize) }
}

/// Makes all written versions the heads of their records. Readers that find these versions load the word `set`.
fn link(work: &Work<'_, MvRlu>, set: &Set, done: &mut Done<MvRlu>) {
    let begin = LINKED | core::ptr::from_ref(set).expose_provenance() as u64;
    for write in work.writes.iter() {
        // SAFETY: alive inside the guard; the transaction owns the version.
        let (record, pending) = unsafe { (&*write.place.record, &*write.pending) };
        pending.begin.store(begin, Ordering::Relaxed);
        let mut latch = record.latch().expect("the owner of a record keeps it in its index");
        latch.hold();
        done.later.push(write.place);
        latch.install(write.pending);
        work.prune(&latch, write.place, done);
    }
    point("txn::linked");
}

/// Draws the stamp, validates the reads, and stores the stamp once the log has it.
fn decide(work: &Work<'_, MvRlu>, set: &Set, encoded: Option<Encoded>) -> Result<u64, Error> {
    let epochs = work.shared().epochs();
    if encoded.is_none() && !work.validates() {
        return Ok(set.stamp(epochs));
    }
    let judge = |stamp| {
        MvRlu::judge(work, Moment { epoch: stamp, rank: set.rank(), latched: true })?;
        Ok(())
    };
    set.stamp_valid(encoded.is_some(), epochs, judge, |stamp| work.log(stamp, encoded))
}

/// Stores the stamp in the versions.
fn publish(work: &Work<'_, MvRlu>, stamp: u64) {
    for write in work.writes.iter() {
        // SAFETY: heads of records that the transaction owns: nothing replaces them before its end.
        unsafe { &*write.pending }.begin.store(stamp, Ordering::Release);
    }
}

/// Unlinks the set's versions. Readers may be reading them.
fn unlink(work: &Work<'_, MvRlu>, set: &Set, done: &mut Done<MvRlu>) {
    set.fail();
    for write in work.writes.iter() {
        // SAFETY: as in `link`.
        let (record, pending) = unsafe { (&*write.place.record, &*write.pending) };
        let mut latch = record.latch().expect("the owner of a record keeps it in its index");
        latch.replace(pending.older.load(Ordering::Relaxed));
        drop(latch);
        record.let_go();
    }
    done.later.clear();
    done.dropped.extend(work.writes.iter().map(|write| write.pending));
}
