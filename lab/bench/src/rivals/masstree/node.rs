//! A node of a layer: a border node (a leaf) or an inner node.
//!
//! | | slices | values |
//! |---|---|---|
//! | border | up to 15 slots in any order; `order` lists the used slots, ascending | of each slot: the key's value, or the next layer's root |
//! | inner | `count` separators, ascending | `count + 1` children: below the first separator, then from each separator on |
//!
//! The *kind* of a border node's slot, four bits, tells the slot's content: a key that ends within the slice (the kind
//! is its length in bytes, 0 to 8), a key that continues after the slice ([`LONG`], with its suffix in a block), or a
//! layer of keys that continue ([`LAYER`]). Slots are ordered by slice, then by kind: of two keys with one slice, the
//! shorter one is a prefix of the other. A slice has at most one slot that is `LONG` or `LAYER`, and all slots of a
//! slice are in one node.
//!
//! All words are atomics. `order` and values are stored with Release and read with Acquire: a thread that reads an
//! order sees the content of the slots that the order lists.

use core::ptr;

use archipelago_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use archipelago_platform::hint::prefetch_read;
use archipelago_sync::version_lock::VersionLock;

/// Slots of a border node, and separators of an inner node.
pub const WIDTH: usize = 15;
/// Bytes of a key in one layer.
pub const SLICE: usize = 8;
/// The kind of a slot whose key continues after the slice.
pub const LONG: u64 = 9;
/// The kind of a slot that points to the next layer.
pub const LAYER: u64 = 10;

/// Another thread changed the node meanwhile: start again from the layer's root.
#[derive(Clone, Copy, Debug)]
pub struct Retry;

/// The part of a key in one layer: the slice and a rank. The slice is a number that compares as its bytes do; a short
/// slice is padded with zeros. The rank is the length in bytes, or [`LONG`] if the key continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    pub slice: u64,
    pub rank: u64,
}

impl Part {
    #[inline]
    pub fn of(key: &[u8]) -> Part {
        let mut bytes = [0; SLICE];
        let len = key.len().min(SLICE);
        bytes[..len].copy_from_slice(&key[..len]);
        Part { slice: u64::from_be_bytes(bytes), rank: if key.len() > SLICE { LONG } else { len as u64 } }
    }
}

/// The used slots in their order: the count in the lowest four bits, then the numbers of all 15 slots, used slots
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order(u64);

/// Returns a mask of the lowest `places` positions.
const fn mask(places: usize) -> u64 {
    (1 << (4 * places)) - 1
}

impl Order {
    /// Returns an order of all slots by number, of which the first `count` are used.
    pub const fn first(count: usize) -> Order {
        Order(0xEDC_BA98_7654_3210 << 4 | count as u64)
    }

    #[inline]
    pub fn count(self) -> usize {
        (self.0 & 15) as usize
    }

    /// Returns the slot at a position.
    #[inline]
    pub fn slot(self, at: usize) -> usize {
        (self.0 >> (4 + 4 * at) & 15) as usize
    }

    /// Inserts the first free slot at a position. Returns the new order and the slot.
    pub fn insert(self, at: usize) -> (Order, usize) {
        let (count, places) = (self.count(), self.0 >> 4);
        let slot = self.slot(count);
        let (before, behind) = (places & mask(at), places & mask(count) & !mask(at));
        let places = before | (slot as u64) << (4 * at) | behind << 4 | places & !mask(count + 1);
        (Order(places << 4 | (count + 1) as u64), slot)
    }

    /// Returns the order without the slot at a position.
    pub fn remove(self, at: usize) -> Order {
        let (count, places) = (self.count(), self.0 >> 4);
        let (before, behind) = (places & mask(at), places & mask(count) & !mask(at + 1));
        let last = (self.slot(at) as u64) << (4 * (count - 1));
        let places = before | behind >> 4 | last | places & !mask(count);
        Order(places << 4 | (count - 1) as u64)
    }

    /// Returns the order with the first `count` slots only.
    pub fn truncate(self, count: usize) -> Order {
        Order(self.0 & !15 | count as u64)
    }
}

/// A node; see the module.
#[repr(C, align(64))]
pub struct Node {
    /// Of a border node: held by a thread that changes the node in any way. Readers ignore it.
    pub writer: VersionLock,
    /// The version that readers validate. It is locked while used slots change their meaning, and while an inner node
    /// changes.
    pub version: VersionLock,
    order: AtomicU64,
    /// Four bits for each slot.
    kinds: AtomicU64,
    /// Of a border node: the address of the next node to the right; 0 for none.
    next: AtomicU64,
    /// 0 for a border node. A layer's root changes its level when it is split.
    level: AtomicU32,
    slices: [AtomicU64; WIDTH],
    values: [AtomicU64; WIDTH + 1],
    /// For slots that are [`LONG`]: the block with the suffix of the key.
    rests: [AtomicU64; WIDTH],
}

