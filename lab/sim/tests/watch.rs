//! Tests that unannounced plain accesses to shared memory are found, and no others; and that threads can be stopped
//! before such accesses.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]

mod common;

use std::cell::UnsafeCell;

use archipelago_sim::{Config, Outcome, Report, Schedule, SimAlloc, Unannounced, explore, find, run_with, world};
use common::races::{hidden_counter, hidden_publication, hidden_sequence_lock};
use common::{Word, machine};

#[global_allocator]
static HEAP: SimAlloc = SimAlloc;

/// Plain memory on the arena's heap, and a word that says whose turn it is.
struct Shared {
    turn: Word,
    plain: Box<UnsafeCell<[u64; 8]>>,
}

/// Three threads take turns to run `use_it` on the same plain memory, five times each.
fn found(use_it: impl Fn(*mut u64)) -> Vec<Unannounced> {
    let config = Config { watch: true, ..Config::default() };
    let setup = || Shared { turn: Word::new(0), plain: Box::new(UnsafeCell::new([0; 8])) };
    let body = |shared: &Shared, client: archipelago_sim::Client| {
        for round in 0..5 {
            while shared.turn.get() != (round * client.threads + client.index) as u64 {
                world::spin_hint();
            }
            use_it(shared.plain.get().cast());
            shared.turn.add(1);
        }
        // Private memory needs no announcement.
        let mine = std::hint::black_box(vec![client.index; 100]);
        assert_eq!(mine.iter().sum::<usize>(), 100 * client.index);
    };
    run_with(&machine(), &config, 3, setup, body, drop).0.assert_done().unannounced
}

/// Returns the findings for lines that change. The pointer to the plain memory does not change.
fn changing(use_it: impl Fn(*mut u64)) -> Vec<Unannounced> {
    found(use_it).into_iter().filter(|place| place.changing).collect()
}

#[test]
fn a_forgotten_write_is_found() {
    // SAFETY: threads take turns.
    let found = found(|plain| unsafe { plain.write_volatile(plain.read_volatile() + 1) });
    assert!(found.iter().any(|place| place.writes && place.changing), "{found:?}");
    assert!(found.iter().all(|place| place.lines == 1 && place.place.contains("watch.rs")), "{found:?}");
}

#[test]
fn a_read_announcement_covers_no_write() {
    let found = changing(|plain| {
        world::touch(plain.cast(), 8);
        // SAFETY: threads take turns.
        unsafe { plain.write_volatile(1) };
    });
    assert_eq!((found.len(), found[0].writes, found[0].accesses), (1, true, 15), "{found:?}");
}

#[test]
fn announced_accesses_are_not_reported() {
    let found = changing(|plain| {
        world::touch_mut(plain.cast(), 8);
        // SAFETY: threads take turns.
        unsafe { plain.write_volatile(plain.read_volatile() + 1) };
    });
    assert!(found.is_empty(), "{found:?}");
}

/// An access that was charged is made without a fault, in the arena too, and is no plain one.
#[test]
fn charged_accesses_are_no_plain_ones() {
    let config = Config { watch: true, plain_points: 1, ..Config::default() };
    let setup = || vec![Word::new(0)];
    let body = |words: &Vec<Word>, _: archipelago_sim::Client| (0..100).for_each(|_| _ = words[0].add(1));
    let report = run_with(&machine(), &config, 2, setup, body, |words| assert_eq!(words[0].get(), 200)).0.assert_done();
    assert!(report.stats.plain_points < 100, "{}", report.stats.plain_points);
}

#[test]
fn what_only_is_read_is_told_apart() {
    // SAFETY: threads take turns, and only read.
    let found = found(|plain| assert_eq!(unsafe { plain.read_volatile() }, 0));
    assert!(!found.is_empty() && found.iter().all(|place| !place.writes && !place.changing), "{found:?}");
}

const SCHEDULES: u64 = 300;

/// Runs a race between plain accesses. A schedule that stops only at announced accesses never shows it; both kinds of
/// schedules show it if they also stop at plain accesses.
fn hidden_race(program: fn(&Config, bool) -> Report, broken: bool) {
    for schedule in [Schedule::Random, Schedule::Pct { depth: 3 }] {
        let announced = Config { schedule, ..Config::seeded(1) };
        assert!(find(&announced, SCHEDULES, |config| program(config, broken)).is_none(), "{schedule:?}");
        let config = Config { plain_points: 2, ..announced };
        let found = find(&config, SCHEDULES, |config| program(config, broken));
        let found = found.unwrap_or_else(|| panic!("{schedule:?} finds nothing"));
        assert!(found.stats.plain_points > 0);
        if schedule == Schedule::Random {
            let again = program(&Config { seed: found.seed, ..config.clone() }, broken);
            assert_eq!((again.outcome, again.hash), (found.outcome, found.hash), "the seed shows it again");
        }
        explore(&config, SCHEDULES / 5, |config| program(config, !broken));
    }
}

