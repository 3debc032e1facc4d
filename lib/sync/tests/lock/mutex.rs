//! The tests that every mutex must pass.
//!
//! The value under the lock is plain. So Miri and ThreadSanitizer detect two threads that are in the critical section
//! at the same time, and lost increments are detected in every run.

use core::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_platform::sync::{Arc, Barrier};
use archipelago_platform::thread;
use archipelago_sync::lock::{Mutex, MutexGuard};
use lock_api::{GuardSend, RawMutex};

use super::{in_threads, scaled};

/// Adds one, sometimes with a pause in the middle, in which a second thread in the section would cause a lost
/// increment.
fn increment(count: &mut usize) {
    let before = *count;
    if before.is_multiple_of(64) {
        thread::yield_now();
    }
    *count = before + 1;
}

/// With few threads, and with more threads than cores, no increment is lost.
pub fn counts<R: RawMutex + Send + Sync>() {
    for threads in [2, scaled(16, 4)] {
        let rounds = scaled(20_000, 40) / threads;
        let count = Mutex::<R, usize>::new(0);
        watchdog(USUAL, |_| in_threads(threads, |_| (0..rounds).for_each(|_| increment(&mut count.lock()))));
        assert_eq!(count.into_inner(), threads * rounds);
    }
}

/// Repeatedly, a holder unlocks only after a long queue has formed. Every thread in the queue is served.
pub fn everybody_waits<R: RawMutex + Send + Sync>() {
    let (threads, rounds) = (scaled(12, 5), scaled(60, 3));
    let count = Mutex::<R, usize>::new(0);
    let work = |number: usize| {
        for round in 0..rounds {
            let mut guard = count.lock();
            *guard += 1;
            if (number + round).is_multiple_of(threads) {
                // Long enough for the others to queue.
                for _ in 0..threads * 4 {
                    thread::yield_now();
                }
            }
        }
    };
    watchdog(USUAL, |_| in_threads(threads, work));
    assert_eq!(count.into_inner(), threads * rounds);
}

/// `try_lock` fails while any thread holds the lock, succeeds when it is free, and never violates mutual exclusion.
pub fn try_lock<R: RawMutex + Send + Sync>() {
    let count = Mutex::<R, usize>::new(0);
    assert!(!count.is_locked());
    let held = count.lock();
    assert!(count.is_locked() && count.try_lock().is_none());
    in_threads(1, |_| assert!(count.try_lock().is_none()));
    drop(held);
    *count.try_lock().expect("free") += 1;
    assert!(!count.is_locked());
    let (threads, rounds) = (3, scaled(2_000, 20));
    let once = |number| {
        let mut guard = if number == 0 {
            count.lock()
        } else {
            loop {
                match count.try_lock() {
                    Some(guard) => break guard,
                    None => thread::yield_now(),
                }
            }
        };
        increment(&mut guard);
    };
    watchdog(USUAL, |_| in_threads(threads, |number| (0..rounds).for_each(|_| once(number))));
    assert_eq!(count.into_inner(), threads * rounds + 1);
}

/// Short-lived threads lock while others contend.
pub fn come_and_go<R: RawMutex + Send + Sync>() {
    let (lines, threads, rounds) = (4, scaled(60, 4), 20);
    let count = Mutex::<R, usize>::new(0);
    let short = || (0..rounds).for_each(|_| *count.lock() += 1);
    let line = |_| (0..threads).for_each(|_| thread::scope(|scope| scope.spawn(short).join().expect("no panic")));
    watchdog(USUAL, |_| in_threads(lines, line));
    assert_eq!(count.into_inner(), lines * threads * rounds);
}

/// A holder that panics unlocks, while others wait.
pub fn panics<R: RawMutex + Send + Sync>() {
    let count = Mutex::<R, usize>::new(0);
    let rounds = scaled(200, 10);
    let work = |number| {
        for round in 0..rounds {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let mut guard = count.lock();
                *guard += 1;
                if (round + number) % 2 == 0 {
                    std::panic::resume_unwind(Box::new("planted"));
                }
            }));
            assert_eq!(outcome.is_err(), (round + number) % 2 == 0);
        }
    };
    watchdog(USUAL, |_| in_threads(3, work));
    assert_eq!(count.into_inner(), 3 * rounds);
}

/// Several locks are held at once and released in a different order than they were taken, by several threads.
pub fn nested_out_of_order<R: RawMutex + Send + Sync>() {
    let counts: [Mutex<R, usize>; 8] = core::array::from_fn(|_| Mutex::new(0));
    let (threads, rounds) = (4, scaled(500, 6));
    let work = |number: usize| {
        for round in 0..rounds {
            let mut held: Vec<Option<MutexGuard<'_, R, usize>>> = counts.iter().map(|lock| Some(lock.lock())).collect();
            for step in 0..held.len() {
                // 3 and 8 have no common divisor, so every guard is dropped once.
                let at = (step * 3 + round + number) % held.len();
                let mut guard = held[at].take().expect("each once");
                *guard += 1;
            }
        }
    };
    watchdog(USUAL, |_| in_threads(threads, work));
    for count in counts {
        assert_eq!(count.into_inner(), threads * rounds);
    }
}

/// A guard is stored in a thread-local that was registered before any thread-local of the lock.
pub fn in_last_destructors<R: RawMutex + Send + Sync + 'static>() {
    /// Holds a lock until the thread's last destructors, and then takes it again.
    struct Last(Option<Box<dyn FnOnce()>>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.take().expect("set below")();
        }
    }
    thread::thread_local! {
        static LAST: RefCell<Last> = const { RefCell::new(Last(None)) };
    }
    let leaked: *mut Mutex<R, usize> = Box::into_raw(Box::new(Mutex::new(0)));
    // SAFETY: freed below, when the threads that use it have ended.
    let count: &'static Mutex<R, usize> = unsafe { &*leaked };
    let (threads, rounds) = (4, scaled(50, 2));
    let work = move || {
        // Registered before any lock is taken, so it is run after the destructors that the locks register.
        LAST.with(|last| last.borrow_mut().0 = Some(Box::new(|| ())));
        let guard = count.lock();
        let at_last = move || {
            drop(guard);
            *count.lock() += 1;
        };
        LAST.with(|last| last.borrow_mut().0 = Some(Box::new(at_last)));
    };
    watchdog(USUAL, |_| {
        for _ in 0..rounds {
            let running: Vec<_> = (0..threads).map(|_| thread::spawn(work)).collect();
            running.into_iter().for_each(|thread| thread.join().expect("no panic"));
        }
    });
    assert_eq!(*count.lock(), threads * rounds);
    // SAFETY: made above, and all threads that knew it have ended.
    drop(unsafe { Box::from_raw(leaked) });
}

/// Guards that are `Send`: a thread other than the locking one may unlock.
pub fn unlocked_by_another_thread<R: RawMutex<GuardMarker = GuardSend> + Send + Sync>() {
    let rounds = scaled(200, 5);
    let count = Mutex::<R, usize>::new(0);
    let done = Arc::new(Barrier::new(3));
    watchdog(USUAL, |_| {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    (0..rounds).for_each(|_| *count.lock() += 1);
                    done.wait();
                });
            }
            for _ in 0..rounds / 5 {
                let mut guard = count.lock();
                scope.spawn(move || *guard += 1);
            }
            done.wait();
        });
    });
    assert_eq!(count.into_inner(), 2 * rounds + rounds / 5);
}
