//! Optimistic over many versions, after Hekaton (Larson, Blanas, Diaconu, Freedman, Patel, Zwilling: High-Performance Concurrency
//! Control Mechanisms for Main-Memory Databases, VLDB 2011).
//!
//! A transaction reads, of each record, the newest version that was committed when it began. The first writer of a record owns it
//! until its end; another that wants to write it, or sees an older version than the newest, begins anew. A commit latches what it
//! writes, draws its stamp, and finds out whether what it has read is the newest still, and absent what was absent.
//!
//! *Why that is serializable, in the order of stamps*: the argument of `silo.rs`, with the draw of the stamp as the moment, which
//! lies between the last latch and the first validation. What was read at the beginning is what is there at the stamp.
//! (With the processors' clocks a commit waits between the two until all of them are past its stamp.) A transaction
//! that writes nothing needs no validation: it comes after all stamps up to its moment, and before all others. A reader waits for
//! latches. If it misses a latch, the commit's fence comes after its own, and the stamp is above its moment.
//!
//! What differs from the paper: the end of a version is the beginning of the one that replaced it. Where the paper's readers go
//! on with what a commit that is being validated is about to write, and depend on it, these wait for its latch: no code of users
//! runs meanwhile, and no commit fails because another did.

use super::{Conflict, Moment, Scheme, all_current};
use crate::work::Work;

/// Many versions, optimistic: transactions that only read are never in the way, and nothing is in theirs.
#[derive(Clone, Copy, Debug)]
pub enum Hekaton {}

impl Scheme for Hekaton {
    const NAME: &'static str = "hekaton";
    const VERSIONS: bool = true;
    type Stamps = ();
    type Lock = ();
    type Gap = ();

    fn judge(work: &Work<'_, Self>, moment: Moment) -> Result<u64, Conflict> {
        all_current(work, moment)
    }
}
