//! Every lock under its worst conditions: many more threads than cores, guards that are never dropped, panics, and
//! thread-locals whose destructors lock.
//!
//! Waits are compared with a control in the same run (the time for which a ready thread is kept from running), because
//! a test does not know the load of the machine. `ARCHIPELAGO_HOSTILE_SECONDS=20` sets the duration of each load.
#![cfg(not(any(loom, archipelago_sim)))]

use std::cell::RefCell;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use archipelago_check::hostile::{
    Counting, Longest, alone, beside, duration_or, in_turns, limit, longest_gap, press, some_try, within,
};
use archipelago_check::watchdog::watchdog;
use archipelago_platform::topology::Topology;
use archipelago_sync::lock::{
    Mutex, RawBravo, RawCboMcs, RawCna, RawCohort, RawCrwNp, RawCrwRp, RawCrwWp, RawDistributedRwLock, RawHmcs, RawMcs,
    RawShfl, RawShflRw, RawTas, RawTicket, RawTtas, RawUnqueuedRwLock, RwLock,
};
use lock_api::{RawMutex, RawRwLock};

#[global_allocator]
static HEAP: Counting = Counting::new();

/// The value under a lock, changed by one thread at a time.
type Words = [u64; 2];

fn change(words: &mut Words, steps: u64) {
    let before = words[0];
    words[0] = before + 1;
    (0..steps).for_each(|step| _ = std::hint::black_box(step));
    assert_eq!(words[1], before, "two threads are in at once");
    words[1] = before + 1;
}

/// One lock of either kind. `round` takes it once, holds it for `steps` steps, and returns the time at which it had the
/// lock.
trait Tested: Default + Sync {
    fn round(&self, number: u64, steps: u64) -> Instant;
    /// Locks and never unlocks: for reading if the lock has readers and `shared` is true, otherwise for writing.
    fn leak(&self, shared: bool);
    fn is_free(&self) -> bool;
    fn rounds(self) -> u64;
}

impl<R: RawMutex + Sync> Tested for Mutex<R, Words> {
    fn round(&self, _: u64, steps: u64) -> Instant {
        let mut words = self.lock();
        let got = Instant::now();
        change(&mut words, steps);
        got
    }

    fn leak(&self, _: bool) {
        forget(self.lock());
    }

    fn is_free(&self) -> bool {
        self.try_lock().is_some()
    }

    fn rounds(self) -> u64 {
        self.into_inner()[0]
    }
}

impl<R: RawRwLock + Sync> Tested for RwLock<R, Words> {
    /// One round in ten writes. Reads are not counted.
    fn round(&self, number: u64, steps: u64) -> Instant {
        if number.is_multiple_of(10) {
            let mut words = self.write();
            let got = Instant::now();
            change(&mut words, steps);
            return got;
        }
        let words = self.read();
        let got = Instant::now();
        (0..steps).for_each(|step| _ = std::hint::black_box(step));
        assert_eq!(words[0], words[1], "a writer is in beside a reader");
        got
    }

    fn leak(&self, shared: bool) {
        if shared { forget(self.read()) } else { forget(self.write()) }
    }

    fn is_free(&self) -> bool {
        self.try_write().is_some()
    }

    fn rounds(self) -> u64 {
        self.into_inner()[0]
    }
}

trait Test {
    /// `name` is the lock's name, `allocates` the number of bytes that it may allocate, and `fair` tells whether none
    /// of its waiters may starve.
    fn run<L: Tested + 'static>(&self, name: &str, allocates: usize, fair: bool);
}

fn each(test: &impl Test) {
    let topology = Topology::current();
    let nodes = 128 * topology.nodes().len().next_power_of_two();
    let slots = 128 * topology.cpus().len().next_power_of_two();
    test.run::<Mutex<RawShfl, Words>>("RawShfl", 0, true);
    test.run::<Mutex<RawTas, Words>>("RawTas", 0, false);
    test.run::<Mutex<RawTtas, Words>>("RawTtas", 0, false);
    test.run::<Mutex<RawTicket, Words>>("RawTicket", 0, true);
    test.run::<Mutex<RawMcs, Words>>("RawMcs", 0, true);
    test.run::<Mutex<RawCna, Words>>("RawCna", 0, true);
    test.run::<Mutex<RawCohort, Words>>("RawCohort", nodes, true);
    test.run::<Mutex<RawHmcs, Words>>("RawHmcs", nodes, true);
    test.run::<Mutex<RawCboMcs, Words>>("RawCboMcs", nodes, false);
    test.run::<RwLock<RawDistributedRwLock, Words>>("RawDistributedRwLock", slots, false);
    test.run::<RwLock<RawUnqueuedRwLock, Words>>("RawUnqueuedRwLock", slots, false);
    test.run::<RwLock<RawShflRw, Words>>("RawShflRw", 0, false);
    test.run::<RwLock<RawCrwNp, Words>>("RawCrwNp", 2 * nodes, true);
    test.run::<RwLock<RawCrwRp, Words>>("RawCrwRp", 2 * nodes, false);
    test.run::<RwLock<RawCrwWp, Words>>("RawCrwWp", 2 * nodes, false);
    test.run::<RwLock<RawBravo<RawCrwNp>, Words>>("RawBravo<RawCrwNp>", 2 * nodes + slots, true);
}

