//! A FIFO queue that supports removal at any position.

use std::collections::VecDeque;

use crate::entry::Resident;

/// The least number of blank places at which the queue is compacted. A removed entry leaves its place blank until it is
/// the oldest place, or until more places are blank than not.
const BLANK_AT_LEAST: usize = 32;

/// The number of places before its turn at which an entry is prefetched. The headers of the oldest entries are mostly in no
/// processor's cache.
const AHEAD: usize = 4;

/// A queue. Each entry's place is its number in the order of arrival, which is stored in the entry together with `TAG`,
/// so that the entry says which of two queues has it.
///
/// # Invariants
/// 1. `items[place - first]` is the entry in which `place` is stored, or blank.
/// 2. `weight` and `len` count the places that are not blank.
pub(crate) struct Fifo<const TAG: u32> {
    items: VecDeque<Option<Resident<'static>>>,
    first: u64,
    len: usize,
    weight: usize,
}

/// How many bits of a place are the queue's tag.
const TAG_BITS: u32 = 1;
/// How many entries and blank places a queue may have: a place has the lower bits of the number only.
const MOST: u32 = 1 << (u32::BITS - TAG_BITS);

/// Returns the tag of the queue that has an entry.
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

    /// Returns the number after the last entry's number.
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
                return Some(entry);
            }
        }
    }

    /// Removes an entry at any place.
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

    /// Returns the oldest entry, if no blank place precedes it.
    pub fn oldest(&self) -> Option<Resident<'static>> {
        *self.items.front()?
    }

    /// Puts `new` into the place of `old`.
    pub fn replace(&mut self, old: Resident<'_>, new: Resident<'_>) {
        let at = self.at(old);
        let item = self.items[at].replace(new.kept());
        debug_assert_eq!(item, Some(old.kept()), "an entry keeps its place");
        new.header().put(old.header().place());
        self.weight = self.weight - old.weight() + new.weight();
    }

    /// Returns where an entry is.
    fn at(&self, entry: Resident<'_>) -> usize {
        let number = entry.header().place() >> TAG_BITS;
        (number.wrapping_sub(self.first as u32) % MOST) as usize
    }

    fn gone(&mut self, entry: Resident<'_>) {
        self.weight -= entry.weight();
        self.len -= 1;
    }

    /// Compacts the queue, so that no place is blank. The entries get new numbers after the last one, so that no number
    /// is used twice.
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

    /// After removals anywhere the queue has no more blank places than entries, and the other entries keep their order.
    #[test]
    fn queues_close_up() {
        let entries: Vec<_> = (0..1_000_u64).map(|key| Entry::boxed(key, (), key, 1)).collect();
        // SAFETY: freed below.
        let resident = |at: usize| unsafe { Resident::new(entries[at]) };
        // In the midst of them, places begin anew.
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

    /// A new entry has the place of the old one, and its own weight.
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
