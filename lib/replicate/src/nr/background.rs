//! Background threads of a replicated structure: the helper for inactive replicas (paper §3.9), and dedicated combiners
//! (§3.2). They run only if the builder asks for them. Operations complete without them, so a background thread that is
//! not scheduled only costs time.
//!
//! After a `fork`, the child process has none of these threads, and does not wait for them when it drops the structure.
//! It may also use the structure, unless a dedicated combiner was combining at the moment of the fork. In this case the
//! combiner's replica stays locked in the child for ever; if that combiner appended alone, changes of all replicas
//! wait for ever in the child. (The helper never combines at that moment, because of `outside_forks`. To exclude
//! forks from each turn of the dedicated combiners would cost them a shared cache line.)

use core::iter;

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::fork::outside_forks;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread::{self, Crew};
use archipelago_platform::time::Duration;
use archipelago_platform::topology::Topology;
use archipelago_sync::backoff::Backoff;

use super::Replicable;
use super::engine::Shared;

/// The number of times that an idle dedicated combiner waits before it goes to sleep.
const IDLE_YIELDS: u32 = 1_000;

/// The background threads. They end when this value is dropped.
#[derive(Default)]
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    threads: Crew,
}

impl Background {
    /// Starts a helper that runs at the interval `helper`, and dedicated combiners that are pinned to the nodes of
    /// `dedicated`.
    ///
    /// # Panics
    /// If the operating system refuses a thread.
    pub(super) fn start<T: Replicable>(
        shared: &Arc<Shared<T>>,
        helper: Option<Duration>,
        dedicated: Option<&Topology>,
    ) -> Self {
        let mut background = Self::default();
        if let Some(interval) = helper {
            let (shared, stop) = (shared.clone(), background.stop.clone());
            background.spawn("nr-helper", move || help(&shared, &stop, interval));
        }
        for at in 0..dedicated.map_or(0, |_| shared.replicas.len()) {
            let (shared, stop) = (shared.clone(), background.stop.clone());
            let nodes = dedicated.filter(|topology| !topology.is_synthetic() && topology.nodes().len() > 1);
            let cpu = nodes.and_then(|topology| topology.nodes().get(at)?.cpus.last().copied());
            background.spawn("nr-combiner", move || {
                if let Some(cpu) = cpu {
                    // If pinning fails, the thread is slower but still correct.
                    let _ = thread::pin_current(cpu);
                }
                combine(&shared, &stop, at);
            });
        }
        background
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run).expect("a thread can be started");
        self.threads.push(thread);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if self.threads.is_here() {
            self.threads.threads().for_each(|thread| thread.thread().unpark());
        }
        // The threads catch the panics of the user's code and do not panic themselves.
        let _ = self.threads.join();
    }
}

/// Brings all replicas up to date at every interval.
fn help<T: Replicable>(shared: &Shared<T>, stop: &AtomicBool, interval: Duration) {
    while !stop.load(Ordering::Acquire) {
        thread::park_timeout(interval);
        // No fork happens during `sync`. So a forked child, in which this thread does not exist, finds no lock held by
        // it.
        if outside_forks(|| shared.sync()).is_err() {
            return;
        }
    }
}

/// Combines and replays for replica `at` while there is work, and then rests until it is woken.
fn combine<T: Replicable>(shared: &Shared<T>, stop: &AtomicBool, at: usize) {
    let replica = &shared.replicas[at];
    let lags = || shared.log.local_tail(at) < shared.visible_tail();
    // If another thread combines here, it wakes the waiting threads when it leaves, and they combine themselves.
    // Changes on other replicas need not wake this combiner as long as they do not fill the log: readers bring the
    // replica up to date when they need it.
    let must_work = || {
        stop.load(Ordering::Acquire) || !replica.is_combining() && (replica.board.has_posts() || shared.lags_far(at))
    };
    let backoff = Backoff::new();
    let mut idle = 0;
    while !stop.load(Ordering::Acquire) {
        if let Some(turn) = shared.try_turn(at)
            && (replica.board.has_posts() || lags())
        {
            if shared.combine(at, turn, iter::empty(), |_| {}).is_err() {
                return;
            }
            backoff.reset();
            idle = 0;
        } else if idle < IDLE_YIELDS {
            idle += 1;
            backoff.wait();
        } else {
            replica.rest.sleep(must_work);
        }
    }
}
