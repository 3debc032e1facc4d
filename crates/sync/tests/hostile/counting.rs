//! What a hostile test measures with: an allocator that counts, and threads that do nothing but read the clock.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counts the bytes that the program has asked for.
pub struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, and counters beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        if now > MOST.load(Ordering::Relaxed) {
            MOST.fetch_max(now, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes allocated now.
pub fn now() -> usize {
    NOW.load(Ordering::Relaxed)
}

/// The most bytes that were allocated at a time while `work` ran, beyond what was before.
pub fn most<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let before = now();
    MOST.store(before, Ordering::Relaxed);
    let result = work();
    (MOST.load(Ordering::Relaxed).saturating_sub(before), result)
}

/// One test at a time, since all count with the same counters.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a part of a test runs: so many milliseconds, or as many seconds as `ARCHIPELAGO_HOSTILE_SECONDS` says.
pub fn duration(milliseconds: u64) -> Duration {
    match std::env::var("ARCHIPELAGO_HOSTILE_SECONDS").ok().and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) => Duration::from_secs(seconds),
        None => Duration::from_millis(milliseconds),
    }
}

/// Runs one thread per number below `threads`, for a time; what each has to say at the end.
pub fn crowd<R: Send>(threads: usize, time: Duration, work: impl Fn(usize, Instant) -> R + Sync) -> Vec<R> {
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number, end))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The longest time between two readings of the clock in any of so many threads that do nothing else.
pub fn longest_gap(threads: usize, time: Duration) -> Duration {
    let gaps = crowd(threads, time, |_, end| {
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        while last < end {
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
        }
        longest
    });
    gaps.into_iter().max().unwrap()
}
