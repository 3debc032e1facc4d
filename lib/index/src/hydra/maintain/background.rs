//! The background threads of a map: what wakes them, what they do when the map becomes idle, and how they end.
//!
//! **Work** has two kinds. The first is a *round* (an update of the search layers) that is due: the thread of node 0
//! combines, and then all threads update their layers. The second is *garbage*: memory was retired or a page was
//! merged. Memory that was retired is freed only when more memory is retired. In an idle map the last retired memory
//! would never be freed, and neither would all that a removed value owns (perhaps the map itself). So thread 0 *looks*
//! again after a while: it checks for garbage and frees it, which is a *follow-up*.
//!
//! **Follow-ups are few.** The word [`Background::garbage`](super::super::crew::Background::garbage) is [`NEW`] while
//! the map has no thread, and nearly always while the map is in use. In both cases a thread that retires something only
//! loads the word. Each look sets the word to [`WATCHED`]. If it is `NEW` again at the next look, or if pages were split
//! or merged meanwhile, the map is in use: the thread frees what it can, and the next look follows after twice the time,
//! up to [`BUSY_MS`]. (In a map that only grows, little is retired. It must not be taken for idle, since the draining
//! below would rebuild the search layer several times.) Otherwise the map is idle: the thread drains op logs, compacts
//! sparse pages, and frees garbage. If readers keep garbage from being freed, thread 0 looks again, at most [`LOOKS`]
//! times. Then it sets the word to [`UNWATCHED`] and sleeps until a thread that retires something wakes it. So no thread
//! polls, and an idle map uses no processor time.
//!
//! For maps without threads, one thread of the process does the follow-ups (`sync::rcu::rest`).
//!
//! No garbage is overlooked. A retiring thread locks a bag (a list of retired objects), then reads the word. A look
//! makes the word `WATCHED`, then locks every bag. One of the two critical sections of a bag's lock comes first. If the
//! retiring thread is first, the look sees the retired object. If the look is first, its store of the word happens
//! before the retiring thread's load. Then the load finds `WATCHED` or a later value: `NEW`, from another thread, which
//! the next look sees, or `UNWATCHED`. Merges are noted in the same way, with op logs as their bags.
//!
//! **The end.** Threads have a reference to the map's core only while they work. Dropping the map stops the threads and
//! waits for them. If a background thread drops the map (since it reclaimed a value that owned the map), it does not
//! wait for itself: it continues, finds that it has to stop, and drops the core at its end.
//!
//! **After `fork`** the child has the map but not its threads, and never waits for them. A fork waits until none of the
//! threads is working ([`outside_forks`]), so that they hold no lock. In the child, clients do the work. If a thread
//! works longer than the fork waits, it may have held any lock of the maintenance. Then the child does no maintenance:
//! the layers stay as they are (answers are still correct), and the core is leaked, since the lost thread has a
//! reference to it.

use super::super::crew::{GARBAGE, NEW, ROUND, Sleeper, UNWATCHED, WATCHED, Wake, Woken};
use super::super::shared::Core;
use super::super::turns::Stopwatch;
use super::super::upkeep::lock;
use crate::hydra::HydraForm;
use archipelago_platform::atomic::{AtomicBool, Ordering::*};
use archipelago_platform::fork::{outside_forks, process};
use archipelago_platform::sync::{Arc, Weak};
use archipelago_platform::thread;
use archipelago_platform::topology::NodeId;
use core::any::Any;

/// Milliseconds from the first garbage to the first look.
const FIRST_MS: u64 = 1;

/// The most milliseconds between looks at a map in use.
const BUSY_MS: u64 = 128;

/// The most milliseconds between looks at an idle map.
const REST_MS: u64 = 1024;

/// The greatest number of looks at an idle map that leave garbage. They take some seconds in all.
const LOOKS: u32 = 14;

/// The schedule of looks.
struct FollowUp {
    delay_ms: u64,
    /// What the look before found.
    changes: Changes,
    /// The number of looks that have left garbage although the map was idle.
    in_vain: u32,
}

/// What tells that a map is changed: the number of the last applied round, and the number of changes since.
type Changes = (u64, isize);

/// The payload of a background thread's panic.
pub(crate) type Payload = Box<dyn Any + Send>;

