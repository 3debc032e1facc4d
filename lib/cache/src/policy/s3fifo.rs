//! S3-FIFO (Yang et al., SOSP'23).

use super::fifo::{Fifo, tag_of};
use super::ghosts::{Ghost, Ghosts};
use super::{Policy, sealed};
use crate::entry::{Header, Resident};

/// An entry's mark counts its hits up to this number.
const MOST_HITS: u32 = 7;
/// The number of hits with which an entry moves from the small queue to the main one.
const PROMOTED: u32 = 2;

/// The small queue's initial share of the cache's weight is 1/NEW. The paper uses 1/10. With 1/32, the hit ratio on
/// Zipf-distributed keys is 0.2 to 0.4 percentage points higher (θ 0.7 to 1.2, caches of 1 % and 10 % of the keys).
/// 1/100 adds at most another 0.2 points.
const NEW: usize = 32;

/// The unit of shares of the cache: a share of `WHOLE` is the whole cache.
const WHOLE: u32 = 1 << 16;
/// The least and the greatest share of the small queue.
const LEAST_PART: u32 = WHOLE / 64;
const MOST_PART: u32 = WHOLE / 2;

/// A ghost is the remembered hash of an evicted entry; the border divides the cache between the two queues. A ghost
/// moves the border only if its queue has evicted at most 1/NEAR as many entries as the shard has, since it evicted the
/// ghost's entry. With 16 and 64 the hit ratio is within 0.2 points of that with 32; with 8 it is 2 points lower on
/// Zipf-distributed keys.
const NEAR: usize = 32;

/// The number of ghosts per cached entry. With three, the hit ratio is 0.3 to 0.5 points higher when scans run beside
/// other requests, and 0.3 points lower on Zipf-distributed keys (θ 0.7, a cache of 1 % of the keys).
const GHOSTS: usize = 2;
/// A key that the small queue has evicted, and that is inserted again, enters the main queue if its absence was shorter
/// than this fraction of a passage. (A passage is the time that an entry without hits stays in the main queue.) With
/// 1/2, the hit ratio is the same on scans and loops, and 0.1 points lower on published traces. With 1, it is 0.7
/// points lower on Zipf-distributed keys (θ 0.7).
const RETURNING: (u128, u128) = (5, 8);

/// A shard that has admitted this many entries without an eviction is filling up.
const FILLING: u32 = 64;

const SMALL: u32 = 0;
const MAIN: u32 = 1;

/// Three queues (Yang et al., *FIFO queues are all you need for cache eviction*, SOSP'23), the default.
///
/// A new entry enters a small queue, whose initial share of the cache is 1/32. At the queue's end an entry that was hit
/// at least twice moves into the main queue, and any other entry is evicted. The hash of an evicted entry (its *ghost*)
/// is remembered until the same queue has evicted about twice as many entries as the cache has. At the end of the main
/// queue an entry with counted hits is inserted again, and its count decreases by one. So keys that are requested only
/// once pass through the small queue alone, and hardly displace entries of the main queue. While the cache fills up and
/// the small queue has its share, new entries enter the main queue directly. So if the requests repeat a sequence that
/// is longer than the cache (a *loop*), a part of the sequence stays cached.
///
/// If a key that the small queue has evicted is inserted again, it may enter the main queue directly. For this, its
/// absence must have been shorter than five eighths of the time that an entry without hits needs to pass through the
/// main queue. Both times are counted in evictions from the small queue. Each key that enters the main queue pushes the
/// queue's entries on. So fewer evictions from the small queue fit into one passage, and the limit becomes shorter.
/// During a scan (many keys that are requested once), evictions from the small queue continue and few keys enter the
/// main queue. So the limit becomes longer, and popular keys that were evicted before the scan still enter the main
/// queue. (In the paper there are as many ghosts as the main queue has entries.)
///
/// The requests set the size of the small queue. If a key is inserted again soon after a queue has evicted it, a
/// slightly longer queue would have kept the key. Then this queue grows by an entry, and the other one shrinks by an
/// entry. In equilibrium the last entries of both queues are hit equally often. (The paper's shares are fixed. In ARC,
/// of Megiddo and Modha, FAST'03, every hit on a ghost moves the border, not only one on a recent ghost.)
///
/// Only an entry's first seven hits are counted, so later hits write nothing.
pub struct S3Fifo {
    small: Fifo<SMALL>,
    main: Fifo<MAIN>,
    ghosts: Ghosts,
    /// The small queue's share of the cache, in units of 1/65536.
    part: u32,
    /// Admissions since the last eviction.
    undisturbed: u32,
    /// Recent counts (see `forget_turns`): evictions from the small queue, and insertions into the main queue, repeated
    /// ones included.
    evicted: u32,
    entered: u32,
}

