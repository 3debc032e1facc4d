//! A priority queue of threads by virtual time, in which a thread is at most once and can be moved or taken out.
//!
//! A 4-ary heap in one array; each thread's position is kept beside it, so that moving costs no search. Ties go to the
//! thread that was put in first, which keeps the order a function of the program alone.

/// Not in the heap.
const OUT: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    time: u64,
    /// Breaks ties: the order of insertion.
    turn: u32,
    thread: u32,
}

impl Entry {
    fn before(self, other: Entry) -> bool {
        (self.time, self.turn) < (other.time, other.turn)
    }
}

#[derive(Default)]
pub(crate) struct Heap {
    entries: Vec<Entry>,
    position: Vec<u32>,
    turn: u32,
}

impl Heap {
    /// The earliest time in the heap, or the largest number if it is empty.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.entries.first().map_or(u64::MAX, |entry| entry.time)
    }

    /// Whether a thread is in.
    pub(crate) fn contains(&self, thread: usize) -> bool {
        self.position.get(thread).is_some_and(|&at| at != OUT)
    }

    /// Puts a thread in, or moves it if it is in.
    pub(crate) fn put(&mut self, thread: usize, time: u64) {
        if self.position.len() <= thread {
            self.position.resize(thread + 1, OUT);
        }
        self.turn = self.turn.wrapping_add(1);
        let entry = Entry { time, turn: self.turn, thread: thread as u32 };
        match self.position[thread] {
            OUT => {
                self.entries.push(entry);
                self.up(self.entries.len() - 1, entry);
            }
            at => self.settle(at as usize, entry),
        }
    }

    /// Takes a thread out, if it is in.
    pub(crate) fn remove(&mut self, thread: usize) {
        let Some(&at) = self.position.get(thread) else { return };
        if at == OUT {
            return;
        }
        self.position[thread] = OUT;
        let last = self.entries.pop().expect("a position means an entry");
        if (at as usize) < self.entries.len() {
            self.settle(at as usize, last);
        }
    }

    /// Takes out the thread with the earliest time.
    pub(crate) fn pop(&mut self) -> Option<(u64, usize)> {
        let first = *self.entries.first()?;
        self.remove(first.thread as usize);
        Some((first.time, first.thread as usize))
    }

    /// Puts a thread in that is not in, and takes out the one with the earliest time: less work than one by one.
    pub(crate) fn exchange(&mut self, thread: usize, time: u64) -> (u64, usize) {
        let Some(&first) = self.entries.first() else { return (time, thread) };
        // The newcomer goes behind those of its time.
        if time < first.time {
            return (time, thread);
        }
        if self.position.len() <= thread {
            self.position.resize(thread + 1, OUT);
        }
        self.turn = self.turn.wrapping_add(1);
        self.position[first.thread as usize] = OUT;
        self.down(0, Entry { time, turn: self.turn, thread: thread as u32 });
        (first.time, first.thread as usize)
    }

    /// The thread with the earliest time.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        self.entries.first().map(|entry| entry.thread as usize)
    }

    /// The threads after the first: one of them comes second.
    #[inline]
    pub(crate) fn followers(&self) -> impl Iterator<Item = usize> + '_ {
        self.entries.iter().skip(1).take(4).map(|entry| entry.thread as usize)
    }

    fn settle(&mut self, at: usize, entry: Entry) {
        if at > 0 && entry.before(self.entries[(at - 1) / 4]) { self.up(at, entry) } else { self.down(at, entry) }
    }

    fn place(&mut self, at: usize, entry: Entry) {
        self.entries[at] = entry;
        self.position[entry.thread as usize] = at as u32;
    }

    fn up(&mut self, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / 4;
            if !entry.before(self.entries[parent]) {
                break;
            }
            self.place(at, self.entries[parent]);
            at = parent;
        }
        self.place(at, entry);
    }

    fn down(&mut self, mut at: usize, entry: Entry) {
        loop {
            let children = 4 * at + 1..(4 * at + 5).min(self.entries.len());
            let Some(child) = children.reduce(|a, b| if self.entries[b].before(self.entries[a]) { b } else { a })
            else {
                break;
            };
            if !self.entries[child].before(entry) {
                break;
            }
            self.place(at, self.entries[child]);
            at = child;
        }
        self.place(at, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;

    #[test]
    fn agrees_with_a_sorted_list() {
        let mut heap = Heap::default();
        let mut model: Vec<(u64, u64, usize)> = Vec::new();
        let mut seed = 7;
        for turn in 0..20_000 {
            let thread = rng::below(&mut seed, 40) as usize;
            match rng::below(&mut seed, 5) {
                4 if !heap.contains(thread) => {
                    let time = rng::below(&mut seed, 50);
                    model.push((time, turn, thread));
                    let expected = model.iter().copied().min().unwrap();
                    model.retain(|entry| *entry != expected);
                    assert_eq!(heap.exchange(thread, time), (expected.0, expected.2));
                }
                0 | 1 => {
                    let time = rng::below(&mut seed, 50);
                    model.retain(|entry| entry.2 != thread);
                    model.push((time, turn, thread));
                    heap.put(thread, time);
                }
                2 => {
                    model.retain(|entry| entry.2 != thread);
                    heap.remove(thread);
                }
                _ => {
                    let expected = model.iter().copied().min();
                    model.retain(|entry| Some(*entry) != expected);
                    assert_eq!(heap.earliest(), expected.map_or(u64::MAX, |entry| entry.0));
                    assert_eq!(heap.pop(), expected.map(|entry| (entry.0, entry.2)));
                }
            }
        }
    }
}
