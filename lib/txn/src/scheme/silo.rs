//! Optimistic, after Silo (Tu, Zheng, Kohler, Liskov, Madden: Speedy Transactions in Multicore In-Memory Databases, SOSP 2013).
//!
//! Reads take no lock and write nothing; a commit latches what it writes, in the order of addresses, and then finds out
//! whether what it has read is what is there still, and not latched by another.
//!
//! *Why that is serializable, in the order of a moment in each commit*: let it be the moment between the last latch and the
//! first validation (of one that only reads: between the last read and the first validation). All that was read was current at
//! that moment, since heads have no value twice while a transaction lasts, and absence leaves traces (`tree.rs`); and all that
//! is written was latched. If another transaction's moment lies before, and it writes what this one reads, this one sees its
//! latch or its version.
//!
//! What differs from the paper: versions are replaced and not overwritten, so that rows need not be `Copy`, readers copy
//! nothing and snapshots find old versions; a version's address is its TID. Epochs are advanced by snapshots, and not by a
//! clock. Indexes are looked at again, since the maps are of several kinds and do not show versions of their leaves.

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
