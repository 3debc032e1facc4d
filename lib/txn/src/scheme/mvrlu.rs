//! Multi-version concurrency control whose versions are linked before they are stamped, after MV-RLU (Kim, Mathew,
//! Kashyap, Ramanathan, Min: MV-RLU: Scaling Read-Log-Update with Multi-Versioning, ASPLOS 2019; thesis, sections 3.3
//! to 3.6).
//!
//! As in `hekaton.rs`, a transaction reads as of the moment at which it began, and owns each record from its first
//! write of it on. But readers do not wait for latches. A commit links its versions (its *set*), which all point to one
//! word: the set's stamp. Storing the stamp makes all versions of the set visible at once.
//!
//! # The word of a set
//! - `LINKING`: the set's versions are being linked, or a reader has set the word back. The stamp will be drawn after
//!   the word has changed.
//! - `OPEN`: all versions are linked, and the commit can no longer fail. A reader that meets the set draws the stamp
//!   and stores it, so that it is above the reader's moment. (The paper's readers guess, and may see half of a set: the
//!   stamp can have been drawn before the reader began, and stored after the reader loaded the word.)
//! - `CHECK`, with a stamp once it is drawn: the reads are being validated. A reader that cannot be serialized before
//!   the stamp sets the word back to `LINKING`, and the writer draws again.
//! - `FIRM`, with a stamp once it is drawn: as `CHECK`, but the reader waits. The word is `FIRM` while the log is
//!   written, since the log must have the stamp first. It is also `FIRM` after a few attempts, so that readers do not
//!   delay a writer forever.
//! - `NEVER`: the commit has failed.
//! - Otherwise: the stamp.
//!
//! *A word's answer is final.* A reader with a moment gets one of two answers from the word. The first is that the set
//! is before the moment: its stamp is known and not above the moment. The second is that the set will never be before
//! the moment: its stamp is above the moment, the set has failed, or its stamp will be drawn after the reader's load of
//! the word.
//!
//! # Why the order of stamps is an order of serialization
//! 1. *A reader of moment `m` sees all of a set with a stamp up to `m`, and nothing of a set with a greater stamp.* The
//!    draw of the stamp follows all links, so a reader whose `m` is at or above the stamp sees the links
//!    (`archipelago_sync::clock`). If the reader finds `LINKING`, it has missed the writer's store that precedes its
//!    next draw, so this draw is above `m`. In the other states the atomic exchanges of the word decide.
//! 2. *The versions that a commit T has read are the newest at its stamp `t`.* T links, draws `t`, passes a SeqCst
//!    fence, and looks again at each record that it has read and does not own. There are three cases:
//!    - *The head is the version that T has read.* Then T has missed any set W that is linked at the record later: W
//!      links, passes its fence and draws, so T's fence precedes W's and `t` is below W's stamp. (Between its draw and
//!      the fence T waits until all clocks are past `t`.) So records that are owned but not linked need no check.
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

use archipelago_platform::atomic::{AtomicU64, Ordering, fence};
use archipelago_platform::hint::point;
use archipelago_sync::backoff::Backoff;

use super::{Conflict, Moment, Scheme};
use crate::codec::Encoded;
use crate::epochs::Epochs;
use crate::error::Error;
use crate::record::{Record, Version};
use crate::work::{Done, Work};

/// Multi-version concurrency control whose readers rarely wait: for long reads concurrent with writers.
#[derive(Clone, Copy, Debug)]
pub enum MvRlu {}

/// A flag in a version's `begin`: the other bits are the address of the set's word.
const LINKED: u64 = 1 << 63;

const LINKING: u64 = 0;
const OPEN: u64 = 1 << 62;
const CHECK: u64 = 1 << 61;
const FIRM: u64 = 1 << 60;
const NEVER: u64 = FIRM - 1;
/// The bits of the states above. A word without these bits is a stamp.
const STATE: u64 = OPEN | CHECK | FIRM;

/// The number of attempts of a commit that readers may set back to `LINKING`. Later attempts are `FIRM`.
const ATTEMPTS: u32 = 3;

impl Scheme for MvRlu {
    const NAME: &'static str = "mv-rlu";
    const VERSIONS: bool = true;
    const LINKS: bool = true;
    /// The set's word, in the first version of a set.
    type Stamps = AtomicU64;
    type Lock = ();
    type Gap = ();

    fn sees(version: &Version<Self>, moment: u64, epochs: &Epochs<Self>) -> bool {
        // Acquire: pairs with the Release of `publish`.
        let begin = version.begin.load(Ordering::Acquire);
        if begin & LINKED == 0 {
            return epochs.shows(begin, moment);
        }
        // SAFETY: read of a version inside of the guard.
        is_before(unsafe { set_of(begin) }, (moment, usize::MAX), epochs)
    }

