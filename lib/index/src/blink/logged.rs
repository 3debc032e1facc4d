//! Replicas that are fed from an operation log. An update is appended to the log. The log is applied to a replica when
//! a reader of the replica must see the updates, when a writer waits for an answer, and when the log fills.
//!
//! The log is node replication's ([`sync::log`](archipelago_sync::log)), with two differences. Replay and readers run
//! concurrently without waiting for each other, since a tree is made for many threads. And there are several logs,
//! *lanes*: all operations on a key are in one lane, in an order that all replicas keep, and operations in different
//! lanes may be applied concurrently. (*Concurrent node replication* in Bhardwaj et al., *NrOS*, OSDI 2021.)
//!
//! # Why this is linearizable
//! An operation takes effect when its lane's *completed tail* (a position in the log) passes it. A thread that replays
//! (applies operations of the log to a replica) raises the completed tail to the end of the replay *before* it changes
//! the replica. So an operation whose effect a reader can see is already below the completed tail. A reader that begins
//! later, on any node, first brings its own replica up to the completed tail. A thread that waits for an answer gets
//! the answer from its own replica, so a read that begins after the answer sees the operation, too. A read of one key
//! sees the state after some prefix of its lane. This prefix reaches at least to the completed tail at the read's
//! begin, and at most to the completed tail at the read's end.
//!
//! A scan brings all lanes to their completed tails before it begins; it shows each entry as it was at some moment of
//! the call, as scans of one tree do. Removing the first or last entry concerns all lanes, so it excludes updates by
//! the *gate*, a reader-writer lock that updates hold shared.
//!
//! # Values
//! Words are opaque, and the same in all replicas. The thread that gets a replaced word as an answer retires it. A
//! guard that is entered later finds the completed tail beyond the replacing operation. So readers under this guard
//! bring their replica up to date first, and never find the word in a replica that lags behind.
//!
//! # Waiting
//! A thread that replays holds the lock on the replica's position in the lane. Meanwhile it waits only for latches of
//! pages, and runs no users' code, since reclamation is postponed. If a thread finds a lane full, it replays for
//! lagging replicas itself, since these replicas' own threads may never run again.

use super::policy::Policy;
use super::slots::SlotForm;
use super::tree::Tree;
use crate::points;
use crate::structure::{Put, When};
use archipelago_platform::atomic::Ordering::{Acquire, Relaxed, Release};
use archipelago_platform::atomic::{AtomicU8, AtomicU64};
use archipelago_platform::fork;
use archipelago_platform::hint::point;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::topology::Topology;
use archipelago_platform::touch_mut;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::lock::{DistributedRwLock, Mutex, RawDistributedRwLock, RawTtas, RwLock};
use archipelago_sync::log::{Cursor, Log};
use archipelago_sync::rcu::Guard;
use core::ptr::NonNull;

/// The number of lanes.
const LANES: usize = 16;

/// The length of a lane, in operations. A replica may lag behind by this many.
const LENGTH: usize = 256;

/// The used fractions of a lane at which threads act. If more than 1/`RECYCLE_PART` of the lane is used, they recycle
/// entries. If more than 1/`HELP_PART` is used, they also replay for other replicas.
const RECYCLE_PART: u64 = 4;
const HELP_PART: u64 = 2;

/// The number of operations between two checks of these fractions.
const LOOK: u64 = 16;

/// An operation on a key.
#[derive(Clone, Copy)]
pub(super) enum What {
    /// The arguments of [`Tree::put`].
    Put(u64, When),
    /// The argument of [`Tree::remove`].
    Take(Option<u64>),
}

/// The variable in which a thread waits for its operation's result.
struct Answer {
    /// The kind of result; 0 until the result is stored.
    what: AtomicU8,
    word: AtomicU64,
}

impl Answer {
    fn give(&self, put: Put) {
        let (what, word) = match put {
            Put::Inserted => (1, 0),
            Put::Missing => (2, 0),
            Put::Kept(word) => (3, word),
            Put::Replaced(word) => (4, word),
        };
        self.word.store(word, Relaxed);
        // Release: pairs with the Acquire of `get`. After this store, the waiting thread may drop the answer.
        self.what.store(what, Release);
    }

