//! Tests with planted bugs. Each bug is found by random schedules and by probabilistic concurrency testing (PCT). The
//! correct program passes the same schedules.

mod common;

use archipelago_sim::{Config, Outcome, Report, Schedule, explore, find, search};
use common::races::{counter, publication, sequence_lock, two_locks};

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

#[test]
fn lost_update() {
    both(|config| counter(config, false), |config| counter(config, true));
}

#[test]
fn opposite_lock_order() {
    both(|config| two_locks(config, true), |config| two_locks(config, false));
}

#[test]
fn missing_validation() {
    both(|config| sequence_lock(config, false), |config| sequence_lock(config, true));
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

#[test]
fn pct_needs_not_be_told_how_long_a_run_is() {
    // The run has far fewer accesses than PCT assumes if it does not know their number, and the configuration does
    // not give the number.
    let config = Config { schedule: Schedule::Pct { depth: 2 }, ..Config::seeded(1) };
    let found = (1..=300).filter(|&seed| counter(&Config { seed, ..config.clone() }, false).outcome != Outcome::Done);
    let found = found.count();
    assert!(found >= 10, "{found} of 300");
}

#[test]
fn few_preemptions_are_searched_completely() {
    let config = Config::seeded(1);
    // Without a preemption there is no lost update; in the correct program there is none with any number of
    // preemptions.
    let none = search(&config, 0, 1_000, |config| counter(config, false));
    assert!(none.complete && none.failure.is_none() && none.count() > 1);
    let one = search(&config, 1, 1_000, |config| counter(config, false));
    let failure = one.failure.expect("one preemption loses an update");
    assert!(!one.complete && failure.trace.iter().map(|choice| choice.cost()).sum::<u32>() == 1);
    // The failure's choices reproduce it.
    let choices = failure.trace.iter().map(|choice| choice.taken).collect();
    let again = counter(&Config { schedule: Schedule::Chosen, choices, ..config.clone() }, false);
    assert_eq!((again.outcome, again.hash), (failure.outcome, failure.hash));
    let mended = search(&config, 2, 100_000, |config| counter(config, true));
    assert!(mended.complete && mended.failure.is_none());
    assert!(mended.schedules[0] < mended.schedules[1] && mended.schedules[1] < mended.schedules[2]);
}

#[test]
fn every_planted_race_needs_no_more_than_two_preemptions() {
    type Program = fn(&Config, bool) -> Report;
    let races: [(Program, bool); 4] =
        [(counter, false), (two_locks, true), (sequence_lock, false), (publication, true)];
    for (program, broken) in races {
        let found = search(&Config::seeded(1), 2, 200_000, |config| program(config, broken));
        assert!(found.failure.is_some(), "{:?}", found.schedules);
    }
}
