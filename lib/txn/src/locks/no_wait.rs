//! A readers-writer lock for which no transaction waits, in one word.

use archipelago_platform::atomic::{AtomicU32, Ordering};

use super::{Conflict, Mode, shown};

/// The flag that a writer has the lock. Without this flag the word is the number of readers.
const WRITER: u32 = 1 << 31;

/// Returns the word after a grant to a transaction that has the lock in the mode `held`, or `None` if the request has
/// to be refused.
fn granted(word: u32, mode: Mode, held: Option<Mode>) -> Option<u32> {
    match mode {
        // The count cannot overflow: each thread is at most one reader, and a process has less than 2³¹ threads.
        Mode::Share => (word & WRITER == 0).then(|| word + 1),
        Mode::Exclude => (word == u32::from(held.is_some())).then_some(WRITER),
    }
}

/// A record's lock.
#[derive(Default)]
pub struct Lock(AtomicU32);

impl Lock {
    /// Takes the lock, or fails at once. `held` is the mode in which the transaction already has it.
    pub(crate) fn take(&self, mode: Mode, held: Option<Mode>) -> Result<(), Conflict> {
        let next = |word| granted(word, mode, held);
        // Acquire: see `locks`.
        shown(self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, next).map(drop).map_err(|_| Conflict))
    }

    /// Releases the lock.
    pub(crate) fn release(&self, held: Mode) {
        let mine = if held == Mode::Share { 1 } else { WRITER };
        self.0.fetch_sub(mine, Ordering::Release);
    }

    pub(crate) fn is_free(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Returns whether a transaction that does not hold the lock would be granted it now.
    pub(crate) fn is_to_be_had(&self, mode: Mode) -> bool {
        granted(self.0.load(Ordering::Relaxed), mode, None).is_some()
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::locks::model::{Locks, all_or_nothing};

    impl Locks for Lock {
        fn take(&self, mode: Mode, held: Option<Mode>, _: u64) -> bool {
            Lock::take(self, mode, held).is_ok()
        }
        fn release(&self, held: Mode, _: u64) {
            Lock::release(self, held);
        }
        fn is_free(&self) -> bool {
            Lock::is_free(self)
        }
    }

    all_or_nothing!(Lock);
}
