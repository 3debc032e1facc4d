//! Equal seeds give equal runs: within one process, and across processes with their different address spaces.

mod common;

use std::cell::Cell;
use std::process::Command;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use archipelago_sim::{Config, Machine, Outcome, Placement, Report, Schedule, SimAlloc, run_with, world};
use common::{Word, machine};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// Keeps other tests from running, since their heaps might be at the addresses where this test's heap would be.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The environment variable that tells a child process which simulation to run.
const CHILD: &str = "ARCHIPELAGO_SIM_DETERMINISM_CHILD";

/// Runs threads that allocate, share, compete for a lock, sleep and free.
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
    // The environment is on the stack, so its length shifts the addresses of what follows.
    command.env(CHILD, number.to_string()).env("ARCHIPELAGO_SIM_FILLER", environment);
    let output = command.args(["--exact", "equal_across_processes", "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split("hash ").nth(1));
    line.unwrap_or_else(|| panic!("no hash in {text}")).to_string()
}

#[test]
fn equal_across_processes() {
    let _alone = alone();
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
    let _alone = alone();
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
    let _alone = alone();
    let word = || Word::new(0);
    let hash = |seed| {
        let machine = Machine::preset("xeon-8180-4s").unwrap();
        run_with(&machine, &Config::seeded(seed), 8, word, |word, _| (0..50).for_each(|_| word.lock_and_count()), drop)
            .0
            .hash
    };
    assert_ne!(hash(1), hash(2));
}

/// Returns the address of the next run's first block.
fn first_block() -> usize {
    let setup = || Box::new(0_u64);
    run_with(&machine(), &Config::seeded(1), 1, setup, |_, _| (), |block| (&raw const *block).addr()).1.unwrap()
}

#[test]
fn runs_give_their_heaps_back_however_they_end() {
    let _alone = alone();
    let before = first_block();
    let filling = || {
        let mut blocks = Vec::new();
        loop {
            blocks.push(Box::new([1_u64; 20]));
            if blocks.len() > 100 {
                blocks.clear();
                world::yield_now();
            }
        }
    };
    for seed in 0..100 {
        let panics = seed % 2 == 0;
        let setup = || drop(world::spawn_background(None, Box::new(filling)));
        let body = |_: &(), client: archipelago_sim::Client| {
            for turn in 0..50 + 10 * client.index {
                let blocks: Vec<_> = (0..20).map(|_| Box::new([turn; 20])).collect();
                if panics && client.index == 1 && turn == 40 {
                    std::panic::resume_unwind(Box::new("planned"));
                }
                drop(blocks);
            }
        };
        let report = run_with(&machine(), &Config::seeded(seed), 4, setup, body, drop).0;
        assert_eq!((report.outcome != Outcome::Done, report.abandoned), (panics, 0));
        drop(report);
        // A block that is not freed keeps the run's whole heap.
        assert_eq!(first_block(), before, "seed {seed}");
    }
}

#[test]
fn allocations_cost_the_same_where_no_arena_is_left() {
    let _alone = alone();
    let program = || {
        let setup = || Word::new(0);
        let body = |word: &Word, _| {
            let blocks: [_; 50] = std::array::from_fn(|_| Box::new(Word::new(word.add(1))));
            drop(blocks);
        };
        run_with(&machine(), &Config::seeded(1), 2, setup, body, Box::new)
    };
    let before = program().0.stats.accesses;
    let kept: Vec<_> = (0..90).map(|_| program()).collect();
    // If the heap is the process's, the program frees each thread's body, which is one more access each.
    let same = before..=before + 2;
    kept.iter().for_each(|(report, _)| assert!(same.contains(&report.stats.accesses), "{}", report.stats.accesses));
    // Each kept run occupies a part of the address space, until no part is left. The reports tell which runs have one.
    let own: Vec<bool> = kept.iter().map(|(report, _)| report.own_heap).collect();
    assert!(own.iter().filter(|own| **own).count() <= 80 && own[0] && !own[89] && own.is_sorted_by_key(|own| !own));
    drop(kept);
    assert!(program().0.own_heap);
}

#[test]
fn a_run_may_allocate_more_than_an_arena_has_room_for() {
    let _alone = alone();
    let body = |_: archipelago_sim::Client| {
        for turn in 0..1_100 {
            let mut block = vec![0_u8; 64 << 20];
            assert_eq!(std::mem::replace(&mut block[turn], 1), 0);
        }
    };
    archipelago_sim::run(&machine(), &Config::seeded(1), 1, body).assert_done();
}

/// The bytes that a program holds are those that it asked for and did not free, whichever thread did so.
#[test]
fn what_a_program_holds_is_counted() {
    const SIZES: [usize; 3] = [40, 5_000, 100_000];
    let _alone = alone();
    let held = || world::held_bytes().unwrap();
    let blocks = || SIZES.map(|size| vec![1_u8; size].into_boxed_slice());
    let all: usize = SIZES.iter().sum();
    let setup = || {
        let before = held();
        let blocks = blocks();
        assert_eq!(held() - before, all);
        // What is made outside of the run is not the program's, and what is freed there was the program's.
        let others = world::outside(|| vec![1_u8; 7_000]);
        let own = vec![1_u8; 3_000];
        world::outside(|| drop(own));
        assert_eq!(held() - before, all);
        drop(others);
        assert_eq!(held() - before, all);
        (before, Mutex::new(Some(blocks)))
    };
    let body = |(before, kept): &(usize, Mutex<Option<_>>), client: archipelago_sim::Client| {
        if client.index == 0 {
            let with_those_of_setup = held();
            let mine = blocks();
            assert_eq!(held() - with_those_of_setup, all);
            drop(mine);
            drop(kept.lock().unwrap().take());
            assert_eq!(with_those_of_setup - held(), all);
            assert!(held() >= *before);
        }
    };
    let run = || run_with(&machine(), &Config::seeded(1), 2, setup, body, |_| held()).1.unwrap();
    assert_eq!(run(), run(), "equal runs hold as much");
    assert_eq!(world::held_bytes(), None);
}

/// A value that counts when it is dropped, and then ends its thread, if it has a thread.
struct Worker {
    stop: Arc<Word>,
    thread: Option<usize>,
    blocks: Vec<Vec<u8>>,
    dropped: Rc<Cell<u32>>,
}

impl Worker {
    fn new(with_thread: bool, dropped: &Rc<Cell<u32>>) -> Worker {
        let stop = Arc::new(Word::new(0));
        let seen = stop.clone();
        let work = move || {
            let mut mine = Vec::new();
            while seen.get() == 0 {
                world::sleep(1_000);
                mine.push(Box::new(Word::new(0)));
                mine.last().unwrap().add(1);
            }
        };
        let thread = with_thread.then(|| world::spawn_background(None, Box::new(work)).ok().unwrap());
        let blocks = vec![vec![1; 500]; 50];
        Worker { stop, thread, blocks, dropped: dropped.clone() }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.dropped.set(self.dropped.get() + 1);
        self.stop.set(1);
        self.thread.into_iter().for_each(world::join);
    }
}

/// What a process abandons stays allocated, and the run has the same steps as if all were freed. A value that ends a
/// thread is dropped.
#[test]
fn what_is_abandoned_is_not_freed() {
    let _alone = alone();
    let run = |with_thread: bool, abandons: bool| {
        let dropped = Rc::new(Cell::new(0));
        let setup = || Worker::new(with_thread, &dropped);
        let body = |worker: &Worker, _: archipelago_sim::Client| {
            worker.blocks.iter().for_each(|block| drop(block.clone()));
            world::work(5_000);
        };
        let teardown = |worker: Worker| {
            let held = world::held_bytes().unwrap();
            if abandons {
                world::abandon(worker)
            } else {
                drop(worker)
            }
            held - world::held_bytes().unwrap()
        };
        let (report, freed) = run_with(&machine(), &Config::seeded(1), 3, setup, body, teardown);
        let report = report.assert_done();
        ((report.hash, report.stats), freed.unwrap(), dropped.get())
    };
    for with_thread in [false, true] {
        let (steps, freed, dropped) = run(with_thread, false);
        assert!(freed >= 50 * 500 && dropped == 1, "{freed}");
        let (steps_too, freed, dropped) = run(with_thread, true);
        assert_eq!(steps_too, steps, "{with_thread}");
        // The thread frees its own blocks.
        assert!(freed < 50 * 500, "{freed}");
        assert_eq!(dropped, u32::from(with_thread));
    }
}
