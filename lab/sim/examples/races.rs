//! Measures how often each kind of schedule finds a planted race.
//!
//! `cargo run --release -p archipelago-sim --example races [SCHEDULES]`

#[path = "../tests/common/mod.rs"]
mod common;

use archipelago_sim::{Config, Outcome, Report, Schedule, SimAlloc, search};
use common::races::{
    counter, hidden_counter, hidden_publication, hidden_sequence_lock, publication, sequence_lock, two_locks,
};

#[global_allocator]
static HEAP: SimAlloc = SimAlloc;

/// A program that runs under the configuration. It has the race if its second argument is `broken`.
struct Race {
    name: &'static str,
    program: fn(&Config, bool) -> Report,
    broken: bool,
}

impl Race {
    /// Returns in how many of the schedules the race is found.
    fn found(&self, config: &Config, schedules: u64) -> usize {
        let program = |config: &Config| (self.program)(config, self.broken);
        let stats = program(&Config { schedule: Schedule::VirtualTime, ..config.clone() }).stats;
        let expected_accesses = (stats.accesses + stats.plain_points).max(1);
        let config = Config { expected_accesses, ..config.clone() };
        (1..=schedules).filter(|&seed| program(&Config { seed, ..config.clone() }).outcome != Outcome::Done).count()
    }
}

fn main() {
    // A found race is an assertion that fails.
    std::panic::set_hook(Box::new(|_| ()));
    let schedules = std::env::args().nth(1).map_or(1_000, |count| count.parse().expect("a number of schedules"));
    println!("found in so many of {schedules} schedules:");
    announced(schedules);
    plain(schedules);
}

/// Measures races between announced accesses.
fn announced(schedules: u64) {
    let races = [
        Race { name: "lost update", program: counter, broken: false },
        Race { name: "opposite lock order", program: two_locks, broken: true },
        Race { name: "missing validation", program: sequence_lock, broken: false },
        Race { name: "use before publish", program: publication, broken: true },
    ];
    println!(
        "{:<22}{:>8}{:>10}{:>10}{:>12}   search with 0, 1, 2 preemptions",
        "", "random", "PCT 2", "PCT 3", "PCT 2, k = ?"
    );
    for race in races {
        let config = |schedule| Config { schedule, ..Config::seeded(1) };
        let pct = |depth| config(Schedule::Pct { depth });
        let unknown = (1..=schedules)
            .filter(|&seed| (race.program)(&Config { seed, ..pct(2) }, race.broken).outcome != Outcome::Done)
            .count();
        print!("{:<22}{:>8}", race.name, race.found(&config(Schedule::Random), schedules));
        print!("{:>10}{:>10}{unknown:>12}  ", race.found(&pct(2), schedules), race.found(&pct(3), schedules));
        for preemptions in 0..=2 {
            let run =
                |broken| search(&Config::seeded(1), preemptions, 1_000_000, |config| (race.program)(config, broken));
            let (done, whole) = (run(race.broken), run(!race.broken));
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

/// Measures races between plain accesses that are not announced, for several fractions of accesses that count as steps.
fn plain(schedules: u64) {
    let races = [
        Race { name: "lost update", program: hidden_counter, broken: false },
        Race { name: "missing validation", program: hidden_sequence_lock, broken: false },
        Race { name: "use before publish", program: hidden_publication, broken: true },
    ];
    println!("plain accesses, a step before none, one in 8, one in 2, each:");
    for race in races {
        print!("{:<22}", race.name);
        for (name, schedule) in [("random", Schedule::Random), ("PCT 3", Schedule::Pct { depth: 3 })] {
            print!("{name:>8}:");
            for plain_points in [0, 8, 2, 1] {
                let config = Config { schedule, plain_points, ..Config::seeded(1) };
                print!("{:>6}", race.found(&config, schedules));
            }
        }
        println!();
    }
}