    fn get(&self) -> Option<Put> {
        let what = self.what.load(Acquire);
        let word = self.word.load(Relaxed);
        match what {
            0 => None,
            1 => Some(Put::Inserted),
            2 => Some(Put::Missing),
            3 => Some(Put::Kept(word)),
            _ => Some(Put::Replaced(word)),
        }
    }
}

/// An operation in the log.
struct Op<F: SlotForm> {
    key: F::Owned,
    what: What,
    /// The replica whose thread waits, and the thread's answer.
    replica: usize,
    answer: NonNull<Answer>,
    /// The process of the thread. In another process, which is a child, neither the thread nor its answer exists.
    process: u64,
}

// SAFETY: the answer is atomic, and its thread waits until it is given.
unsafe impl<F: SlotForm> Send for Op<F> {}
// SAFETY: as above.
unsafe impl<F: SlotForm> Sync for Op<F> {}

impl<F: SlotForm> Op<F> {
    /// Applies the operation to a tree. The result is the same in each replica.
    fn apply<P: Policy>(&self, tree: &Tree<F, P>, guard: &Guard<'_>) {
        let key = F::probe(&self.key);
        let put = match self.what {
            What::Put(word, when) => tree.put(&mut None, key, word, when, guard),
            What::Take(expected) => tree.remove(key, expected, guard).map_or(Put::Missing, Put::Replaced),
        };
        if self.replica == tree.number() && self.process == fork::generation() {
            // SAFETY: the thread is in this process, and waits for the answer. The replica's position is locked, so the
            // answer is given once.
            unsafe { self.answer.as_ref() }.give(put);
        }
    }
}

/// A replica's position in a lane.
type ReplicaCursor<F> = CachePadded<Mutex<RawTtas, Cursor<Op<F>>>>;

/// A lane: the log of operations on its keys.
struct Lane<F: SlotForm> {
    log: Log<Op<F>>,
    /// The position of each replica. The thread that has a position locked replays.
    places: Box<[ReplicaCursor<F>]>,
}

impl<F: SlotForm> Lane<F> {
    fn new(replicas: usize) -> Self {
        let (log, cursors) = Log::new(replicas, LENGTH, LENGTH);
        let places = cursors.into_iter().map(|cursor| CachePadded::new(Mutex::from_raw(RawTtas::new(), cursor)));
        Lane { log, places: places.collect() }
    }

    /// Applies the filled entries of the log up to `until` to a replica, unless another thread does. Returns whether it
    /// made progress.
    fn replay<P: Policy>(&self, tree: &Tree<F, P>, until: u64, guard: &Guard<'_>) -> bool {
        let Some(mut place) = self.places[tree.number()].try_lock() else { return false };
        touch_mut(&raw const *place, size_of::<Cursor<Op<F>>>());
        let end = self.log.filled_until(&place, until.max(place.index()));
        let is_behind = place.index() < end;
        if is_behind {
            // This precedes the replay, as the module's documentation requires.
            self.log.complete(end);
            guard.hold_back(|| {
                self.log.replay(&mut place, end, |_, op| {
                    op.apply(tree, guard);
                    point(points::REPLAYED);
                });
            });
        }
        is_behind
    }

    /// Brings a replica up to the present completed tail.
    #[inline]
    fn freshen<P: Policy>(&self, tree: &Tree<F, P>, guard: &Guard<'_>) {
        let until = self.log.completed();
        if self.log.local_tail(tree.number()) < until {
            self.freshen_slowly(tree, until, guard);
        }
    }

    #[cold]
    fn freshen_slowly<P: Policy>(&self, tree: &Tree<F, P>, until: u64, guard: &Guard<'_>) {
        let is_there = || (self.log.local_tail(tree.number()) >= until).then_some(());
        self.replay_till(tree, until, guard, is_there);
    }

    /// Replays, or waits for the thread that replays, until `come` returns a value.
    fn replay_till<P: Policy, R>(
        &self,
        tree: &Tree<F, P>,
        until: u64,
        guard: &Guard<'_>,
        come: impl Fn() -> Option<R>,
    ) -> R {
        let backoff = Backoff::new();
        loop {
            if let Some(it) = come() {
                return it;
            }
            if !self.replay(tree, until, guard) {
                backoff.wait();
            }
        }
    }

