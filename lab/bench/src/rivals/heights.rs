//! How high the nodes of skip lists are: as Eunomia's paper has it, 16 levels at most, and every other node of one in the next.

use core::cell::Cell;

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;

/// Levels of a skip list.
pub const LEVELS: usize = 16;

/// Gives each session of a list numbers of its own. On a line that no operation reads.
pub struct Heights(CachePadded<AtomicU64>);

impl Default for Heights {
    fn default() -> Self {
        Heights(CachePadded::new(AtomicU64::new(1)))
    }
}

impl Heights {
    /// A session's first number.
    pub fn seed(&self) -> u64 {
        // Relaxed: just a number. Odd multiples of an odd number are odd, so never 0.
        self.0.fetch_add(2, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// The next height, from 1; `random` is the session's.
    #[inline]
    pub fn draw(random: &Cell<u64>) -> usize {
        // xorshift64
        let mut next = random.get();
        next ^= next << 13;
        next ^= next >> 7;
        next ^= next << 17;
        random.set(next);
        (1 + (next >> 32).trailing_ones() as usize).min(LEVELS)
    }
}
