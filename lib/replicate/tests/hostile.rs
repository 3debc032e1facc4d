//! Stress tests: threads that far outnumber the processors, readers that stay inside, operations that panic or are
//! leaked, threads that are short-lived. Memory stays bounded, no thread waits longer than it must, and every test
//! ends.
//!
//! Each test takes a second or less; the test of the longest operation takes eight. `ARCHIPELAGO_HOSTILE_SECONDS` sets
//! the duration of each test that has a load.
#![cfg(not(any(loom, miri, archipelago_sim)))]

use core::hint::black_box;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use archipelago_check::hostile::{Counting, alone, duration_or, some_try};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_platform::topology::Topology;
use archipelago_replicate::{Builder, Closures, Handle, Replicable, Replicated, Sequential, Stats};

#[global_allocator]
static HEAP: Counting = Counting::new();

/// Returns the duration of a load.
fn load_time() -> Duration {
    duration_or(Duration::from_millis(400))
}

/// Returns a time limit: at least twice the time that all tries of the test with the most loads need.
fn limit() -> Duration {
    USUAL + 40 * load_time()
}

/// Resets the peak of allocated memory. Returns the bytes allocated now, to which [`peak_above`] compares.
fn reset_peak() -> usize {
    HEAP.reset_peak();
    HEAP.bytes()
}

fn peak_above(before: usize) -> usize {
    HEAP.peak().saturating_sub(before)
}

/// A map whose operations own a box, so that leaked operations show in the allocated memory.
#[derive(Default)]
struct Map(BTreeMap<u64, u64>, u64);

const PAYLOAD: usize = 200;

struct Insert(u64, Box<[u8; PAYLOAD]>);

impl Insert {
    fn new(key: u64) -> Self {
        Self(key, Box::new([key as u8; PAYLOAD]))
    }
}

impl Sequential for Map {
    type Read = u64;
    type Write = Insert;
    /// The number of changes before this one.
    type Response = u64;

    fn read(&self, key: &u64) -> u64 {
        black_box(self.0.get(key));
        self.1
    }

    fn write(&mut self, Insert(key, payload): &Insert) -> u64 {
        assert!(payload.iter().all(|&byte| byte == *key as u8), "the operation as it was handed over");
        self.0.insert(key % 64, *key);
        self.1 += 1;
        self.1 - 1
    }
}

fn map() -> Builder<Map> {
    Replicated::builder()
}

/// Stops the writers when it is dropped, also by a failed assertion.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts a thread for each item of `replicas`. The thread writes through a handle of this replica until `stop`, and
/// returns its number of writes.
fn writers<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    replicated: &'scope Replicated<Map>,
    replicas: impl Iterator<Item = usize>,
    stop: &'scope AtomicBool,
) -> Vec<thread::ScopedJoinHandle<'scope, u64>> {
    let write = |replica| {
        move || {
            let mut handle = replicated.handle_on(replica);
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                handle.write(Insert::new(done)).unwrap();
                done += 1;
            }
            done
        }
    };
    replicas.map(|replica| scope.spawn(write(replica))).collect()
}

fn total(threads: Vec<thread::ScopedJoinHandle<'_, u64>>) -> u64 {
    threads.into_iter().map(|thread| thread.join().unwrap()).sum()
}

/// Adds helpers to the structure, if it is to have them.
fn helped<T: Replicable>(builder: Builder<T>, has_helpers: bool) -> Builder<T> {
    if has_helpers { builder.helper(Duration::from_micros(100)) } else { builder }
}

