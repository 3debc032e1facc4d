//! Programs with a planted race, and the same programs without the race.

use std::cell::UnsafeCell;

use archipelago_sim::{Client, Config, Report, run_with, world};

use super::{Word, machine};

/// Threads increment a word by a load and a store, or in one step.
pub fn counter(config: &Config, one_step: bool) -> Report {
    let body = |word: &Word, _| {
        for _ in 0..2 {
            if one_step {
                word.add(1);
            } else {
                word.set(word.get() + 1);
            }
        }
    };
    run_with(&machine(), config, 3, || Word::new(0), body, |word| assert_eq!(word.get(), 6)).0
}

/// Two threads take two locks, in opposite order or in the same order.
pub fn two_locks(config: &Config, opposite: bool) -> Report {
    let body = |locks: &[Word; 2], client: Client| {
        let first = if opposite { client.index } else { 0 };
        for _ in 0..3 {
            locks[first].lock();
            locks[1 - first].lock();
            locks[1 - first].unlock();
            locks[first].unlock();
            world::work(50);
        }
    };
    run_with(&machine(), config, 2, || [Word::new(0), Word::new(0)], body, drop).0
}

/// A word of shared memory, whose accesses are announced or not.
trait Value {
    fn get(&self) -> u64;
    fn set(&self, value: u64);
}

impl Value for Word {
    fn get(&self) -> u64 {
        self.get()
    }

    fn set(&self, value: u64) {
        self.set(value);
    }
}

/// Threads read and write two words by a sequence lock. The words are equal whenever no thread is writing them. If
/// `validates` is false, readers do not check for changes.
pub fn sequence_lock(config: &Config, validates: bool) -> Report {
    sequence_lock_over(config, validates, || Word::new(0))
}

/// Does the same as [`sequence_lock`] with plain words.
pub fn hidden_sequence_lock(config: &Config, validates: bool) -> Report {
    sequence_lock_over(config, validates, hidden)
}

fn sequence_lock_over<V: Value>(config: &Config, validates: bool, new: fn() -> V) -> Report {
    let body = |(sequence, [a, b]): &(Word, [V; 2]), client: Client| {
        if client.index == 0 {
            for value in 1..5 {
                sequence.add(1);
                a.set(value);
                b.set(value);
                sequence.add(1);
            }
            return;
        }
        for _ in 0..4 {
            loop {
                let before = sequence.get();
                let pair = (a.get(), b.get());
                if before % 2 == 0 && (!validates || sequence.get() == before) {
                    assert_eq!(pair.0, pair.1);
                    break;
                }
                world::spin_hint();
            }
        }
    };
    run_with(&machine(), config, 2, || (Word::new(0), [new(), new()]), body, drop).0
}

/// Publishes a value before or after it is written.
pub fn publication(config: &Config, before: bool) -> Report {
    publication_of(config, before, || Word::new(0))
}

/// Publishes a plain value before or after it is written.
pub fn hidden_publication(config: &Config, before: bool) -> Report {
    publication_of(config, before, hidden)
}

fn publication_of<V: Value>(config: &Config, before: bool, new: fn() -> V) -> Report {
    let body = |(known, value): &(Word, V), client: Client| {
        if client.index == 0 {
            if before {
                known.set(1);
                value.set(42);
            } else {
                value.set(42);
                known.set(1);
            }
        } else if known.get() == 1 {
            assert_eq!(value.get(), 42);
        }
    };
    run_with(&machine(), config, 3, || (Word::new(0), new()), body, drop).0
}

/// A word of plain memory whose accesses are not announced.
struct Hidden(UnsafeCell<u64>);

// SAFETY: the threads of a run take turns on one OS thread; volatile accesses are made as they are written.
unsafe impl Sync for Hidden {}

impl Value for Hidden {
    fn get(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.get().read_volatile() }
    }

    fn set(&self, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.get().write_volatile(value) }
    }
}

fn hidden() -> Hidden {
    Hidden(UnsafeCell::new(0))
}

/// Increments a plain word, with or without a lock.
pub fn hidden_counter(config: &Config, locks: bool) -> Report {
    let body = |(lock, word): &(Word, Hidden), _| {
        for _ in 0..2 {
            if locks {
                lock.lock();
            }
            // The increment consists of two instructions, whatever the compiler optimizes.
            let seen = std::hint::black_box(word.get());
            word.set(seen + 1);
            if locks {
                lock.unlock();
            }
        }
    };
    let teardown = |(_, word): (Word, Hidden)| assert_eq!(word.get(), 6);
    run_with(&machine(), config, 3, || (Word::new(0), hidden()), body, teardown).0
}
