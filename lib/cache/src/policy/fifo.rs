//! A FIFO queue that supports removal at any position.

use std::collections::VecDeque;

use crate::entry::Resident;

/// The least number of blank slots at which the queue is compacted. A removed entry leaves its slot blank until
/// [`pop`](Fifo::pop) reaches the slot, or until the queue is compacted: by a removal that finds at least this many
/// blank slots and more blank slots than entries, or by `pop`, see [`SPARE`].
const BLANK_AT_LEAST: usize = 32;

/// `pop` compacts the queue, too, if the queue has memory for more than this many slots for each entry (for each of
/// [`BLANK_AT_LEAST`] entries, if it has fewer). The memory doubles when all slots are in use, and about half of these
/// may be blank. So the memory exceeds this bound only after entries have left.
const SPARE: usize = 4;

/// An entry's header is prefetched when the entry is this many slots away from the oldest end. The headers of the
/// oldest entries are mostly in no processor's cache.
const AHEAD: usize = 4;

/// A queue. Each entry has a number. Numbers ascend in the order of the queue; compaction gives all entries new ones.
/// The entry's header stores its *place*: the low bits of the number, and `TAG`, which identifies the entry's queue
/// among a policy's two queues.
///
/// # Invariants
/// 1. `items[number - first]` is the entry that has `number`, or is blank (`None`).
/// 2. `len` is the number of slots that are not blank; `weight` is the sum of their entries' weights.
pub(crate) struct Fifo<const TAG: u32> {
    items: VecDeque<Option<Resident<'static>>>,
    first: u64,
    len: usize,
    weight: usize,
}

/// The number of bits of a place that hold the queue's tag.
const TAG_BITS: u32 = 1;
/// A queue must have fewer slots than this, since a place has only the lower bits of the number.
const MOST: u32 = 1 << (u32::BITS - TAG_BITS);

/// Returns the tag of the queue that an entry is in.
pub(crate) fn tag_of(entry: Resident<'_>) -> u32 {
    entry.header().place() & ((1 << TAG_BITS) - 1)
}

/// Returns the place of the entry with this number.
fn place<const TAG: u32>(number: u64) -> u32 {
    (number as u32) << TAG_BITS | TAG
}

impl<const TAG: u32> Default for Fifo<TAG> {
    fn default() -> Self {
        Self { items: VecDeque::new(), first: 0, len: 0, weight: 0 }
    }
}

impl<const TAG: u32> Fifo<TAG> {
    pub fn weight(&self) -> usize {
        self.weight
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number that the next entry gets.
    pub fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    pub fn get(&self, number: u64) -> Option<Resident<'static>> {
        *self.items.get((number.checked_sub(self.first)?) as usize)?
    }

    pub fn push(&mut self, entry: Resident<'_>) {
        entry.header().put(place::<TAG>(self.end()));
        self.weight += entry.weight();
        self.len += 1;
        self.items.push_back(Some(entry.kept()));
    }