/// A reader stays in replica 0. The writers of all other replicas continue, for ten times the initial capacity of the
/// log. The log's memory is bounded and reported, and shrinks after the reader has left.
#[test]
fn a_reader_that_stays_stops_nobody_else() {
    let _alone = alone();
    watchdog(limit(), |notes| {
        for (replicas, has_helpers) in [(2, false), (3, false), (8, false), (3, true)] {
            notes.note(format!("{replicas} replicas, helpers: {has_helpers}"));
            let replicated = helped(map().replicas(replicas).log_capacity(64).largest_log(1 << 14), has_helpers);
            let replicated = replicated.build(Map::default);
            let changes = 640;
            let stats = replicated
                .inspect(0, |_| {
                    let write = |replica| {
                        let mut handle = replicated.handle_on(replica);
                        move || {
                            (0..changes).for_each(|at| {
                                handle.write(Insert::new(at)).unwrap();
                            })
                        }
                    };
                    // The writes run on other threads, because this thread is inside the structure. The test passes if
                    // they can be joined.
                    thread::scope(|scope| (1..replicas).for_each(|replica| drop(scope.spawn(write(replica)))));
                    replicated.stats()
                })
                .unwrap();
            let written = changes * (replicas as u64 - 1);
            assert!(stats.log_in_use >= written && stats.slowest_replica == 0, "{stats:?}");
            assert!(stats.passed_by > 0 && stats.log_growths > 0, "{stats:?}");
            assert_eq!(stats.writes, written);
            shrinks(&replicated, &stats, has_helpers);
        }
    });
}

/// After the readers have left, a log that has grown returns to its initial size while changes continue: for at most
/// four times the log's size, or, since helpers may not be scheduled for long, as soon as helpers have run.
fn shrinks(replicated: &Replicated<Map>, grown: &Stats, has_helpers: bool) {
    let mut handle = replicated.handle_on(0);
    for at in 0.. {
        let is_large = || replicated.stats().log_capacity > 64;
        if at >= 4 * grown.log_capacity && !(has_helpers && is_large()) {
            break;
        }
        handle.write(Insert::new(at)).unwrap();
    }
    let stats = replicated.stats();
    assert!(stats.log_capacity == 64 && stats.log_bytes * 8 < grown.log_bytes, "{grown:?}\n{stats:?}");
    let state = |at| replicated.inspect(at, |map| (map.1, map.0.clone())).unwrap();
    assert!((1..replicated.replicas()).all(|at| state(at) == state(0)), "replicas are equal in the end");
    replicated.sync().unwrap();
    assert_eq!(replicated.stats().log_in_use, 0);
}

/// The log has its largest size, and the reader stays inside. Writers wait, memory does not grow, the statistics report
/// the waits, and all threads continue when the reader leaves.
#[test]
fn a_log_at_its_largest_waits_for_the_reader() {
    let _alone = alone();
    watchdog(limit(), |_| {
        let before = reset_peak();
        let largest = 1 << 10;
        let replicated = map().replicas(2).log_capacity(16).largest_log(largest).build(Map::default);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let stopping = Stop(&stop);
            let (threads, stats) = replicated
                .inspect(0, |_| {
                    let threads = writers(scope, &replicated, [1; 4].into_iter(), &stop);
                    let wait_for = |what: &dyn Fn(Stats) -> bool| {
                        while !what(replicated.stats()) {
                            thread::yield_now();
                        }
                        replicated.stats()
                    };
                    let full = wait_for(&|stats| stats.log_capacity == largest as u64);
                    let stats = wait_for(&|stats| stats.room_waits > full.room_waits + 200);
                    let later = wait_for(&|later| later.room_waits > stats.room_waits + 50);
                    assert_eq!((stats.writes, stats.log_in_use), (later.writes, later.log_in_use), "it waits");
                    (threads, later)
                })
                .unwrap();
            assert!(stats.log_capacity == largest as u64, "{stats:?}");
            // A waiting thread appends nothing, and everything that was appended fits in the segments.
            let bound = 5 * largest / 2;
            assert!(stats.log_in_use <= bound as u64, "{stats:?}");
            let each = size_of::<Insert>() + PAYLOAD + 64;
            let peak = peak_above(before);
            assert!(peak < bound * each + (256 << 10), "{peak} bytes, {stats:?}");
            while replicated.stats().writes < 2 * stats.writes {
                thread::yield_now();
            }
            drop(stopping);
            assert!(total(threads) >= 2 * stats.writes);
        });
    });
}

