//! Searches for bugs by running one program under many schedules.

use crate::config::{Config, Placement, Schedule, replay_seed};
use crate::report::{Outcome, Report};

/// Runs `simulate` with `schedules` seeds from `config.seed` on, until a run is not [`Outcome::Done`], and
/// returns that run's report. With the environment variable `ARCHIPELAGO_SIM_SEED` it tries that seed only.
///
/// Each time, `simulate` makes new structures, runs them with the given configuration, and asserts its conditions
/// inside the run (in a client, or in the tear-down). For [`Schedule::Pct`], a first run in virtual time measures the
/// number of steps over which the change points are distributed.
pub fn find(config: &Config, schedules: u64, simulate: impl Fn(&Config) -> Report) -> Option<Report> {
    let mut config = config.clone();
    if let Schedule::Pct { .. } = config.schedule {
        config.expected_accesses = length(&config, &simulate);
    }
    seeds(config.seed, schedules)
        .map(|seed| simulate(&Config { seed, ..config.clone() }))
        .find(|report| report.outcome != Outcome::Done)
}

/// Returns the number of steps of a run, measured in virtual time.
fn length(config: &Config, simulate: impl Fn(&Config) -> Report) -> u64 {
    let stats = simulate(&Config { schedule: Schedule::VirtualTime, ..config.clone() }).stats;
    (stats.accesses + stats.plain_points).max(1)
}

/// Returns `count` seeds from `first` on, or the one to replay.
fn seeds(first: u64, count: u64) -> impl Iterator<Item = u64> {
    let (first, count) = replay_seed().map_or((first, count), |seed| (seed, 1));
    (0..count).map(move |k| first.wrapping_add(k))
}

/// Runs `simulate` alternately under the two kinds of schedules that look for bugs ([`Schedule::Random`] and
/// [`Schedule::Pct`]), with seeds from 0 on and with threads spread over the sockets. `simulate` adds what the program
/// needs to the configuration. With the environment variable `ARCHIPELAGO_SIM_SEED` it tries that seed only.
///
/// # Panics
/// As [`explore`].
#[track_caller]
pub fn hunt(schedules: u64, simulate: impl Fn(Config) -> Report) {
    let config = |seed| Config { placement: Placement::Spread, ..Config::seeded(seed) };
    let expected_accesses = length(&config(0), |config| simulate(config.clone()));
    for seed in seeds(0, schedules) {
        let schedule = if seed % 2 == 0 { Schedule::Random } else { Schedule::Pct { depth: 3 } };
        simulate(Config { schedule, expected_accesses, ..config(seed) }).assert_done();
    }
}

/// Does the same as [`find`] for a program that should have no bug.
///
/// # Panics
/// If a run is not [`Outcome::Done`]. The message says how the run ended, and which seed reproduces it.
#[track_caller]
pub fn explore(config: &Config, schedules: u64, simulate: impl Fn(&Config) -> Report) {
    if let Some(report) = find(config, schedules, simulate) {
        report.assert_done();
    }
}
