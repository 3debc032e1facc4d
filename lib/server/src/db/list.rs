//! Lists: a double-ended queue of packs. A pack ([`Pack`]) is a sequence of byte strings in one allocation.

use std::collections::VecDeque;

/// A pack of a list. Lists are walked from both ends.
type Pack = super::pack::Pack<true>;

/// A pack of more than one element has at most this number of bytes when an element is added. (If an element is
/// replaced by a longer one, the pack may exceed the limit.) Allocators have blocks of this size, so that a full pack
/// wastes nothing.
const FULL: usize = 8 << 10;

/// Counts packs that a walk has visited, and packs that a removal may have moved.
#[cfg(test)]
fn steps(number: usize) {
    tests::STEPS.set(tests::STEPS.get() + number);
}

#[cfg(not(test))]
fn steps(_: usize) {}

/// A list.
///
/// # Invariant
/// No pack is empty.
#[derive(Clone, Debug, Default)]
pub struct List {
    packs: VecDeque<Pack>,
    len: usize,
    /// The size of all elements in all packs in bytes, including the encoded lengths.
    size: usize,
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The head.
    Left,
    /// The tail.
    Right,
}

impl List {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the list has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an element at an end.
    pub fn push(&mut self, end: End, element: &[u8]) {
        self.len += 1;
        self.size += Pack::cost(element);
        let last = if end == End::Left { self.packs.front() } else { self.packs.back() };
        if last.is_none_or(|pack| pack.size() + Pack::cost(element) > FULL) {
            // The pack that was at this end becomes an inner pack, which is unlikely to grow again soon.
            if let Some(pack) = if end == End::Left { self.packs.front_mut() } else { self.packs.back_mut() } {
                pack.shrink();
            }
            // Most lists have a single pack, which starts without capacity. Each further pack is allocated at full
            // size, because it is likely to fill up, too.
            let pack = if self.packs.is_empty() { Pack::default() } else { Pack::with_room(FULL) };
            if self.packs.is_empty() {
                self.packs.reserve_exact(1);
            }
            if end == End::Left { self.packs.push_front(pack) } else { self.packs.push_back(pack) }
        }
        match end {
            End::Left => self.packs.front_mut().expect("there is one").push_front(element),
            End::Right => self.packs.back_mut().expect("there is one").push_back(element),
        }
    }

    /// Removes and returns the element at an end.
    pub fn pop(&mut self, end: End) -> Option<Vec<u8>> {
        let pack = if end == End::Left { self.packs.front_mut() } else { self.packs.back_mut() }?;
        let mut items = pack.iter();
        let (offset, item) = if end == End::Left { items.next() } else { items.next_back() }.expect("no pack is empty");
        let element = item.to_vec();
        pack.remove(offset, 1);
        self.len -= 1;
        self.size -= Pack::cost(&element);
        if pack.is_empty() {
            if end == End::Left {
                self.packs.pop_front()
            } else {
                self.packs.pop_back()
            };
        }
        Some(element)
    }

    /// Returns the index of the pack that has the element with this index, and the element's index in the pack.
    fn locate(&self, mut index: usize) -> Option<(usize, usize)> {
        if index >= self.len {
            return None;
        }
        if index < self.len / 2 {
            for (at, pack) in self.packs.iter().enumerate() {
                steps(1);
                if index < pack.len() {
                    return Some((at, index));
                }
                index -= pack.len();
            }
        }
        let mut behind = self.len - index;
        for (at, pack) in self.packs.iter().enumerate().rev() {
            steps(1);
            if behind <= pack.len() {
                return Some((at, pack.len() - behind));
            }
            behind -= pack.len();
        }
        None
    }