    /// Replays for all replicas for which no thread replays, and recycles entries that all replicas have applied.
    #[cold]
    fn help<P: Policy>(&self, trees: &[Tree<F, P>], guard: &Guard<'_>) {
        let tail = self.log.tail();
        trees.iter().for_each(|tree| _ = self.replay(tree, tail, guard));
        self.log.recycle();
    }

    /// If more than 1/`RECYCLE_PART` of the lane is in use, recycles entries that all replicas have applied. If more
    /// than 1/`HELP_PART` is in use, first replays for lagging replicas.
    #[cold]
    fn make_room<P: Policy>(&self, trees: &[Tree<F, P>], guard: &Guard<'_>) {
        if self.log.lag_exceeds(HELP_PART) {
            self.help(trees, guard);
        } else if self.log.lag_exceeds(RECYCLE_PART) {
            self.log.recycle();
        }
    }

    /// Appends an operation, and waits until it has been applied to its thread's replica.
    fn carry_out<P: Policy>(
        &self,
        (trees, here): (&[Tree<F, P>], usize),
        key: F::Probe<'_>,
        what: What,
        guard: &Guard<'_>,
    ) -> Put {
        let answer = Answer { what: AtomicU8::new(0), word: AtomicU64::new(0) };
        let op =
            Op { key: F::own(key), what, replica: here, answer: NonNull::from(&answer), process: fork::generation() };
        let backoff = Backoff::new();
        let mut room = loop {
            match self.log.reserve(1) {
                Ok(room) => break room,
                Err(_) => self.help(trees, guard),
            }
            backoff.wait();
        };
        let end = room.range().end;
        room.fill(op);
        drop(room);
        let put = self.replay_till(&trees[here], end, guard, || answer.get());
        if end.is_multiple_of(LOOK) {
            self.make_room(trees, guard);
        }
        put
    }
}

/// The lanes of a map, as the module's documentation describes them.
pub(super) struct Feed<F: SlotForm> {
    lanes: Box<[Lane<F>]>,
    /// Updates hold it shared; a thread that excludes all updates holds it exclusively.
    gate: DistributedRwLock<()>,
}

impl<F: SlotForm> Feed<F> {
    pub(super) fn new(replicas: usize, topology: &Topology) -> Self {
        let gate = RwLock::from_raw(RawDistributedRwLock::with_slots(topology.cpus().len()), ());
        Feed { lanes: (0..LANES).map(|_| Lane::new(replicas)).collect(), gate }
    }

