//! Runs programs of a few threads under many schedules of the virtual machine (a simulator), in which threads can be
//! preempted.

use archipelago_sim::{Client, Config, Fault, Machine, Placement, Point, hunt, run_with};

/// The number of threads of a program.
pub const THREADS: usize = 4;

/// Runs a program under `seeds` schedules, alternately of the two kinds that look for bugs (see [`hunt`]). In two of
/// every four schedules, threads are also stalled at random for 20 µs.
#[track_caller]
pub fn explore<S>(seeds: u64, setup: impl Fn() -> S, client: impl Fn(&S, Client), end: impl Fn(S)) {
    let stall = Fault::Stall { thread: None, at: Point::OneIn(300), for_ns: 20_000 };
    let faults = |seed| if seed % 4 < 2 { Vec::new() } else { vec![stall.clone()] };
    explore_with(seeds, faults, setup, client, end);
}

/// Does the same as [`explore`] with the faults that `faults` returns for each seed.
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

/// Does the same as [`explore_with`] on a machine with hardware transactions, with two threads on one of its nodes, and
/// without skewed clocks. `faults` gets a sixth of the seed, rounded down. Of every six schedules, one has no faults of
/// transactions. In two, some transactions abort at random; in one, all abort. In two, transactions have little
/// capacity, and in one of these two some also abort at random.
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

/// Returns the faults of transactions in the schedule of this seed.
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

/// Returns a fault that stops a thread for 0.1 ms when it reaches the point `name` for the `nth` time (from 1).
pub fn stall(thread: usize, name: &str, nth: u64) -> Fault {
    Fault::Stall { thread: Some(thread), at: Point::Named { name: name.to_owned(), nth }, for_ns: 100_000 }
}
