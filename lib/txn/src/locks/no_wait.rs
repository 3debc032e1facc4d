//! A lock that nobody waits for: the word of a row, of many readers or one writer.

use archipelago_platform::atomic::{AtomicU32, Ordering};

use super::{Conflict, Mode};

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

/// A record's lock: the word.
#[derive(Default)]
pub struct Lock(AtomicU32);

impl Lock {
    /// Takes it, or fails at once; `held` is what the transaction has of it already.
    pub(crate) fn take(&self, mode: Mode, held: Option<Mode>) -> Result<(), Conflict> {
        let next = |word| granted(word, mode, held);
        // Acquire: see `locks`.
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, next).map(drop).map_err(|_| Conflict)
    }

    /// Gives back what is held.
    pub(crate) fn release(&self, held: Mode) {
        let mine = if held == Mode::Share { 1 } else { WRITER };
        self.0.fetch_sub(mine, Ordering::Release);
    }

    pub(crate) fn is_free(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Returns whether one that holds nothing would have it now.
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
