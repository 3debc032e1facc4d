//! Byte strings stored contiguously in one allocation. Small hashes, small sorted sets and segments of lists use this
//! form.
//!
//! # Invariant
//! An item is encoded as its length in LEB128 and its bytes. In a `Pack<true>` the length follows again: the LEB128 bytes of
//! this second length are in reverse order, so that iteration from the end can decode it. The first item begins at `start`.
//! The bytes before `start` are free space for items that are inserted at the front.

use crate::operation::put_number;

/// A sequence of byte strings. See the module. `BACKWARD` tells whether the pack can be iterated from its end, which costs
/// the second length of each item.
#[derive(Clone, Debug, Default)]
pub struct Pack<const BACKWARD: bool = false> {
    bytes: Vec<u8>,
    start: u32,
    len: u32,
}

/// The offset at which an item begins. It is valid until the pack is changed.
pub type Offset = usize;

fn header(item: &[u8], out: &mut Vec<u8>) {
    put_number(item.len() as u64, out);
}

fn forward(bytes: &[u8], mut at: usize) -> (usize, usize) {
    let first = bytes[at];
    if first < 0x80 {
        return (first.into(), at + 1);
    }
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = bytes[at];
        length |= usize::from(byte & 0x7f) << shift;
        (at, shift) = (at + 1, shift + 7);
        if byte < 0x80 {
            return (length, at);
        }
    }
}

/// Returns the offset of the item before the one at `offset`, in a pack whose items have both lengths.
fn before(bytes: &[u8], offset: Offset) -> Offset {
    let (mut length, mut shift, mut at) = (0, 0, offset - 1);
    loop {
        let byte = bytes[at];
        length |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return at - length - width(length);
        }
        (at, shift) = (at - 1, shift + 7);
    }
}

fn width(length: usize) -> usize {
    ((usize::BITS - length.leading_zeros()) as usize).div_ceil(7).max(1)
}

impl<const BACKWARD: bool> Pack<BACKWARD> {
    /// Appends an encoded item to `out`.
    fn encode(item: &[u8], out: &mut Vec<u8>) {
        header(item, out);
        out.extend_from_slice(item);
        if BACKWARD {
            let at = out.len();
            header(item, out);
            out[at..].reverse();
        }
    }

    /// Returns an empty pack with a capacity of `bytes` bytes.
    pub fn with_room(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), start: 0, len: 0 }
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the pack has no items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size of all items in bytes, including their lengths.
    pub fn size(&self) -> usize {
        self.bytes.len() - self.start as usize
    }

    /// Returns the size of an item in bytes, including its lengths.
    pub fn cost(item: &[u8]) -> usize {
        item.len() + (1 + usize::from(BACKWARD)) * width(item.len())
    }

    /// Returns the number of allocated bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the item at `offset`, and the offset of the next item.
    pub fn at(&self, offset: Offset) -> (&[u8], Offset) {
        let (length, at) = forward(&self.bytes, offset);
        let behind = if BACKWARD { width(length) } else { 0 };
        (&self.bytes[at..at + length], at + length + behind)
    }

    /// Returns the offset of the first item.
    pub fn first(&self) -> Offset {
        self.start as usize
    }

    /// Returns the offset after the last item, at which the next item would begin.
    pub fn end(&self) -> Offset {
        self.bytes.len()
    }

    /// Returns the offset of the item with this index, or the offset after the last item if the index is the number of
    /// items.
    pub fn offset(&self, index: usize) -> Offset {
        if BACKWARD && index > self.len() / 2 {
            return (index..self.len()).fold(self.end(), |offset, _| before(&self.bytes, offset));
        }
        (0..index).fold(self.first(), |offset, _| self.at(offset).1)
    }

    /// Returns the items in order, each with its offset.
    pub fn iter(&self) -> Iter<'_, BACKWARD> {
        Iter { pack: self, front: self.first(), back: self.end() }
    }

    /// Reserves space for `more` bytes and a sixteenth of the current length. The capacity is not doubled, since most
    /// packs stop growing early.
    fn grow(&mut self, more: usize) {
        let (length, room) = (self.bytes.len(), self.bytes.capacity());
        if room - length < more {
            self.bytes.reserve_exact(more + length / 16);
        }
    }

    /// Inserts an item before the one at `offset`, or at the end.
    pub fn insert(&mut self, offset: Offset, item: &[u8]) {
        self.grow(Self::cost(item));
        let mut encoded = Vec::new();
        if offset == self.end() {
            Self::encode(item, &mut self.bytes);
        } else if offset == self.first() {
            self.push_front(item);
            return;
        } else {
            Self::encode(item, &mut encoded);
            self.bytes.splice(offset..offset, encoded);
        }
        self.len += 1;
    }

    /// Inserts an item at the end.
    pub fn push_back(&mut self, item: &[u8]) {
        self.insert(self.end(), item);
    }

    /// Inserts an item at the front.
    pub fn push_front(&mut self, item: &[u8]) {
        let size = Self::cost(item);
        if (self.start as usize) < size {
            let room = size + self.size() / 8;
            self.grow(room);
            self.bytes.splice(..self.first(), core::iter::repeat_n(0, room));
            self.start = room as u32;
        }
        let mut encoded = Vec::with_capacity(size);
        Self::encode(item, &mut encoded);
        let first = self.first();
        self.bytes[first - size..first].copy_from_slice(&encoded);
        self.start -= size as u32;
        self.len += 1;
    }

    /// Removes `count` items, the first of them at `offset`.
    pub fn remove(&mut self, offset: Offset, count: usize) {
        let end = (0..count).fold(offset, |offset, _| self.at(offset).1);
        self.len -= count as u32;
        if offset == self.first() && end < self.end() {
            self.start = end as u32;
            // The free space at the front is limited to 64 bytes or the size of the items, whichever is larger.
            if self.first() > 64 && self.first() > self.size() {
                self.bytes.drain(..self.start as usize);
                self.start = 0;
            }
        } else {
            self.bytes.drain(offset..end);
            if self.len == 0 {
                *self = Self::default();
            }
        }
    }

    /// Removes the items for which `stays` returns `false`. `stays` is called once for each item, in order. Takes time
    /// in proportion to the pack's bytes.
    pub fn retain(&mut self, mut stays: impl FnMut(&[u8]) -> bool) {
        let mut kept = Self::default();
        let mut offset = self.first();
        while offset < self.end() {
            let (item, next) = self.at(offset);
            if stays(item) {
                kept.bytes.extend_from_slice(&self.bytes[offset..next]);
                kept.len += 1;
            }
            offset = next;
        }
        *self = kept;
    }

    /// Replaces the item at `offset`.
    pub fn replace(&mut self, offset: Offset, item: &[u8]) {
        let (old, next) = self.at(offset);
        if old.len() == item.len() {
            let from = offset + width(item.len());
            self.bytes[from..from + item.len()].copy_from_slice(item);
            return;
        }
        self.grow(Self::cost(item).saturating_sub(next - offset));
        let mut encoded = Vec::new();
        Self::encode(item, &mut encoded);
        self.bytes.splice(offset..next, encoded);
    }

    /// Removes the items from index `index` to the end and returns them as another pack.
    pub fn split_off(&mut self, index: usize) -> Self {
        let bytes = self.bytes.split_off(self.offset(index));
        let len = self.len - index as u32;
        self.len = index as u32;
        Self { bytes, start: 0, len }
    }

    /// Releases unused capacity.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

