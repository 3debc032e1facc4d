//! Which keys have been evicted lately: their hashes, without the keys.

/// Hashes of a set: one line.
const WAYS: usize = 8;

/// A hash and when it was noted, of the same parts of each.
#[derive(Clone, Copy, Default)]
struct Ghost {
    /// The low half of the hash.
    print: u32,
    at: u32,
}

/// The keys evicted lately, as many as it is told to remember, about: a set of [`WAYS`] forgets its oldest for a new one.
/// Two keys of the same print are taken for one another, about once in 2^32 / `WAYS` questions.
#[derive(Default)]
pub(crate) struct Ghosts {
    sets: Box<[[Ghost; WAYS]]>,
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

    /// Notes a key, and remembers the last `most` from now on.
    pub fn note(&mut self, hash: u64, most: usize) {
        self.fit(most);
        self.clock = self.clock.wrapping_add(1).max(1);
        let (set, clock) = (self.set(hash), self.clock);
        let oldest = self.sets[set]
            .iter_mut()
            .max_by_key(|ghost| if ghost.at == 0 { u32::MAX } else { clock.wrapping_sub(ghost.at) });
        *oldest.expect("a set has ways") = Ghost { print: print(hash), at: clock };
    }

    /// Returns whether the key is among the last `most` noted, and forgets it.
    pub fn take(&mut self, hash: u64, most: usize) -> bool {
        if self.sets.is_empty() {
            return false;
        }
        let (set, clock) = (self.set(hash), self.clock);
        let is_it = |ghost: &&mut Ghost| {
            ghost.at != 0 && ghost.print == print(hash) && clock.wrapping_sub(ghost.at) as usize <= most
        };
        self.sets[set].iter_mut().find(is_it).map(|ghost| *ghost = Ghost::default()).is_some()
    }

    /// Sets for `most`, at three quarters of their load at most. A change of their number forgets all: it comes when the cache has
    /// grown by a quarter, or shrunk by half.
    fn fit(&mut self, most: usize) {
        let wanted = most / (WAYS * 3 / 4) + 1;
        if wanted > self.sets.len() || wanted < self.sets.len() / 2 {
            self.sets = vec![[Ghost::default(); WAYS]; wanted + wanted / 4].into();
        }
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }
}
