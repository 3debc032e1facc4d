//! Optimistic concurrency control, after Silo (Tu, Zheng, Kohler, Liskov, Madden: Speedy Transactions in Multicore
//! In-Memory Databases, SOSP 2013).
//!
//! Reads take no lock and write nothing. A commit latches its records, in the order of addresses, and then validates:
//! each version that it has read must still be the head, and no other transaction may have latched its record.
//!
//! *Serializability, in the order of one moment of each commit*: let the moment lie between the last latch and the
//! first validation (for a transaction that only reads: between the last read and the first validation). Everything
//! that was read was current at this moment: a head never has the same value twice while a transaction lasts, and
//! insertions into gaps leave traces (`tree.rs`). Everything that is written was latched. If another transaction has an
//! earlier moment and writes a row that this transaction reads, this transaction sees the other's latch or its version.
//!
//! Three things differ from the paper. Versions are replaced and not overwritten, so that rows need not be `Copy`,
//! readers copy nothing and snapshots find old versions; a version's address serves as the paper's transaction id
//! (TID). Snapshots advance the epochs, not a timer. The validation of gaps looks them up in the indexes again, since
//! the maps are of several kinds and do not expose versions of their leaves.

use super::{Conflict, Moment, Scheme, all_current};
use crate::work::Work;

/// Optimistic concurrency control: reads write nothing, commits validate. The default.
#[derive(Clone, Copy, Debug)]
pub enum Silo {}

impl Scheme for Silo {
    const NAME: &'static str = "silo";
    type Stamps = ();
    type Lock = ();
    type Gap = ();

    fn judge(work: &Work<'_, Self>, moment: Moment) -> Result<u64, Conflict> {
        all_current(work, moment)
    }
}