/// 16 threads hold the lock for about 20 µs each. The longest wait is compared with a control: the longest time for
/// which a ready thread is kept off its processor, although it waits for no lock. (`parking_lot`'s longest wait is
/// printed for comparison. It is not a control, because its waiters yield.)
struct Waits;

const WAITING: usize = 16;
const STEPS: u64 = 20_000;

/// How many times as long as the control a waiter may wait for a lock whose waiters do not starve.
const TIMES: u32 = 3;

fn longest_wait<L: Tested>(time: Duration) -> Duration {
    let (lock, longest) = (L::default(), Longest::default());
    press(WAITING, time, |thread, turn| {
        let asked = Instant::now();
        longest.note(lock.round(thread as u64 + turn, STEPS) - asked);
    });
    longest.get()
}

impl Test for Waits {
    fn run<L: Tested>(&self, name: &str, _: usize, fair: bool) {
        if !fair {
            return;
        }
        let time = duration_or(Duration::from_millis(if name == "RawShfl" { 1_000 } else { 250 }));
        some_try(5, || {
            let (waited, control) = in_turns(|| longest_gap(WAITING, time / 2), || longest_wait::<L>(time));
            within(name, TIMES, waited, control)
        });
    }
}

#[test]
fn no_waiter_starves_when_threads_outnumber_cores() {
    let _alone = alone();
    watchdog(limit(), |_| {
        each(&Waits);
        let peer = longest_wait::<Mutex<parking_lot::RawMutex, Words>>(duration_or(Duration::from_millis(500)));
        println!("parking_lot: {peer:?}");
    });
}

/// Returns a function that counts how many times the calling thread has lost its processor without sleeping, and the
/// path of a file that shows whether the thread sleeps.
#[cfg(target_os = "linux")]
fn this_thread() -> (impl Fn() -> u64, PathBuf) {
    let task = PathBuf::from("/proc").join(std::fs::read_link("/proc/thread-self").expect("Linux has threads"));
    let status = task.join("status");
    let switches = move || {
        let status = std::fs::read_to_string(&status).expect("the thread lives");
        let switches = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
        switches.expect("Linux counts them").trim().parse().expect("a number")
    };
    (switches, task.join("stat"))
}

/// Sets the flag when it is dropped.
#[cfg(target_os = "linux")]
struct Ends<'f>(&'f AtomicBool);

#[cfg(target_os = "linux")]
impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A waiter that has spun for long enough goes to sleep without yielding first. If it yielded, every other thread of
/// its processor would get a turn, and threads that arrived later would get the lock.
#[test]
#[cfg(target_os = "linux")]
fn a_waiter_sleeps_without_yielding_first() {
    const MANY: u64 = 4;
    let _alone = alone();
    let others = 4 * thread::available_parallelism().map_or(8, usize::from);
    let (lock, over) = (Mutex::<RawShfl, Words>::default(), AtomicBool::new(false));
    let waits = |asks: &AtomicBool, place: mpsc::Sender<PathBuf>| {
        let (switches, stat) = this_thread();
        place.send(stat).expect("the test waits for it");
        let before = switches();
        asks.store(true, Ordering::Relaxed);
        lock.round(0, 1);
        switches() - before
    };
    thread::scope(|scope| {
        let _ends = Ends(&over);
        // Other threads are ready on every processor, so a yield is a context switch.
        for _ in 0..others {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        some_try(5, || {
            let asks = AtomicBool::new(false);
            let switches = thread::scope(|scope| {
                let held = lock.lock();
                let (place, at) = mpsc::channel();
                let waiter = scope.spawn(|| waits(&asks, place));
                let stat = at.recv().expect("the waiter says where it is");
                let sleeps = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
                while !asks.load(Ordering::Relaxed) || !sleeps() {
                    thread::sleep(Duration::from_millis(1));
                }
                drop(held);
                waiter.join().expect("it only waits")
            });
            println!("the waiter has lost its processor {switches} times before it slept");
            if switches < MANY { Ok(()) } else { Err(format!("lost its processor {switches} times before it slept")) }
        });
    });
}

/// 200 threads use one lock. The lock allocates no more bytes than the table in `docs/mechanisms/locks.md` states,
/// however many threads wait.
struct Memory;

impl Test for Memory {
    fn run<L: Tested>(&self, name: &str, allocates: usize, _: bool) {
        const THREADS: usize = 200;
        let lock = L::default();
        let (begin, end) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
        let held = thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    // Makes the allocations that a thread makes at its first wait of any kind.
                    _ = thread::current();
                    begin.wait();
                    (0..20).for_each(|number| _ = lock.round(number, 50));
                    end.wait();
                });
            }
            let before = HEAP.bytes();
            begin.wait();
            end.wait();
            HEAP.bytes().saturating_sub(before)
        });
        // The slack covers allocations that the runtime makes when threads sleep for the first time, in any of the
        // tests.
        let slack = 64 * 1024;
        assert!(held <= allocates + slack, "{name} holds {held} bytes after {THREADS} threads, of {allocates}");
        drop(lock);
    }
}

