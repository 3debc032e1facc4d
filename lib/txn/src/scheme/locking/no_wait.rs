//! Two-phase locking that never waits for a lock while it holds another: so there is no deadlock.

use archipelago_platform::atomic::{AtomicU32, Ordering};

use super::{judge, linger};
use crate::record::Record;
use crate::scheme::{Conflict, Mode, Moment, Scheme};
use crate::work::Work;

/// Two-phase locking without waiting: a transaction that meets a lock gives up, and begins anew when the lock is free.
///
/// Fast where conflicts are few; no order among those that begin anew, so that a long transaction may do so often.
#[derive(Clone, Copy, Debug)]
pub enum NoWait {}

/// The lock has a writer. Otherwise the word counts readers.
const WRITER: u32 = 1 << 31;

/// The word once the lock is had, by one that has it in the mode `held`.
fn granted(word: u32, mode: Mode, held: Option<Mode>) -> Option<u32> {
    match mode {
        // One reader for each thread: there are less than 2³¹.
        Mode::Share => (word & WRITER == 0).then(|| word + 1),
        Mode::Exclude => (word == u32::from(held.is_some())).then_some(WRITER),
    }
}

impl Scheme for NoWait {
    const NAME: &'static str = "2pl-no-wait";
    const LOCKS: bool = true;
    type Stamps = ();
    type Lock = AtomicU32;
    type Gap = ();

    fn take(record: &Record<Self>, mode: Mode, held: Option<Mode>, _: u64) -> Result<(), Conflict> {
        let next = |word| granted(word, mode, held);
        // Acquire: see the module's text.
        record.lock.fetch_update(Ordering::Acquire, Ordering::Relaxed, next).map(drop).map_err(|_| Conflict)
    }

    fn release(record: &Record<Self>, held: Mode, _: u64) {
        let mine = if held == Mode::Share { 1 } else { WRITER };
        record.lock.fetch_sub(mine, Ordering::Release);
    }

    fn is_free(record: &Record<Self>) -> bool {
        record.lock.load(Ordering::Acquire) == 0
    }

    fn linger(record: &Record<Self>, mode: Mode, _: u64) {
        linger(|| granted(record.lock.load(Ordering::Relaxed), mode, None).is_some());
    }

    fn judge(work: &Work<'_, Self>, moment: Moment) -> Result<u64, Conflict> {
        judge(work, moment)
    }
}
