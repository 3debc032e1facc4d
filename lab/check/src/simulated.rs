//! Programs of a few threads under many schedules of the virtual machine, with threads that lose their processor.

use archipelago_sim::{Client, Config, Fault, Machine, Placement, Point, hunt, run_with};

/// Threads of a program.
pub const THREADS: usize = 4;

/// Runs a program under many schedules of both kinds that look for bugs, every other pair of them with threads that lose
/// their processor now and then.
#[track_caller]
pub fn explore<S>(seeds: u64, setup: impl Fn() -> S, client: impl Fn(&S, Client), end: impl Fn(S)) {
    let stall = Fault::Stall { thread: None, at: Point::OneIn(300), for_ns: 20_000 };
    let faults = |seed| if seed % 4 < 2 { Vec::new() } else { vec![stall.clone()] };
    explore_with(seeds, faults, setup, client, end);
}

/// The same with the faults that `faults` names for each seed.
#[track_caller]
pub fn explore_with<S>(
    seeds: u64,
    faults: impl Fn(u64) -> Vec<Fault>,
    setup: impl Fn() -> S,
    client: impl Fn(&S, Client),
    end: impl Fn(S),
) {
    let machine = Machine::preset("xeon-e5-4620-4s").expect("it is a preset");
    hunt(seeds, |config| {
        let config = Config {
            faults: faults(config.seed),
            clock_skew_ns: vec![0, 900, -600, 300],
            expected_accesses: 2_000,
            limit_accesses: 1_000_000,
            ..config
        };
        run_with(&machine, &config, THREADS, &setup, &client, &end).0
    });
}

/// As [`explore_with`], on a machine with transactions, two threads on one of its nodes; and of every six schedules in one
/// transactions abort always, in two now and then, in two for lack of room.
pub fn explore_transactions<S>(
    seeds: u64,
    faults: impl Fn(u64) -> Vec<Fault>,
    setup: impl Fn() -> S,
    client: impl Fn(&S, Client),
    end: impl Fn(S),
) {
    let machine = Machine::preset("xeon-e7-8870v3-4s").expect("it is a preset");
    hunt(seeds, |config| {
        let config = Config {
            faults: [transaction_faults(config.seed), faults(config.seed / 6)].concat(),
            placement: Placement::Cpus(vec![0, 1, 20, 40]),
            expected_accesses: 2_000,
            limit_accesses: 1_000_000,
            ..config
        };
        run_with(&machine, &config, THREADS, &setup, &client, &end).0
    });
}

/// What is wrong with transactions in the schedule of this seed.
fn transaction_faults(seed: u64) -> Vec<Fault> {
    let aborts = |probability| Fault::AbortTransactions { probability };
    let tiny = |write_lines| Fault::TransactionCapacity { read_lines: 2, write_lines };
    match seed % 6 {
        0 => vec![],
        1 => vec![aborts(0.05)],
        2 => vec![aborts(0.5)],
        3 => vec![aborts(1.0)],
        4 => vec![tiny(1)],
        _ => vec![tiny(2), aborts(0.3)],
    }
}

/// A thread stands still for 0.1 ms the `nth` time (from 1) it comes to the point `name`.
pub fn stall(thread: usize, name: &str, nth: u64) -> Fault {
    Fault::Stall { thread: Some(thread), at: Point::Named { name: name.to_owned(), nth }, for_ns: 100_000 }
}
