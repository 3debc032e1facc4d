//! Optimistic with time stamps of rows, after TicToc (Yu, Pavlo, Sanchez, Devadas: TicToc: Time Traveling Optimistic
//! Concurrency Control, SIGMOD 2016).
//!
//! Each version is valid from its `wts` to its `rts`, of which readers raise the latter. A commit computes the least stamp that
//! suits all that it has read and written: at least the `wts` of what was read, more than the `rts` of what is replaced. So a
//! transaction may have read a version that has been replaced since, if its stamp fits into the time of that version.
//!
//! # Why the order of stamps is an order of serialization
//! `rts` and the bit that says it is final are one word: a commit that latches a record *freezes* the version that it replaces,
//! and its stamp is more than the frozen `rts`; a reader raises `rts` if it is not frozen, and gives up if it is too low and
//! frozen. So of two transactions, one reading and one replacing a version, the reader's stamp is less. Writers of one record
//! have rising stamps.
//!
//! *Gaps*: a transaction that found a key absent raises its index's stamp to its own, passes a SeqCst fence and looks again.
//! What commits to an absent record takes a stamp above the index's, which it loads after its latch and a SeqCst fence. Either
//! the former sees the record (and raises the `rts` of its origin, or finds it latched), or the latter sees the index's stamp.
//! A record that goes leaves its final `rts` to the index.
//!
//! # Snapshots
//! must not see a transaction that replaced what was read, and not the reader's own writes (claim 3 of `epochs.rs`). So old
//! versions count only while the clock has not moved since the reader began: then what replaced them has no earlier epoch than
//! the reader. (It latched the record after the reader, which had loaded the clock and passed a SeqCst fence, found it not
//! latched.) Otherwise what was read must be current, as in Silo.

use archipelago_platform::atomic::{AtomicU64, Ordering, fence};

use super::{Conflict, Moment, Scheme};
use crate::record::{Record, Version};
use crate::work::Work;

/// Optimistic concurrency control by time stamps of rows: fewer conflicts between readers and writers of the same rows.
///
/// Serializable, but not strictly: a transaction may come before another that was over when it began, if they have nothing to
/// do with each other.
#[derive(Clone, Copy, Debug)]
pub enum TicToc {}

/// `rts` will not change any more.
const FROZEN: u64 = 1 << 63;

/// The time in which a version is valid.
#[derive(Default)]
pub struct Stamps {
    wts: AtomicU64,
    /// With [`FROZEN`].
    rts: AtomicU64,
}

impl Stamps {
    /// Sees to it that the version is valid at `stamp`; returns whether it can be.
    fn extend(&self, stamp: u64) -> bool {
        // AcqRel, with `freeze`: what orders reader and writer is this word alone.
        let next = |rts| if rts & !FROZEN >= stamp { Some(rts) } else { (rts & FROZEN == 0).then_some(stamp) };
        self.rts.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    fn last(&self) -> u64 {
        self.rts.load(Ordering::Acquire) & !FROZEN
    }
}

impl Scheme for TicToc {
    const NAME: &'static str = "tictoc";
    const BACKDATES: bool = true;
    const MARKS_ORIGINS: bool = true;
    type Stamps = Stamps;
    type Lock = ();
    type Gap = AtomicU64;

    fn freeze(version: &Version<Self>) {
        version.stamps.rts.fetch_or(FROZEN, Ordering::AcqRel);
    }

    fn thaw(version: &Version<Self>) {
        version.stamps.rts.fetch_and(!FROZEN, Ordering::AcqRel);
    }

    fn judge(work: &Work<'_, Self>, moment: Moment) -> Result<u64, Conflict> {
        let stamp = stamp(work, moment);
        let settled = moment.epoch == work.started();
        let holds = |(record, seen): (&Record<Self>, &Version<Self>)| {
            if moment.latched && work.owns(record) {
                return work.is_current(record, seen, moment.latched);
            }
            (settled || work.is_current(record, seen, moment.latched)) && seen.stamps.extend(stamp)
        };
        if !work.reads().all(holds) {
            return Err(Conflict);
        }
        work.gaps().for_each(|gap| _ = gap.fetch_max(stamp, Ordering::AcqRel));
        // With those that commit to absent records.
        fence(Ordering::SeqCst);
        if work.gaps_hold(stamp, moment) { Ok(stamp) } else { Err(Conflict) }
    }

    fn stamp(version: &Version<Self>, stamp: u64) {
        version.stamps.wts.store(stamp, Ordering::Relaxed);
        version.stamps.rts.store(stamp, Ordering::Relaxed);
    }

    fn admits(origin: &Version<Self>, stamp: u64) -> bool {
        origin.stamps.extend(stamp)
    }

    fn before_unlink(version: &Version<Self>, gap: &AtomicU64) {
        Self::freeze(version);
        gap.fetch_max(version.stamps.last(), Ordering::AcqRel);
    }
}

/// The least stamp that suits what was read and what is replaced.
fn stamp(work: &Work<'_, TicToc>, moment: Moment) -> u64 {
    let read = work.reads().map(|(_, seen)| seen.stamps.wts.load(Ordering::Relaxed)).max().unwrap_or(0);
    let replaced = work.replaced().map(|(version, gap)| {
        // The gap is looked at after the latch and the commit's fence.
        let gap = if moment.latched && version.is_absent() { gap.load(Ordering::Acquire) } else { 0 };
        version.stamps.last().max(gap) + 1
    });
    replaced.fold(read, u64::max)
}