    #[inline]
    fn lane(&self, key: F::Probe<'_>) -> &Lane<F> {
        let mixed = F::hash(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.lanes[(mixed >> 40) as usize % LANES]
    }

    /// Brings a replica up to date for a read of a key.
    #[inline]
    pub(super) fn freshen<P: Policy>(&self, tree: &Tree<F, P>, key: F::Probe<'_>, guard: &Guard<'_>) {
        self.lane(key).freshen(tree, guard);
    }

    /// Brings a replica up to date for a read of all keys.
    pub(super) fn freshen_all<P: Policy>(&self, tree: &Tree<F, P>, guard: &Guard<'_>) {
        self.lanes.iter().for_each(|lane| lane.freshen(tree, guard));
    }

    /// Logs a change of a key, and applies it to the replica `here`. Other replicas apply the change before they are
    /// next read or changed under a key of the same lane, or when the log fills. A conditional operation that is found
    /// to change nothing is not logged.
    pub(super) fn change<P: Policy>(
        &self,
        (trees, here): (&[Tree<F, P>], usize),
        key: F::Probe<'_>,
        what: What,
        guard: &Guard<'_>,
    ) -> Put {
        let lane = self.lane(key);
        if !matches!(what, What::Put(_, When::Always)) {
            // An operation that changes nothing is a read.
            lane.freshen(&trees[here], guard);
            let there = trees[here].get(key, guard);
            match (what, there) {
                (What::Take(_) | What::Put(_, When::Present | When::Holds(_)), None) => return Put::Missing,
                (What::Put(_, When::Absent), Some(there)) => return Put::Kept(there),
                (What::Put(_, When::Holds(word)) | What::Take(Some(word)), Some(there)) if word != there => {
                    return Put::Kept(there);
                }
                _ => {}
            }
        }
        let _gate = self.gate.read();
        lane.carry_out((trees, here), key, what, guard)
    }

    /// Runs `choose` on a replica that is up to date, and removes the key that it adds to `run`. No update runs
    /// meanwhile, so this replica does not change; other replicas may still apply earlier updates. No lock is held that
    /// `choose` could take.
    pub(super) fn take_chosen<P: Policy>(
        &self,
        (trees, here): (&[Tree<F, P>], usize),
        run: &mut F::Run,
        choose: impl FnOnce(&Tree<F, P>, &mut F::Run),
        guard: &Guard<'_>,
    ) {
        use super::run::Run as _;
        let _gate = self.gate.write();
        self.freshen_all(&trees[here], guard);
        choose(&trees[here], run);
        if run.len() > 0 {
            let put = self.lane(run.key(0)).carry_out((trees, here), run.key(0), What::Take(None), guard);
            debug_assert!(matches!(put, Put::Replaced(word) if word == run.value(0)), "no other thread takes it out");
        }
    }

    /// Replays to all replicas as far as possible without waiting, and recycles entries that all of them have applied.
    pub(super) fn settle<P: Policy>(&self, trees: &[Tree<F, P>], guard: &Guard<'_>) {
        self.lanes.iter().for_each(|lane| lane.help(trees, guard));
    }

    /// Returns whether a replica has applied every operation that any replica has applied. Otherwise the replica may
    /// contain words that another thread has got as answers. After [`settle`](Self::settle), the result is `false` only
    /// in a child process, if the thread that was replaying does not exist in this process.
    pub(super) fn is_level<P: Policy>(&self, tree: &Tree<F, P>) -> bool {
        self.lanes.iter().all(|lane| lane.log.local_tail(tree.number()) >= lane.log.completed())
    }

    /// Returns the number of bytes of the logs.
    pub(super) fn bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.log.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blink::structure::tests::logged;
    use crate::structure::{Structure as _, Word};

    /// Imitates a child process: the thread that waits for the answer is of the parent.
    #[test]
    fn no_answer_is_given_in_another_process() {
        let map = logged();
        let (trees, guard) = (map.core().trees(), map.core().domain().pin());
        let (feed, all) = (trees.feed().expect("two replicas"), trees.all());
        for (key, process, given) in [(7, fork::generation(), true), (8, fork::generation() + 1, false)] {
            let answer = Answer { what: AtomicU8::new(0), word: AtomicU64::new(0) };
            let what = What::Put(10 * key, When::Always);
            let op: Op<Word> = Op { key, what, replica: 1, answer: NonNull::from(&answer), process };
            let Ok(mut room) = feed.lane(key).log.reserve(1) else { panic!("an empty log") };
            room.fill(op);
            drop(room);
            feed.settle(all, &guard);
            assert_eq!(answer.get().is_some(), given);
            assert_eq!(all.iter().map(|tree| tree.get(key, &guard)).collect::<Vec<_>>(), [Some(10 * key); 2]);
        }
    }

    /// Imitates a child process: the thread that replays to the first replica does not exist in it, and another thread
    /// of the parent has removed an entry from the second replica.
    #[test]
    fn a_replica_that_lags_shows_no_words() {
        let map = logged();
        assert_eq!(map.pin().insert(7, 42), None);
        let (core, guard) = (map.core(), map.core().domain().pin());
        let (feed, all) = (core.trees().feed().expect("two replicas"), core.trees().all());
        feed.settle(all, &guard);
        let replaying = feed.lane(7).places[0].try_lock().expect("no thread replays");
        assert!(matches!(feed.change((all, 1), 7, What::Take(None), &guard), Put::Replaced(42)));
        assert_eq!(all[0].get(7, &guard), Some(42), "it lags");
        // SAFETY: no other thread has access to the map, which is dropped afterwards.
        unsafe { core.dismantle(|word| panic!("{word} belongs to the thread that has removed it")) };
        drop(replaying);
    }
}
