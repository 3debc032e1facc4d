//! The background threads of a map: what wakes them, what they do once the map has come to rest, and how they end.
//!
//! **Work** comes in two kinds. A *round* is due: the thread of node 0 combines, then all threads bring their layers up to
//! date. Or there is *garbage*: something was retired or merged away. The memory of the last thing retired would wait for
//! the next thing retired, for ever in a map that rests, and with it a value's destructor and all that the value owns (the
//! map itself, perhaps). So thread 0 looks again after a while: a *follow-up*.
//!
//! **Follow-ups are few.** [`Background::garbage`](super::super::crew::Background::garbage) is [`NEW`] as long as there is no thread, and nearly always while the map
//! is in use: a thread that retires reads that and does no more. Each look makes it [`WATCHED`]. If it is `NEW` again by
//! the next look, the map is in use: what can be freed is freed, and the next look is twice as far away, up to [`BUSY_MS`].
//! If it is not, the map rests: op logs are drained, pages moved together where they lie thinly, garbage is freed. If
//! anything is left (a reader holds it), thread 0 looks again, [`LOOKS`] times at most, makes it [`UNWATCHED`] and sleeps
//! until a thread that retires something wakes it. So nothing polls, and an idle map uses no processor time.
//!
//! A map without threads is looked after by one that all such maps of the process share (`sync::rcu::rest`).
//!
//! No garbage is overlooked. Retiring locks a bag, then reads the word; a look makes the word `WATCHED`, then locks every
//! bag. Of one bag's two critical sections one comes first: either the look sees what was retired, or its change of the
//! word happens before the reading, which finds that or something later: `NEW`, from another thread, which the next look
//! is sure to see, or `UNWATCHED`. Merges are told of in the same way, their bags being the op logs.
//!
//! **The end.** Threads keep the map's core only while they work. Dropping the map tells them to stop and waits for them.
//! If a background thread drops it (a value that owned the map was reclaimed), it does not wait for itself: it goes on
//! where it was called from, finds that it shall stop, and the core goes with it.
//!
//! **After `fork`** the child has the map and not its threads. It never waits for them. A fork waits until none of them is at work
//! ([`outside_forks`]): they hold nothing then, and in the child clients do the work. If one works longer than a fork waits, it
//! may have held any lock of the maintenance: then there is none in the child, the layers stay as they are (answers are right all
//! the same), and the core is leaked, since the lost thread owns a share of it.

use super::super::crew::{GARBAGE, NEW, ROUND, Sleeper, UNWATCHED, WATCHED, Wake, Woken};
use super::super::shared::Core;
use super::super::upkeep::lock;
use crate::hydra::HydraForm;
use archipelago_platform::atomic::{AtomicBool, Ordering::*};
use archipelago_platform::fork::outside_forks;
use archipelago_platform::sync::{Arc, Weak};
use archipelago_platform::thread;
use archipelago_platform::topology::NodeId;
use core::any::Any;

/// The first look comes so many milliseconds after the first garbage.
const FIRST_MS: u64 = 1;

/// Looks at a map in use come at most this far apart,
const BUSY_MS: u64 = 128;

/// those at a map that rests this far,
const REST_MS: u64 = 1024;

/// and of these there are at most so many that leave garbage, all in all some seconds.
const LOOKS: u32 = 14;

/// The looks to come.
struct FollowUp {
    delay_ms: u64,
    /// How many have left garbage although the map rested.
    in_vain: u32,
}

/// What a background thread panicked with.
pub(crate) type Payload = Box<dyn Any + Send>;

impl<F: HydraForm> Core<F> {
    /// Says that something was retired or merged away, just now: if the map comes to rest, it shall not wait for ever.
    #[inline]
    pub(crate) fn note_garbage(&self) {
        // Relaxed: the bag's or op log's lock orders it, see the module's text.
        if self.maintenance.background.garbage.load(Relaxed) != NEW {
            self.tell_of_garbage();
        }
    }

    #[cold]
    fn tell_of_garbage(&self) {
        let background = &self.maintenance.background;
        if let Some(wake) = background.wake()
            && background.garbage.swap(NEW, Relaxed) == UNWATCHED
        {
            wake.rouse(0, GARBAGE);
        }
    }

    /// Wakes the combiner's thread, starting the threads first if need be. False if there are none to be had.
    pub(super) fn wake_background(&self) -> bool {
        let Some(wake) = self.maintenance.background.wake.get_or_init(|| self.start_background()) else { return false };
        if wake.is_lost() {
            // Only if the threads held nothing may clients take over.
            return !wake.all_rest();
        }
        wake.rouse(0, ROUND);
        true
    }

