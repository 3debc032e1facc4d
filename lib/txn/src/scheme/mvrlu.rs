//! Many versions, linked before they are stamped, after MV-RLU (Kim, Mathew, Kashyap, Ramanathan, Min: MV-RLU: Scaling
//! Read-Log-Update with Multi-Versioning, ASPLOS 2019; thesis, sections 3.3 to 3.6).
//!
//! As in `hekaton.rs`, a transaction reads the moment at which it began, and owns what it writes from the first write on. But
//! readers wait for no latch. A commit links its versions, which lead to one word: the stamp of the *set*. To set it makes all of
//! them visible at once.
//!
//! # The word of a set
//! `LINKING`: its versions are being linked, or it has been set back; the stamp will be drawn after the word has changed. `OPEN`: all
//! are linked and nothing can fail any more; a reader that meets it draws and sets the stamp itself, above its own moment (the
//! paper's readers guess, and may see half of a set: the stamp can have been drawn before the reader began, and set after it looked).
//! `CHECK`, with a stamp once there is one: what was read is being validated; a reader that cannot be before the stamp sets the
//! word back to `LINKING`, and the writer draws again. `FIRM`: likewise, but the reader waits: for the log, which must have the stamp
//! first, and after a few attempts, so that readers do not keep a writer from its end. Otherwise: the stamp; `NEVER` if the
//! transaction failed.
//!
//! *A word's answer is final.* A reader that asks a word for a moment is told that the set is before it (its stamp is known, and not above the
//! moment), or that it never will be (its stamp is above the moment, it has failed, or the stamp is drawn after the question).
//!
//! # Why the order of stamps is an order of serialization
//! 1. *A reader of moment `m` sees all of a set with a stamp up to `m`, and nothing of one above.* The draw comes after all links;
//!    a reader whose `m` is at or above it sees these (`archipelago_sync::clock`). If the reader finds `LINKING`, it has missed
//!    what the writer writes before its next draw, so that this draw is above `m`. With the other words it decides by their exchanges.
//! 2. *What a commit has read is the newest at its stamp `t`.* T links, draws `t`, passes a SeqCst fence, and looks again at each
//!    record that it has read:
//!    - *The head is what it saw.* A set W that is linked there later has been missed: W links, passes its fence and draws, so T's
//!      fence comes first and `t` is below W's stamp. (Between its draw and the fence T waits until all clocks are past `t`.) So records
//!      that are owned, but not linked, do not matter.
//!    - *What it saw is under a linked head.* T asks the head's word for the moment `t`. If the set is before `t`, T gives up.
//!      If not, that is final, and what T saw is the newest at `t` whatever becomes of the set.
//!    - *Anything else*: T gives up, also if all that came in between is above `t`. No cell has the moment `t`, so that
//!      between other versions one may have been taken out; not so directly under a linked head (`Epochs::prune`).
//!
//!    What T found absent it judges likewise, with origins for what it saw. A record is latched before it is taken out of its index;
//!    T waits for latches there (it has none itself), so that it finds the record dead, or is before all that the next record of the
//!    key will have.
//! 3. *Some commit gets through.* A commit waits for sets that are `FIRM` with a stamp below its own, or about to have a stamp: so
//!    not in a circle. It fails only because of what another has committed, or owns. Of two that have each read what the other
//!    writes, the one with the lower stamp, at last, commits: it finds the other's set above its own stamp. (The processors' clocks
//!    may give both the same stamp. Then the addresses of their words decide which is the lower one.)
//!
//! The paper makes transactions serializable by locking what they read, too (`try_lock_const`): that writes to each record that is
//! read. A validation loads one word of it, and transactions that only read need not even that: they are at their moment.

use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};

use archipelago_platform::atomic::{AtomicU64, Ordering, fence};
use archipelago_platform::hint::point;
use archipelago_sync::backoff::Backoff;

use super::{Conflict, Moment, Scheme};
use crate::codec::Encoded;
use crate::epochs::Epochs;
use crate::error::Error;
use crate::record::{self, Record, Version};
use crate::work::{Done, Work};

/// Many versions, and readers that wait for nothing: long reads beside writers.
#[derive(Clone, Copy, Debug)]
pub enum MvRlu {}

/// In a version's `begin`: the rest is the address of its set's word.
const LINKED: u64 = 1 << 63;

const LINKING: u64 = 0;
const OPEN: u64 = 1 << 62;
const CHECK: u64 = 1 << 61;
const FIRM: u64 = 1 << 60;
const NEVER: u64 = FIRM - 1;
/// The states above; what is below is a stamp.
const STATE: u64 = OPEN | CHECK | FIRM;

/// Attempts that readers may set back.
const ATTEMPTS: u32 = 3;

impl Scheme for MvRlu {
    const NAME: &'static str = "mv-rlu";
    const VERSIONS: bool = true;
    const LINKS: bool = true;
    /// Of the first version of a set, the set's word.
    type Stamps = AtomicU64;
    type Lock = ();
    type Gap = ();

