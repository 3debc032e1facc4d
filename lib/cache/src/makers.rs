//! Single flight: one maker for each key, however many threads and tasks request it.
//!
//! A thread or task that misses a key requests a [`Permit`] to make it. The first one gets the permit. The others wait
//! until the permit is dropped (after a value, an error, a panic, or a dropped future), and look the key up again. So a
//! maker that fails wakes the others, and one of them is the next maker.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use archipelago_platform::pad::CachePadded;
use archipelago_platform::panics::FirstPanic;
use archipelago_platform::sync::{Condvar, Mutex, MutexGuard};
use archipelago_platform::thread;

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
    making: Vec<Making>,
    /// The last number that a permit or a waiting task got. Each number is used once.
    last: u64,
}

impl State {
    fn find(&mut self, hash: u64) -> Option<&mut Making> {
        self.making.iter_mut().find(|making| making.hash == hash)
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn begin(&mut self, hash: u64, by: Option<thread::ThreadId>) {
        let number = self.number();
        self.making.push(Making { hash, number, by, is_awaited: false, tasks: Vec::new() });
    }
}

/// A key whose value is being made.
struct Making {
    hash: u64,
    /// The permit's unique number.
    number: u64,
    /// The thread that makes the value; `None` if the maker is a task.
    by: Option<thread::ThreadId>,
    /// Whether [`Waits`] has waits for this maker.
    is_awaited: bool,
    /// Tasks that wait, each with a unique number.
    tasks: Vec<(u64, Waker)>,
}

/// The right to make the value of a key.
pub(crate) struct Permit<'m> {
    makers: &'m Makers,
    shard: &'m Shard,
    hash: u64,
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

    /// Requests the permit for the key of `hash`, for a thread. Returns `None` after a wait for another maker: then the
    /// caller has to look the key up again.
    ///
    /// # Panics
    /// If the wait would never end, since this thread has the permit, or since the thread that has it waits for this
    /// thread, directly or through others. Makers that are tasks are not followed.
    pub fn ask(&self, shard: usize, hash: u64) -> Option<Permit<'_>> {
        let shard = &*self.shards[shard];
        let thread = thread::current().id();
        let mut state = shard.lock();
        let Some(making) = state.find(hash) else {
            state.begin(hash, Some(thread));
            return Some(Permit { makers: self, shard, hash });
        };
        let number = making.number;
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
        None
    }

    /// Works as [`ask`](Self::ask) does, for a task, except that a task that waits for itself is not detected.
    pub fn ask_later(&self, shard: usize, hash: u64) -> Asking<'_> {
        Asking { makers: self, shard: &self.shards[shard], hash, number: None }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let tasks = {
            let mut state = self.shard.lock();
            let at = state.making.iter().position(|making| making.hash == self.hash).expect("this permit's");
            let making = state.making.swap_remove(at);
            if making.is_awaited {
                self.makers.waits.remove(self.hash);
            }
            making.tasks
        };
        self.shard.made.notify_all();
        wake_all(tasks.into_iter().map(|(_, waker)| waker));
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
    /// The task's number. It is `None` until the task waits.
    number: Option<u64>,
}

impl<'m> Future for Asking<'m> {
    type Output = Option<Permit<'m>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A waker is users' code, so it is cloned before the lock is taken, and dropped after the lock is released.
        let mut waker = context.waker().clone();
        let (makers, shard, hash) = (self.makers, self.shard, self.hash);
        let mut state = shard.lock();
        let waits = match (self.number, state.find(hash)) {
            (None, None) => {
                state.begin(hash, None);
                return Poll::Ready(Some(Permit { makers, shard, hash }));
            }
            (None, Some(_)) => {
                let number = state.number();
                self.number = Some(number);
                state.find(hash).expect("found before").tasks.push((number, waker));
                return Poll::Pending;
            }
            (Some(number), Some(making)) => making.tasks.iter_mut().find(|(of, _)| *of == number),
            (Some(_), None) => None,
        };
        match waits {
            Some((_, old)) => {
                core::mem::swap(old, &mut waker);
                drop(state);
                Poll::Pending
            }
            // The other maker has ended; the task looks the key up again.
            None => Poll::Ready(None),
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.shard.lock();
        let waker = state.find(self.hash).and_then(|making| {
            let at = making.tasks.iter().position(|(of, _)| *of == number)?;
            Some(making.tasks.swap_remove(at))
        });
        drop(state);
        drop(waker);
    }
}