/// Cache lines of a node that a look-up reads, and prefetches together.
const FETCHED: usize = core::mem::offset_of!(Node, rests).div_ceil(64);

/// Returns a node's address as a word.
pub fn address(node: *const Node) -> u64 {
    node.expose_provenance() as u64
}

/// Returns the node whose address a word is.
pub fn pointer(word: u64) -> *mut Node {
    ptr::with_exposed_provenance_mut(word as usize)
}

fn words<const N: usize>() -> [AtomicU64; N] {
    core::array::from_fn(|_| AtomicU64::new(0))
}

impl Node {
    /// Makes an empty node, a border node if the level is 0.
    pub fn new(level: u32) -> Box<Self> {
        Box::new(Node {
            writer: VersionLock::new(),
            version: VersionLock::new(),
            order: AtomicU64::new(Order::first(0).0),
            kinds: AtomicU64::new(0),
            next: AtomicU64::new(0),
            level: AtomicU32::new(level),
            slices: words(),
            values: words(),
            rests: words(),
        })
    }

    /// Prefetches a node's cache lines together, as in the paper.
    #[inline]
    pub fn prefetch(node: *const Node) {
        (0..FETCHED).for_each(|line| prefetch_read(node.cast::<[u64; 8]>().wrapping_add(line)));
    }

    #[inline]
    pub fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    pub fn set_level(&self, level: u32) {
        self.level.store(level, Ordering::Relaxed);
    }

    /// Returns the order. Acquire pairs with the Release of [`set_order`](Self::set_order): the reader sees the listed
    /// slots.
    #[inline]
    pub fn order(&self) -> Order {
        Order(self.order.load(Ordering::Acquire))
    }

    pub fn set_order(&self, order: Order) {
        self.order.store(order.0, Ordering::Release);
    }

    #[inline]
    pub fn count(&self) -> usize {
        self.order().count()
    }

    #[inline]
    pub fn kind(&self, slot: usize) -> u64 {
        self.kinds.load(Ordering::Relaxed) >> (4 * slot) & 15
    }

    pub fn set_kind(&self, slot: usize, kind: u64) {
        let others = self.kinds.load(Ordering::Relaxed) & !(15 << (4 * slot));
        self.kinds.store(others | kind << (4 * slot), Ordering::Relaxed);
    }

    #[inline]
    pub fn slice(&self, slot: usize) -> u64 {
        self.slices[slot].load(Ordering::Relaxed)
    }

    pub fn set_slice(&self, slot: usize, slice: u64) {
        self.slices[slot].store(slice, Ordering::Relaxed);
    }

    /// Returns a value. Acquire pairs with the Release of [`set_value`](Self::set_value): a thread that reads a value
    /// sees what its writer had seen.
    #[inline]
    pub fn value(&self, slot: usize) -> u64 {
        self.values[slot].load(Ordering::Acquire)
    }

    pub fn set_value(&self, slot: usize, value: u64) {
        self.values[slot].store(value, Ordering::Release);
    }

    #[inline]
    pub fn rest(&self, slot: usize) -> u64 {
        self.rests[slot].load(Ordering::Relaxed)
    }

    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    pub fn set_next(&self, next: u64) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// Returns the part of the keys of a border node's slot.
    pub fn part(&self, slot: usize) -> Part {
        Part { slice: self.slice(slot), rank: self.rank(slot) }
    }

    #[inline]
    fn rank(&self, slot: usize) -> u64 {
        self.kind(slot).min(LONG)
    }

