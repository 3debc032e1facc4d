//! SIEVE (Zhang et al., NSDI'24).

use super::fifo::Fifo;
use super::{Policy, sealed};
use crate::entry::{Header, Resident};

/// One queue and a hand (Zhang et al., *SIEVE is simpler than LRU*, NSDI'24).
///
/// The hand moves from the oldest entry to the newest, and then starts again at the oldest. If an entry was hit since
/// the hand's last visit, the hand clears the entry's mark and moves on. Any other entry is evicted. The policy suits
/// popularity that is skewed and constant. A scan of many keys that are requested once moves the hand over all entries
/// once; [`S3Fifo`](super::S3Fifo) loses fewer entries to such a scan.
///
/// A hit writes only if the entry's mark is not set.
#[derive(Default)]
pub struct Sieve {
    queue: Fifo<0>,
    /// The number (position in the order of arrival) to which the hand points. An entry with this number need not
    /// exist.
    hand: u64,
}

impl Policy for Sieve {}

#[expect(private_interfaces, reason = "sealed")]
impl sealed::Queues for Sieve {
    #[inline]
    fn hit(header: &Header, _: u32) {
        if header.marks() == 0 {
            header.mark(1);
        }
    }

    fn admit(&mut self, entry: Resident<'_>, _: u32) {
        self.queue.push(entry);
    }

    fn forget(&mut self, entry: Resident<'_>) {
        self.queue.remove(entry);
    }

    fn evict(&mut self, _: usize, _: u32) -> Option<Resident<'static>> {
        // Entries that are hit while the hand passes could keep it moving forever, so after two rounds the next entry
        // is evicted, marked or not.
        let mut left = self.queue.len() * 2;
        while self.queue.len() > 0 {
            // Compaction gives the entries new numbers, above all previous ones. Then the hand starts again at the
            // oldest entry.
            if self.hand < self.queue.first() || self.hand >= self.queue.end() {
                self.hand = self.queue.first();
            }
            let entry = self.queue.get(self.hand);
            self.hand += 1;
            let Some(entry) = entry else { continue };
            if entry.header().marks() == 0 || left == 0 {
                self.queue.remove(entry);
                return Some(entry);
            }
            entry.header().mark(0);
            left -= 1;
        }
        None
    }

    fn bytes(&self) -> usize {
        self.queue.bytes()
    }
}
