//! Two-phase locking that never waits for a lock while it holds another, so it has no deadlocks.

use super::{judge, linger};
use crate::locks::no_wait::Lock;
use crate::record::Record;
use crate::scheme::{Conflict, Mode, Moment, Scheme};
use crate::work::Work;

/// Two-phase locking without waiting: a transaction that meets a lock gives up, and is retried when the lock is free or
/// after a bounded time.
///
/// It is fast if conflicts are rare. Retried transactions have no order, so a long transaction may be retried often.
#[derive(Clone, Copy, Debug)]
pub enum NoWait {}

impl Scheme for NoWait {
    const NAME: &'static str = "2pl-no-wait";
    const LOCKS: bool = true;
    type Stamps = ();
    type Lock = Lock;
    type Gap = ();

    fn take(record: &Record<Self>, mode: Mode, held: Option<Mode>, _: u64) -> Result<(), Conflict> {
        record.lock.take(mode, held)
    }

    fn release(record: &Record<Self>, held: Mode, _: u64) {
        record.lock.release(held);
    }

    fn is_free(record: &Record<Self>) -> bool {
        record.lock.is_free()
    }

    fn linger(record: &Record<Self>, mode: Mode, _: u64) {
        linger(|| record.lock.is_to_be_had(mode));
    }

    fn judge(work: &Work<'_, Self>, moment: Moment) -> Result<u64, Conflict> {
        judge(work, moment)
    }
}
