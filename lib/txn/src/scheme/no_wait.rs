//! Two-phase locking that never waits: a transaction that meets a lock begins anew.
//!
//! Rows (and entries of secondary indexes, and absent rows that have a record) are locked from the first look to the end. Gaps
//! are not: that a key or a range has stayed empty is found out at the commit, as in the optimistic schemes. All rows are
//! locked then, so the order of commits' moments of looking again is the order of serialization.

use archipelago_platform::atomic::{AtomicU64, Ordering};

use super::{Conflict, Mode, Moment, Scheme};
use crate::record::Record;
use crate::work::Work;

/// Two-phase locking; who meets a lock gives up and tries again.
#[derive(Clone, Copy, Debug)]
pub enum NoWait {}

/// The lock has a writer. Otherwise the word counts readers.
const WRITER: u64 = 1 << 63;

impl Scheme for NoWait {
    const NAME: &'static str = "2pl-no-wait";
    const LOCKS: bool = true;
    type Stamps = ();
    type Lock = AtomicU64;
    type Gap = ();

    fn take(record: &Record<Self>, mode: Mode, held: Option<Mode>, _: u64) -> Result<(), Conflict> {
        let mine = u64::from(held == Some(Mode::Share));
        let next = |word| match mode {
            Mode::Share => (word & WRITER == 0).then(|| word + 1),
            Mode::Exclude => (word == mine).then_some(WRITER),
        };
        // Acquire: pairs with the Release of the last holder's `release`. Beside the latch it would not be needed for rows.
        let taken = record.lock.fetch_update(Ordering::Acquire, Ordering::Relaxed, next);
        taken.map(drop).map_err(|_| Conflict)
    }

    fn release(record: &Record<Self>, held: Mode, _: u64) {
        match held {
            Mode::Share => record.lock.fetch_sub(1, Ordering::Release),
            Mode::Exclude => record.lock.swap(0, Ordering::Release),
        };
    }

    fn is_free(record: &Record<Self>) -> bool {
        record.lock.load(Ordering::Acquire) == 0
    }

    fn judge(work: &Work<'_, Self>, _: Moment) -> Result<u64, Conflict> {
        if work.gaps_hold(0) { Ok(0) } else { Err(Conflict) }
    }
}
