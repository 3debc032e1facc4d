//! Tests the waits for lines, links and memory controllers: they are never longer than the demand before them.

mod common;

use std::cell::Cell;

use archipelago_sim::{Client, Config, Machine, Outcome, Placement, Report, run_with, world};
use common::{Word, machine};

/// Returns a machine whose cores make one miss after the other, so that only prefetches overlap.
fn one_miss_at_a_time() -> Machine {
    Machine { overlap: 1.0, ..Machine::preset("xeon-8180-4s").expect("it is a preset") }
}

/// The lines of one walk: more than a core has miss buffers.
const LINES: usize = 40;
const WALKS: usize = 30;

/// Threads on all sockets walk over lines that others have written, with or without a prefetch of the whole walk first.
/// Returns the time of the slowest walk, in nanoseconds, and the report.
fn walks(threads: usize, prefetches: bool) -> (u64, Report) {
    let slowest = Cell::new(0);
    let words = || (0..threads * LINES).map(Word::new_of).collect::<Vec<_>>();
    let body = |words: &Vec<Word>, client: Client| {
        for walk in 0..WALKS {
            let first = (client.index + walk) % threads * LINES;
            let before = world::now();
            if prefetches {
                words[first..first + LINES].iter().for_each(|word| world::prefetch((&raw const *word).cast()));
            }
            let sum: u64 = words[first..first + LINES].iter().map(Word::get).sum();
            slowest.set(slowest.get().max(world::now() - before));
            words[first + walk].set(sum);
        }
    };
    let config = Config { placement: Placement::Spread, ..Config::seeded(1) };
    let machine = one_miss_at_a_time();
    let report = run_with(&machine, &config, threads, words, body, drop).0;
    assert_eq!(report.outcome, Outcome::Done);
    (slowest.get(), report)
}

#[test]
fn prefetches_do_not_make_time_run_away() {
    for threads in [2, 4, 8, 32] {
        let ((plain, _), (prefetched, report)) = (walks(threads, false), walks(threads, true));
        assert!(prefetched < plain, "{threads} threads: {prefetched} ns with prefetches, {plain} ns without");
        assert!(report.stats.prefetches_dropped > 0 && report.stats.prefetches > 0);
    }
}

#[test]
fn nothing_is_reserved_for_later() {
    // One thread has stores in progress for which a locked instruction waits. The instruction's line must not arrive
    // before another thread's access to it.
    let machine = one_miss_at_a_time();
    let words = || (0..300).map(Word::new_of).collect::<Vec<_>>();
    let times = [Cell::new(0), Cell::new(0)];
    let body = |words: &Vec<Word>, client: Client| {
        world::sleep(1_000);
        if client.index == 0 {
            words[..5].iter().for_each(|word| word.set(7));
            words[299].add(1);
        } else {
            world::work(150);
            let before = world::now_ps();
            words[299].add(1);
            times[1].set(world::now_ps() - before);
        }
        times[client.index].set(times[client.index].get().max(1));
    };
    let config = Config { placement: Placement::Cpus(vec![0, 1]), ..Config::seeded(1) };
    run_with(&machine, &config, 2, words, body, drop).0.assert_done();
    // The other thread is first at the line: its access takes the time of a memory access, and does not wait for the
    // five stores of the first thread.
    assert!(times[1].get() < 200_000, "{} ps", times[1].get());
}

#[test]
fn invalidations_and_write_backs_are_traffic() {
    // The line has one writer and fifteen readers, on four sockets. At each write, three sockets invalidate their
    // copies.
    let config = Config { placement: Placement::Spread, ..Config::seeded(1) };
    let body = |word: &Word, client: Client| {
        for turn in 0..100 {
            if client.index == 0 {
                world::sleep(2_000);
                word.set(turn + 1);
            } else {
                while word.get() <= turn {
                    world::spin_hint();
                }
            }
        }
    };
    let report = run_with(&machine(), &config, 16, || Word::new(0), body, drop).0.assert_done();
    assert!((250..=350).contains(&report.stats.invalidations), "{}", report.stats.invalidations);
    // Each value is written to memory when another socket reads it.
    assert!((90..=101).contains(&report.stats.write_backs), "{}", report.stats.write_backs);
}

#[test]
fn changed_lines_that_no_cache_has_room_for_go_to_memory() {
    let mut machine = Machine::preset("xeon-8180-4s").unwrap();
    machine.caches.l2.sets = 16;
    machine.caches.l3.sets = 16;
    let words = || (0..4_000).map(Word::new_of).collect::<Vec<_>>();
    for (writes, expected) in [(false, 0..=0), (true, 3_000..=4_000)] {
        let body = |words: &Vec<Word>, _| {
            for word in words {
                if writes { word.set(1 << 40) } else { assert!(word.get() < 1 << 40) }
            }
        };
        let report = run_with(&machine, &Config::seeded(1), 1, words, body, drop).0.assert_done();
        assert!(expected.contains(&report.stats.write_backs), "{}", report.stats.write_backs);
    }
}

/// A changed line that only another socket's third-level cache has comes from that cache, although the reader's own memory
/// is nearer.
#[test]
fn changed_lines_of_another_cache_do_not_come_from_memory() {
    let mut machine = Machine::preset("xeon-8180-4s").unwrap();
    machine.caches.l2.sets = 4;
    let [home, other] = [0, 1].map(|node| machine.cpus_of(node).next().unwrap());
    let config = Config { placement: Placement::Cpus(vec![home, other]), ..Config::seeded(1) };
    let words = || (0..1_000).map(Word::new_of).collect::<Vec<_>>();
    let read = Cell::new(archipelago_sim::Stats::default());
    let body = |words: &Vec<Word>, client: Client| {
        if client.node == 1 {
            words.iter().for_each(|word| word.set(1 << 40));
            return;
        }
        world::sleep(1_000_000);
        let before = world::stats().unwrap();
        assert!(words.iter().all(|word| word.get() == 1 << 40));
        read.set(world::stats().unwrap().since(&before));
    };
    run_with(&machine, &config, 2, words, body, drop).0.assert_done();
    let read = read.get();
    assert_eq!((read.dirty_remote, read.clean_remote, read.memory_local, read.write_backs), (1_000, 0, 0, 1_000));
}

/// Panics when it is dropped.
struct Brittle;

impl Drop for Brittle {
    fn drop(&mut self) {
        panic!("half-done work");
    }
}

#[test]
fn a_run_that_ends_badly_can_be_left_as_it_is() {
    let config = Config { unwind: false, ..Config::seeded(1) };
    let body = |_: &Word, _: Client| {
        let _brittle = Brittle;
        world::park();
    };
    let (report, result) = run_with(&machine(), &config, 2, || Word::new(0), body, drop);
    assert!(result.is_none() && matches!(report.outcome, Outcome::Deadlock { .. }));
    assert_eq!(report.abandoned, 3);
}