/// An iterator over the items of a pack, with their offsets.
#[derive(Clone)]
pub struct Iter<'p, const BACKWARD: bool> {
    pack: &'p Pack<BACKWARD>,
    front: Offset,
    back: Offset,
}

impl<'p, const BACKWARD: bool> Iterator for Iter<'p, BACKWARD> {
    type Item = (Offset, &'p [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        let (item, next) = self.pack.at(self.front);
        Some((core::mem::replace(&mut self.front, next), item))
    }
}

impl DoubleEndedIterator for Iter<'_, true> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        self.back = before(&self.pack.bytes, self.back);
        Some((self.back, self.pack.at(self.back).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Random;

    fn sequence<const BACKWARD: bool>(check: impl Fn(&Pack<BACKWARD>, &[Vec<u8>])) {
        let (mut pack, mut model, mut random) = (Pack::<BACKWARD>::default(), Vec::<Vec<u8>>::new(), Random(3));
        for step in 0..20_000 {
            let item = vec![step as u8; [0, 1, 5, 127, 128, 300][random.below(6)]];
            let at = random.below(model.len() + 1);
            match random.below(6) {
                0 => (pack.push_back(&item), model.push(item)).0,
                1 => (pack.push_front(&item), model.insert(0, item)).0,
                2 => (pack.insert(pack.offset(at), &item), model.insert(at, item)).0,
                3 if at < model.len() => {
                    pack.replace(pack.offset(at), &item);
                    model[at] = item;
                }
                4 if random.below(20) == 0 => {
                    let rest = pack.split_off(at);
                    assert!(rest.iter().map(|(_, item)| item).eq(model.drain(at..)));
                }
                _ => {
                    let count = random.below(model.len() - at + 1).min(3);
                    pack.remove(pack.offset(at), count);
                    model.drain(at..at + count);
                }
            }
            assert_eq!(pack.len(), model.len());
            if step % 16 == 0 {
                assert!(pack.iter().map(|(_, item)| item).eq(&model));
                assert_eq!(pack.size(), model.iter().map(|item| Pack::<BACKWARD>::cost(item)).sum::<usize>());
                check(&pack, &model);
            }
        }
    }

    #[test]
    fn is_a_sequence() {
        sequence::<false>(|_, _| ());
    }

    #[test]
    fn is_a_sequence_from_both_ends() {
        sequence::<true>(|pack, model| assert!(pack.iter().rev().map(|(_, item)| item).eq(model.iter().rev())));
    }
}