    /// Returns, for a border node, the position in `order` of the slot for `part`.
    ///
    /// # Errors
    /// If there is no such slot, the error is the position where it would be inserted.
    #[inline]
    pub fn find(&self, order: Order, part: Part) -> Result<usize, usize> {
        let (mut from, mut to) = (0, order.count());
        while from < to {
            let middle = (from + to) / 2;
            let slot = order.slot(middle);
            // The kinds are on another cache line, so they are read only if the slices are equal.
            let order = self.slice(slot).cmp(&part.slice).then_with(|| self.rank(slot).cmp(&part.rank));
            match order {
                core::cmp::Ordering::Less => from = middle + 1,
                core::cmp::Ordering::Greater => to = middle,
                core::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(from)
    }

    /// Returns, for an inner node, the position of the child to which `slice` belongs.
    #[inline]
    pub fn child_of(&self, slice: u64) -> usize {
        let (mut from, mut to) = (0, self.count());
        while from < to {
            let middle = (from + to) / 2;
            // A slice equal to a separator belongs to the child at its right.
            if self.slice(middle) <= slice {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }

    /// Fills a free slot of a border node, and lists it at a position. The caller holds `writer`, or is the only thread
    /// that sees the node.
    pub fn put(&self, at: usize, part: Part, value: u64, rest: u64) {
        let (order, slot) = self.order().insert(at);
        self.fill(slot, part.slice, part.rank, value, rest);
        self.set_order(order);
    }

    fn fill(&self, slot: usize, slice: u64, kind: u64, value: u64, rest: u64) {
        self.set_slice(slot, slice);
        self.set_kind(slot, kind);
        self.set_value(slot, value);
        // A slot of another kind keeps its old suffix word, which is not read.
        if kind == LONG {
            self.rests[slot].store(rest, Ordering::Relaxed);
        }
    }

    /// Inserts a separator and the child to its right. The caller has `version` locked, and the node is not full.
    pub fn insert_child(&self, at: usize, slice: u64, child: u64) {
        let count = self.count();
        (at..count).rev().for_each(|from| self.set_slice(from + 1, self.slice(from)));
        (at + 1..=count).rev().for_each(|from| self.set_value(from + 1, self.value(from)));
        self.set_slice(at, slice);
        self.set_value(at + 1, child);
        self.set_order(Order::first(count + 1));
    }

    /// Copies a border node's slots at these positions to a new node, in their order.
    pub fn copy_slots(&self, places: core::ops::Range<usize>, to: &Node) {
        let order = self.order();
        for (place, slot) in places.clone().map(|at| order.slot(at)).enumerate() {
            to.fill(place, self.slice(slot), self.kind(slot), self.value(slot), self.rest(slot));
        }
        to.set_order(Order::first(places.len()));
    }

    /// Copies an inner node's children at these positions, and the separators between them, to a new node.
    pub fn copy_children(&self, places: core::ops::RangeInclusive<usize>, to: &Node) {
        let (first, last) = (*places.start(), *places.end());
        to.set_level(self.level());
        (first..last).for_each(|at| to.set_slice(at - first, self.slice(at)));
        places.for_each(|at| to.set_value(at - first, self.value(at)));
        to.set_order(Order::first(last - first));
    }

    /// Returns, for a full border node, the position nearest to the middle at which the node can be split between two
    /// different slices.
    pub fn middle(&self) -> usize {
        let order = self.order();
        let differs = |at: usize| self.slice(order.slot(at - 1)) != self.slice(order.slot(at));
        let half = order.count() / 2;
        (0..half)
            .flat_map(|off| [half - off, half + 1 + off])
            .find(|&at| at < order.count() && differs(at))
            .expect("a slice has ten slots at most, and a full node more")
    }
}

const _: () = assert!(WIDTH > LONG as usize + 1, "a full node has two slices at least");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_permutation() {
        let mut order = Order::first(0);
        let mut model: Vec<usize> = Vec::new();
        let mut state = 1_u64;
        for _ in 0..2_000 {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(11);
            let dice = (state >> 33) as usize;
            if model.len() == WIDTH || dice.is_multiple_of(2) && !model.is_empty() {
                let at = dice / 2 % model.len();
                order = order.remove(at);
                model.remove(at);
            } else {
                let at = dice / 2 % (model.len() + 1);
                let (with, slot) = order.insert(at);
                assert!(!model.contains(&slot), "the slot was free");
                order = with;
                model.insert(at, slot);
            }
            assert_eq!((0..order.count()).map(|at| order.slot(at)).collect::<Vec<_>>(), model);
            let mut all: Vec<_> = (0..WIDTH).map(|at| order.slot(at)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..WIDTH).collect::<Vec<_>>());
        }
    }

    #[test]
    fn parts_have_the_order_of_keys() {
        let keys: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"ab", b"abcdefgh", b"abcdefghi"];
        assert!(keys.is_sorted() && keys.map(Part::of).is_sorted_by(|a, b| a < b));
        assert_eq!(Part::of(b"abcdefghi"), Part::of(b"abcdefghj"));
    }

    #[test]
    fn a_slice_is_not_torn_by_a_split() {
        for (first, cut) in [(10, 10), (5, 5)] {
            let node = Node::new(0);
            for at in 0..WIDTH {
                let (slice, rank) = if at < first { (1, at) } else { (2, at - first) };
                node.put(at, Part { slice, rank: rank as u64 }, 0, 0);
            }
            assert_eq!(node.middle(), cut);
        }
    }
}
