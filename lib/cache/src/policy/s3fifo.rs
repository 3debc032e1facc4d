//! S3-FIFO (Yang et al., SOSP'23).

use super::fifo::{Fifo, tag_of};
use super::ghosts::Ghosts;
use super::{Policy, sealed};
use crate::entry::{Header, Resident};

/// Bits of an entry's mark: hit once, hit again.
const ONCE: u32 = 1;
const AGAIN: u32 = 2;

/// The small queue's part of the cache, by weight: one in this many. The paper has ten; with 32 Zipf's keys hit 0.2 to 0.4 points more
/// (θ 0.7 to 1.2, room for one and ten keys in a hundred), and one in a hundred adds no more than 0.2.
const NEW: usize = 32;

const SMALL: u64 = 0;
const MAIN: u64 = 1;

/// Three queues (Yang et al., *FIFO queues are all you need for cache eviction*, SOSP'23), the default.
///
/// A new entry comes into a small queue, a thirty-second part of the cache. At its end an entry goes on into the main queue if it has been hit
/// twice, and otherwise leaves the cache; its hash is remembered for as many evictions as the main queue has entries, and if it
/// comes back meanwhile it comes into the main queue at once. At the end of the main queue an entry that was hit comes in again.
/// So keys that are asked for once pass through a thirty-second part of the cache and flush nothing else.
///
/// A hit writes if one of an entry's two bits is not set.
#[derive(Default)]
pub struct S3Fifo {
    small: Fifo<SMALL>,
    main: Fifo<MAIN>,
    ghosts: Ghosts,
}

impl Policy for S3Fifo {}

#[expect(private_interfaces, reason = "sealed")]
impl sealed::Queues for S3Fifo {
    #[inline]
    fn hit(header: &Header, _: u32) {
        match header.marks() {
            0 => header.mark(ONCE),
            ONCE => header.mark(ONCE | AGAIN),
            _ => {}
        }
    }

    fn admit(&mut self, entry: Resident<'_>, _: u32) {
        match self.ghosts.take(entry.header().hash, self.remembered()) {
            true => self.main.push(entry),
            false => self.small.push(entry),
        }
    }

    fn forget(&mut self, entry: Resident<'_>) {
        match tag_of(entry) {
            SMALL => self.small.remove(entry),
            _ => self.main.remove(entry),
        }
    }

    fn replace(&mut self, old: Resident<'_>, new: Resident<'_>, _: u32) {
        let tag = tag_of(old);
        new.header().mark(old.header().marks());
        self.forget(old);
        match tag {
            SMALL => self.small.push(new),
            _ => self.main.push(new),
        }
    }

    fn evict(&mut self, room: usize, _: u32) -> Option<Resident<'static>> {
        loop {
            let is_small = self.small.weight() > room / NEW || self.main.len() == 0;
            if is_small && let Some(entry) = self.small.pop() {
                if entry.header().marks() & AGAIN == 0 {
                    self.ghosts.note(entry.header().hash, self.remembered());
                    return Some(entry);
                }
                entry.header().mark(0);
                self.main.push(entry);
            } else {
                let entry = self.main.pop()?;
                let marks = entry.header().marks();
                if marks == 0 {
                    return Some(entry);
                }
                entry.header().mark(marks >> 1);
                self.main.push(entry);
            }
        }
    }

    fn bytes(&self) -> usize {
        self.small.bytes() + self.main.bytes() + self.ghosts.bytes()
    }
}

impl S3Fifo {
    fn remembered(&self) -> usize {
        self.main.len()
    }
}
