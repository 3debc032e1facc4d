//! Optimistic concurrency control with time stamps of rows, after TicToc (Yu, Pavlo, Sanchez, Devadas: TicToc: Time
//! Traveling Optimistic Concurrency Control, SIGMOD 2016).
//!
//! Each version is valid from its `wts` to its `rts`, and readers raise `rts`. A commit computes the least stamp that
//! fits all its reads and writes: at least the `wts` of each version that it has read, and more than the `rts` of each
//! version that it replaces. So if a version that a transaction has read was replaced later, the transaction may still
//! commit, with a stamp between the version's `wts` and `rts`.
//!
//! # Why the order of stamps is an order of serialization
//! `rts` and a bit that states that `rts` is final share one word. A commit that latches a record *freezes* the version
//! that it replaces (sets the bit), and its stamp is more than the frozen `rts`. A reader raises `rts` if it is not
//! frozen, and gives up if `rts` is too low and frozen. So if one transaction reads a version and another replaces it,
//! the reader's stamp is less than the writer's. Successive writers of one record have rising stamps.
//!
//! *Gaps*: a reader that found a key absent raises the index's stamp for writers (`GapStamps::read`) to its own stamp,
//! passes a SeqCst fence and looks the key up again. A writer that commits to an absent record loads the index's stamp
//! for writers after its latch and a SeqCst fence, and takes a greater stamp. So either the reader sees the record (and
//! raises the `rts` of its origin, or finds it latched), or the writer sees the raised stamp.
//!
//! *Unlinked records*: a removal is a version, from whose `wts` on the key is absent. When its record is unlinked, the
//! index's stamp for writers is raised to the version's final `rts`, and the index's stamp for readers
//! (`GapStamps::removed`) to its `wts`. A reader that found a key absent takes a stamp that is not below the index's
//! stamp for readers, as if it had read the version. This stamp is needed although a grace period passes before the
//! unlinking. A series of commits with falling stamps, each of which overlaps the next, may last longer than a grace
//! period. So without the stamp, a transaction that begins after the unlinking could be serialized before a transaction
//! that is itself serialized before the removal. The look-up that found no record (or a dead one) happened after the
//! unlinking, so the reader's commit finds the stamp. The origin of a new record stands for the index's earlier
//! removals: its `wts` is the index's stamp for readers, loaded after the linker's look-up found no record. (If a
//! removal is committed after this look-up, its record stays linked until the linker's section has ended.)
//!
//! # Snapshots
//! If a snapshot sees a transaction that replaced a version, it must also see each transaction that had read this
//! version (claim 3 of `epochs.rs`). So if the clock has moved since a transaction began, all versions that the
//! transaction has read must be current, as in Silo. If the clock has not moved, they may have been replaced. Then the
//! replacing transaction has no earlier epoch than the reader: it latched the record after the reader had loaded the
//! clock, passed a SeqCst fence and found the record not latched.

use super::{Conflict, Moment, Scheme};
use crate::record::{Record, Version};
use crate::words::stamps::{GapStamps, Stamps};
use crate::work::Work;

/// Optimistic concurrency control by time stamps of rows: fewer conflicts between readers and writers of the same rows.
///
/// Serializable, but not strictly: of two transactions without common rows, the one that began after the other's end
/// may precede it in the serialization order.
#[derive(Clone, Copy, Debug)]
pub enum TicToc {}

impl Scheme for TicToc {
    const NAME: &'static str = "tictoc";
    const BACKDATES: bool = true;
    const MARKS_ORIGINS: bool = true;
    type Stamps = Stamps;
    type Lock = ();
    type Gap = GapStamps;

    fn freeze(version: &Version<Self>) {
        version.stamps.freeze();
    }

    fn thaw(version: &Version<Self>) {
        version.stamps.thaw();
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
        GapStamps::report(work.gaps(), stamp);
        if work.gaps_hold(stamp, moment) { Ok(stamp) } else { Err(Conflict) }
    }

    fn stamp(version: &Version<Self>, stamp: u64) {
        version.stamps.set(stamp);
    }

    fn admits(origin: &Version<Self>, stamp: u64) -> bool {
        origin.stamps.extend(stamp)
    }

    fn before_link(origin: &Version<Self>, gap: &GapStamps) {
        Self::stamp(origin, gap.last_removal());
    }

    fn before_unlink(version: &Version<Self>, gap: &GapStamps) {
        gap.take_over(&version.stamps);
    }
}

/// Returns the least stamp that fits the versions and gaps that were read, and the versions that are replaced.
fn stamp(work: &Work<'_, TicToc>, moment: Moment) -> u64 {
    let read = work.reads().map(|(_, seen)| seen.stamps.first()).max().unwrap_or(0);
    let removed = work.gaps().map(|gap| gap.last_removal()).max().unwrap_or(0);
    let replaced = work.replaced().map(|(version, gap)| {
        // The gap's stamp is loaded after the latch and the commit's fence.
        let gap = if moment.latched && version.is_absent() { gap.last_reader() } else { 0 };
        version.stamps.last().max(gap) + 1
    });
    replaced.fold(read.max(removed), u64::max)
}
