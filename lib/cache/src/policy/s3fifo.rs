//! S3-FIFO (Yang et al., SOSP'23).

use super::fifo::{Fifo, tag_of};
use super::ghosts::{Ghost, Ghosts};
use super::{Policy, sealed};
use crate::entry::{Header, Resident};

/// An entry's mark counts its hits up to this number.
const MOST_HITS: u32 = 7;
/// The number of hits with which an entry moves from the small queue to the main one.
const PROMOTED: u32 = 2;

/// The small queue's part of the cache at first, by weight: one in this many. The paper has ten; with 32 Zipf's keys hit 0.2 to 0.4 points
/// more (θ 0.7 to 1.2, room for one and ten keys in a hundred), and one in a hundred adds no more than 0.2.
const NEW: usize = 32;

/// The unit of parts of the cache: a part of `WHOLE` is the whole cache.
const WHOLE: u32 = 1 << 16;
/// The least and the greatest part of the small queue.
const LEAST_PART: u32 = WHOLE / 64;
const MOST_PART: u32 = WHOLE / 2;

/// A ghost moves the border only if its queue has since evicted at most a fraction of all entries: one in this many.
/// With 16 and 64 the hit ratio is within 0.2 points of that with 32; with 8 it is 2 points lower on Zipf's keys.
const NEAR: usize = 32;

/// How many ghosts there are: as many for each entry. With three for each, beside scans 0.3 to 0.5 points more are hit, and on Zipf's keys
/// 0.3 points less (θ 0.7, room for one key in a hundred).
const GHOSTS: usize = 2;
/// A key returns to the main queue if it was absent for less than this part of the time that the main queue keeps an entry without a hit.
/// With a half, scans and loops hit as much, and published traces 0.1 points less; with the whole time, Zipf's keys (θ 0.7) 0.7 points less.
const RETURNING: (u128, u128) = (5, 8);

/// A shard that has admitted this many entries without an eviction is filling up.
const FILLING: u32 = 64;

const SMALL: u32 = 0;
const MAIN: u32 = 1;

/// Three queues (Yang et al., *FIFO queues are all you need for cache eviction*, SOSP'23), the default.
///
/// A new entry comes into a small queue, at first a thirty-second part of the cache. At the queue's end an entry that
/// was hit at least twice moves into the main queue, and any other entry is evicted. The hash of an evicted entry is
/// remembered for twice as many evictions as the cache has entries. At the end of the main queue an entry that was hit is inserted again,
/// up to seven times. So keys that are requested only once pass through a thirty-second part of the cache and evict nothing else.
/// While the cache fills up, entries that exceed the small queue move into the main queue; so a part of a loop that is
/// longer than the cache stays cached.
///
/// If a key that the small queue has evicted is inserted again, it comes into the main queue, unless it was absent for longer than the main
/// queue would have kept it: that is five eighths of the time from one end of the main queue to the other. So each key that
/// returns shortens this time for the next ones. A scan, which sends no key into the main queue, lengthens it, and popular keys are
/// remembered through the scan. (In the paper the ghosts are as many as the main queue has entries.)
///
/// The requests set the size of the small queue. If a key is inserted again soon after a queue has evicted it, a
/// slightly longer queue would have kept the key. Then this queue grows by an entry, and the other one shrinks by an
/// entry. In equilibrium the last entries of both queues are hit equally often. (The paper's parts are fixed. Megiddo
/// and Modha's ARC, FAST'03, moves its border by all ghosts.)
///
/// Only an entry's first seven hits are counted, so later hits write nothing.
pub struct S3Fifo {
    small: Fifo<SMALL>,
    main: Fifo<MAIN>,
    ghosts: Ghosts,
    /// The small queue's part, in units of 1/65536.
    part: u32,
    /// Admissions since the last eviction.
    undisturbed: u32,
    /// Of late: evictions from the small queue, and entries that have come to the beginning of the main one.
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
        self.undisturbed = 0;
        loop {
            let is_small = self.small.weight() > self.small_room(room) || self.main.len() == 0;
            if is_small && let Some(entry) = self.small.pop() {
                if entry.header().marks() < PROMOTED {
                    self.ghosts.note(entry.header().hash(), SMALL, self.remembered());
                    self.evicted += 1;
                    self.forget_turns();
                    return Some(entry);
                }
                self.enter_main(entry, 0);
            } else {
                let entry = self.main.pop()?;
                let marks = entry.header().marks();
                if marks == 0 {
                    self.ghosts.note(entry.header().hash(), MAIN, self.remembered());
                    return Some(entry);
                }
                self.enter_main(entry, marks - 1);
            }
        }
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

    /// Keeps the counts of evictions and entrances to those of about the last turn of the cache.
    fn forget_turns(&mut self) {
        if (self.evicted + self.entered) as usize > 2 * self.len().max(FILLING as usize) {
            (self.evicted, self.entered) = (self.evicted.div_ceil(2), self.entered.div_ceil(2));
        }
    }

    /// Returns whether a key's absence was so short that the main queue would have kept the key. Both times are counted in evictions from
    /// the small queue. An entry's way through the main queue takes as many entrances as the queue has entries.
    fn returns(&self, ghost: Ghost) -> bool {
        let absent = (ghost.age + self.small.len()) as u128;
        let (most, whole) = RETURNING;
        ghost.queue == SMALL
            && absent * u128::from(self.entered) * whole < self.main.len() as u128 * u128::from(self.evicted) * most
    }

    /// Returns the small queue's part of `room`.
    fn small_room(&self, room: usize) -> usize {
        (room as u128 * u128::from(self.part) / u128::from(WHOLE)) as usize
    }

    /// Moves the border between the queues by an entry, so that the queue grows that would have kept this key if it had
    /// been a little longer.
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