    fn under<'v>(head: &'v Version<Self>, moment: Moment, epochs: &Epochs<Self>) -> Option<&'v Version<Self>> {
        // Acquire, and before the load of `begin`: a version below the head is pruned only after the pruning thread saw
        // the stamp in `begin`, and by a Release store.
        let under = head.older.load(Ordering::Acquire);
        let begin = head.begin.load(Ordering::Acquire);
        // SAFETY: read of a version inside of the guard.
        if begin & LINKED == 0 || is_before(unsafe { set_of(begin) }, (moment.epoch, moment.rank), epochs) {
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
unsafe fn set_of<'g>(begin: u64) -> &'g AtomicU64 {
    // SAFETY: `link` exposed the address of the set's first version. This version is freed only a grace period after
    // all versions of the set have their stamps or are unlinked.
    unsafe { &*core::ptr::with_exposed_provenance((begin & !LINKED) as usize) }
}

/// Returns a set's rank, which orders sets with the same stamp. If two such sets' commits ask each other's words, one
/// precedes the other.
fn rank(set: &AtomicU64) -> usize {
    core::ptr::from_ref(set).addr()
}

/// Returns whether a set has a stamp up to a moment. If it returns false, the set never gets such a stamp: the call
/// makes sure of it. The caller is a reader, whose rank is above all others, or a commit.
fn is_before(set: &AtomicU64, (moment, last): (u64, usize), epochs: &Epochs<MvRlu>) -> bool {
    let backoff = Backoff::new();
    loop {
        let word = set.load(Ordering::Acquire);
        let stamp = word & !STATE;
        match word & STATE {
            OPEN => _ = set.compare_exchange(OPEN, epochs.draw(), Ordering::AcqRel, Ordering::Relaxed),
            _ if (stamp, rank(set)) > (moment, last) => return false,
            0 => return word != LINKING && epochs.shows(stamp, moment),
            CHECK if set.compare_exchange(word, LINKING, Ordering::AcqRel, Ordering::Relaxed).is_ok() => return false,
            _ => backoff.wait(),
        }
    }
}

/// Makes all written versions the heads of their records. Readers that find these versions load the word `set`.
fn link(work: &Work<'_, MvRlu>, set: &AtomicU64, done: &mut Done<MvRlu>) {
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
fn decide(work: &Work<'_, MvRlu>, set: &AtomicU64, encoded: Option<Encoded>) -> Result<u64, Error> {
    let epochs = work.shared().epochs();
    if encoded.is_none() && !work.validates() {
        set.store(OPEN, Ordering::Release);
        fence(Ordering::SeqCst);
        let drawn = epochs.draw();
        point("txn::drawn");
        let stamp =
            set.compare_exchange(OPEN, drawn, Ordering::AcqRel, Ordering::Acquire).map_or_else(|met| met, |_| drawn);
        epochs.settle(stamp);
        return Ok(stamp);
    }
    for attempt in 0.. {
        let state = if encoded.is_some() || attempt == ATTEMPTS { FIRM } else { CHECK };
        set.store(state, Ordering::Release);
        // Pairs with the fences of readers that find the word's previous value, and with those of commits that replace
        // versions which this one has read (see the next fence).
        fence(Ordering::SeqCst);
        let stamp = epochs.draw();
        point("txn::drawn");
        if set.compare_exchange(state, state | stamp, Ordering::AcqRel, Ordering::Acquire).is_err() {
            continue;
        }
        // A set that this commit misses, since it is linked from here on, draws a later stamp: see 2 above.
        epochs.settle(stamp);
        fence(Ordering::SeqCst);
        MvRlu::judge(work, Moment { epoch: stamp, rank: rank(set), latched: true })?;
        if state == FIRM {
            work.log(stamp, encoded)?;
            set.store(stamp, Ordering::Release);
            return Ok(stamp);
        }
        if set.compare_exchange(state | stamp, stamp, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return Ok(stamp);
        }
    }
    unreachable!("readers do not set back what is firm")
}

/// Stores the stamp in the versions.
fn publish(work: &Work<'_, MvRlu>, stamp: u64) {
    for write in work.writes.iter() {
        // SAFETY: heads of records that the transaction owns: nothing replaces them before its end.
        unsafe { &*write.pending }.begin.store(stamp, Ordering::Release);
    }
}

/// Unlinks the set's versions. Readers may be reading them.
fn unlink(work: &Work<'_, MvRlu>, set: &AtomicU64, done: &mut Done<MvRlu>) {
    set.store(NEVER, Ordering::Release);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The processors' clocks may give two commits the same stamp.
    #[test]
    fn of_equal_stamps_one_is_the_first() {
        let (epochs, sets) = (Epochs::<MvRlu>::new(), [AtomicU64::new(7), AtomicU64::new(7)]);
        let is_before = |one: usize, other: usize| super::is_before(&sets[one], (7, rank(&sets[other])), &epochs);
        assert_ne!(is_before(0, 1), is_before(1, 0));
        assert!(super::is_before(&sets[0], (7, usize::MAX), &epochs), "a reader sees both");
    }
}
