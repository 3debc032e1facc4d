//! A pool of reusable locks that are stored outside their objects. A lock is a pair of cache lines for the global word,
//! and a pair for each node.
//!
//! An object stores the number of its lock. It gives the lock back as soon as it has left its structure. Threads that
//! found the object earlier may still lock it, and then find that it was removed. During this time they and the lock's
//! next object exclude each other. This is correct, as it is for objects that share a stripe (see
//! [`Striped`](super::Striped)). So garbage that waits for readers occupies no locks, and a new object often gets a
//! lock that is still in the cache.
//!
//! # Invariants
//! - A number below `made` is in at most one free list, or belongs to one object that has not given it back (or that
//!   was dropped without giving it back). This requires that each object gives its lock back at most once, and to its
//!   own pool.
//! - An allocated chunk is not moved or freed before the pool is dropped.

use core::mem;
use core::ptr;
use core::slice;

use archipelago_platform::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::plain::Plain;
use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_platform::thread;

use super::words::Queue;
use crate::crowd::processors;
use crate::identity::Identities;

/// Number of locks in the first chunk. Each further chunk has twice as many as the chunk before it.
const FIRST: u32 = if cfg!(loom) { 2 } else { 64 };
const CHUNKS: usize = 24;

/// The number of new lock numbers that are taken at a time.
const BATCH: u32 = if cfg!(loom) { 1 } else { 16 };

/// The value of `next` in a lock that is in no list. An object might give its lock back twice, or to another pool. The
/// lock must then not be added to a list while it is in one, which would make the list circular. With this value, the
/// worst consequence is that two objects share a lock.
const TAKEN: u32 = u32::MAX;

/// The largest number of free lists. With more processors than lists, threads of different NUMA nodes share lists.
const LISTS: usize = if cfg!(loom) { 1 } else { 1024 };

static IDENTITIES: Identities = Identities::new();

/// A pair of cache lines of a lock. The first pair contains the global word; each of the others contains the byte of a
/// node.
#[derive(Debug)]
pub struct Line {
    pub(super) global: AtomicU32,
    /// Used beside the global word only. In a free lock: 1 plus the number of the next lock in the list, or 0 at the
    /// end. Otherwise [`TAKEN`].
    next: AtomicU32,
    pub(super) byte: AtomicU8,
    pub(super) queue: Queue,
}

impl Line {
    fn new() -> CachePadded<Self> {
        let (global, next) = (AtomicU32::new(0), AtomicU32::new(TAKEN));
        CachePadded::new(Self { global, next, byte: AtomicU8::new(0), queue: Queue::default() })
    }
}

/// A lock of a pool: the line pair of the global word, then those of the nodes.
pub(super) type Apart<'p> = &'p [CachePadded<Line>];

#[derive(Debug)]
pub(super) struct Pool {
    /// Unique among the pools of the process. It identifies the pool to which an object's number belongs.
    id: u32,
    /// Number of line pairs per lock.
    lines: usize,
    chunks: [AtomicPtr<CachePadded<Line>>; CHUNKS],
    /// In a cache line of its own, apart from the fields before and after it, which never change.
    made: CachePadded<AtomicU32>,
    /// Lists of free locks, one for each processor, but at most [`LISTS`]. The value is 1 plus the number of the list's
    /// first lock, or 0 if the list is empty.
    free: Box<[CachePadded<Mutex<Plain<u32>>>]>,
}

/// Returns the position of a lock: its chunk, and its index in the chunk.
fn place(number: u32) -> (usize, usize) {
    let chunk = (number / FIRST + 1).ilog2();
    (chunk as usize, (number - FIRST * ((1 << chunk) - 1)) as usize)
}

impl Pool {
    pub(super) fn new(nodes: usize) -> Self {
        let list = || CachePadded::new(Mutex::new(Plain::new(0)));
        Self {
            id: u32::try_from(IDENTITIES.fresh()).expect("no more than 4·10⁹ pools"),
            lines: nodes + 1,
            chunks: core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            made: CachePadded::new(AtomicU32::new(0)),
            free: (0..LISTS.min(processors())).map(|_| list()).collect(),
        }
    }

    /// Returns the number of line pairs in a chunk.
    fn lines_of(&self, chunk: usize) -> usize {
        ((FIRST as usize) << chunk) * self.lines
    }

    /// Returns the number of a lock that belongs to no object.
    ///
    /// # Panics
    /// If more than 10⁹ objects exist at a time.
    pub(super) fn take(&self) -> u32 {
        self.take_from(self.mine())
    }

