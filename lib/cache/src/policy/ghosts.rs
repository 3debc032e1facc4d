//! Which keys have been evicted lately: their hashes, without the keys.

use archipelago_platform::hint::prefetch_read;

/// Hashes of a set.
const WAYS: usize = 8;

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
    /// Counts what was noted. The first is 1: 0 is no ghost.
    clock: u32,
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

    /// Notes a key, and remembers the last `most` from now on.
    pub fn note(&mut self, hash: u64, most: usize) {
        self.fit(most);
        self.clock = self.clock.wrapping_add(1).max(1);
        let set = self.set(hash);
        self.sets[set].note(print(hash), self.clock);
    }

    /// Returns whether the key is among the last `most` noted, and forgets it.
    pub fn take(&mut self, hash: u64, most: usize) -> bool {
        if self.sets.is_empty() {
            return false;
        }
        let (set, clock) = (self.set(hash), self.clock);
        let set = &mut self.sets[set];
        let mut found = set.with(print(hash));
        while found != 0 {
            let place = found.trailing_zeros() as usize;
            if set.at[place] != 0 && clock.wrapping_sub(set.at[place]) as usize <= most {
                (set.prints[place], set.at[place]) = (0, 0);
                return true;
            }
            found &= found - 1;
        }
        false
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
        assert!(!ghosts.take(hash(1), 1));
        (0..5_000).for_each(|number| ghosts.note(hash(number), MOST as usize));
        let mut taken = |numbers: core::ops::Range<u64>| {
            numbers.filter(|number| ghosts.take(hash(*number), MOST as usize)).count() as u64
        };
        assert_eq!(taken(0..5_000 - MOST - 1), 0);
        let last = taken(5_000 - MOST - 1..5_000);
        assert!(last > MOST * 9 / 10, "{last} of {MOST}");
        assert_eq!(taken(0..5_000), 0);
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
