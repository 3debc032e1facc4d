//! Background threads of a replicated structure: the helper for inactive replicas (paper §3.9), and dedicated combiners
//! (§3.2). None runs unless asked for. Everything works without them, so that a thread which is not scheduled costs time
//! and nothing else.
//!
//! The child of a `fork` has none of them, and waits for none when it drops the structure. It may use it, too, unless a dedicated
//! combiner was at work: that holds its replica for ever there. (The helper is not caught at work: `outside_forks`. To keep a fork
//! out of each turn of the combiners would cost all of them a shared line.)

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

/// How often an idle dedicated combiner yields before it goes to sleep.
const IDLE_YIELDS: u32 = 1_000;

/// The threads, which end when this is dropped.
#[derive(Default)]
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    threads: Crew,
}

impl Background {
    /// Starts a helper that runs every `helper`, and dedicated combiners placed on the nodes of `dedicated`.
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
                    // Unpinned, it is slower, not wrong.
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
        // They catch the user's panics, and have none of their own to pass on.
        let _ = self.threads.join();
    }
}

/// Brings replicas up to date at every interval.
fn help<T: Replicable>(shared: &Shared<T>, stop: &AtomicBool, interval: Duration) {
    while !stop.load(Ordering::Acquire) {
        thread::park_timeout(interval);
        // A child of the process goes on without this thread, and without waiting for what it held.
        if outside_forks(|| shared.sync()).is_err() {
            return;
        }
    }
}

/// Combines and replays for replica `at` as long as there is something to do, and then rests until it is woken.
fn combine<T: Replicable>(shared: &Shared<T>, stop: &AtomicBool, at: usize) {
    let replica = &shared.replicas[at];
    let lags = || shared.log.local_tail(at) < shared.visible_tail();
    // Another thread that combines here looks after those who wait, and then they look after themselves. Changes
    // elsewhere that do not fill the log need not wake it: readers bring the replica up to date before that.
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
