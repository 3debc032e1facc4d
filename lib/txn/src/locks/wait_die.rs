//! A lock for which older transactions wait, and at which younger transactions give up (they die).
//!
//! The lock is one word. It has a bit for a writer, a bit that *closes* the readers (no further reader may join), the
//! number of readers, and an arrival number. Transactions are numbered as they begin, so a lower number means an older
//! transaction. The word's arrival number is that of the writer, or the lowest number of all readers that have joined
//! since the lock was last free. A second word has the arrival number of the oldest waiting transaction.
//!
//! *No deadlock*: a transaction waits only if it is older than all others that hold the lock. It waits only if its
//! number is at most the word's, and the word's number is at most that of each holder. (The word's number is lower if
//! its transaction has already released the lock.)
//!
//! *No starvation*: a transaction that conflicts with readers closes them, whether it then waits or dies. No further
//! reader can then join, so after finite time all readers have released the lock. Once a transaction is the oldest of
//! all, no reader that arrives later has a lower number. The oldest transaction dies at a record only while the word
//! still has the lower number of a reader that has since ended. Once the closed readers have released the lock, the
//! word is cleared, and the transaction waits for the lock or gets it. A transaction that requests a free lock, or
//! wants to join readers, dies if an older transaction waits. So no transaction overtakes the oldest waiting one,
//! except a reader that becomes the writer.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_sync::backoff::Backoff;

use super::{Conflict, Mode, shown};

/// A record's lock.
pub struct Lock {
    word: AtomicU64,
    /// The arrival number of the oldest waiting transaction; [`NONE`] if none waits. It only influences which
    /// transaction gets the lock next. Mutual exclusion depends on `word` alone.
    waiting: AtomicU64,
}

const WRITER: u64 = 1 << 63;
const CLOSED: u64 = 1 << 62;
const READER: u64 = 1 << ARRIVAL_BITS;
const READERS: u64 = CLOSED - READER;
/// Bits of an arrival number in the word. When the numbers wrap around, once in 2⁴⁸ transactions, transactions with the
/// last numbers seem young until they end: for that time the lock is less fair.
const ARRIVAL_BITS: u32 = 48;
const ARRIVAL: u64 = READER - 1;
const NONE: u64 = u64::MAX;

impl Default for Lock {
    fn default() -> Self {
        Self { word: AtomicU64::new(0), waiting: AtomicU64::new(NONE) }
    }
}

/// The answer to a transaction's request, with the word's new value.
#[derive(Debug, PartialEq)]
enum Answer {
    Granted(u64),
    Wait(u64),
    Die(u64),
}

/// Decides the request of the transaction whose arrival number is `me`. `has` is whether the transaction already has
/// the lock as a reader.
fn ask(word: u64, mode: Mode, has: bool, me: u64) -> Answer {
    let oldest = word & ARRIVAL;
    let in_the_way = |word| if me <= oldest { Answer::Wait(word) } else { Answer::Die(word) };
    match mode {
        Mode::Share if word == 0 => Answer::Granted(READER | me),
        Mode::Exclude if word == 0 || (has && word & READERS == READER) => Answer::Granted(WRITER | me),
        Mode::Exclude if word & WRITER == 0 => in_the_way(word | CLOSED),
        // The count of readers must not overflow.
        Mode::Share if word & (WRITER | CLOSED) == 0 && word & READERS != READERS => {
            Answer::Granted(((word & !ARRIVAL) + READER) | oldest.min(me))
        }
        _ => in_the_way(word),
    }
}

/// Returns the word after a reader has released the lock. After the last reader the word is 0: `CLOSED` and the arrival
/// number are cleared, too.
fn left(word: u64) -> u64 {
    if word & READERS == READER { 0 } else { word - READER }
}