/// Readers enter one after the other and stay for a while, on all replicas in turn, while writers write. Memory stays
/// within the bound of the log.
#[test]
fn readers_that_stay_one_after_the_other() {
    let _alone = alone();
    watchdog(limit(), |_| {
        let before = reset_peak();
        let largest = 1 << 12;
        let replicated = helped(map().replicas(3).log_capacity(16).largest_log(largest), true).build(Map::default);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let stopping = Stop(&stop);
            let threads = writers(scope, &replicated, (0..6).map(|at| at % 3), &stop);
            let end = Instant::now() + load_time();
            for replica in (0..3).cycle() {
                replicated.inspect(replica, |_| thread::sleep(Duration::from_millis(5))).unwrap();
                if Instant::now() > end {
                    break;
                }
            }
            drop(stopping);
            assert!(total(threads) > 100);
        });
        let each = size_of::<Insert>() + PAYLOAD + 64;
        let peak = peak_above(before);
        assert!(peak < 5 * largest / 2 * each + (1 << 20), "{peak} bytes, {:?}", replicated.stats());
        let states: Vec<u64> = (0..3).map(|at| replicated.inspect(at, |map| map.1).unwrap()).collect();
        assert!(states.iter().all(|&count| count == replicated.stats().writes), "{states:?}");
    });
}

/// Repeats `work` on `threads` threads. Returns the longest time between two completions on one thread, and the number
/// of completions.
fn longest(threads: usize, work: impl Fn(usize) + Sync) -> (Duration, u64) {
    let end = Instant::now() + duration_or(Duration::from_secs(2));
    let barrier = Barrier::new(threads);
    let each = |me| {
        barrier.wait();
        let (mut longest, mut count, mut last) = (Duration::ZERO, 0, Instant::now());
        while last < end {
            work(me);
            let now = Instant::now();
            longest = longest.max(now - last);
            (last, count) = (now, count + 1);
        }
        (longest, count)
    };
    thread::scope(|scope| {
        let each = &each;
        let all: Vec<_> = (0..threads).map(|me| scope.spawn(move || each(me))).collect();
        let all = all.into_iter().map(|thread| thread.join().unwrap());
        all.fold((Duration::ZERO, 0), |(long, sum), (longest, count)| (long.max(longest), sum + count))
    })
}

thread_local! {
    static OWN: RefCell<Option<Handle<Map>>> = const { RefCell::new(None) };
}

/// Sixty-four threads use all replicas of one structure, with few slots. No operation takes much longer than the
/// longest time that a thread of a control load is not scheduled. (The control load has as many threads, which only
/// read the clock.) Memory stays small. A load of less than two seconds does not suffice: it does not reveal a starving
/// thread, and the control's maximum varies too much (52 ms in one run, 220 ms in the next).
#[test]
fn threads_that_outnumber_the_processors() {
    let _alone = alone();
    watchdog(limit(), |notes| {
        let threads = 64;
        some_try(5, || {
            notes.note("control");
            let control = longest(threads, |_| _ = black_box(Instant::now())).0;
            [1, 2, 8].into_iter().try_for_each(|replicas| crowded(threads, replicas, control))
        });
    });
}