    /// Removes and returns the oldest entry.
    pub fn pop(&mut self) -> Option<Resident<'static>> {
        loop {
            let item = self.items.pop_front()?;
            self.first += 1;
            if let Some(Some(later)) = self.items.get(AHEAD) {
                later.prefetch();
            }
            if let Some(entry) = item {
                self.gone(entry);
                if self.items.capacity() > SPARE * self.len.max(BLANK_AT_LEAST) {
                    self.close_up();
                }
                return Some(entry);
            }
        }
    }

    /// Removes an entry at any position.
    pub fn remove(&mut self, entry: Resident<'_>) {
        let at = self.at(entry);
        let item = self.items[at].take();
        debug_assert_eq!(item, Some(entry.kept()), "an entry keeps its place");
        self.gone(entry);
        let blank = self.items.len() - self.len;
        if blank >= BLANK_AT_LEAST && blank > self.len {
            self.close_up();
        }
    }

    /// Returns the oldest entry, if no blank slot precedes it.
    pub fn oldest(&self) -> Option<Resident<'static>> {
        *self.items.front()?
    }

    /// Puts `new` into the slot of `old`.
    pub fn replace(&mut self, old: Resident<'_>, new: Resident<'_>) {
        let at = self.at(old);
        let item = self.items[at].replace(new.kept());
        debug_assert_eq!(item, Some(old.kept()), "an entry keeps its place");
        new.header().put(old.header().place());
        self.weight = self.weight - old.weight() + new.weight();
    }

    /// Returns the index of an entry's slot in `items`.
    fn at(&self, entry: Resident<'_>) -> usize {
        let number = entry.header().place() >> TAG_BITS;
        (number.wrapping_sub(self.first as u32) % MOST) as usize
    }

    fn gone(&mut self, entry: Resident<'_>) {
        self.weight -= entry.weight();
        self.len -= 1;
    }

    /// Compacts the queue, so that no slot is blank. The entries get new numbers, above all previous ones, so that no
    /// number is used twice.
    fn close_up(&mut self) {
        self.first = self.end();
        self.items.retain(Option::is_some);
        for (number, entry) in (self.first..).zip(self.items.iter().flatten()) {
            entry.header().put(place::<TAG>(number));
        }
        self.items.shrink_to(self.items.len() * 2);
    }

    /// Returns the bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<Option<Resident<'static>>>()
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::*;
    use crate::entry::Entry;

    /// After removals at arbitrary positions the queue has no more blank slots than entries, and the other entries keep
    /// their order.
    #[test]
    fn queues_close_up() {
        let entries: Vec<_> = (0..1_000_u64).map(|key| Entry::boxed(key, (), key, 1)).collect();
        // SAFETY: freed below.
        let resident = |at: usize| unsafe { Resident::new(entries[at]) };
        // The numbers of these entries cross a multiple of `MOST`, at which the number bits of
        // places start again at 0.
        let mut queue = Fifo::<1> { first: 3 * u64::from(MOST) - 500, ..Fifo::default() };
        (0..1_000).for_each(|at| queue.push(resident(at)));
        (0..1_000).filter(|at| at % 10 != 3).for_each(|at| queue.remove(resident(at)));
        assert_eq!((queue.len(), queue.weight()), (100, 100));
        assert!(queue.items.len() <= 200 && queue.bytes() < 8_000, "{} places", queue.items.len());
        let order: Vec<_> = core::iter::from_fn(|| queue.pop()).map(|entry| entry.header().hash()).collect();
        assert!(order.into_iter().eq((3..1_000).step_by(10)));
        // SAFETY: boxed above, and in no queue.
        entries.iter().for_each(|entry| drop(unsafe { Entry::emptied(*entry) }));
    }

    /// A queue whose oldest entries leave keeps little memory, also if others have left before.
    #[test]
    fn queues_that_shrink_free_their_memory() {
        for removed in [0, 499] {
            let entries: Vec<_> = (0..1_000_u64).map(|key| Entry::boxed(key, (), key, 1)).collect();
            // SAFETY: freed below.
            let resident = |at: usize| unsafe { Resident::new(entries[at]) };
            let mut queue = Fifo::<1>::default();
            (0..1_000).for_each(|at| queue.push(resident(at)));
            (1_000 - removed..1_000).for_each(|at| queue.remove(resident(at)));
            let left = 1_000 - removed;
            let order: Vec<_> = (0..left as u64 - 10).map(|_| queue.pop().map(|entry| entry.header().hash())).collect();
            assert!(order.into_iter().eq((0..left as u64 - 10).map(Some)));
            assert!(queue.bytes() <= SPARE * BLANK_AT_LEAST * 8, "{} bytes for 10 entries", queue.bytes());
            (left - 10..left).for_each(|at| queue.remove(resident(at)));
            assert_eq!((queue.len(), queue.weight()), (0, 0));
            // SAFETY: boxed above, and in no queue.
            entries.iter().for_each(|entry| drop(unsafe { Entry::emptied(*entry) }));
        }
    }

    /// A replacing entry takes the position of the old one, and counts with its own weight.
    #[test]
    fn what_replaces_keeps_the_place() {
        let entries: Vec<_> = (0..4_u64).map(|key| Entry::boxed(key, (), key, key as usize + 1)).collect();
        // SAFETY: freed below.
        let resident = |at: usize| unsafe { Resident::new(entries[at]) };
        let mut queue = Fifo::<1>::default();
        (0..3).for_each(|at| queue.push(resident(at)));
        queue.replace(resident(1), resident(3));
        assert_eq!((queue.len(), queue.weight(), tag_of(resident(3))), (3, 1 + 4 + 3, 1));
        let order: Vec<_> = core::iter::from_fn(|| queue.pop()).map(|entry| entry.header().hash()).collect();
        assert_eq!((order, queue.weight()), (vec![0, 3, 2], 0));
        // SAFETY: boxed above, and in no queue.
        entries.iter().for_each(|entry| drop(unsafe { Entry::emptied(*entry) }));
    }
}