impl Lock {
    /// Requests the lock once. A grant is an Acquire: see `locks`.
    fn ask(&self, mode: Mode, has: bool, me: u64) -> Answer {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let mut answer = ask(word, mode, has, me);
            if matches!(answer, Answer::Granted(_)) && !has && self.waiting.load(Ordering::Relaxed) < me {
                answer = Answer::Die(word);
            }
            let (Answer::Granted(next) | Answer::Wait(next) | Answer::Die(next)) = answer;
            if next == word {
                return answer;
            }
            match self.word.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return answer,
                Err(now) => word = now,
            }
        }
    }

    /// Takes the lock, or fails. It waits for younger transactions only. `held` is the mode in which the transaction
    /// already has the lock.
    pub(crate) fn take(&self, mode: Mode, held: Option<Mode>, arrival: u64) -> Result<(), Conflict> {
        let (me, has) = (arrival & ARRIVAL, held.is_some());
        let backoff = Backoff::new();
        let mut waited = false;
        let taken = loop {
            match self.ask(mode, has, me) {
                Answer::Granted(_) => break Ok(()),
                Answer::Die(_) => break Err(Conflict),
                // An older transaction already waits and has precedence.
                Answer::Wait(_) if !has && self.waiting.fetch_min(me, Ordering::Relaxed) < me => break Err(Conflict),
                Answer::Wait(_) => waited = true,
            }
            backoff.wait();
        };
        if waited {
            self.stop_waiting(me);
        }
        shown(taken)
    }

    fn stop_waiting(&self, me: u64) {
        // The exchange fails if an older transaction waits, or `waiting` was not set.
        let _ = self.waiting.compare_exchange(me, NONE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Releases the lock, which the transaction has in the mode `held`.
    pub(crate) fn release(&self, held: Mode) {
        match held {
            Mode::Share => _ = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, |word| Some(left(word))),
            Mode::Exclude => _ = self.word.swap(0, Ordering::Release),
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) == 0
    }

    /// Returns whether a transaction that does not hold the lock would be granted it, or wait for it, now.
    pub(crate) fn is_to_be_had(&self, mode: Mode, arrival: u64) -> bool {
        let me = arrival & ARRIVAL;
        let is_next = self.waiting.load(Ordering::Relaxed) >= me;
        is_next && !matches!(ask(self.word.load(Ordering::Relaxed), mode, false, me), Answer::Die(_))
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::locks::model::{Locks, all_or_nothing};

    impl Locks for Lock {
        fn take(&self, mode: Mode, held: Option<Mode>, arrival: u64) -> bool {
            Lock::take(self, mode, held, arrival).is_ok()
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

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::*;

    /// Returns the word after a granted request.
    fn granted(word: u64, mode: Mode, has: bool, me: u64) -> u64 {
        match ask(word, mode, has, me) {
            Answer::Granted(word) => word,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_older_waits_and_the_younger_dies() {
        let writer = granted(0, Mode::Exclude, false, 5);
        for mode in [Mode::Share, Mode::Exclude] {
            assert_eq!(ask(writer, mode, false, 3), Answer::Wait(writer));
            assert_eq!(ask(writer, mode, false, 7), Answer::Die(writer));
        }
        let readers = granted(granted(0, Mode::Share, false, 5), Mode::Share, false, 9);
        assert_eq!(ask(readers, Mode::Exclude, false, 3), Answer::Wait(readers | CLOSED));
        assert_eq!(ask(readers, Mode::Exclude, true, 5), Answer::Wait(readers | CLOSED), "older than all others");
        for (has, me) in [(true, 9), (false, 7), (false, 11)] {
            assert_eq!(ask(readers, Mode::Exclude, has, me), Answer::Die(readers | CLOSED));
        }
        assert_eq!(granted(left(readers), Mode::Exclude, true, 9), WRITER | 9);
    }

    #[test]
    fn closed_readers_end() {
        let readers = granted(granted(0, Mode::Share, false, 5), Mode::Share, false, 9);
        let Answer::Die(closed) = ask(readers, Mode::Exclude, false, 11) else { panic!() };
        assert_eq!(ask(closed, Mode::Share, false, 12), Answer::Die(closed));
        assert_eq!(ask(closed, Mode::Share, false, 3), Answer::Wait(closed));
        assert_eq!(left(left(closed)), 0);
    }

    #[test]
    fn no_more_readers_than_can_be_counted() {
        let full = READERS | 5;
        assert_eq!(ask(full, Mode::Share, false, 9), Answer::Die(full));
        assert_eq!(left(full) & READERS, READERS - READER);
    }
}