#[test]
fn a_lock_allocates_no_more_for_more_threads() {
    let _alone = alone();
    watchdog(limit(), |_| each(&Memory));
}

/// Guards that are never dropped keep their locks held, and have no other effect on other locks or on the threads that
/// leaked the guards.
struct Leaks;

impl Test for Leaks {
    fn run<L: Tested>(&self, name: &str, _: usize, _: bool) {
        let free = L::default();
        thread::scope(|scope| {
            for shared in [false, true] {
                let free = &free;
                scope.spawn(move || {
                    // More locks than a row of BRAVO's table has entries.
                    let leaked: Vec<L> = (0..40).map(|_| L::default()).collect();
                    leaked.iter().for_each(|lock| lock.leak(shared));
                    assert!(leaked.iter().all(|lock| !lock.is_free()), "{name}");
                    (0..200).for_each(|number| _ = free.round(number, 10));
                });
            }
        });
        assert!(free.is_free() && free.rounds() > 0, "{name}");
    }
}

#[test]
fn leaked_guards_keep_their_own_locks_only() {
    let _beside = beside();
    watchdog(limit(), |_| each(&Leaks));
}

/// Short-lived threads that panic under the lock, take it again while they unwind, and once more in the destructor of a
/// thread-local.
struct Storm;

/// Takes the lock when it is dropped.
struct Last<'l, L: Tested>(&'l L);

impl<L: Tested> Drop for Last<'_, L> {
    fn drop(&mut self) {
        self.0.round(0, 1);
    }
}

thread_local! {
    static AT_THE_END: RefCell<Vec<Box<dyn std::any::Any>>> = const { RefCell::new(Vec::new()) };
}

impl Test for Storm {
    fn run<L: Tested + 'static>(&self, name: &str, _: usize, _: bool) {
        const LINES: usize = 6;
        const LIVES: usize = 15;
        let leaked: *mut L = Box::into_raw(Box::default());
        // SAFETY: freed below, when the threads that use it have ended.
        let lock: &'static L = unsafe { &*leaked };
        let life = move || {
            AT_THE_END.with(|list| list.borrow_mut().push(Box::new(Last(lock))));
            let died = catch_unwind(AssertUnwindSafe(|| {
                let _again = Last(lock);
                lock.round(0, 20);
                std::panic::resume_unwind(Box::new("planted"));
            }));
            assert!(died.is_err());
        };
        let line = || (0..LIVES).for_each(|_| thread::spawn(life).join().expect("no panic comes out"));
        thread::scope(|scope| (0..LINES).for_each(|_| _ = scope.spawn(line)));
        // SAFETY: made above, and all threads that knew it have ended.
        let lock = unsafe { Box::from_raw(leaked) };
        assert_eq!(lock.rounds(), (3 * LINES * LIVES) as u64, "{name}");
    }
}

#[test]
fn threads_come_and_go_and_panic_and_lock_in_their_last_destructors() {
    let _beside = beside();
    watchdog(limit(), |_| each(&Storm));
}

/// A `try_write` that fails because of readers leaves the lock as it was: these readers still exclude the next writer.
fn failed_try_keeps_readers_in<R: RawRwLock + Send + Sync>() {
    // The first reads of a lock may use a different path than later ones, and so may the first read after a writer.
    for before in 0..3 {
        let lock = RwLock::<R, Words>::default();
        (0..before).for_each(|_| drop(lock.read()));
        let reader = lock.read();
        thread::scope(|scope| {
            scope.spawn(|| (0..3).for_each(|_| assert!(lock.try_write().is_none())));
        });
        assert!(lock.try_write().is_none() && !lock.is_locked_exclusive());
        thread::scope(|scope| {
            let writer = scope.spawn(|| change(&mut lock.write(), 1));
            let until = Instant::now() + Duration::from_millis(5);
            while Instant::now() < until {
                assert!(!writer.is_finished(), "a writer is in beside a reader");
                thread::yield_now();
            }
            drop(reader);
        });
        assert_eq!(lock.into_inner(), [1, 1]);
    }
}

#[test]
fn a_failed_try_to_write_keeps_readers_in() {
    let _beside = beside();
    failed_try_keeps_readers_in::<RawDistributedRwLock>();
    failed_try_keeps_readers_in::<RawUnqueuedRwLock>();
    failed_try_keeps_readers_in::<RawShflRw>();
    failed_try_keeps_readers_in::<RawCrwNp>();
    failed_try_keeps_readers_in::<RawCrwRp>();
    failed_try_keeps_readers_in::<RawCrwWp>();
    failed_try_keeps_readers_in::<RawBravo<RawCrwNp>>();
    failed_try_keeps_readers_in::<RawBravo<RawDistributedRwLock>>();
    failed_try_keeps_readers_in::<RawBravo<parking_lot::RawRwLock>>();
}
