//! Locks that lie apart from their objects, a pair of lines for the global word and one for each node, and are used again.
//!
//! An object knows its lock by number, and gives it back as soon as it has left its structure: other threads that have come
//! by the object may still lock it, and find that it was removed. Meanwhile they and the lock's next object exclude each
//! other, which is as right as it is for objects that share a stripe. So garbage that waits for readers holds no locks,
//! and an object that comes and goes finds a lock in the cache.
//!
//! # Invariants
//! - A number below `made` is in one free list, or with one object that has not given it back (or was dropped without).
//! - A chunk that was made stays where it is as long as the pool.

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
use crate::identity;

/// Locks in the first chunk; each further one has twice as many as the last.
const FIRST: u32 = if cfg!(loom) { 2 } else { 64 };
const CHUNKS: usize = 24;

/// Fresh numbers taken at a time.
const BATCH: u32 = if cfg!(loom) { 1 } else { 16 };

/// What follows a lock that is in no list. An object that gives its lock back twice, or to another pool, must not put a
/// lock into a list that is in one: it would make a circle of it. At worst two objects share a lock from then on.
const TAKEN: u32 = u32::MAX;

/// Free lists at most: threads that have one in common may run on different NUMA nodes.
const LISTS: usize = if cfg!(loom) { 1 } else { 1024 };

/// The global word, in the first line of a lock; in the others the byte of a node.
#[derive(Debug)]
pub struct Line {
    pub(super) global: AtomicU32,
    /// Beside the global word of a lock that is free: the number of the next one in the list, and 1; or 0. Otherwise
    /// [`TAKEN`].
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

/// A lock of a pool: the global word's line, then the nodes'.
pub(super) type Apart<'p> = &'p [CachePadded<Line>];

#[derive(Debug)]
pub(super) struct Pool {
    /// No other pool of the process has it: an object knows by it which pool its number is of.
    id: u32,
    /// Lines of a lock.
    lines: usize,
    chunks: [AtomicPtr<CachePadded<Line>>; CHUNKS],
    /// Apart from what never changes, here and around the pool.
    made: CachePadded<AtomicU32>,
    /// Lists of free locks, one for each processor: the number of its first, and 1; or 0.
    free: Box<[CachePadded<Mutex<Plain<u32>>>]>,
}

/// Where the lock of a number is: its chunk, and which of the chunk's it is.
fn place(number: u32) -> (usize, usize) {
    let chunk = (number / FIRST + 1).ilog2();
    (chunk as usize, (number - FIRST * ((1 << chunk) - 1)) as usize)
}

impl Pool {
    pub(super) fn new(nodes: usize) -> Self {
        let list = || CachePadded::new(Mutex::new(Plain::new(0)));
        Self {
            id: u32::try_from(identity::fresh()).expect("no more than 4·10⁹ pools"),
            lines: nodes + 1,
            chunks: core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            made: CachePadded::new(AtomicU32::new(0)),
            free: (0..LISTS.min(processors())).map(|_| list()).collect(),
        }
    }

    /// Lines of a chunk.
    fn lines_of(&self, chunk: usize) -> usize {
        ((FIRST as usize) << chunk) * self.lines
    }

    /// The number of a lock that no object has.
    ///
    /// # Panics
    /// Beyond 10⁹ objects at a time.
    pub(super) fn take(&self) -> u32 {
        self.take_from(self.mine())
    }

    fn take_from(&self, mine: usize) -> u32 {
        self.pop(mine).or_else(|| self.take_over(mine)).unwrap_or_else(|| self.make(mine))
    }

    /// The calling thread's list.
    fn mine(&self) -> usize {
        thread::slot().index % self.free.len()
    }

    /// The object with this number is gone.
    pub(super) fn give_back(&self, number: u32) {
        self.push(self.mine(), number);
    }

    /// No list is locked while another is.
    fn first(&self, list: usize) -> MutexGuard<'_, Plain<u32>> {
        self.free[list].lock().expect("no holder panics")
    }

    /// The lock is in no list any more; what followed it. Relaxed: the list's own lock orders it.
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
        // Before the list's lock: it may panic.
        let next = &self.lock(number)[0].next;
        let mut first = self.first(list);
        if next.compare_exchange(TAKEN, **first, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            **first = number + 1;
        }
    }

    /// All of the first other list that is not empty: one comes out, the rest becomes this one.
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

    /// Makes a chain the list, if that is empty; else gives it back. The chain's locks stay as they are: other threads have
    /// used them, so each would have to be fetched.
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
        // A batch lies in one chunk: `BATCH` divides `FIRST`.
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
        // Release: pairs with the Acquire in `lock`. One of several threads that come here at once succeeds.
        if self.chunks[chunk].compare_exchange(ptr::null_mut(), made, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: from above, and no other thread has seen it.
            drop(unsafe { self.chunk_at(made, chunk) });
        }
    }

    /// # Safety
    /// `lines` came from [`make_chunk`](Self::make_chunk) for this chunk, and nothing uses it any more.
    unsafe fn chunk_at(&self, lines: *mut CachePadded<Line>, chunk: usize) -> Box<[CachePadded<Line>]> {
        // SAFETY: the caller's promise.
        unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(lines, self.lines_of(chunk))) }
    }

    #[inline]
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// The lock of a number that this pool has given out.
    ///
    /// # Panics
    /// If it cannot be, as its chunk was never made.
    #[inline]
    pub(super) fn lock(&self, number: u32) -> Apart<'_> {
        let (chunk, at) = place(number);
        let lines = self.chunks[chunk].load(Ordering::Acquire);
        assert!(!lines.is_null(), "a number that was never given out");
        // SAFETY: `at` is below the number of the chunk's locks, and chunks stay.
        unsafe { slice::from_raw_parts(lines.add(at * self.lines), self.lines) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for chunk in 0..CHUNKS {
            let lines = self.chunks[chunk].load(Ordering::Relaxed);
            if !lines.is_null() {
                // SAFETY: handles borrow the pool, so there are none left.
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

    /// Twice, and to a pool that has given the number to no object: the lists stay lists.
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

    /// Threads of one processor take, those of another give back: what comes back is used again.
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

    /// The locks of another list come as they lie there: to take them one by one would be to fetch each.
    #[test]
    fn what_another_list_has_is_taken_over_as_it_is() {
        let mut pool = Pool::new(1);
        pool.free = (0..3).map(|_| CachePadded::new(Mutex::new(Plain::new(0)))).collect();
        let made: Vec<u32> = (0..BATCH).map(|_| pool.take_from(1)).collect();
        made.iter().for_each(|number| pool.push(1, *number));
        let taken: Vec<u32> = (0..BATCH).map(|_| pool.take_from(2)).collect();
        assert!(taken.iter().eq(made.iter().rev()), "{taken:?} of {made:?}");
        // Into a list that has got some meanwhile, none is lost.
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

    /// Threads of different NUMA nodes have no list in common.
    #[test]
    #[cfg(archipelago_sim)]
    fn lists_are_of_one_node_each() {
        use archipelago_sim::{Config, Machine, run_with};
        let machine = Machine::preset("xeon-e7-8870v3-4s").unwrap();
        // At first all look into all lists.
        let body = |pool: &Pool, _| (0..400).for_each(|_| pool.give_back(pool.take()));
        let config = Config { stall_ns: u64::MAX, ..Config::seeded(1) };
        let report = run_with(&machine, &config, 144, || Pool::new(4), body, drop).0.assert_done();
        assert!(report.stats.dirty_remote < 144 * 100, "{:?}", report.stats);
    }

    /// More threads than cores take and give back: no two have one lock.
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
