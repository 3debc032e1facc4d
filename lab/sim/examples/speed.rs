//! Measures the simulator's speed: events per second of processor time, and bytes of model per cache line.
//!
//! `cargo run --release -p archipelago-sim --example speed [WORD [NS]]`: WORD limits the runs to those whose names
//! contain it; NS, in virtual nanoseconds, replaces the length of the runs of 1 ms.

#[path = "../tests/common/mod.rs"]
mod common;

use archipelago_sim::{Client, Config, Machine, Report, SimAlloc, run_with, world};
use common::Word;

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// Returns the processor time of this thread so far, in seconds. On a shared machine it is more exact than the wall
/// clock.
fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

fn show(name: &str, run: impl FnOnce() -> Report) {
    if std::env::args().nth(1).is_some_and(|word| !name.contains(&word)) {
        return;
    }
    let before = processor_time();
    let report = run().assert_done();
    let seconds = processor_time() - before;
    let wall = report.wall.as_secs_f64();
    let events = report.stats.accesses as f64;
    let (lines, switches) = (report.lines, report.stats.switches as f64 / events);
    let bytes = report.model_bytes as f64 / lines as f64;
    let rate = events / seconds / 1e6;
    let (end, hash) = (report.end_ns, report.hash);
    println!(
        "{name:34} {events:9.0} events {wall:6.3} s wall {seconds:6.3} s processor {rate:6.2} M/s {switches:5.2} switches/event {lines:8} lines \
         {bytes:5.0} B/line  {end:8} ns  {hash:016x}"
    );
}

fn main() {
    let machine = Machine::preset("xeon-8180-8s").unwrap();
    let threads = machine.cpus();
    let length = std::env::args().nth(2).map_or(1_000_000, |ns| ns.parse().expect("a number of nanoseconds"));
    let config = Config { until_ns: Some(length), ..Config::seeded(1) };
    let words = |count: usize| move || (0..count).map(|_| Word::new(0)).collect::<Vec<_>>();

    // Each turn looks up six lines in a shared structure and increments a word of the thread's own; every eighth turn
    // takes one of 64 locks.
    let mixed = |words: &Vec<Word>, client: Client| {
        while client.running() {
            for _ in 0..6 {
                words[1000 + world::random() as usize % (words.len() - 1000)].get();
            }
            words[64 + client.index].add(1);
            if world::random().is_multiple_of(8) {
                let lock = &words[world::random() as usize % 64];
                lock.lock();
                words[1000 + world::random() as usize % (words.len() - 1000)].add(1);
                lock.unlock();
            }
            world::work(50);
        }
    };
    for _ in 0..3 {
        show("mixed, 1 ms", || run_with(&machine, &config, threads, words(50_000), mixed, drop).0);
    }
    let lock = |words: &Vec<Word>, client: Client| {
        while client.running() {
            words[0].lock();
            words[1].add(1);
            words[0].unlock();
            world::work(200);
        }
    };
    show("one ttas lock, 1 ms", || run_with(&machine, &config, threads, words(2), lock, drop).0);
    let count = |words: &Vec<Word>, client: Client| {
        while client.running() {
            words[0].add(1);
        }
    };
    show("one contended word, 1 ms", || run_with(&machine, &config, threads, words(1), count, drop).0);
    let private = |words: &Vec<Word>, client: Client| {
        for _ in 0..10_000 {
            words[client.index].add(1);
        }
    };
    for few in [8, 64] {
        let name = format!("private words, {few} threads");
        show(&name, || run_with(&machine, &config, few, words(threads), private, drop).0);
    }
    show("private words", || run_with(&machine, &config, threads, words(threads), private, drop).0);
    let reads = |words: &Vec<Word>, _: Client| {
        for _ in 0..2_000 {
            words[world::random() as usize % words.len()].get();
        }
    };
    show("random reads in 64 MiB", || run_with(&machine, &config, threads, words(1 << 20), reads, drop).0);
}
