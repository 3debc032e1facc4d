//! A priority queue of threads by virtual time. A thread is in it at most once.
//!
//! The queue is a winner tree: leaf `k` is thread k's entry, and every inner node is the lesser of its children, so
//! node 1 is the first entry. A change of an entry walks from its leaf to the root, without a branch that depends on
//! times. Among equal times, the thread with the lower number is first. So the order depends on the program alone.
//!
//! While a thread runs ([`Agenda::start`]), its leaf is empty, but its ancestors still have its old entry. Most likely
//! the thread is added again, and then one walk corrects them. All other nodes are exact. So
//! [`Agenda::earliest_other`], which reads only siblings of the running thread's path, is exact as well.
//! [`Agenda::stop`] corrects the ancestors.

use core::hint::select_unpredictable;

/// The time in the upper bits and the thread in the lower bits of one word, so that a comparison takes two
/// instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry(u64);

/// The bits of an entry that identify the thread.
const THREAD: u32 = 16;

/// The most threads of a run.
pub(crate) const MAX_THREADS: usize = 1 << THREAD;

/// The latest time, in picoseconds. Later times count as this one.
pub(crate) const MAX_TIME: u64 = (1 << (64 - THREAD)) - 2;

/// No entry.
const OUT: Entry = Entry(u64::MAX);

/// No thread.
const NOBODY: usize = usize::MAX;

impl Entry {
    #[inline]
    fn new(time: u64, thread: usize) -> Entry {
        Entry(time.min(MAX_TIME) << THREAD | thread as u64)
    }

    #[inline]
    fn or_earlier(self, other: Entry) -> Entry {
        Entry(select_unpredictable(other.0 < self.0, other.0, self.0))
    }

    /// Returns the time, or the largest number for [`OUT`].
    #[inline]
    fn time(self) -> u64 {
        if self == OUT { u64::MAX } else { self.0 >> THREAD }
    }

    #[inline]
    fn thread(self) -> Option<usize> {
        (self != OUT).then_some(self.0 as usize % MAX_THREADS)
    }
}

pub(crate) struct Agenda {
    /// The tree's nodes. There are twice as many nodes as leaves, and their number is a power of two.
    nodes: Vec<Entry>,
    /// The running thread: the ancestors of its leaf are out of date.
    runner: usize,
}

impl Agenda {
    pub(crate) fn new() -> Self {
        Agenda { nodes: vec![OUT; 2], runner: NOBODY }
    }

    /// Returns the earliest time, or the largest number if the queue is empty. No thread is running.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.nodes[1].time()
    }

    /// Returns the time and thread of the earliest entry. No thread is running.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, usize)> {
        let first = self.nodes[1];
        first.thread().map(|thread| (first.time(), thread))
    }

    /// Returns whether a thread is in the queue.
    pub(crate) fn contains(&self, thread: usize) -> bool {
        self.nodes.get(self.leaves() + thread).is_some_and(|&entry| entry != OUT)
    }

    /// Adds a thread, or moves it if it is in the queue.
    #[inline]
    pub(crate) fn put(&mut self, thread: usize, time: u64) {
        if thread >= self.leaves() {
            self.grow(thread);
        }
        self.set(thread, Entry::new(time, thread));
    }

    /// Removes a thread, if it is in the queue.
    pub(crate) fn remove(&mut self, thread: usize) {
        if thread < self.leaves() {
            self.set(thread, OUT);
        }
    }

    /// Records that a thread runs: it is not in the queue until it is added again.
    #[inline]
    pub(crate) fn start(&mut self, thread: usize) {
        debug_assert_eq!(self.runner, NOBODY);
        let leaf = self.leaves() + thread;
        if self.nodes[leaf] != OUT {
            self.nodes[leaf] = OUT;
            self.runner = thread;
        }
    }

    /// Records that the running thread has stopped.
    #[inline]
    pub(crate) fn stop(&mut self) {
        if self.runner != NOBODY {
            self.set(self.runner, OUT);
        }
    }

    /// Returns the earliest time of all threads except `thread`, and the thread with this time.
    #[inline]
    pub(crate) fn earliest_other(&self, thread: usize) -> (u64, Option<usize>) {
        let (mut at, mut least) = (self.leaves() + thread, OUT);
        assert!(at < self.nodes.len());
        while at > 1 {
            least = least.or_earlier(self.sibling(at));
            at /= 2;
        }
        (least.time(), least.thread())
    }

    #[inline]
    fn sibling(&self, at: usize) -> Entry {
        debug_assert!(at > 1 && at < self.nodes.len());
        // SAFETY: the callers start with a leaf and halve its number, and the number of nodes is even.
        unsafe { *self.nodes.get_unchecked(at ^ 1) }
    }

    #[inline]
    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    #[inline]
    fn set(&mut self, thread: usize, entry: Entry) {
        if thread == self.runner {
            self.runner = NOBODY;
        }
        let (mut at, mut least) = (self.leaves() + thread, entry);
        self.nodes[at] = entry;
        while at > 1 {
            least = least.or_earlier(self.sibling(at));
            at /= 2;
            // SAFETY: `at` is half of a node's number.
            unsafe { *self.nodes.get_unchecked_mut(at) = least };
        }
    }

    /// Makes the tree large enough for `thread`.
    #[cold]
    fn grow(&mut self, thread: usize) {
        let leaves = (thread + 1).next_power_of_two();
        let mut nodes = vec![OUT; 2 * leaves];
        nodes[leaves..leaves + self.leaves()].copy_from_slice(&self.nodes[self.leaves()..]);
        for at in (1..leaves).rev() {
            nodes[at] = nodes[2 * at].or_earlier(nodes[2 * at + 1]);
        }
        // The tree was rebuilt from its leaves, so all nodes are exact.
        (self.nodes, self.runner) = (nodes, NOBODY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;

    type Model = Vec<(u64, usize)>;

    fn put(agenda: &mut Agenda, model: &mut Model, thread: usize, time: u64) {
        model.retain(|entry| entry.1 != thread);
        model.push((time, thread));
        agenda.put(thread, time);
    }

    #[test]
    fn agrees_with_a_sorted_list() {
        let mut agenda = Agenda::new();
        let mut model: Model = Vec::new();
        let mut seed = 7;
        for turn in 0..20_000 {
            let thread = rng::below(&mut seed, 1 + turn.min(40)) as usize;
            let time = rng::below(&mut seed, 50);
            match rng::below(&mut seed, 4) {
                0 | 1 => put(&mut agenda, &mut model, thread, time),
                2 => {
                    model.retain(|entry| entry.1 != thread);
                    agenda.remove(thread);
                }
                _ => {
                    let expected = model.iter().copied().min();
                    assert_eq!(agenda.first(), expected);
                    let Some((_, runner)) = expected else { continue };
                    agenda.start(runner);
                    model.retain(|entry| entry.1 != runner);
                    if thread != runner {
                        put(&mut agenda, &mut model, thread, time);
                    }
                    let other = model.iter().copied().min();
                    assert_eq!(agenda.earliest_other(runner).1, other.map(|entry| entry.1));
                    if thread.is_multiple_of(2) {
                        put(&mut agenda, &mut model, runner, time + 1);
                    }
                    agenda.stop();
                    assert_eq!(agenda.contains(runner), thread.is_multiple_of(2));
                }
            }
        }
    }
}
