//! Ghosts: the hashes of keys that were evicted recently.

use archipelago_platform::hint::prefetch_read;

/// The number of hashes in a set.
const WAYS: usize = 8;

/// The number of queues that evict keys. The lowest bits of a time identify the queue.
const QUEUES: usize = 2;
const QUEUE_BITS: u32 = 1;
const TIMES: u32 = 1 << (u32::BITS - QUEUE_BITS);

/// A set, in one cache line: hashes, and the time at which each was noted, the newest first. Both are 0 in an unused
/// slot.
#[derive(Clone, Default)]
#[repr(align(64))]
struct Set {
    /// The low halves of the hashes, called prints.
    prints: [u32; WAYS],
    at: [u32; WAYS],
}

impl Set {
    /// Adds a hash, and drops the oldest one if the set is full.
    fn note(&mut self, print: u32, at: u32) {
        let last = self.at.iter().position(|at| *at == 0).unwrap_or(WAYS - 1);
        self.prints.copy_within(..last, 1);
        self.at.copy_within(..last, 1);
        (self.prints[0], self.at[0]) = (print, at);
    }

    /// Returns a bit mask of the slots that have this print. Comparing all slots takes one or two vector instructions.
    fn with(&self, print: u32) -> u32 {
        self.prints.iter().rev().fold(0, |found, other| found << 1 | u32::from(*other == print))
    }
}

/// The hashes of keys that were evicted recently. The structure remembers about the requested number of hashes: a full
/// set of [`WAYS`] drops its oldest hash for a new one. Two keys with the same print are confused, about once in 2^32 /
/// `WAYS` look-ups.
#[derive(Default)]
pub(crate) struct Ghosts {
    sets: Box<[Set]>,
    /// For each queue, a clock that advances by one at each ghost of the queue. Its values begin at 1, since 0 marks an
    /// unused slot.
    clocks: [u32; QUEUES],
}

/// A ghost that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ghost {
    /// The queue from which the key was evicted.
    pub queue: u32,
    /// The number of keys that the queue has evicted since then.
    pub age: usize,
}

fn print(hash: u64) -> u32 {
    hash as u32
}

impl Ghosts {
    /// Returns the set of a hash. The choice depends on bits that do not choose the shard, and least on those that
    /// choose the bucket.
    fn set(&self, hash: u64) -> usize {
        let bits = u64::from((hash >> 8) as u32);
        ((bits * self.sets.len() as u64) >> 32) as usize
    }

    /// Prefetches the set of a hash.
    pub fn prefetch(&self, hash: u64) {
        if let Some(set) = self.sets.get(self.set(hash)) {
            prefetch_read(set);
        }
    }

    /// Notes a key that a queue has evicted. From now on, about `most` ghosts are remembered.
    pub fn note(&mut self, hash: u64, queue: u32, most: usize) {
        self.fit(most);
        let clock = &mut self.clocks[queue as usize];
        *clock = ((*clock + 1) % TIMES).max(1);
        let at = *clock << QUEUE_BITS | queue;
        let set = self.set(hash);
        self.sets[set].note(print(hash), at);
    }

    /// Removes and returns the ghost of a key, if its queue has evicted at most `most` keys since it evicted this key.
    pub fn take(&mut self, hash: u64, most: usize) -> Option<Ghost> {
        if self.sets.is_empty() {
            return None;
        }
        let set = self.set(hash);
        let set = &mut self.sets[set];
        let mut found = set.with(print(hash));
        while found != 0 {
            let place = found.trailing_zeros() as usize;
            let (queue, at) = (set.at[place] % QUEUES as u32, set.at[place] >> QUEUE_BITS);
            let age = (self.clocks[queue as usize].wrapping_sub(at) % TIMES) as usize;
            if set.at[place] != 0 && age <= most {
                (set.prints[place], set.at[place]) = (0, 0);
                return Some(Ghost { queue, age });
            }
            found &= found - 1;
        }
        None
    }

    /// Fits the number of sets to `most` ghosts, so that the load is at most three quarters. A change of the number
    /// drops all ghosts. The number changes when the cache has grown by a quarter, or shrunk by more than three
    /// eighths, since the last change.
    fn fit(&mut self, most: usize) {
        let wanted = most / (WAYS * 3 / 4) + 1;
        if wanted > self.sets.len() || wanted < self.sets.len() / 2 {
            self.sets = vec![Set::default(); wanted + wanted / 4].into();
        }
    }

    /// Returns the bytes of memory held.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::*;

    /// Returns a hash of a number. Different bits of the hash choose the set and the print.
    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)
    }

    /// Nearly all of the last keys are found, once each, and no older keys.
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

    /// A ghost records which queue evicted the key, and how many keys this queue has evicted since then.
    #[test]
    fn ghosts_know_their_queue_and_age() {
        let mut ghosts = Ghosts::default();
        // The second queue evicts one in three.
        (0..90).for_each(|number| ghosts.note(hash(number), u32::from(number % 3 == 0), 1_000));
        for (number, queue, age) in [(89, 0, 0), (87, 1, 0), (60, 1, 9), (61, 0, 19)] {
            assert_eq!(ghosts.take(hash(number), 30), Some(Ghost { queue, age }), "{number}");
        }
    }

    /// A set keeps the last [`WAYS`] hashes. A new hash fills the slot of a removed hash before it replaces the oldest
    /// hash.
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
