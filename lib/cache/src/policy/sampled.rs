//! Sampled LRU: evicts the least recently used of a few entries.

use super::{Policy, sealed};
use crate::entry::{Header, Resident};

/// How many entries are sampled.
const SAMPLE: usize = 5;

/// Evicts the least recently used of five random entries of a shard. This approximates the order of Kyoto Cabinet's
/// cache, which the papers on MV-RLU and RCX measured, without its lists.
///
/// Time is counted in the shard's insertions. So a hit writes only if an entry was inserted into the shard since this
/// entry's last hit.
pub struct SampledLru {
    entries: Vec<Resident<'static>>,
    random: u64,
}

impl Default for SampledLru {
    fn default() -> Self {
        Self { entries: Vec::new(), random: 0x9E37_79B9_7F4A_7C15 }
    }
}

impl Policy for SampledLru {}

impl SampledLru {
    /// Returns a random number below `bound`, from a generator with one word of state (xorshift64*).
    fn draw(&mut self, bound: usize) -> usize {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let high = self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((high * bound as u64) >> 32) as usize
    }
}

#[expect(private_interfaces, reason = "sealed")]
impl sealed::Queues for SampledLru {
    #[inline]
    fn hit(header: &Header, clock: u32) {
        if header.marks() != clock {
            header.mark(clock);
        }
    }

    fn admit(&mut self, entry: Resident<'_>, clock: u32) {
        entry.header().mark(clock);
        entry.header().put(self.entries.len() as u32);
        self.entries.push(entry.kept());
    }

    fn forget(&mut self, entry: Resident<'_>) {
        let place = entry.header().place();
        let removed = self.entries.swap_remove(place as usize);
        debug_assert_eq!(removed, entry.kept(), "an entry keeps its place");
        if let Some(moved) = self.entries.get(place as usize) {
            moved.header().put(place);
        }
        if self.entries.len() * 4 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }

    fn evict(&mut self, _: usize, clock: u32) -> Option<Resident<'static>> {
        let len = self.entries.len();
        let drawn = core::array::from_fn::<_, SAMPLE, _>(|_| self.draw(len)).map(|place| self.entries.get(place));
        let oldest = *drawn.into_iter().flatten().max_by_key(|entry| clock.wrapping_sub(entry.header().marks()))?;
        self.forget(oldest);
        Some(oldest)
    }

    fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Resident<'static>>()
    }
}