    /// Returns the element with this index.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let (pack, at) = self.locate(index)?;
        let pack = &self.packs[pack];
        Some(pack.at(pack.offset(at)).0)
    }

    /// Replaces the element with this index. The element must exist.
    pub fn set(&mut self, index: usize, element: &[u8]) {
        let (pack, at) = self.locate(index).expect("the caller looked");
        let pack = &mut self.packs[pack];
        let before = pack.size();
        pack.replace(pack.offset(at), element);
        self.size = self.size + pack.size() - before;
    }

    /// Inserts an element before the one with this index, or at the end.
    pub fn insert(&mut self, index: usize, element: &[u8]) {
        let Some((at, inner)) = self.locate(index) else { return self.push(End::Right, element) };
        self.len += 1;
        self.size += Pack::cost(element);
        if self.packs[at].size() + Pack::cost(element) > FULL {
            let rest = self.packs[at].split_off(inner);
            self.packs.insert(at + 1, rest);
            if inner == 0 {
                self.packs[at].push_back(element);
                return;
            }
            if self.packs[at].size() + Pack::cost(element) > FULL {
                self.packs.insert(at + 1, Pack::default());
                self.packs[at + 1].push_back(element);
            } else {
                self.packs[at].push_back(element);
            }
            return;
        }
        let pack = &mut self.packs[at];
        pack.insert(pack.offset(inner), element);
    }

    /// Removes `count` elements, the first of them at `index`. They must exist. Takes time in proportion to the number
    /// of packs and the bytes of two packs.
    pub fn remove(&mut self, index: usize, mut count: usize) {
        let Some((mut at, mut inner)) = self.locate(index) else { return };
        // The packs of which all elements are removed are adjacent. They are removed in one step, since each removal of
        // packs in the middle moves the packs beside them.
        let mut emptied = at..at;
        while count > 0 {
            let pack = &mut self.packs[at];
            let here = count.min(pack.len() - inner);
            let before = pack.size();
            if here == pack.len() {
                self.size -= before;
                emptied = if emptied.is_empty() { at..at + 1 } else { emptied.start..at + 1 };
            } else {
                pack.remove(pack.offset(inner), here);
                self.size -= before - pack.size();
            }
            self.len -= here;
            count -= here;
            (at, inner) = (at + 1, 0);
        }
        if !emptied.is_empty() {
            steps(self.packs.len());
            self.packs.drain(emptied);
        }
    }

    /// Removes the elements that equal `element`, but at most `most` elements: those that are nearest to `end`. Returns
    /// how many were removed. Takes time in proportion to the list's bytes, however many elements are removed.
    pub fn remove_equal(&mut self, element: &[u8], end: End, most: usize) -> usize {
        let mut left = most;
        let strip = |pack: &mut Pack| {
            let equal = if left > 0 { pack.iter().filter(|(_, item)| *item == element).count() } else { 0 };
            let go = equal.min(left);
            if go > 0 {
                let kept = if end == End::Left { go..equal } else { 0..equal - go };
                let mut met = 0..equal;
                pack.retain(|item| *item != *element || met.next().is_some_and(|number| kept.contains(&number)));
                left -= go;
            }
        };
        match end {
            End::Left => self.packs.iter_mut().for_each(strip),
            End::Right => self.packs.iter_mut().rev().for_each(strip),
        }
        let removed = most - left;
        if removed > 0 {
            steps(self.packs.len());
            self.packs.retain(|pack| !pack.is_empty());
            self.len -= removed;
            self.size -= removed * Pack::cost(element);
        }
        removed
    }

    /// Returns the elements from `index` on.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = &[u8]> {
        let (pack, inner) = self.locate(index).unwrap_or((self.packs.len(), 0));
        self.packs.range(pack..).flat_map(|pack| pack.iter().map(|(_, item)| item)).skip(inner)
    }

    /// Returns all elements.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.packs.iter().flat_map(|pack| pack.iter().map(|(_, item)| item))
    }

    /// Returns the size of all elements in bytes, including their encoded lengths.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Releases unused capacity.
    pub fn shrink(&mut self) {
        self.packs.iter_mut().for_each(Pack::shrink);
        self.packs.shrink_to_fit();
    }

    /// Returns how many bytes of memory the list takes.
    pub fn bytes(&self) -> usize {
        self.packs.capacity() * size_of::<Pack>() + self.packs.iter().map(Pack::capacity).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;
    use crate::db::Random;

    thread_local! {
        /// See [`steps`].
        pub(super) static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn removals_take_time_in_proportion_to_the_packs() {
        let mut full = List::default();
        for number in 0..400_000 {
            full.push(End::Right, if number < 200_000 || number % 4 == 0 { b"a of ten b" } else { b"b of ten b" });
        }
        let packs = full.packs.len();
        assert!(packs > 300, "{packs}");
        let count = |what: &str, change: &mut dyn FnMut(&mut List) -> usize, expected| {
            let mut list = full.clone();
            STEPS.set(0);
            assert_eq!(change(&mut list), expected, "{what}");
            assert_eq!(list.size(), list.packs.iter().map(Pack::size).sum::<usize>());
            assert_eq!(list.len(), list.iter().count());
            assert!(list.packs.iter().all(|pack| !pack.is_empty()));
            let steps = STEPS.get();
            assert!(steps <= 3 * packs, "{what}: {steps} steps for {packs} packs");
        };
        count("all", &mut |list| list.remove_equal(b"a of ten b", End::Left, usize::MAX), 250_000);
        count("some", &mut |list| list.remove_equal(b"a of ten b", End::Right, 249_000), 249_000);
        count("none", &mut |list| list.remove_equal(b"c", End::Right, 9), 0);
        let mut cut = |list: &mut List| {
            list.remove(1_000, 398_000);
            list.len()
        };
        count("the middle", &mut cut, 2_000);
    }

    #[test]
    fn is_a_sequence() {
        let (mut list, mut model, mut random) = (List::default(), VecDeque::<Vec<u8>>::new(), Random(9));
        for step in 0..20_000 {
            let element = vec![step as u8; [0, 3, 200, 3_000][random.below(4)]];
            let at = random.below(model.len() + 1);
            match random.below(8) {
                0 => (list.push(End::Left, &element), model.push_front(element)).0,
                1 => (list.push(End::Right, &element), model.push_back(element)).0,
                2 => (list.insert(at, &element), model.insert(at, element)).0,
                3 => assert_eq!(list.pop(End::Left), model.pop_front()),
                4 => assert_eq!(list.pop(End::Right), model.pop_back()),
                7 => {
                    let (end, most) = ([End::Left, End::Right][random.below(2)], random.below(4));
                    let victim = model.get(at).cloned().unwrap_or(element);
                    let mut places: Vec<usize> = (0..model.len()).filter(|at| model[*at] == victim).collect();
                    match end {
                        End::Left => places.truncate(most),
                        End::Right => _ = places.drain(..places.len().saturating_sub(most)),
                    }
                    places.iter().rev().for_each(|at| _ = model.remove(*at));
                    assert_eq!(list.remove_equal(&victim, end, most), places.len());
                }
                5 if at < model.len() => {
                    list.set(at, &element);
                    model[at] = element;
                }
                _ => {
                    let count = random.below(model.len() - at + 1).min([4, 40][step % 2]);
                    list.remove(at, count);
                    model.drain(at..at + count);
                }
            }
            assert_eq!(list.size(), list.packs.iter().map(Pack::size).sum::<usize>());
            assert_eq!((list.len(), list.get(at)), (model.len(), model.get(at).map(Vec::as_slice)));
            if step % 32 == 0 {
                assert!(list.iter().eq(&model) && list.iter_from(at).eq(model.iter().skip(at)));
                assert!(list.packs.iter().all(|pack| !pack.is_empty()));
            }
        }
    }
}