#[test]
fn lost_update_of_plain_memory() {
    hidden_race(hidden_counter, false);
}

#[test]
fn missing_validation_of_plain_memory() {
    hidden_race(hidden_sequence_lock, false);
}

#[test]
fn use_before_publish_of_plain_memory() {
    hidden_race(hidden_publication, true);
}

/// The contents of a thread's registers, including the wide ones, are unchanged when the thread continues.
#[test]
fn threads_that_are_stopped_keep_their_registers() {
    let config = Config { schedule: Schedule::Random, plain_points: 1, ..Config::seeded(3) };
    let setup = || (0..4).map(|_| Box::new([0_u64; 64])).collect::<Vec<_>>();
    let body = |blocks: &Vec<Box<[u64; 64]>>, client: archipelago_sim::Client| {
        let mut mine = Box::new([client.index as u64; 64]);
        for round in 0..20_u64 {
            let (mut sum, mut product) = (0.5_f64, 1.0_f64);
            for (at, word) in std::hint::black_box(&mut *mine).iter_mut().enumerate() {
                sum += *word as f64;
                product *= 1.0 + (*word % 2) as f64 / 64.0;
                *word += at as u64 + round;
            }
            let copy = std::hint::black_box(&mine).clone();
            assert_eq!(copy, mine);
            assert!(sum >= 0.5 && product >= 1.0);
        }
        let expected: [u64; 64] = std::array::from_fn(|at| client.index as u64 + 20 * at as u64 + 190);
        assert_eq!(*mine, expected);
        assert_eq!(blocks[client.index][..], [0; 64]);
    };
    let report = run_with(&machine(), &config, 4, setup, body, drop).0;
    assert_eq!(report.outcome, Outcome::Done);
    assert!(report.stats.plain_points > 1_000, "{}", report.stats.plain_points);
}

/// The number of a panic's accesses depends on the process's caches, so these accesses are no steps of the schedule.
#[test]
fn accesses_of_a_panic_are_no_steps() {
    /// Writes plainly as its thread unwinds.
    struct Last<'b>(&'b UnsafeCell<[u64; 200]>);
    impl Drop for Last<'_> {
        fn drop(&mut self) {
            // SAFETY: the run's only client.
            (0..200).for_each(|at| unsafe { self.0.get().cast::<u64>().add(at).write_volatile(7) });
        }
    }
    let config = Config { schedule: Schedule::Random, plain_points: 1, ..Config::seeded(1) };
    let setup = || vec![UnsafeCell::new([0; 200])];
    // Without the hook, which would look for the panic's symbols in closed memory.
    let end = |blocks: &Vec<_>| {
        let _last = Last(&blocks[0]);
        std::panic::resume_unwind(Box::new("the end"));
    };
    let report = run_with(&machine(), &config, 1, setup, |blocks, _| end(blocks), drop).0;
    assert!(matches!(report.outcome, Outcome::Panicked { .. }), "{:?}", report.outcome);
    assert!(report.stats.plain_points < 100, "{}", report.stats.plain_points);
}

/// The engine's own memory is not the program's. (The engine once allocated in the arena while the arena was
/// inaccessible, and never returned.)
#[test]
fn given_choices_stop_before_plain_accesses_too() {
    let config = Config { schedule: Schedule::Chosen, plain_points: 1, ..Config::seeded(1) };
    let setup = || Box::new(UnsafeCell::new([0_u64; 8]));
    let write = |block: &UnsafeCell<[u64; 8]>| {
        for at in 0..8 {
            // SAFETY: the threads of a run take turns on one OS thread.
            unsafe { block.get().cast::<u64>().add(at).write_volatile(7) };
        }
    };
    let report = run_with(&machine(), &config, 2, setup, |block, _| write(block), drop).0.assert_done();
    assert!(report.stats.plain_points >= 16 && report.trace.len() >= 8, "{}", report.trace.len());
}
