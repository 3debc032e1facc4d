//! Programs with a planted race, and the same without it.

use archipelago_sim::{Client, Config, Report, run_with, world};

use super::{Word, machine};

/// Increments by a load and a store, or by one step.
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

/// Two locks taken by two threads, in opposite order or not.
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

/// A sequence lock over two words that are always equal.
pub fn sequence_lock(config: &Config, validates: bool) -> Report {
    let body = |[sequence, a, b]: &[Word; 3], client: Client| {
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
    run_with(&machine(), config, 2, || [0; 3].map(Word::new), body, drop).0
}

/// A value that is made known before or after it is written.
pub fn publication(config: &Config, before: bool) -> Report {
    let body = |[known, value]: &[Word; 2], client: Client| {
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
    run_with(&machine(), config, 3, || [0; 2].map(Word::new), body, drop).0
}
