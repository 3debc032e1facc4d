//! Optimistic concurrency control with many versions, after Hekaton (Larson, Blanas, Diaconu, Freedman, Patel,
//! Zwilling: High-Performance Concurrency Control Mechanisms for Main-Memory Databases, VLDB 2011).
//!
//! A transaction reads, of each record, the newest version that was committed when the transaction began. The first
//! writer of a record owns the record until the writer's end. Another transaction that wants to write the record is
//! retried; so is a transaction that wants to write a record but does not see its newest version. A commit latches its
//! records, draws its stamp, and validates: the versions that it has read must still be the newest, and the keys that
//! were absent still absent.
//!
//! *Serializability, in the order of stamps*: the argument of `silo.rs` applies. The moment is the draw of the stamp,
//! which lies between the last latch and the first validation. The versions that the transaction read, the newest ones
//! at its begin, are also the newest ones at its stamp. (With the processors' clocks a commit waits, between the draw
//! and the validation, until all clocks are past its stamp.) A transaction that writes nothing needs no validation: in
//! the order it follows all commits with stamps up to its moment, and precedes all others. A reader waits for latches.
//! If it misses a latch, the commit's fence comes after the reader's fence, and the stamp is above the reader's moment.
//!
//! Two things differ from the paper. A version's end is not stored: it is the begin of the version that replaced it.
//! The paper's readers may read a version whose commit is still being validated, and then depend on this commit. Here
//! readers wait for the commit's latch: the only users' code that runs under the latch is the encoding of keys, and no
//! commit fails because another one failed.

use super::{Conflict, Moment, Scheme, all_current};
use crate::work::Work;

/// Optimistic multi-version concurrency control: transactions that only read neither cause conflicts nor meet any.
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
