//! Two-phase locking in which an older transaction waits for a younger one, and a younger one that meets an older one's
//! lock dies (is retried). After Rosenkrantz, Stearns, Lewis: System Level Concurrency Control for Distributed Database
//! Systems, TODS 1978.
//!
//! A transaction keeps its arrival number over all retries, so it becomes the oldest in the end. `locks/wait_die.rs`
//! describes what a lock does with the number.
//!
//! Gaps have no locks, and ages do not matter for them: a transaction may be retried as long as others fill its gaps.

use super::{judge, linger};
use crate::locks::wait_die::Lock;
use crate::record::Record;
use crate::scheme::{Conflict, Mode, Moment, Scheme};
use crate::work::Work;

/// Two-phase locking in which the older transaction waits, and the younger one is retried and keeps its age. It suits
/// rows that many transactions write: each transaction gets its rows' locks in the end.
#[derive(Clone, Copy, Debug)]
pub enum WaitDie {}

impl Scheme for WaitDie {
    const NAME: &'static str = "2pl-wait-die";
    const LOCKS: bool = true;
    const AGES: bool = true;
    type Stamps = ();
    type Lock = Lock;
    type Gap = ();

    fn take(record: &Record<Self>, mode: Mode, held: Option<Mode>, arrival: u64) -> Result<(), Conflict> {
        record.lock.take(mode, held, arrival)
    }

    fn release(record: &Record<Self>, held: Mode, _: u64) {
        record.lock.release(held);
    }

    fn is_free(record: &Record<Self>) -> bool {
        record.lock.is_free()
    }

    fn linger(record: &Record<Self>, mode: Mode, arrival: u64) {
        linger(|| record.lock.is_to_be_had(mode, arrival));
    }

    fn judge(work: &Work<'_, Self>, moment: Moment) -> Result<u64, Conflict> {
        judge(work, moment)
    }
}
