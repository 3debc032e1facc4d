//! How a map's background threads sleep and are woken. [`maintain::background`](super::maintain) has the work that they
//! do.

use super::stats::MaintenanceStats;
use super::turns::Turns;
use archipelago_platform::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::*};
use archipelago_platform::fork::process;
use archipelago_platform::sync::{Arc, Mutex, OnceLock};
use archipelago_platform::thread::{self, Crew, Thread};
use archipelago_platform::time::Duration;

/// A kind of work: a round (an update of the search layers) is due.
pub(super) const ROUND: u8 = 1;
/// A kind of work: garbage was added, and thread 0 did not know of any garbage before.
pub(super) const GARBAGE: u8 = 2;

/// The background threads. They are started when they are needed for the first time.
pub(super) struct Background {
    /// The inner `None` means that the operating system refused to start a thread; then clients do the work.
    pub(super) wake: OnceLock<Option<Arc<Wake>>>,
    pub(super) threads: Mutex<Crew>,
    /// Whether thread 0 knows of garbage, see `maintain/background.rs`.
    pub(super) garbage: AtomicU8,
    pub(super) turns: Turns,
}

/// Garbage was added after the last look (a check by thread 0, see `maintain/background.rs`), and another look will
/// follow; or the map has no thread.
pub(super) const NEW: u8 = 0;
/// No garbage was added since the last look, and another look will follow.
pub(super) const WATCHED: u8 = 1;
/// No look will follow.
pub(super) const UNWATCHED: u8 = 2;

/// The state on which background threads sleep.
pub(super) struct Wake {
    pub(super) stop: AtomicBool,
    /// The id of the process that has the threads.
    pub(super) process: u32,
    /// One per background thread.
    pub(super) sleepers: Box<[Sleeper]>,
}

#[derive(Default)]
pub(super) struct Sleeper {
    /// The pending kinds of work.
    pub(super) work: AtomicU8,
    pub(super) thread: OnceLock<Thread>,
    /// Whether the thread is working, and so may hold a lock.
    pub(super) works: AtomicBool,
    pub(super) roused: AtomicU64,
    pub(super) done: AtomicU64,
    pub(super) wakes: AtomicU64,
}

/// The reason for which a background thread woke.
pub(super) enum Woken {
    /// The map is being dropped.
    Stop,
    /// There is work of these kinds.
    Work(u8),
    /// The time has passed.
    Time,
}

impl Background {
    pub(super) fn new() -> Self {
        Self {
            wake: OnceLock::new(),
            threads: Mutex::new(Crew::default()),
            garbage: AtomicU8::new(NEW),
            turns: Turns::default(),
        }
    }

    pub(super) fn wake(&self) -> Option<&Arc<Wake>> {
        self.wake.get()?.as_ref()
    }

    /// Adds the threads' counts to `stats`.
    pub(super) fn count(&self, stats: &mut MaintenanceStats) {
        let Some(wake) = self.wake() else { return };
        let sum = |count: fn(&Sleeper) -> &AtomicU64| wake.sleepers.iter().map(|it| count(it).load(Acquire)).sum();
        stats.threads = wake.sleepers.len();
        // `done` is loaded first (Acquire, which pairs with the Release of its store), so that all work that it counts
        // is also counted in `roused`.
        stats.done = sum(|sleeper| &sleeper.done);
        stats.roused = sum(|sleeper| &sleeper.roused);
        stats.wakes = sum(|sleeper| &sleeper.wakes);
    }
}

impl Wake {
    /// Tells thread `node` that there is work.
    pub(super) fn rouse(&self, node: usize, kind: u8) {
        let sleeper = &self.sleepers[node];
        // Only the first of many callers makes the system call. Release (here) pairs with the Acquire in `wait`. An
        // unpark is not lost if the thread does not sleep yet.
        if sleeper.work.fetch_or(kind, AcqRel) == 0 {
            sleeper.roused.fetch_add(1, Release);
            if let Some(thread) = sleeper.thread.get() {
                thread.unpark();
            }
        }
    }

    /// Sleeps until work arrives, the thread has to end, or the milliseconds have passed.
    pub(super) fn wait(&self, node: usize, for_ms: Option<u64>) -> Woken {
        let sleeper = &self.sleepers[node];
        let mut slept = false;
        loop {
            if self.stop.load(Acquire) {
                return Woken::Stop;
            }
            match sleeper.work.swap(0, AcqRel) {
                0 if slept && for_ms.is_some() => return Woken::Time,
                0 => {}
                kinds => return Woken::Work(kinds),
            }
            match for_ms {
                Some(ms) => thread::park_timeout(Duration::from_millis(ms)),
                None => thread::park(),
            }
            sleeper.wakes.fetch_add(1, Release);
            slept = true;
        }
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Release);
        for thread in self.sleepers.iter().filter_map(|sleeper| sleeper.thread.get()) {
            thread.unpark();
        }
    }

    /// Returns whether this process is a child, in which the threads do not exist.
    pub(super) fn is_lost(&self) -> bool {
        self.process != process()
    }

    /// Returns whether no thread was at work when this process was forked. Relaxed: the child has the values that the
    /// threads had stored before the fork.
    pub(super) fn all_rest(&self) -> bool {
        self.sleepers.iter().all(|sleeper| !sleeper.works.load(Relaxed))
    }
}
