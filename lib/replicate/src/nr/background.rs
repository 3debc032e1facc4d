//! Background threads of a replicated structure: helpers of inactive replicas (paper §3.9), and dedicated combiners
//! (§3.2). They run only if the builder asks for them. Operations complete without them, so a background thread that is
//! not scheduled only costs time.
//!
//! A helper replays into its replica as any other thread does: under the combiner's lock. So it needs no ordering of
//! its own. Its sleep is described in [`rest`](super::rest).
//!
//! After a `fork`, the child process has none of these threads, and does not wait for them when it drops the structure.
//! It may also use the structure, unless a dedicated combiner was combining at the moment of the fork. In this case the
//! combiner's replica stays locked in the child for ever; if that combiner appended alone, changes of all replicas
//! wait for ever in the child; if it was recycling, `sync` does. (A helper never replays at that moment, because of `outside_forks`. To exclude
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
use crate::poison::Poisoned;

/// The number of times that an idle dedicated combiner waits before it goes to sleep.
const IDLE_YIELDS: u32 = 1_000;

/// The background threads. They end when this value is dropped.
#[derive(Default)]
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    threads: Crew,
}

impl Background {
    /// Starts a helper for each replica, if there is an interval `helper`, and the dedicated combiners, if the
    /// structure has them. They run on the replicas' nodes of `topology`.
    ///
    /// # Panics
    /// If the operating system refuses a thread.
    pub(super) fn start<T: Replicable>(shared: &Arc<Shared<T>>, helper: Option<Duration>, topology: &Topology) -> Self {
        let mut background = Self::default();
        let has_nodes = !topology.is_synthetic() && topology.nodes().len() > 1;
        for at in 0..shared.replicas.len() {
            let node = topology.nodes().get(at).filter(|_| has_nodes);
            // If binding or pinning a thread fails, the thread is slower but still correct.
            if let Some(interval) = helper.filter(|_| !shared.is_alone()) {
                let (shared, stop) = (shared.clone(), background.stop.clone());
                let place = node.map(|node| (topology.clone(), node.id));
                background.spawn("nr-helper", move || {
                    let _ = place.map(|(topology, node)| thread::bind_current(&topology, node));
                    help(&shared, &stop, at, interval);
                });
            }
            if shared.dedicated {
                let (shared, stop) = (shared.clone(), background.stop.clone());
                let cpu = node.and_then(|node| node.cpus.last().copied());
                background.spawn("nr-combiner", move || {
                    let _ = cpu.map(thread::pin_current);
                    combine(&shared, &stop, at);
                });
            }
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

/// Refreshes replica `at` when it lags far behind, and at every interval.
fn help<T: Replicable>(shared: &Shared<T>, stop: &AtomicBool, at: usize, interval: Duration) {
    let must_work = || stop.load(Ordering::Acquire) || shared.needs_helper(at);
    let mut is_held_up = false;
    while !stop.load(Ordering::Acquire) {
        if is_held_up {
            // A reader stays inside the replica, or a thread of the node combines. Threads that append would wake the
            // helper again and again, in vain.
            thread::park_timeout(interval);
        } else {
            shared.replicas[at].helper.sleep(Some(interval), must_work);
        }
        // No fork happens meanwhile. So a forked child, in which this thread does not exist, finds no lock held by it.
        let Ok(has_replayed) = outside_forks(|| help_once(shared, at)) else { return };
        is_held_up = !has_replayed && shared.needs_helper(at);
    }
}

/// Refreshes replica `at`, unless its node has operations of its own, whose combiner then refreshes the replica. Drops
/// the operations that all replicas have applied. Returns whether any entry was replayed.
fn help_once<T: Replicable>(shared: &Shared<T>, at: usize) -> Result<bool, Poisoned> {
    shared.poison.check()?;
    let has_replayed = !shared.replicas[at].board.has_posts() && shared.refresh_idle(at)?;
    if shared.log.in_use() > 0 {
        shared.recycle_guarded()?;
    }
    Ok(has_replayed)
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
            replica.rest.sleep(None, must_work);
        }
    }
}
