//! Heights of skip lists' nodes, as in Eunomia's paper: at most 16 levels, and half of the nodes of each level are in
//! the next.

use core::cell::Cell;

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;

/// Levels of a skip list.
pub const LEVELS: usize = 16;

/// Gives each session of a list its own random numbers. The counter is on a cache line of its own, which other
/// operations do not read.
pub struct Heights(CachePadded<AtomicU64>);

impl Default for Heights {
    fn default() -> Self {
        Heights(CachePadded::new(AtomicU64::new(1)))
    }
}

impl Heights {
    /// Returns a session's first random number.
    pub fn seed(&self) -> u64 {
        // Relaxed: the counter carries no data. An odd multiple of an odd number is odd, so the result is never 0.
        self.0.fetch_add(2, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Returns the next height, from 1. `random` is the session's state.
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
