//! Stress tests: many more threads than processors, readers that stay, users' code that panics or uses the cache, keys
//! that all have the same hash.
#![cfg(not(archipelago_sim))]

use std::cell::Cell;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Once, OnceLock, Weak, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use archipelago_cache::{Cache, Cause, Heap};
use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::hostile::{
    Counting, alone, beside, crowd, duration, in_turns, longest_gap, press, some_try, within,
};

mod closures;
mod crowds;
mod makers;
mod readers;
mod sizes;
mod tasks;

#[global_allocator]
static HEAP: Counting = Counting::new();

/// The bytes that each thread may use in addition to the bound.
const OF_A_THREAD: usize = 64 << 10;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Returns the most bytes that a cache of `capacity` may use with `threads` threads: entries, removed entries that are
/// not freed yet, and tables.
fn bound(capacity: usize, threads: usize) -> usize {
    capacity + capacity / 100 + OF_A_THREAD * (threads + 1)
}

/// From now on, planned panics print nothing. The test harness keeps the output of a test in memory, and frees the
/// memory while another test measures memory; so tests with thousands of panics call this function.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            let text = panic.payload().downcast_ref::<&str>().copied().unwrap_or_default();
            if !text.contains("planned") && !text.contains("wait for itself") {
                usual(panic);
            }
        }));
    });
}

/// Runs `work` in a thread of its own and returns its result. If `work` does not end within a minute, the test fails,
/// and the thread is not joined.
fn ended<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(work()));
    told.recv_timeout(Duration::from_secs(60)).expect("it ends, and does not panic")
}

/// A waker that unparks a thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}
