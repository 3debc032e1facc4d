//! Prints the micro-behaviour of a modelled machine: the cost of single accesses, and the behaviour of contended words
//! and locks.
//!
//! `cargo run --release -p archipelago-sim --example calibrate -- xeon-e7-8870v3-4s`. (The command `archipelago
//! calibrate` measures a real machine.)

#[path = "../tests/common/mod.rs"]
mod common;

use std::cell::Cell;

use archipelago_sim::{Client, Config, Machine, Placement, SimAlloc, run, run_with, world};
use common::Word;

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// Returns the mean time of one of `turns` calls by a single thread, in nanoseconds.
fn single(machine: &Machine, turns: u64, words: usize, step: impl Fn(&[Word], u64)) -> f64 {
    let time = Cell::new(0);
    let body = |words: &Vec<Word>, _: Client| {
        (0..turns).for_each(|turn| step(words, turn));
        let start = world::now_ps();
        (0..turns).for_each(|turn| step(words, turn));
        time.set(world::now_ps() - start);
    };
    let setup = || (0..words).map(|_| Word::new(0)).collect();
    let config = Config { stall_ns: u64::MAX, ..Config::seeded(1) };
    run_with(machine, &config, 1, setup, body, drop::<Vec<Word>>).0.assert_done();
    time.get() as f64 / turns as f64 / 1000.0
}

/// Returns the one-way time of a word that two CPUs pass back and forth, in nanoseconds.
fn ping_pong(machine: &Machine, cpus: [usize; 2], exchange: bool) -> f64 {
    let turns = 2_000;
    let config = Config { placement: Placement::Cpus(cpus.to_vec()), ..Config::seeded(1) };
    let word = Word::new(0);
    let report = run(machine, &config, 2, |client| {
        for turn in 0..turns {
            let mine = 2 * turn + client.index as u64;
            if exchange {
                while !word.cas(mine, mine + 1) {}
            } else {
                while word.get() != mine {
                    world::spin_hint();
                }
                word.set(mine + 1);
            }
        }
    });
    report.assert_done().end_ns as f64 / (2 * turns) as f64
}

/// Returns million increments of one word per second.
fn contended(machine: &Machine, threads: usize) -> f64 {
    let word = Word::new(0);
    let config = Config { until_ns: Some(200_000), ..Config::seeded(1) };
    let report = run(machine, &config, threads, |client| {
        while client.running() {
            word.add(1);
        }
    });
    word.peek() as f64 * 1000.0 / report.assert_done().end_ns as f64
}

#[derive(Clone, Copy)]
enum Lock {
    Tas,
    Ttas,
    Ticket,
    Mcs,
}

/// A lock of any kind; `nodes` are used by the queue lock.
struct Locked {
    word: Word,
    serving: Word,
    nodes: Vec<[Word; 2]>,
    data: [Word; 2],
}

impl Locked {
    fn new(threads: usize) -> Self {
        let nodes = (0..threads).map(|_| [0; 2].map(Word::new)).collect();
        Locked { word: Word::new(0), serving: Word::new(0), nodes, data: [0; 2].map(Word::new) }
    }

    fn lock(&self, kind: Lock, me: usize) {
        match kind {
            Lock::Tas => {
                while self.word.swap(1) != 0 {
                    world::spin_hint();
                }
            }
            Lock::Ttas => self.word.lock(),
            Lock::Ticket => {
                let ticket = self.word.add(1);
                while self.serving.get() != ticket {
                    world::spin_hint();
                }
            }
            Lock::Mcs => {
                let [next, waits] = &self.nodes[me];
                next.set(0);
                waits.set(1);
                let before = self.word.swap(me as u64 + 1);
                if before != 0 {
                    self.nodes[before as usize - 1][0].set(me as u64 + 1);
                    while waits.get() != 0 {
                        world::spin_hint();
                    }
                }
            }
        }
    }

