//! Equal seeds give equal runs: within one process, and across processes with their different address spaces.

mod common;

use std::process::Command;

use archipelago_sim::{Config, Machine, Placement, Report, Schedule, SimAlloc, run_with, world};
use common::Word;

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// Set in the child processes: which simulation to run.
const CHILD: &str = "ARCHIPELAGO_SIM_DETERMINISM_CHILD";

/// Threads that allocate, share, fight for a lock, sleep and free.
fn simulation(number: usize) -> Report {
    let (machine, threads, schedule) = [
        ("xeon-e7-4850v3-4s", 60, Schedule::VirtualTime),
        ("xeon-8180-8s", 224, Schedule::VirtualTime),
        ("epyc-2s-chiplets", 5, Schedule::Random),
    ][number];
    let placement = Placement::Spread;
    let config = Config { schedule, placement, until_ns: Some(40_000), ..Config::seeded(7 + number as u64) };
    let setup = || (Word::new(0), (0..64).map(|_| Box::new(Word::new(0))).collect::<Vec<_>>());
    let body = |(lock, words): &(Word, Vec<Box<Word>>), client: archipelago_sim::Client| {
        let mut mine: Vec<Box<(Word, [u8; 40])>> = Vec::new();
        while client.running() {
            lock.lock();
            words[world::random() as usize % words.len()].add(1);
            lock.unlock();
            mine.push(Box::new((Word::new(0), [0; 40])));
            mine.last().unwrap().0.add(1);
            if world::random().is_multiple_of(3) {
                mine.clear();
            }
            world::work(world::random() % 200);
            if world::random().is_multiple_of(50) {
                world::sleep(500);
            }
        }
    };
    run_with(&Machine::preset(machine).unwrap(), &config, threads, setup, body, drop).0.assert_done()
}

fn child(number: usize, environment: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // The environment lies on the stack and shifts what comes after it.
    command.env(CHILD, number.to_string()).env("ARCHIPELAGO_SIM_FILLER", environment);
    let output = command.args(["--exact", "equal_across_processes", "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split("hash ").nth(1));
    line.unwrap_or_else(|| panic!("no hash in {text}")).to_string()
}

#[test]
fn equal_across_processes() {
    if let Ok(number) = std::env::var(CHILD) {
        println!("hash {:016x}", simulation(number.parse().unwrap()).hash);
        return;
    }
    for number in 0..3 {
        let (first, second) = (child(number, ""), child(number, &"filler".repeat(333)));
        assert_eq!(first, second, "simulation {number}");
    }
}

#[test]
fn equal_within_a_process() {
    for number in 0..3 {
        let first = simulation(number);
        let noise: Vec<Vec<u8>> = (0..100).map(|size| vec![1; size * 10]).collect();
        let second = simulation(number);
        drop(noise);
        assert_eq!((first.hash, first.stats, first.end_ns), (second.hash, second.stats, second.end_ns));
        assert!(first.stats.accesses > 300, "{}", first.stats.accesses);
    }
}

#[test]
fn another_seed_is_another_run() {
    let word = || Word::new(0);
    let hash = |seed| {
        let machine = Machine::preset("xeon-8180-4s").unwrap();
        run_with(&machine, &Config::seeded(seed), 8, word, |word, _| (0..50).for_each(|_| word.lock_and_count()), drop)
            .0
            .hash
    };
    assert_ne!(hash(1), hash(2));
}
