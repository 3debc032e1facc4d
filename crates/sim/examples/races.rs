//! How often each kind of schedule finds a planted race.
//!
//! `cargo run --release -p archipelago-sim --example races [SCHEDULES]`

#[path = "../tests/common/mod.rs"]
mod common;

use archipelago_sim::{Config, Outcome, Report, Schedule, search};
use common::races::{counter, publication, sequence_lock, two_locks};

type Program = fn(&Config, bool) -> Report;

fn main() {
    // A found race is an assertion that fails.
    std::panic::set_hook(Box::new(|_| ()));
    let schedules = std::env::args().nth(1).map_or(1_000, |count| count.parse().expect("a number of schedules"));
    let races: [(&str, Program, bool); 4] = [
        ("lost update", counter, false),
        ("opposite lock order", two_locks, true),
        ("missing validation", sequence_lock, false),
        ("use before publish", publication, true),
    ];
    println!("found in so many of {schedules} schedules:");
    println!(
        "{:<22}{:>8}{:>10}{:>10}{:>12}   search with 0, 1, 2 preemptions",
        "", "random", "PCT 2", "PCT 3", "PCT 2, k = ?"
    );
    for (name, program, broken) in races {
        let length = program(&Config::seeded(1), broken).stats.accesses.max(1);
        let found = |schedule, expected_accesses| {
            let config = |seed| Config { schedule, expected_accesses, ..Config::seeded(seed) };
            (1..=schedules).filter(|&seed| program(&config(seed), broken).outcome != Outcome::Done).count()
        };
        let pct = |depth| Schedule::Pct { depth };
        print!("{name:<22}{:>8}", found(Schedule::Random, length));
        print!("{:>10}{:>10}{:>12}  ", found(pct(2), length), found(pct(3), length), found(pct(2), 0));
        for preemptions in 0..=2 {
            let done = search(&Config::seeded(1), preemptions, 1_000_000, |config| program(config, broken));
            let whole = search(&Config::seeded(1), preemptions, 1_000_000, |config| program(config, !broken));
            let (count, all) = (done.count(), whole.count());
            let complete = if whole.complete { "" } else { "+" };
            match done.failure {
                Some(_) => print!(" found after {count} (mended: {all}{complete});"),
                None => print!(" none in {count} (mended: {all}{complete});"),
            }
        }
        println!();
    }
}
