//! Planted bugs: each is found by a random and by a PCT schedule, and the mended program passes the same schedules.

mod common;

use archipelago_sim::{Config, Report, Schedule, explore, find, run_with, world};
use common::{Word, machine};

const SCHEDULES: u64 = 1_000;

fn both(broken: impl Fn(&Config) -> Report, mended: impl Fn(&Config) -> Report) {
    for schedule in [Schedule::Random, Schedule::Pct { depth: 3 }] {
        let config = Config { schedule, ..Config::seeded(1) };
        let found = find(&config, SCHEDULES, &broken).unwrap_or_else(|| panic!("{schedule:?} finds nothing"));
        let again = broken(&Config { seed: found.seed, expected_accesses: found.stats.accesses, ..config.clone() });
        if schedule == Schedule::Random {
            assert_eq!((again.outcome, again.hash), (found.outcome, found.hash), "the seed shows it again");
        }
        explore(&config, 300, &mended);
    }
}

/// Increments by a load and a store, or by one step.
fn counter(config: &Config, one_step: bool) -> Report {
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

#[test]
fn lost_update() {
    both(|config| counter(config, false), |config| counter(config, true));
}

/// Two locks taken by two threads, in opposite order or not.
fn two_locks(config: &Config, opposite: bool) -> Report {
    let body = |locks: &[Word; 2], client: archipelago_sim::Client| {
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

#[test]
fn opposite_lock_order() {
    both(|config| two_locks(config, true), |config| two_locks(config, false));
}

/// A sequence lock over two words that are always equal.
fn sequence_lock(config: &Config, validates: bool) -> Report {
    let body = |[sequence, a, b]: &[Word; 3], client: archipelago_sim::Client| {
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

#[test]
fn missing_validation() {
    both(|config| sequence_lock(config, false), |config| sequence_lock(config, true));
}

/// A value that is made known before or after it is written.
fn publication(config: &Config, before: bool) -> Report {
    let body = |[known, value]: &[Word; 2], client: archipelago_sim::Client| {
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

#[test]
fn use_before_publish() {
    both(|config| publication(config, true), |config| publication(config, false));
}

#[test]
#[should_panic(expected = "again with ARCHIPELAGO_SIM_SEED=")]
fn a_found_bug_names_its_seed() {
    explore(&Config { schedule: Schedule::Random, ..Config::seeded(1) }, SCHEDULES, |config| counter(config, false));
}