    fn start_background(&self) -> Option<Arc<Wake>> {
        let sleepers = (0..self.layers.len()).map(|_| Sleeper::default()).collect();
        let wake = Arc::new(Wake { stop: AtomicBool::new(false), process: std::process::id(), sleepers });
        let spawn = |node: usize| {
            let (core, wake) = (self.this.clone(), wake.clone());
            thread::Builder::new().name(format!("hydralist-{node}")).spawn(move || live(&core, node, &wake))
        };
        let mut threads = lock(&self.maintenance.background.threads);
        // The combiner last: when it runs, every thread it may rouse is known.
        for node in (0..self.layers.len()).rev() {
            match spawn(node) {
                Ok(thread) => {
                    wake.sleepers[node].thread.get_or_init(|| thread.thread().clone());
                    threads.push(thread);
                }
                Err(_) => {
                    wake.stop();
                    return None;
                }
            }
        }
        self.domain.leave_alone();
        Some(wake)
    }

    /// A round, the part of the thread of `node`.
    fn round(&self, node: usize, wake: &Wake) {
        {
            let guard = self.domain.pin();
            let local = self.local_at(&guard, node);
            if node == 0 {
                self.combine(&mut self.lock_combiner());
                (1..self.layers.len()).for_each(|other| wake.rouse(other, ROUND));
            }
            self.update(&local, node);
            self.reclaim(&local);
        }
        self.reclaim_retired();
        if node == 0 {
            self.compact_if_sparse(node, false);
        }
        // The layer's last state was retired.
        self.note_garbage();
    }

    /// A look at what is left behind; `None` if there shall be no more.
    fn follow_up(&self, mut follow_up: FollowUp) -> Option<FollowUp> {
        let garbage = &self.maintenance.background.garbage;
        if garbage.swap(WATCHED, Relaxed) == NEW {
            self.reclaim_retired();
            return Some(FollowUp { delay_ms: (follow_up.delay_ms * 2).min(BUSY_MS), in_vain: 0 });
        }
        if self.is_paused() {
            self.reclaim_retired()
        } else {
            self.tidy(0)
        }
        follow_up.delay_ms = (follow_up.delay_ms * 2).min(REST_MS);
        follow_up.in_vain += 1;
        let over = !self.has_leavings() || follow_up.in_vain >= LOOKS;
        // If there has been something new meanwhile, the next look will see it.
        let over = over && garbage.compare_exchange(WATCHED, UNWATCHED, Relaxed, Relaxed).is_ok();
        (!over).then_some(follow_up)
    }

    /// Whether something waits to be drained or reclaimed.
    fn has_leavings(&self) -> bool {
        !self.is_paused() && self.has_unretired() || self.domain.stats().pending > 0
    }

    /// Whether the map is being dropped.
    pub(super) fn is_ending(&self) -> bool {
        self.maintenance.background.wake().is_some_and(|wake| wake.stop.load(Relaxed))
    }

    /// Ends the background threads and waits for them, but for the calling one. What one of them panicked with.
    pub(crate) fn stop_background(&self) -> Option<Payload> {
        let background = &self.maintenance.background;
        // A thread that was refused has stopped the others already; they are waited for all the same.
        if let Some(wake) = background.wake().filter(|wake| !wake.is_lost()) {
            wake.stop();
        }
        let mut threads = core::mem::take(&mut *lock(&background.threads));
        threads.join()
    }
}

/// The life of the background thread of `node`.
fn live<F: HydraForm>(core: &Weak<Core<F>>, node: usize, wake: &Wake) {
    let mut roused = 0;
    let mut follow_up: Option<FollowUp> = None;
    let mut bound = false;
    loop {
        let woken = wake.wait(node, follow_up.as_ref().map(|follow_up| follow_up.delay_ms));
        let worked = outside_forks(|| {
            wake.sleepers[node].works.store(true, Relaxed);
            let core = core.upgrade()?;
            if core.layers.len() > 1 && !bound {
                // A hint only: without it the replica may be built on another node's memory.
                let _ = thread::bind_current(&core.config.topology, NodeId(node));
                bound = true;
            }
            follow_up = match woken {
                Woken::Stop => return None,
                Woken::Work(kinds) => {
                    roused += 1;
                    if kinds & ROUND != 0 {
                        core.round(node, wake);
                    }
                    let new = || FollowUp { delay_ms: FIRST_MS, in_vain: 0 };
                    (node == 0).then(|| follow_up.take().map_or_else(new, |it| FollowUp { in_vain: 0, ..it }))
                }
                Woken::Time => follow_up.take().and_then(|it| core.follow_up(it)),
            };
            drop(core);
            wake.sleepers[node].works.store(false, Relaxed);
            Some(())
        });
        if worked.is_none() {
            return;
        }
        if follow_up.is_none() {
            wake.sleepers[node].done.store(roused, Release);
        }
    }
}
