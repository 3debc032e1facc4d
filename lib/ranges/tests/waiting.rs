//! How changes wait for each other, and for reads that lock: they sleep, and no thread is passed for ever. Whether a
//! thread sleeps is read from Linux.
#![cfg(all(target_os = "linux", not(any(miri, archipelago_sim))))]

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::Duration;

use archipelago_ranges::RangeMap;

/// A thread, as Linux sees it.
#[derive(Default)]
struct Observed(OnceLock<String>);

impl Observed {
    /// Called by the thread.
    fn begin(&self) {
        let task = fs::read_link("/proc/thread-self").unwrap();
        self.0.set(format!("/proc/{}/stat", task.display())).unwrap();
    }

    /// Returns whether the thread has begun, and sleeps now.
    fn sleeps(&self) -> bool {
        let Some(path) = self.0.get() else { return false };
        // The state follows the name, which is in parentheses.
        fs::read_to_string(path).is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')))
    }
}

/// Waits until `condition` is true in twenty looks one after the other, a millisecond apart.
///
/// # Panics
/// If this does not happen within 20,000 looks.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let mut looks = 0;
    for _ in 0..20_000 {
        looks = if condition() { looks + 1 } else { 0 };
        if looks == 20 {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("not in 20,000 looks: {what}");
}

/// Threads that wait for a leaf do not use the processor while a closure runs.
#[test]
fn changes_sleep_while_they_wait_for_a_slow_closure() {
    const WAITING: usize = 4;
    let map: RangeMap<u64, u64> = (0..8).map(|at| (at * 10..at * 10 + 9, at)).collect();
    let threads: [Observed; WAITING] = Default::default();
    thread::scope(|scope| {
        map.change(0..1, |_, value| {
            for (at, thread) in threads.iter().enumerate() {
                let map = &map;
                scope.spawn(move || {
                    thread.begin();
                    map.insert(at as u64 * 10 + 2..at as u64 * 10 + 3, 100);
                });
            }
            wait_until("all waiting threads sleep", || threads.iter().all(Observed::sleeps));
            value + 50
        });
    });
    assert_eq!([0, 2, 12, 22, 32].map(|point| map.get(point)), [Some(50), Some(100), Some(100), Some(100), Some(100)]);
}

/// One thread changes a leaf again and again, and begins each change directly after the last one. Each change lasts
/// until the other thread, which waits for the leaf, sleeps again, so the other thread is always too late. It gets the
/// leaf nevertheless.
#[test]
fn a_waiting_change_is_passed_a_few_times_only() {
    const PASSES: usize = 8;
    let map: RangeMap<u64, u64> = (0..8).map(|at| (at * 10..at * 10 + 9, at)).collect();
    let (thread, done) = (Observed::default(), AtomicBool::new(false));
    let passes = thread::scope(|scope| {
        let change = |begin: &dyn Fn()| {
            map.change(0..1, |_, value| {
                begin();
                wait_until("the other thread sleeps or is done", || thread.sleeps() || done.load(Ordering::Relaxed));
                value + 1
            });
        };
        change(&|| {
            scope.spawn(|| {
                thread.begin();
                map.insert(12..13, 100);
                done.store(true, Ordering::Relaxed);
            });
        });
        (0..PASSES).position(|_| {
            change(&|| {});
            done.load(Ordering::Relaxed)
        })
    });
    assert!(passes.is_some(), "{PASSES} changes have passed a waiting one");
    assert_eq!(map.get(12), Some(100));
}

/// Many more threads than processors: readers of the whole map, threads that lock the whole map, and one that changes
/// it. All of them finish what they have to do, however much the others do meanwhile.
#[test]
fn changes_finish_beside_reads_of_the_whole_map_and_reads_beside_changes() {
    const RANGES: u64 = 2_000;
    const CHANGES: u64 = 300;
    const READERS: usize = 6;
    const READS: usize = 20;
    let map: RangeMap<u64, u64> = (0..RANGES).map(|at| (at * 4..at * 4 + 2, at)).collect();
    let (readers_left, done) = (AtomicUsize::new(2 * READERS), AtomicBool::new(false));
    let begin = Barrier::new(2 * READERS + 1);
    // A reader goes on until the changes are done, and the changes go on until all readers are done.
    let read = |read: &dyn Fn()| {
        begin.wait();
        let mut reads = 0;
        while reads < READS || !done.load(Ordering::Relaxed) {
            read();
            reads += 1;
            if reads == READS {
                readers_left.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    let look = || assert_eq!(map.pin().iter().count() as u64, RANGES);
    // An insertion that fails locks all leaves, as a read does after eight attempts.
    let lock = || assert_eq!(map.try_insert(0..u64::MAX, 0).unwrap_err().range, 0..2);
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| read(&look));
            scope.spawn(|| read(&lock));
        }
        begin.wait();
        let mut changes = 0;
        while changes < CHANGES || readers_left.load(Ordering::Relaxed) > 0 {
            changes += 1;
            let at = changes * 7 % (RANGES - 1) + 1;
            map.insert(at * 4..at * 4 + 2, RANGES + changes);
        }
        done.store(true, Ordering::Relaxed);
    });
    map.check_invariants();
}