    fn sees(version: &Version<Self>, moment: u64, epochs: &Epochs<Self>) -> bool {
        // Acquire: with the Release of `publish`.
        let begin = version.begin.load(Ordering::Acquire);
        if begin & LINKED == 0 {
            return epochs.shows(begin, moment);
        }
        // SAFETY: read of a version inside of the guard.
        is_before(unsafe { set_of(begin) }, (moment, usize::MAX), epochs)
    }

    fn under<'v>(head: &'v Version<Self>, moment: Moment, epochs: &Epochs<Self>) -> Option<&'v Version<Self>> {
        // Acquire, and before `begin`: what is pruned from under it is so after its stamp was seen in `begin`, by a Release.
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
        // SAFETY: the first version of ours, which no other thread frees before it has its stamp.
        let set = unsafe { &(*work.writes[0].pending).stamps };
        work.hand_over();
        link(work, set, done);
        // Keys' encodings are looked for again: the user's code, which may panic.
        let decided = catch_unwind(AssertUnwindSafe(|| decide(work, set, encoded)));
        match decided {
            Ok(Ok(stamp)) => publish(work, stamp),
            Ok(Err(_)) | Err(_) => unlink(work, set, done),
        }
        decided.unwrap_or_else(|panic| {
            work.settle(core::mem::take(done));
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

/// Returns whether the newest version of a record at `moment`, whose stamp has been drawn, is what was seen.
fn is_newest(record: &Record<MvRlu>, seen: &Version<MvRlu>, moment: Moment, work: &Work<'_, MvRlu>) -> bool {
    // A record is latched, and taken out, before another one can be linked for its key.
    let head = if seen.is_absent() { record.settled() } else { record.head() };
    // SAFETY: a head's version inside of the guard.
    let version = unsafe { &*head.version() };
    let is = |version: &Version<MvRlu>| core::ptr::eq(version, seen);
    // What this one has linked itself leads to its own word, which is not to be asked.
    let is_under = || MvRlu::under(version, moment, work.shared().epochs()).is_some_and(is);
    !head.is_dead() && (is(version) || work.owns(record) || is_under())
}

/// The word of the set that a `begin` leads to.
///
/// # Safety
/// It was read, with [`LINKED`], of a version that was in a chain since the caller's guard began.
unsafe fn set_of<'g>(begin: u64) -> &'g AtomicU64 {
    // SAFETY: `link` exposed the address of the set's first version, which is freed a grace period after all of the set have
    // their stamps, or are out of their chains.
    unsafe { &*core::ptr::with_exposed_provenance((begin & !LINKED) as usize) }
}

/// Sets with one stamp are in the order of their ranks: of two that look at each other, one is the first.
fn rank(set: &AtomicU64) -> usize {
    core::ptr::from_ref(set).addr()
}

/// Returns whether a set is stamped up to a moment, for a reader (whose rank is above all) or a commit that has met it; sees to it
/// that it never is, otherwise.
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

/// Makes all that is written the heads of their records, for readers to ask `set`.
fn link(work: &Work<'_, MvRlu>, set: &AtomicU64, done: &mut Done<MvRlu>) {
    let begin = LINKED | core::ptr::from_ref(set).expose_provenance() as u64;
    for write in work.writes.iter() {
        // SAFETY: alive inside of the guard; the version is ours.
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

/// Draws the stamp and sets it, if what was read allows it and the log has it.
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
        // With those of readers that find the word as it was, and (below) of those that link what was read.
        fence(Ordering::SeqCst);
        let stamp = epochs.draw();
        point("txn::drawn");
        if set.compare_exchange(state, state | stamp, Ordering::AcqRel, Ordering::Acquire).is_err() {
            continue;
        }
        // What is linked from here on that we miss draws a later stamp: 2 above.
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

/// Tells the versions their stamp.
fn publish(work: &Work<'_, MvRlu>, stamp: u64) {
    for write in work.writes.iter() {
        // SAFETY: heads of records that are ours to write: nothing replaces them before the end.
        unsafe { &*write.pending }.begin.store(stamp, Ordering::Release);
    }
}

/// Takes what was linked out again. Readers may be at it.
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
    for write in work.writes.iter() {
        // SAFETY: out of their chains, all of them; retired once.
        unsafe { record::retire(&work.guard, write.pending, work.memory()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The processors' clocks may give two commits one stamp.
    #[test]
    fn of_equal_stamps_one_is_the_first() {
        let (epochs, sets) = (Epochs::<MvRlu>::new(), [AtomicU64::new(7), AtomicU64::new(7)]);
        let is_before = |one: usize, other: usize| super::is_before(&sets[one], (7, rank(&sets[other])), &epochs);
        assert_ne!(is_before(0, 1), is_before(1, 0));
        assert!(super::is_before(&sets[0], (7, usize::MAX), &epochs), "a reader sees both");
    }
}