impl Default for S3Fifo {
    fn default() -> Self {
        Self {
            small: Fifo::default(),
            main: Fifo::default(),
            ghosts: Ghosts::default(),
            part: WHOLE / NEW as u32,
            undisturbed: FILLING,
            evicted: 1,
            entered: 1,
        }
    }
}

impl Policy for S3Fifo {}

#[expect(private_interfaces, reason = "sealed")]
impl sealed::Queues for S3Fifo {
    #[inline]
    fn hit(header: &Header, _: u32) {
        let hits = header.marks();
        if hits < MOST_HITS {
            header.mark(hits + 1);
        }
    }

    fn foresee(&mut self, hash: u64) {
        self.ghosts.prefetch(hash);
    }

    fn admit(&mut self, entry: Resident<'_>, _: u32) {
        let ghost = self.ghosts.take(entry.header().hash(), self.remembered());
        let returns = ghost.is_some_and(|ghost| self.returns(ghost));
        ghost.into_iter().for_each(|ghost| self.move_border(ghost));
        let fills = self.undisturbed >= FILLING && self.small.weight() > self.main.weight() / (NEW - 1);
        self.undisturbed = self.undisturbed.saturating_add(1);
        match returns || fills {
            true => self.enter_main(entry, 0),
            false => self.small.push(entry),
        }
    }

    fn forget(&mut self, entry: Resident<'_>) {
        match tag_of(entry) {
            SMALL => self.small.remove(entry),
            _ => self.main.remove(entry),
        }
    }

    fn replace(&mut self, old: Resident<'_>, new: Resident<'_>, clock: u32) {
        new.header().mark(old.header().marks());
        // A replacement counts as a hit.
        Self::hit(new.header(), clock);
        match tag_of(old) {
            SMALL => self.small.replace(old, new),
            _ => self.main.replace(old, new),
        }
    }

    fn evict(&mut self, room: usize, _: u32) -> Option<Resident<'static>> {
        self.evict_by(room, Header::marks)
    }

    fn next(&self) -> Option<Resident<'static>> {
        let next = self.small.oldest()?;
        self.ghosts.prefetch(next.header().hash());
        Some(next)
    }

    fn bytes(&self) -> usize {
        self.small.bytes() + self.main.bytes() + self.ghosts.bytes()
    }
}

