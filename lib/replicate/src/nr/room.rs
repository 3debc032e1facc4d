//! Room in the log: recycle it, help replicas that lag behind, let it grow, wait (paper §3.5 and §3.9).
//!
//! A combiner never waits while it holds the replica's lock, and never waits for another replica's locks. It helps only
//! replicas that it finds free. So a replica whose readers stay inside falls behind, and the log grows. Only when the
//! log has its largest size and is full does a combiner wait for such a replica.

use core::mem;

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::log::Reservation;

use super::Replicable;
use super::engine::{Combiner, Shared};
use super::replay::Readers;
use crate::poison::Poisoned;
use crate::reentry;

/// The log is recycled (entries that all replicas have applied are dropped) when the number of entries in use exceeds
/// its capacity divided by this number.
const RECYCLE_PART: u64 = 4;
/// Replicas are helped (other threads replay into them) when, after the recycling, more entries are in use than the
/// log's capacity divided by this number. If the replicas have helpers, these are woken, and the other threads leave
/// the work to them.
const HELP_PART: u64 = 8;
/// The least number of entries that a combiner may replay into another replica before it returns to its own work: some
/// tens of microseconds.
const HELP: usize = 32;
/// A thread that finds the log full helps and waits this many times without success, before it lets the log grow.
const PATIENCE: u32 = 64;
/// How often a combiner may find that entries became free, but too few for its batch, before it appends alone.
const OVERTAKEN: u32 = 64;
/// How long a thread sleeps between two attempts if the log may not grow any more.
const NAP: Duration = Duration::from_micros(100);

/// The right to append alone, which lasts until this value is dropped. The flag only asks the other combiners to wait,
/// and orders nothing, so all accesses are Relaxed.
struct Alone<'s>(&'s AtomicBool);