impl<F: HydraForm> Core<F> {
    /// Notes that something has just been retired or merged, so that it is freed even if the map becomes idle.
    #[inline]
    pub(crate) fn note_garbage(&self) {
        // Relaxed: the lock of the bag or op log orders this load, see the module's documentation.
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

    /// Wakes the combiner's thread, and first starts the threads if necessary. Returns `false` if clients have to do
    /// the round: it is their turn, no threads can be started, or this is a fork's child and no thread was at work at
    /// the fork.
    pub(super) fn wake_background(&self) -> bool {
        let Some(wake) = self.maintenance.background.wake.get_or_init(|| self.start_background()) else { return false };
        if wake.is_lost() {
            // Clients may take over only if the threads held no lock at the fork.
            return !wake.all_rest();
        }
        if self.maintenance.background.turns.are_clients() {
            return false;
        }
        wake.rouse(0, ROUND);
        true
    }

    fn start_background(&self) -> Option<Arc<Wake>> {
        let sleepers = (0..self.layers.len()).map(|_| Sleeper::default()).collect();
        let wake = Arc::new(Wake { stop: AtomicBool::new(false), process: process(), sleepers });
        let spawn = |node: usize| {
            let (core, wake) = (self.this.clone(), wake.clone());
            thread::Builder::new().name(format!("hydralist-{node}")).spawn(move || live(&core, node, &wake))
        };
        let mut threads = lock(&self.maintenance.background.threads);
        // The combiner is started last: when it runs, all threads that it may wake exist.
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

    /// Does the part of a round that belongs to the thread of `node`.
    fn round(&self, node: usize, wake: &Wake) {
        let stopwatch = Stopwatch::start();
        {
            let guard = self.domain.pin();
            let local = self.local_at(&guard, node);
            if node == 0 && self.combine_if_due(&mut self.lock_combiner()) {
                (1..self.layers.len()).for_each(|other| wake.rouse(other, ROUND));
            }
            self.update(&local, node);
            self.reclaim(&local);
        }
        self.reclaim_retired();
        if node == 0 {
            self.maintenance.background.turns.judge(&stopwatch, self.layers.len());
            self.compact_if_sparse(node, false);
        }
        // If the round had changes, the layer's previous snapshot was retired, which is garbage.
        self.note_garbage();
    }

    /// Makes a look. Returns the schedule of the next one, or `None` if no look follows.
    fn follow_up(&self, mut follow_up: FollowUp) -> Option<FollowUp> {
        let garbage = &self.maintenance.background.garbage;
        let changes = self.changes();
        let is_used = garbage.swap(WATCHED, Relaxed) == NEW || changes != follow_up.changes;
        if is_used {
            self.reclaim_retired();
            return Some(FollowUp { delay_ms: (follow_up.delay_ms * 2).min(BUSY_MS), changes, in_vain: 0 });
        }
        if self.is_paused() {
            self.reclaim_retired()
        } else {
            self.tidy(0)
        }
        // The tidying was a change.
        follow_up.changes = self.changes();
        follow_up.delay_ms = (follow_up.delay_ms * 2).min(REST_MS);
        follow_up.in_vain += 1;
        let over = !self.has_leavings() || follow_up.in_vain >= LOOKS;
        // If garbage was added meanwhile, the next look will see it.
        let over = over && garbage.compare_exchange(WATCHED, UNWATCHED, Relaxed, Relaxed).is_ok();
        (!over).then_some(follow_up)
    }

    fn changes(&self) -> Changes {
        let state = &self.maintenance;
        (state.updaters[0].applied.load(Relaxed), state.pending.load(Relaxed))
    }

    /// Returns whether something waits to be drained or reclaimed.
    fn has_leavings(&self) -> bool {
        !self.is_paused() && self.has_unretired() || self.domain.stats().pending > 0
    }

    /// Returns whether the map is being dropped.
    pub(super) fn is_ending(&self) -> bool {
        self.maintenance.background.wake().is_some_and(|wake| wake.stop.load(Relaxed))
    }

    /// Ends the background threads and waits for them, except the calling one. Returns the payload of a thread that
    /// panicked.
    pub(crate) fn stop_background(&self) -> Option<Payload> {
        let background = &self.maintenance.background;
        // If the system refused to start a thread, the others have already been stopped; this call waits for them, too.
        if let Some(wake) = background.wake().filter(|wake| !wake.is_lost()) {
            wake.stop();
        }
        let mut threads = core::mem::take(&mut *lock(&background.threads));
        threads.join()
    }
}

/// Runs the background thread of `node`, from its start to its end.
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
                // Binding the thread is only a hint: without it the replica may be built in another node's memory.
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
                    let new = || FollowUp { delay_ms: FIRST_MS, changes: core.changes(), in_vain: 0 };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HydraList;
    use crate::hydra::Maintainers;

    /// A look drains the op logs, and so rebuilds the search layer, only if nothing has changed since the look before.
    #[test]
    fn a_map_that_only_grows_is_not_taken_for_idle() {
        let map: HydraList<u64, u64> = HydraList::builder().maintainers(Maintainers::Clients).build();
        let session = map.pin();
        session.extend((0..10_000).map(|key| (key, key)));
        map.sync();
        let (core, rounds) = (session.core, map.maintenance_stats().rounds);
        core.maintenance.background.garbage.store(WATCHED, Relaxed);
        let look = FollowUp { delay_ms: FIRST_MS, changes: core.changes(), in_vain: 0 };
        // A few pages are split, too few for a round.
        session.extend((10_000..10_300).map(|key| (key, key)));
        assert_ne!(core.changes(), look.changes);
        let look = core.follow_up(look).expect("another look follows");
        assert_eq!(map.maintenance_stats().rounds, rounds, "the map is in use");
        let _ = core.follow_up(look);
        assert!(map.maintenance_stats().rounds > rounds, "the map is idle");
    }
}