    fn unlock(&self, kind: Lock, me: usize) {
        match kind {
            Lock::Tas | Lock::Ttas => self.word.unlock(),
            Lock::Ticket => {
                let now = self.serving.get();
                self.serving.set(now + 1);
            }
            Lock::Mcs => {
                let next = &self.nodes[me][0];
                if next.get() == 0 {
                    if self.word.cas(me as u64 + 1, 0) {
                        return;
                    }
                    while next.get() == 0 {
                        world::spin_hint();
                    }
                }
                self.nodes[next.get() as usize - 1][1].set(0);
            }
        }
    }
}

/// Returns million critical sections per second. A section writes two lines and takes 30 ns; between two sections there
/// are 100 to 200 ns.
fn sections(machine: &Machine, kind: Lock, threads: usize, seed: u64) -> f64 {
    let count = Cell::new(0_u64);
    let config = Config { until_ns: Some(300_000), ..Config::seeded(seed) };
    let body = |locked: &Locked, client: Client| {
        while client.running() {
            locked.lock(kind, client.index);
            locked.data.iter().for_each(|word| word.set(count.get()));
            world::work(30);
            count.set(count.get() + 1);
            locked.unlock(kind, client.index);
            world::work(100 + world::random() % 100);
        }
    };
    let report = run_with(machine, &config, threads, || Locked::new(threads), body, drop).0.assert_done();
    count.get() as f64 * 1000.0 / report.end_ns as f64
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or_else(|| "xeon-e7-8870v3-4s".to_string());
    let machine = Machine::preset(&name).expect("a preset's name");
    let lines = |kib: usize| kib << 10 >> 6;
    let walk = |words: &[Word], turn: u64| assert!(words[(turn * 7919) as usize % words.len()].get() == 0);
    println!("{name}, simulated\n\nns per access, one thread:");
    println!("  load, first level          {:8.1}", single(&machine, 1000, 1, |words, _| assert!(words[0].get() < 2)));
    println!(
        "  fetch_add, first level     {:8.1}",
        single(&machine, 1000, 1, |words, _| assert!(words[0].add(1) < 1 << 32))
    );
    for kib in [16, 128, 4096, 65536] {
        println!("  loads all over {kib:6} KiB  {:8.1}", single(&machine, lines(kib) as u64, lines(kib), walk));
    }
    println!("\nns one way, two threads:");
    let far = (1..machine.sockets).map(|socket| (machine.hops[0][socket], socket * machine.cores_per_socket));
    let mut pairs = vec![("same socket".to_string(), 1)];
    for hops in 1..=machine.hops[0].iter().copied().max().unwrap_or(0) {
        pairs.extend(far.clone().find(|pair| pair.0 == hops).map(|pair| (format!("{hops} link(s)"), pair.1)));
    }
    for (label, cpu) in pairs {
        let [exchange, store] = [true, false].map(|exchange| ping_pong(&machine, [0, cpu], exchange));
        println!("  {label:12} compare-and-exchange {exchange:6.0}   store and load {store:6.0}");
    }
    let per_socket = machine.cpus() / machine.sockets;
    let mut counts = vec![1, 2, 4, per_socket / 4, per_socket / 2];
    counts.extend((1..=machine.sockets).map(|sockets| sockets * per_socket));
    counts.retain(|&count| (1..=machine.cpus()).contains(&count));
    counts.sort_unstable();
    counts.dedup();
    println!("\nmillions per second:\nthreads  fetch_add      tas     ttas   ticket      mcs   ticket/mcs, 5 seeds");
    for threads in counts {
        print!("{threads:7} {:10.2}", contended(&machine, threads));
        for kind in [Lock::Tas, Lock::Ttas, Lock::Ticket, Lock::Mcs] {
            print!(" {:8.2}", sections(&machine, kind, threads, 1));
        }
        let ratio =
            |seed| sections(&machine, Lock::Ticket, threads, seed) / sections(&machine, Lock::Mcs, threads, seed);
        let mut ratios: Vec<f64> = (1..=5).map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        println!("   {:.2} [{:.2}-{:.2}]", ratios[2], ratios[0], ratios[4]);
    }
}
