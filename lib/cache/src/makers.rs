//! Single flight: one maker for each key, however many threads and tasks request it.
//!
//! A thread or task that misses a key requests a [`Permit`] to make it. The first one gets the permit. The others wait
//! until the permit is dropped (after a value, an error, a panic, or a dropped future), and look the key up again. So a
//! maker that fails wakes the others, and one of them is the next maker. The cache may not have the value that a maker
//! had, since the value was refused or has left the cache. Then the threads and tasks that have waited make values of
//! their own without a permit. If they requested permits again, each would wait for all others before it.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeMap, HashMap};

use archipelago_platform::atomic::{AtomicBool, Ordering::Relaxed};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::panics::FirstPanic;
use archipelago_platform::sync::{Arc, Condvar, Mutex, MutexGuard};
use archipelago_platform::thread;
use foldhash::fast::FixedState;

use crate::waits::Waits;

/// The keys whose values are being made, identified by their hashes: of two keys with the same hash, one waits for the
/// other.
pub(crate) struct Makers {
    shards: Box<[CachePadded<Shard>]>,
    /// Changed only by threads that wait, and by makers for which threads wait.
    waits: Waits,
}

#[derive(Default)]
struct Shard {
    state: Mutex<State>,
    /// Wakes the waiting threads when a permit has been dropped.
    made: Condvar,
}

#[derive(Default)]
struct State {
    /// The makers, by the hashes of their keys. The keys' hash function is the user's choice, so the map's own hash
    /// function needs no seed.
    making: HashMap<u64, Making, FixedState>,
    /// The last number that a permit or a waiting task got. Each number is used once.
    last: u64,
}

impl State {
    fn find(&mut self, hash: u64) -> Option<&mut Making> {
        self.making.get_mut(&hash)
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn begin(&mut self, hash: u64, by: Option<thread::ThreadId>) {
        let number = self.number();
        self.making.insert(hash, Making { number, by, is_awaited: false, made: None, tasks: BTreeMap::new() });
    }
}

/// A key whose value is being made.
struct Making {
    /// The permit's unique number.
    number: u64,
    /// The thread that makes the value; `None` if the maker is a task.
    by: Option<thread::ThreadId>,
    /// `true` if [`Waits`] has waits for this maker.
    is_awaited: bool,
    /// A flag that the waiting threads and tasks read: `true` if the maker had a value. The first thread or task that
    /// waits makes the flag. The flag is set under the shard's lock when this maker is removed.
    made: Option<Arc<AtomicBool>>,
    /// Tasks that wait, by their numbers.
    tasks: BTreeMap<u64, Waker>,
}

impl Making {
    fn made(&mut self) -> Arc<AtomicBool> {
        self.made.get_or_insert_with(Arc::default).clone()
    }
}

/// The right to make the value of a key.
pub(crate) struct Permit<'m> {
    makers: &'m Makers,
    shard: &'m Shard,
    hash: u64,
    /// Whether the maker has a value.
    pub made: bool,
}

/// The answer to a request for a permit.
pub(crate) enum Asked<'m> {
    Permit(Permit<'m>),
    /// Another maker has ended. The flag tells whether that maker had a value. The caller has to look the key up again.
    Ended(bool),
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No users' code runs under the lock, so only a failed allocation can panic under it.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Makers {
    pub fn new(shards: usize) -> Self {
        Self { shards: (0..shards).map(|_| CachePadded::new(Shard::default())).collect(), waits: Waits::default() }
    }

    /// Requests the permit for the key of `hash`, for this thread. Waits while another thread or a task has the permit.
    ///
    /// # Panics
    /// If the wait would never end: this thread has the permit, or the thread that has it waits for this thread,
    /// directly or through others. Makers that are tasks are not followed.
    pub fn ask(&self, shard: usize, hash: u64) -> Asked<'_> {
        let shard = &*self.shards[shard];
        let thread = thread::current().id();
        let mut state = shard.lock();
        let Some(making) = state.find(hash) else {
            state.begin(hash, Some(thread));
            return Asked::Permit(Permit { makers: self, shard, hash, made: false });
        };
        let (number, made) = (making.number, making.made());
        if let Some(maker) = making.by {
            if !self.waits.add(thread, maker, hash) {
                drop(state);
                panic!("a maker requests a key whose maker waits for this one: the thread would wait for itself");
            }
            making.is_awaited = true;
        }
        while state.find(hash).is_some_and(|making| making.number == number) {
            state = shard.made.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        Asked::Ended(made.load(Relaxed))
    }

    /// Works as [`ask`](Self::ask) does, for a task, except that a task that waits for itself is not detected.
    pub fn ask_later(&self, shard: usize, hash: u64) -> Asking<'_> {
        Asking { makers: self, shard: &self.shards[shard], hash, waits: None }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let tasks = {
            let mut state = self.shard.lock();
            let making = state.making.remove(&self.hash).expect("this permit's");
            if making.is_awaited {
                self.makers.waits.remove(self.hash);
            }
            if let Some(made) = making.made {
                made.store(self.made, Relaxed);
            }
            making.tasks
        };
        self.shard.made.notify_all();
        wake_all(tasks.into_values());
    }
}

/// Wakes tasks. Wakers are users' code: if one panics, the others are woken nevertheless.
fn wake_all(wakers: impl Iterator<Item = Waker>) {
    let mut panics = FirstPanic::default();
    wakers.for_each(|waker| _ = panics.call(|| waker.wake()));
    panics.resume();
}

/// A task's request for a permit.
pub(crate) struct Asking<'m> {
    makers: &'m Makers,
    shard: &'m Shard,
    hash: u64,
    /// The task's number, and whether the maker for which it waits had a value. It is `None` until the task waits.
    waits: Option<(u64, Arc<AtomicBool>)>,
}

impl<'m> Future for Asking<'m> {
    type Output = Asked<'m>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A waker is users' code, so it is cloned before the lock is taken, and dropped after the lock is released.
        let mut waker = context.waker().clone();
        let (makers, shard, hash) = (self.makers, self.shard, self.hash);
        let mut state = shard.lock();
        let waits = match (&self.waits, state.find(hash)) {
            (None, None) => {
                state.begin(hash, None);
                return Poll::Ready(Asked::Permit(Permit { makers, shard, hash, made: false }));
            }
            (None, Some(_)) => {
                let number = state.number();
                let making = state.find(hash).expect("found before");
                making.tasks.insert(number, waker);
                self.waits = Some((number, making.made()));
                return Poll::Pending;
            }
            (Some((number, made)), Some(making)) => making.tasks.get_mut(number).ok_or_else(|| made.load(Relaxed)),
            (Some((_, made)), None) => Err(made.load(Relaxed)),
        };
        match waits {
            Ok(old) => {
                core::mem::swap(old, &mut waker);
                drop(state);
                Poll::Pending
            }
            // The other maker has ended; the task looks the key up again.
            Err(made) => Poll::Ready(Asked::Ended(made)),
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some((number, _)) = &self.waits else { return };
        let mut state = self.shard.lock();
        let waker = state.find(self.hash).and_then(|making| making.tasks.remove(number));
        drop(state);
        drop(waker);
    }
}
