//! SIEVE (Zhang et al., NSDI'24).

use super::fifo::Fifo;
use super::{Policy, sealed};
use crate::entry::{Header, Resident};

/// One queue and a hand (Zhang et al., *SIEVE is simpler than LRU*, NSDI'24).
///
/// The hand goes from the oldest entry to the newest and begins again at its end. An entry that was hit since the hand came by
/// stays where it is, another one leaves. It suits popularity that is skewed and does not change; a scan of many keys that are
/// asked for once moves the hand past everything once, and [`S3Fifo`](super::S3Fifo) forgets less then.
///
/// A hit writes if the entry's bit is not set.
#[derive(Default)]
pub struct Sieve {
    queue: Fifo<0>,
    /// The number of the entry that the hand points to, or of none.
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
        // Entries that are hit while the hand goes by could keep it going: twice round is enough.
        let mut left = self.queue.len() * 2;
        while self.queue.len() > 0 {
            // Numbers begin anew where the queue closes up, behind all that were: the hand begins again then.
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