    fn take_from(&self, mine: usize) -> u32 {
        self.pop(mine).or_else(|| self.take_over(mine)).unwrap_or_else(|| self.make(mine))
    }

    /// Returns the calling thread's list.
    fn mine(&self) -> usize {
        thread::slot().index % self.free.len()
    }

    /// Gives back the lock `number`, whose object has left its structure.
    pub(super) fn give_back(&self, number: u32) {
        self.push(self.mine(), number);
    }

    /// Locks a list and returns its head. At most one list is locked at a time, so this cannot deadlock.
    fn first(&self, list: usize) -> MutexGuard<'_, Plain<u32>> {
        self.free[list].lock().expect("no holder panics")
    }

    /// Marks the lock as being in no list and returns its successor. Relaxed: the list's mutex orders the accesses.
    fn take_out(&self, number: u32) -> u32 {
        self.lock(number)[0].next.swap(TAKEN, Ordering::Relaxed)
    }

    fn pop(&self, list: usize) -> Option<u32> {
        let mut first = self.first(list);
        let number = first.checked_sub(1)?;
        **first = self.take_out(number);
        Some(number)
    }

    fn push(&self, list: usize, number: u32) {
        // Before the list's mutex is locked, because `lock` may panic.
        let next = &self.lock(number)[0].next;
        let mut first = self.first(list);
        if next.compare_exchange(TAKEN, **first, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            **first = number + 1;
        }
    }

    /// Takes over the first of the other lists that is not empty: returns its first lock and makes the rest the list
    /// `mine`.
    #[cold]
    fn take_over(&self, mine: usize) -> Option<u32> {
        let mut others = (1..self.free.len()).map(|step| (mine + step) % self.free.len());
        let number = others.find_map(|other| mem::take(&mut **self.first(other)).checked_sub(1))?;
        let rest = self.take_out(number);
        if let Some(rest) = self.become_first(mine, rest) {
            self.push_all(mine, rest);
        }
        Some(number)
    }

    /// Makes `chain` the list if the list is empty; otherwise returns `chain`. The chain's locks are not accessed:
    /// other threads have used them, so each access would be a cache miss.
    fn become_first(&self, list: usize, chain: u32) -> Option<u32> {
        let mut first = self.first(list);
        if **first != 0 {
            return Some(chain);
        }
        **first = chain;
        None
    }

    #[cold]
    fn push_all(&self, list: usize, mut chain: u32) {
        while let Some(number) = chain.checked_sub(1) {
            chain = self.take_out(number);
            self.push(list, number);
        }
    }

    #[cold]
    fn make(&self, mine: usize) -> u32 {
        let first = self.made.fetch_add(BATCH, Ordering::Relaxed);
        // A batch is in one chunk, because `BATCH` divides `FIRST`.
        let (chunk, _) = place(first);
        assert!(chunk < CHUNKS, "more locked objects than a pool can have");
        if self.chunks[chunk].load(Ordering::Acquire).is_null() {
            self.make_chunk(chunk);
        }
        (first + 1..first + BATCH).for_each(|number| self.push(mine, number));
        first
    }

    fn make_chunk(&self, chunk: usize) {
        let lines: Box<[CachePadded<Line>]> = (0..self.lines_of(chunk)).map(|_| Line::new()).collect();
        let made = Box::into_raw(lines).cast();
        // Release: pairs with the Acquire in `lock`. If several threads make the chunk at once, one of them succeeds.
        if self.chunks[chunk].compare_exchange(ptr::null_mut(), made, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: made above, and no other thread has seen it.
            drop(unsafe { self.chunk_at(made, chunk) });
        }
    }

    /// # Safety
    /// `lines` was made by [`make_chunk`](Self::make_chunk) for this chunk, and nothing uses it any more.
    unsafe fn chunk_at(&self, lines: *mut CachePadded<Line>, chunk: usize) -> Box<[CachePadded<Line>]> {
        // SAFETY: the caller's promise.
        unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(lines, self.lines_of(chunk))) }
    }

    #[inline]
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the lock of a number that this pool has given out.
    ///
    /// # Panics
    /// If the number's chunk was never made, so the number was not given out by this pool.
    #[inline]
    pub(super) fn lock(&self, number: u32) -> Apart<'_> {
        let (chunk, at) = place(number);
        let lines = self.chunks[chunk].load(Ordering::Acquire);
        assert!(!lines.is_null(), "a number that was never given out");
        // SAFETY: `at` is less than the number of the chunk's locks, and chunks are kept as long as the pool.
        unsafe { slice::from_raw_parts(lines.add(at * self.lines), self.lines) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for chunk in 0..CHUNKS {
            let lines = self.chunks[chunk].load(Ordering::Relaxed);
            if !lines.is_null() {
                // SAFETY: handles borrow the pool, so none exists any more.
                drop(unsafe { self.chunk_at(lines, chunk) });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_chunks_one_after_the_other() {
        let mut expected = (0, 0);
        for number in 0..FIRST * 15 {
            assert_eq!(place(number), expected);
            expected = if expected.1 + 1 == (FIRST as usize) << expected.0 {
                (expected.0 + 1, 0)
            } else {
                (expected.0, expected.1 + 1)
            };
        }
    }

    /// A lock is given back twice, and to a pool that has given its number to no object: the lists stay correct.
    #[test]
    fn a_lock_that_is_given_back_again_is_free_once() {
        let (pool, other) = (Pool::new(2), Pool::new(2));
        let number = pool.take();
        _ = other.take();
        for _ in 0..3 {
            pool.give_back(number);
            other.give_back(number);
            other.give_back(number + 1);
        }
        for pool in [pool, other] {
            let mut taken: Vec<u32> = (0..100).map(|_| pool.take()).collect();
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), 100);
        }
    }

    /// Threads of one processor take locks, and threads of another give them back. The locks that were given back are
    /// reused.
    #[test]
    fn locks_that_come_back_to_another_list_are_used_again() {
        let (rounds, alive) = if cfg!(miri) { (10, 10) } else { (1_000, 40) };
        let pool = Pool::new(3);
        let another = 1 % pool.free.len();
        for _ in 0..rounds {
            let mut taken: Vec<u32> = (0..alive).map(|_| pool.take_from(0)).collect();
            assert!(taken.iter().all(|number| pool.lock(*number).len() == 4));
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), alive, "a lock was taken twice");
            taken.into_iter().for_each(|number| pool.push(another, number));
        }
        let made = pool.made.load(Ordering::Relaxed);
        assert!(made <= 2 * alive as u32, "{made} locks for {alive} objects");
    }

    /// Another list is taken over unchanged: to take its locks one by one would be a cache miss for each.
    #[test]
    fn what_another_list_has_is_taken_over_as_it_is() {
        let mut pool = Pool::new(1);
        pool.free = (0..3).map(|_| CachePadded::new(Mutex::new(Plain::new(0)))).collect();
        let made: Vec<u32> = (0..BATCH).map(|_| pool.take_from(1)).collect();
        made.iter().for_each(|number| pool.push(1, *number));
        let taken: Vec<u32> = (0..BATCH).map(|_| pool.take_from(2)).collect();
        assert!(taken.iter().eq(made.iter().rev()), "{taken:?} of {made:?}");
        // If the list has got a lock in the meantime, none of the locks is lost.
        taken.iter().for_each(|number| pool.push(1, *number));
        pool.push(2, pool.take_from(1));
        let chain = core::mem::take(&mut **pool.first(1));
        let chain = pool.become_first(2, chain).expect("the list has one");
        pool.push_all(2, chain);
        let mut taken: Vec<u32> = (0..BATCH).map(|_| pool.take_from(2)).collect();
        taken.sort_unstable();
        taken.dedup();
        assert!(taken.len() == BATCH as usize && taken.iter().all(|number| made.contains(number)));
    }

    /// If there are as many lists as threads, threads of different NUMA nodes share no list.
    #[test]
    #[cfg(archipelago_sim)]
    fn lists_are_of_one_node_each() {
        use archipelago_sim::{Config, Machine, run_with};
        let machine = Machine::preset("xeon-e7-8870v3-4s").unwrap();
        // At first, each thread searches all lists.
        let body = |pool: &Pool, _| (0..400).for_each(|_| pool.give_back(pool.take()));
        let config = Config { stall_ns: u64::MAX, ..Config::seeded(1) };
        let report = run_with(&machine, &config, 144, || Pool::new(4), body, drop).0.assert_done();
        assert!(report.stats.dirty_remote < 144 * 100, "{:?}", report.stats);
    }

    /// More threads than cores take locks and give them back: no two objects have the same lock at a time.
    #[test]
    fn no_lock_has_two_objects() {
        let (threads, rounds) = if cfg!(miri) { (3, 20) } else { (8, 3_000) };
        let pool = Pool::new(1);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let numbers = [pool.take(), pool.take()];
                        for byte in numbers.map(|number| &pool.lock(number)[1].byte) {
                            assert_eq!(byte.swap(1, Ordering::Relaxed), 0);
                        }
                        for number in numbers {
                            pool.lock(number)[1].byte.store(0, Ordering::Relaxed);
                            pool.give_back(number);
                        }
                    }
                });
            }
        });
    }
}
