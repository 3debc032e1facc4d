//! Two-phase locking in which the older wait for the younger, and the younger die (Rosenkrantz, Stearns, Lewis: System Level
//! Concurrency Control for Distributed Database Systems, TODS 1978).
//!
//! A transaction keeps the number with which it arrived however often it begins anew, so it becomes the oldest in time. What a
//! lock does then: `locks/wait_die.rs`.
//!
//! Gaps have no locks and no order: a transaction may begin anew as long as others fill what it has found empty.

use super::{judge, linger};
use crate::locks::wait_die::Lock;
use crate::record::Record;
use crate::scheme::{Conflict, Mode, Moment, Scheme};
use crate::work::Work;

/// Two-phase locking; the older transaction waits, the younger begins anew and keeps its age. For rows that many write: none is
/// overtaken for ever on its rows.
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