impl<'s> Alone<'s> {
    fn begin(exclusive: &'s AtomicBool) -> Option<Self> {
        exclusive.compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed).ok().map(|_| Self(exclusive))
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl<T: Replicable> Shared<T> {
    /// Keeps the log from filling up: recycles it, and helps replicas that lag behind. Each call does a little, so that
    /// a thread rarely has to replay a whole log at once. The calling thread has finished its own operations and holds
    /// no turn.
    pub(super) fn make_room(&self, at: usize, carried_out: usize) {
        if self.is_alone() || !self.log.lag_exceeds(RECYCLE_PART) {
            return;
        }
        // A panic in here poisons the structure; the operations that this thread has finished keep their results.
        let _ = self.guarded(|| {
            self.recycle();
            if self.log.lag_exceeds(HELP_PART) {
                self.call_background();
                // Helpers do this work on their own nodes. If a thread of another node did it in their stead, the
                // replica's memory would move to this node, and the helper would be even later.
                if !self.helped {
                    self.help_others(at, carried_out.max(HELP));
                }
            }
            self.log.shrink();
            Ok(())
        });
    }

    /// Drops the operations that all replicas have applied, unless another thread does.
    pub(super) fn recycle_guarded(&self) -> Result<(), Poisoned> {
        self.guarded(|| {
            self.recycle();
            Ok(())
        })
    }

    /// Returns after all operations that all replicas have applied were dropped, by this thread or by another one.
    pub(super) fn recycle_all(&self) -> Result<(), Poisoned> {
        // Another thread that recycles may have read the local tails before the last of them rose. What that thread
        // leaves is dropped here when it has finished.
        let applied = (0..self.replicas.len()).map(|at| self.log.local_tail(at)).min().unwrap_or(0);
        let backoff = Backoff::new();
        loop {
            self.recycle_guarded()?;
            if self.log.recycled() >= applied {
                return Ok(());
            }
            backoff.wait();
        }
    }

    /// Drops the operations that all replicas have applied, unless another thread does. Their destructors run under the
    /// recycler's lock. So they may not call the structure.
    fn recycle(&self) {
        let _inside = reentry::enter(reentry::identity(self));
        self.log.recycle();
    }

    /// Reserves `count` entries. While the log is full, recycles it, helps lagging replicas for which no thread works
    /// (if they have helpers: wakes these, and helps only when they make no room for a while), and waits. If this frees
    /// no entries for a while, some replica has stopped, and the log grows. If the log has its largest size, the call
    /// waits for that replica. A log that is not longer than the batch grows at once, if it may grow.
    ///
    /// A long batch needs most of the log, or even an empty log, while the batches of other replicas' combiners may be
    /// short. So these combiners could take each entry that becomes free. A combiner that was overtaken more than
    /// [`OVERTAKEN`] times therefore appends alone: the others wait, replay what they have appended, and so empty the
    /// log. If a replica has stopped, this combiner lets the others append again.
    pub(super) fn reserve(
        &self,
        at: usize,
        combiner: &mut Combiner<T>,
        count: usize,
    ) -> Result<Reservation<'_, T::Write>, Poisoned> {
        let (mut backoff, mut patience, mut overtaken) = (Backoff::new(), PATIENCE, 0);
        let (mut recycled, mut alone) = (self.log.recycled(), None);
        loop {
            // Another combiner appends alone. It grows the log itself if that helps.
            let waits = alone.is_none() && self.exclusive.load(Ordering::Relaxed);
            if !waits && let Ok(reservation) = self.log.reserve(count) {
                return Ok(reservation);
            }
            self.poison.check()?;
            self.replicas[at].counts.room_waits.add(1);
            if self.log.capacity() <= count && self.log.grow() {
                continue;
            }
            self.catch_up(at, combiner);
            // A helper that keeps up makes room before the patience ends. If it does not (it may not even be
            // scheduled), this thread does its work.
            self.call_helpers(0);
            if !self.helped || patience == 0 {
                self.help_others(at, HELP);
            }
            self.recycle();
            let before = mem::replace(&mut recycled, self.log.recycled());
            if recycled > before {
                (backoff, patience) = (Backoff::new(), PATIENCE);
                overtaken += 1;
                if overtaken > OVERTAKEN {
                    alone = alone.or_else(|| Alone::begin(&self.exclusive));
                }
            } else if patience > 0 {
                patience -= 1;
                backoff.wait();
            } else if waits || !self.log.grow() {
                alone = None;
                thread::sleep(NAP);
            }
        }
    }

    /// Returns whether replica `at` lags so far behind in the log that its background threads must not rest.
    pub(super) fn lags_far(&self, at: usize) -> bool {
        self.log.lag_exceeds(HELP_PART) && self.log.local_tail(at) < self.visible_tail()
    }

    /// Wakes the dedicated combiners that rest, since their replicas may lag behind, and helpers.
    fn call_background(&self) {
        if self.dedicated {
            self.replicas.iter().for_each(|replica| replica.rest.wake());
        }
        self.call_helpers(self.far());
    }

    /// Wakes the helpers that rest although their replicas lag by more than `most` entries. (The helper of a replica
    /// whose threads work would only be in their way.)
    fn call_helpers(&self, most: u64) {
        if self.helped {
            let late = self.replicas.iter().enumerate().filter(|&(at, _)| self.lag(at) > most);
            late.for_each(|(_, replica)| replica.helper.wake());
        }
    }

    /// Returns the number of entries that replica `at` has to replay.
    fn lag(&self, at: usize) -> u64 {
        self.visible_tail().saturating_sub(self.log.local_tail(at))
    }

    /// Returns the greatest lag with which a helper may rest.
    fn far(&self) -> u64 {
        self.log.capacity() as u64 / HELP_PART
    }

    /// Returns whether the helper of replica `at` must not rest. The measure is the replica's own lag: a replica whose
    /// threads work lags by few batches, and needs no help.
    pub(super) fn needs_helper(&self, at: usize) -> bool {
        self.lag(at) > self.far()
    }