impl S3Fifo {
    /// Removes and returns the entry to evict. `marks` returns the hits of an entry that were counted.
    ///
    /// An entry of the main queue that was hit is spared: it enters the queue again with one hit less. If other threads
    /// hit all entries of the queue again and again, the loop would not end. So after [`MOST_HITS`] rounds an entry is
    /// evicted even if it was hit. If no thread hits an entry during the eviction, the entry has no hits left by then.
    fn evict_by(&mut self, room: usize, marks: impl Fn(&Header) -> u32) -> Option<Resident<'static>> {
        self.undisturbed = 0;
        let mut spared = 0;
        loop {
            let is_small = self.small.weight() > self.small_room(room) || self.main.len() == 0;
            if is_small && let Some(entry) = self.small.pop() {
                if marks(entry.header()) < PROMOTED {
                    self.ghosts.note(entry.header().hash(), SMALL, self.remembered());
                    self.evicted += 1;
                    self.forget_turns();
                    return Some(entry);
                }
                self.enter_main(entry, 0);
            } else {
                let entry = self.main.pop()?;
                let hits = marks(entry.header());
                if hits == 0 || spared >= MOST_HITS as usize * (self.main.len() + 1) {
                    self.ghosts.note(entry.header().hash(), MAIN, self.remembered());
                    return Some(entry);
                }
                spared += 1;
                self.enter_main(entry, hits - 1);
            }
        }
    }

    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn remembered(&self) -> usize {
        self.len() * GHOSTS
    }

    fn enter_main(&mut self, entry: Resident<'_>, marks: u32) {
        entry.header().mark(marks);
        self.main.push(entry);
        self.entered += 1;
        self.forget_turns();
    }

    /// Halves the counts `evicted` and `entered` when their sum exceeds twice the number of entries, so that they
    /// describe only the recent past.
    fn forget_turns(&mut self) {
        if (self.evicted + self.entered) as usize > 2 * self.len().max(FILLING as usize) {
            (self.evicted, self.entered) = (self.evicted.div_ceil(2), self.entered.div_ceil(2));
        }
    }

    /// Returns whether the small queue evicted the key, and the key's absence was shorter than [`RETURNING`] of an
    /// entry's passage through the main queue. Both times are counted in evictions from the small queue. The absence
    /// includes the key's passage through the small queue. A passage through the main queue takes as many insertions as
    /// the queue has entries.
    fn returns(&self, ghost: Ghost) -> bool {
        let absent = (ghost.age + self.small.len()) as u128;
        let (most, whole) = RETURNING;
        ghost.queue == SMALL
            && absent * u128::from(self.entered) * whole < self.main.len() as u128 * u128::from(self.evicted) * most
    }

    /// Returns the small queue's share of `room`.
    fn small_room(&self, room: usize) -> usize {
        (room as u128 * u128::from(self.part) / u128::from(WHOLE)) as usize
    }

    /// If the key was evicted only recently, enlarges the share of the queue that evicted it by one entry, and reduces
    /// the other queue's share.
    fn move_border(&mut self, ghost: Ghost) {
        let len = self.len();
        if ghost.age > (len / NEAR).max(2) {
            return;
        }
        let entry = (WHOLE as usize / len.max(1)).max(1) as u32;
        self.part = match ghost.queue {
            SMALL => (self.part + entry).min(MOST_PART),
            _ => self.part.saturating_sub(entry).max(LEAST_PART),
        };
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use core::cell::Cell;

    use super::sealed::Queues;
    use super::*;
    use crate::entry::Entry;

    /// An eviction ends if other threads hit each entry again before the eviction looks at it.
    #[test]
    fn evictions_end_while_all_entries_are_hit() {
        const LEN: usize = 10;
        let entries: Vec<_> = (0..LEN as u64).map(|key| Entry::boxed(key, (), key, 1)).collect();
        let mut policy = S3Fifo::default();
        // SAFETY: freed below.
        entries.iter().for_each(|entry| policy.admit(unsafe { Resident::new(*entry) }, 0));
        let looks = Cell::new(0);
        let hit = |_: &Header| {
            looks.set(looks.get() + 1);
            assert!(looks.get() < 10_000, "the eviction goes on");
            MOST_HITS
        };
        (0..LEN).rev().for_each(|left| {
            assert!(policy.evict_by(LEN, hit).is_some());
            assert_eq!(policy.len(), left);
        });
        assert!(policy.evict_by(LEN, hit).is_none());
        // SAFETY: boxed above, and in no queue.
        entries.iter().for_each(|entry| drop(unsafe { Entry::emptied(*entry) }));
    }

    /// An entry with all hits that are counted outlives those without hits.
    #[test]
    fn the_only_entry_without_hits_is_evicted() {
        const LEN: usize = 10;
        let entries: Vec<_> = (0..LEN as u64).map(|key| Entry::boxed(key, (), key, 1)).collect();
        // SAFETY: freed below.
        let resident = |at: usize| unsafe { Resident::new(entries[at]) };
        let mut policy = S3Fifo::default();
        (0..LEN).for_each(|at| policy.enter_main(resident(at), MOST_HITS - u32::from(at + 1 == LEN)));
        let evicted = policy.evict(LEN, 0).expect("some are left");
        assert_eq!(evicted.header().hash(), LEN as u64 - 1, "it has the fewest hits");
        // SAFETY: boxed above, and in a queue that is not used any more.
        entries.iter().for_each(|entry| drop(unsafe { Entry::emptied(*entry) }));
    }
}