/// One part of [`threads_that_outnumber_the_processors`], with this number of replicas.
fn crowded(threads: usize, replicas: usize, control: Duration) -> Result<(), String> {
    let before = reset_peak();
    let replicated = map().replicas(replicas).slots(8).log_capacity(64).largest_log(1 << 12);
    let replicated = replicated.build(Map::default);
    let (longest, count) = longest(threads, |me| {
        OWN.with_borrow_mut(|handle| {
            let handle = handle.get_or_insert_with(|| replicated.handle_on(me % replicas));
            if me % 4 == 0 { handle.read(&1) } else { handle.write(Insert::new(me as u64)) }.unwrap();
        });
    });
    let stats = replicated.stats();
    // A request may wait until its combiner is scheduled, and then until its own thread is scheduled. The combiner may
    // also wait until a combiner of another replica, which has reserved entries, is scheduled.
    let in_time = longest < 4 * control.max(Duration::from_millis(20));
    assert!(count > 1000, "{count} operations, {stats:?}");
    // The bound: a log that is full of operations, and four KiB for each thread.
    let peak = peak_above(before);
    let bound = 5 * (1 << 12) / 2 * (size_of::<Insert>() + 8 + PAYLOAD) + threads * (4 << 10);
    assert!(peak < bound && stats.log_bytes < 1 << 20, "{peak} bytes, {stats:?}");
    eprintln!("{replicas} replicas: {longest:?}, control {control:?}, {count} operations, {peak} bytes");
    if in_time { Ok(()) } else { Err(format!("{longest:?}, control {control:?}, {stats:?}")) }
}

/// Short-lived threads with handles in thread-locals whose destructors also write.
#[test]
fn threads_that_come_and_go_with_thread_locals() {
    /// Writes once more when its thread ends.
    struct LastWords(Handle<Map>);
    impl Drop for LastWords {
        fn drop(&mut self) {
            self.0.write(Insert::new(7)).unwrap();
            assert!(self.0.read(&7).unwrap() > 0);
        }
    }
    thread_local! {
        static LAST: RefCell<Option<LastWords>> = const { RefCell::new(None) };
    }
    let _alone = alone();
    watchdog(limit(), |_| {
        let replicated = map().topology(Topology::synthetic(4, 2)).log_capacity(16).dedicated_combiners();
        let replicated = helped(replicated, true).build(Map::default);
        let mut written = 0;
        let end = Instant::now() + load_time();
        let before = HEAP.bytes();
        while Instant::now() < end {
            let threads = (0..16).map(|_| {
                let handle = LastWords(replicated.handle());
                thread::spawn(move || {
                    LAST.with_borrow_mut(|last| last.insert(handle).0.write(Insert::new(1)).unwrap());
                })
            });
            threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
            written += 32;
        }
        assert_eq!(replicated.handle().read(&0).unwrap(), written);
        let grown = HEAP.bytes().saturating_sub(before);
        assert!(grown < 1 << 20, "{grown} bytes for threads that are gone");
    });
}

/// Operations panic under load, with different numbers of replicas. Each thread gets an answer or the error, and ends.
#[test]
fn operations_that_panic() {
    let _alone = alone();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    watchdog(limit(), |_| {
        let end = Instant::now() + load_time();
        for round in 0.. {
            let replicas = 1 + round % 8;
            let replicated = Replicated::builder().replicas(replicas).log_capacity(4).slots(2);
            let replicated = helped(replicated, round % 3 == 1).build(|| Closures::new(0_u64));
            let refused = AtomicU64::new(0);
            thread::scope(|scope| {
                for me in 0..16 {
                    let (mut handle, refused) = (replicated.handle(), &refused);
                    scope.spawn(move || {
                        // The thread works until it gets the error. The number of its operations before the fatal one
                        // is not fixed.
                        let done = (0_u64..).take_while(|&at| {
                            let fatal = me == 0 && at == 20;
                            let change = move |sum: &mut u64| *sum += if fatal { panic!("as planned") } else { 1 };
                            handle.update(change).is_ok()
                        });
                        done.for_each(drop);
                        refused.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
            assert_eq!(refused.into_inner(), 16);
            assert!(replicated.sync().is_err() && replicated.inspect(0, |_| ()).is_err());
            if Instant::now() > end && round >= 8 {
                break;
            }
        }
    });
    std::panic::set_hook(hook);
}