    /// Replays at most `most` entries into each of the other replicas, except into those with an active combiner or
    /// with readers that stay inside.
    fn help_others(&self, me: usize, most: usize) {
        let others = (1..self.replicas.len()).map(|step| (me + step) % self.replicas.len());
        for at in others {
            let from = self.log.local_tail(at);
            let end = self.visible_tail().min(from + most as u64);
            if end > from
                && let Some(mut turn) = self.try_turn(at)
                && self.poison.check().is_ok()
            {
                self.replicas[at].counts.combiner_helps.add(1);
                self.replay_filled(at, &mut turn, u64::MAX, end, Readers::PassBy, &mut |_, _, _: &mut Vec<_>| {});
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use archipelago_platform::atomic::AtomicU64;

    use super::*;
    use crate::sequential::ClosureWrite;
    use crate::{Closures, Replicated};

    /// Two combiners append one entry at a time. Neither replays its entry before the other one has appended the next,
    /// so the log is never empty. A third one appends a batch that is longer than the log. When it appends alone, one
    /// of the others stops for a while. Meanwhile the other one goes on.
    #[test]
    fn a_batch_longer_than_the_log_is_not_overtaken_for_ever() {
        const LOG: usize = 64;
        const ENTRIES: u32 = 1_000;
        let builder = Replicated::builder().replicas(3).log_capacity(LOG).largest_log(LOG);
        let structure = builder.build(|| Closures::new(0_u64));
        let shared = &*structure.owner.shared;
        let (over, stops, appended) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        let is_over = || over.load(Ordering::Acquire);
        let is_exclusive = || shared.exclusive.load(Ordering::Relaxed);
        // The number of the batch's attempts.
        let attempts = || shared.replicas[0].counts.room_waits.get();
        let add = || ClosureWrite::new(|sum: &mut u64| *sum += 1);
        let wait_until = |ready: &dyn Fn() -> bool| {
            while !ready() && !is_over() {
                thread::yield_now();
            }
        };
        // Waits until the other one has appended twice. Returns false if it has not during very many attempts.
        let stop = || {
            let (since, before) = (attempts(), appended.load(Ordering::Relaxed));
            stops.store(true, Ordering::Relaxed);
            let goes_on = || appended.load(Ordering::Relaxed) > before + 1;
            wait_until(&|| goes_on() || attempts() > since + 100_000);
            stops.store(false, Ordering::Relaxed);
            goes_on()
        };
        // Appends an entry per attempt. Returns false if the batch waits too long.
        let overtake = &|at: usize| {
            let mut turn = shared.try_turn(at).expect("no other thread combines here");
            let mut has_stopped = at == 1;
            for _ in 0..ENTRIES {
                let before = attempts();
                let mut entry = shared.reserve(at, &mut turn, 1).unwrap();
                let range = entry.range();
                entry.fill(add());
                drop(entry);
                if at == 1 {
                    appended.fetch_add(1, Ordering::Relaxed);
                }
                wait_until(&|| shared.log.tail() > range.end || is_exclusive() || stops.load(Ordering::Relaxed));
                if is_exclusive() && !mem::replace(&mut has_stopped, true) && !stop() {
                    break;
                }
                shared.replay(at, &mut turn, range.start, range.end, |_, _, _| {}).unwrap();
                wait_until(&|| attempts() > before);
                if is_over() {
                    return true;
                }
            }
            // The other one waits for this one.
            over.store(true, Ordering::Release);
            false
        };
        thread::scope(|scope| {
            let others = [1, 2].map(|at| scope.spawn(move || overtake(at)));
            while shared.log.tail() < 2 {
                thread::yield_now();
            }
            let batch = (0..2 * LOG).map(|_| add()).collect();
            structure.handle_on(0).write_many(batch).unwrap();
            over.store(true, Ordering::Release);
            assert!(others.into_iter().all(|other| other.join().unwrap()));
        });
    }
}
