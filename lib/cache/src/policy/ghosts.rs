//! Which keys have been evicted lately: their hashes, without the keys.

use archipelago_platform::hint::prefetch_read;

/// Hashes of a set.
const WAYS: usize = 8;

/// Queues that keys are evicted from; the lowest bits of a time say which.
const QUEUES: usize = 2;
const QUEUE_BITS: u32 = 1;
const TIMES: u32 = 1 << (u32::BITS - QUEUE_BITS);

/// What is looked at together, in one line: hashes and when each was noted, the last first. Of one that is not there both are 0.
#[derive(Clone, Default)]
#[repr(align(64))]
struct Set {
    /// The low halves of the hashes.
    prints: [u32; WAYS],
    at: [u32; WAYS],
}

impl Set {
    /// Forgets the oldest, unless one is missing, for a new one.
    fn note(&mut self, print: u32, at: u32) {
        let last = self.at.iter().position(|at| *at == 0).unwrap_or(WAYS - 1);
        self.prints.copy_within(..last, 1);
        self.at.copy_within(..last, 1);
        (self.prints[0], self.at[0]) = (print, at);
    }

    /// Returns the places that have this print, a bit for each. All are compared: that is one instruction or two.
    fn with(&self, print: u32) -> u32 {
        self.prints.iter().rev().fold(0, |found, other| found << 1 | u32::from(*other == print))
    }
}

/// The keys evicted lately, as many as it is told to remember, about: a set of [`WAYS`] forgets its oldest for a new one.
/// Two keys of the same print are taken for one another, about once in 2^32 / `WAYS` questions.
#[derive(Default)]
pub(crate) struct Ghosts {
    sets: Box<[Set]>,
    /// By queue, counts what was noted of it. The first is 1: 0 is no ghost.
    clocks: [u32; QUEUES],
}

/// A key that was remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ghost {
    /// The queue that it was evicted from.
    pub queue: u64,
    /// How many have been evicted from there since.
    pub age: usize,
}

fn print(hash: u64) -> u32 {
    hash as u32
}

impl Ghosts {
    /// By bits that choose no bucket in tables of less than 2^24 of them.
    fn set(&self, hash: u64) -> usize {
        let bits = u64::from((hash >> 24) as u32);
        ((bits * self.sets.len() as u64) >> 32) as usize
    }

    /// Fetches what is to be looked at for a hash, without waiting.
    pub fn prefetch(&self, hash: u64) {
        if let Some(set) = self.sets.get(self.set(hash)) {
            prefetch_read(set);
        }
    }

    /// Notes a key that a queue has evicted, and remembers about the last `most` from now on.
    pub fn note(&mut self, hash: u64, queue: u64, most: usize) {
        self.fit(most);
        let clock = &mut self.clocks[queue as usize];
        *clock = ((*clock + 1) % TIMES).max(1);
        let at = *clock << QUEUE_BITS | queue as u32;
        let set = self.set(hash);
        self.sets[set].note(print(hash), at);
    }

    /// Returns what is known of a key that is among the last `most` of its queue, and forgets it.
    pub fn take(&mut self, hash: u64, most: usize) -> Option<Ghost> {
        if self.sets.is_empty() {
            return None;
        }
        let set = self.set(hash);
        let set = &mut self.sets[set];
        let mut found = set.with(print(hash));
        while found != 0 {
            let place = found.trailing_zeros() as usize;
            let (queue, at) = (u64::from(set.at[place]) % QUEUES as u64, set.at[place] >> QUEUE_BITS);
            let age = (self.clocks[queue as usize].wrapping_sub(at) % TIMES) as usize;
            if set.at[place] != 0 && age <= most {
                (set.prints[place], set.at[place]) = (0, 0);
                return Some(Ghost { queue, age });
            }
            found &= found - 1;
        }
        None
    }

    /// Sets for `most`, at three quarters of their load at most. A change of their number forgets all: it comes when the cache has
    /// grown by a quarter, or shrunk by half.
    fn fit(&mut self, most: usize) {
        let wanted = most / (WAYS * 3 / 4) + 1;
        if wanted > self.sets.len() || wanted < self.sets.len() / 2 {
            self.sets = vec![Set::default(); wanted + wanted / 4].into();
        }
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::*;

    /// The hash of a number, whose parts choose set and print.
    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)
    }

    /// Nearly all of the last ones are there, once each, and no older ones.
    #[test]
    fn the_last_ones_are_remembered_once() {
        const MOST: u64 = 600;
        let mut ghosts = Ghosts::default();
        assert_eq!(ghosts.take(hash(1), 1), None);
        (0..5_000).for_each(|number| ghosts.note(hash(number), 0, MOST as usize));
        let mut taken = |numbers: core::ops::Range<u64>| {
            numbers.filter_map(|number| ghosts.take(hash(number), MOST as usize)).count() as u64
        };
        assert_eq!(taken(0..5_000 - MOST - 1), 0);
        let last = taken(5_000 - MOST - 1..5_000);
        assert!(last > MOST * 9 / 10, "{last} of {MOST}");
        assert_eq!(taken(0..5_000), 0);
    }

    /// A ghost says which queue has evicted it, and how many of that queue since.
    #[test]
    fn ghosts_know_their_queue_and_age() {
        let mut ghosts = Ghosts::default();
        // The second queue evicts one in three.
        (0..90).for_each(|number| ghosts.note(hash(number), u64::from(number % 3 == 0), 1_000));
        for (number, queue, age) in [(89, 0, 0), (87, 1, 0), (60, 1, 9), (61, 0, 19)] {
            assert_eq!(ghosts.take(hash(number), 30), Some(Ghost { queue, age }), "{number}");
        }
    }

    /// A set keeps as many as it has ways, the last ones; a place that one has left is used first.
    #[test]
    fn a_set_forgets_its_oldest() {
        let mut set = Set::default();
        (1..=10).for_each(|number| set.note(100 + number, number));
        assert_eq!(set.at, [10, 9, 8, 7, 6, 5, 4, 3]);
        assert_eq!((set.with(108), set.with(101)), (1 << 2, 0));
        (set.prints[2], set.at[2]) = (0, 0);
        set.note(111, 11);
        assert_eq!(set.at, [11, 10, 9, 7, 6, 5, 4, 3]);
        assert_eq!(set.prints, [111, 110, 109, 107, 106, 105, 104, 103]);
    }
}
