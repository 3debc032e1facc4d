//! Nodes: four kinds that hold 4, 16, 48 or 256 children (Leis et al., ICDE 2013, section III).
//!
//! **A node belongs to one byte string, which never changes.** Its `level` is the string's length, and the node stores
//! the string's last `prefix_len` bytes. Both are written once, before the node is published. Every key below the node
//! starts with the string. The authors shorten a node's prefix in place when a key branches off inside it, which their
//! readers must detect. Here the new node is inserted between the old one and its parent, and the old one keeps a
//! longer prefix than it needs: *the parent's level determines which part of the prefix is used* ([`Node::gap`]). Only
//! a merge, which makes a prefix longer, copies a node.
//!
//! Positions: 0 is the *terminal*, the leaf whose key ends at this node's level; `1 + b` is the child for byte `b`.
//! So positions are in key order, and no byte is special.
//!
//! Invariants, kept by `raw.rs`:
//! - terminal and children change only under the node's lock, and never after the node is obsolete;
//! - a published node other than the root holds at least two edges.
//!
//! The guarantee for a reader without the lock: [`Node::get`] returns an edge that was at this position at some
//! moment of the call, or null if at some moment of the call there was none.

use super::edge::{Edge, Slot};
use super::kind::NodeKind;
use super::matching::Matching;
use crate::points;
use archipelago_platform::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use archipelago_platform::hint::{point, prefetch_read};
use archipelago_platform::memory::taken_by;
use archipelago_platform::plain::Plain;
use archipelago_platform::simd::match_bytes;
use archipelago_platform::touch;
use archipelago_sync::version_lock::VersionLock;
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ops::ControlFlow;

/// Prefixes up to this length are stored behind the header, longer ones behind the node in the same allocation.
const INLINE_PREFIX: usize = 4;
/// The bytes of a cache line on nearly all processors.
const CACHE_LINE: usize = 64;
/// The number of positions of a node: the terminal and 256 bytes.
pub(super) const POSITIONS: usize = 257;

impl NodeKind {
    fn size(self) -> usize {
        [size_of::<Node4>(), size_of::<Node16>(), size_of::<Indexed>(), size_of::<Direct>()][self as usize]
    }

    /// Returns the offset at which a prefix of this length is stored in the allocation.
    fn prefix_at(self, len: usize) -> usize {
        if len <= INLINE_PREFIX { INLINE_PREFIX_AT } else { self.size() }
    }

    fn layout(self, prefix_len: usize) -> Layout {
        let size = self.size() + if prefix_len > INLINE_PREFIX { prefix_len } else { 0 };
        // An alignment of 16 leaves four tag bits. An alignment to whole cache lines would be expensive: allocators
        // round blocks with such an alignment up. They align 64-byte blocks to cache lines anyway.
        Layout::from_size_align(size, 16).expect("a key is shorter than 4 GiB")
    }
}

#[repr(C)]
struct Header {
    lock: VersionLock,
    terminal: Slot,
    level: Plain<u32>,
    prefix_len: Plain<u32>,
}

/// The offset of a short prefix. In every kind it is directly behind the header. (As a field of the header it would
/// need padding.)
const INLINE_PREFIX_AT: usize = size_of::<Header>();

type Node4 = Sparse<4>;
type Node16 = Sparse<16>;

/// Unsorted bytes, and the child for each byte. A slot is free if its child is null, even if it has a byte.
#[repr(C)]
struct Sparse<const N: usize> {
    header: Header,
    inline_prefix: [u8; INLINE_PREFIX],
    bytes: [AtomicU8; N],
    children: [Slot; N],
}

/// `index[b]` is one more than the index of `b`'s child, and 0 if there is none.
#[repr(C)]
struct Indexed {
    header: Header,
    inline_prefix: [u8; INLINE_PREFIX],
    count: AtomicU16,
    index: [AtomicU8; 256],
    children: [Slot; 48],
}

/// A child for every byte. Bit `b % 64` of `occupied[b / 64]` is set if `b` has a child. Only ordered walks read these
/// bits: three of four slots are empty in a node of random keys, and a branch on each would be mispredicted.
#[repr(C)]
struct Direct {
    header: Header,
    inline_prefix: [u8; INLINE_PREFIX],
    count: AtomicU16,
    occupied: [AtomicU64; 4],
    children: [Slot; 256],
}

impl<const N: usize> Sparse<N>
where
    [AtomicU8; N]: Matching,
{
    /// Returns the slot and the child of a byte. The byte is read again after the child (`Acquire`). If the slot was
    /// reused for another byte in between, the second read shows the new byte: a writer stores the new byte before the
    /// new child (`Release`).
    #[inline(always)]
    fn find(&self, byte: u8) -> Option<(&Slot, Edge)> {
        let mut candidates = self.bytes.matching(byte);
        while candidates != 0 {
            let i = candidates.trailing_zeros() as usize;
            let child = self.children[i].load();
            if !child.is_null() && self.bytes[i].load(Ordering::Relaxed) == byte {
                return Some((&self.children[i], child));
            }
            candidates &= candidates - 1;
        }
        None
    }

    fn add(&self, byte: u8, child: Edge) {
        let free = self.children.iter().position(|slot| slot.load().is_null()).expect("the caller saw room");
        self.bytes[free].store(byte, Ordering::Relaxed);
        self.children[free].store(child);
    }

    /// Returns the number of children.
    fn count(&self) -> usize {
        self.children.iter().filter(|slot| !slot.load().is_null()).count()
    }

    /// Works as [`Node::visit`] does, without the terminal. The edges are sorted without branches: each edge's place in
    /// the order is the number of lesser keys.
    #[inline]
    fn visit<const DOWN: bool>(&self, position: usize, look: &mut impl FnMut(usize, Edge) -> ControlFlow<()>) {
        // A key is an edge's position and place in the node, and so no two are equal. Edges that are not wanted get the
        // greatest keys.
        let (mut keys, mut edges, mut wanted) = ([0_i16; N], [Edge::NULL; N], 0);
        for (place, (byte, slot)) in self.bytes.iter().zip(&self.children).enumerate() {
            let at = 1 + byte.load(Ordering::Relaxed) as usize;
            point(points::PLACE);
            let edge = slot.load();
            let want = !edge.is_null() & if DOWN { at < position } else { at >= position };
            edges[place] = edge;
            keys[place] = (if want { at } else { POSITIONS } * N + place) as i16;
            wanted += usize::from(want);
        }
        let mut ranks = [0_i16; N];
        for key in keys {
            ranks.iter_mut().zip(keys).for_each(|(rank, other)| *rank += i16::from(key < other));
        }
        let mut sorted = [(0, Edge::NULL); N];
        for ((rank, key), edge) in ranks.into_iter().zip(keys).zip(edges) {
            sorted[rank as usize % N] = (key as usize / N, edge);
        }
        let mut look = |&(position, edge): &(usize, Edge)| look(position, edge);
        let sorted = &sorted[..wanted];
        let _ = if DOWN { sorted.iter().rev().try_for_each(&mut look) } else { sorted.iter().try_for_each(look) };
    }
}

impl Indexed {
    #[inline(always)]
    fn find(&self, byte: u8) -> Option<(&Slot, Edge)> {
        let index = &self.index[byte as usize];
        let place = index.load(Ordering::Acquire);
        let slot = self.children.get((place as usize).wrapping_sub(1))?;
        let child = slot.load();
        // As in `Sparse::find`, this checks whether the position was reused for another byte meanwhile.
        (!child.is_null() && index.load(Ordering::Relaxed) == place).then_some((slot, child))
    }

    fn add(&self, byte: u8, child: Edge) {
        let free = self.children.iter().position(|slot| slot.load().is_null()).expect("the caller saw room");
        self.children[free].store(child);
        self.index[byte as usize].store(free as u8 + 1, Ordering::Release);
    }

    /// Returns a set of bits: bit `i` is set if byte `64 * word + i` has a child.
    #[inline(always)]
    fn occupied(&self, word: usize) -> u64 {
        let (words, _) = self.index.as_chunks::<64>();
        !match_bytes(&words[word], 0)
    }

    #[inline(always)]
    fn entry(&self, byte: usize) -> Edge {
        self.find(byte as u8).map_or(Edge::NULL, |(_, child)| child)
    }
}

impl Direct {
    /// Sets the child of a byte. The caller must hold the lock.
    fn put(&self, byte: usize, child: Edge) {
        self.children[byte].store(child);
        let (bits, bit) = (&self.occupied[byte / 64], 1 << (byte % 64));
        let others = bits.load(Ordering::Relaxed) & !bit;
        bits.store(others | if child.is_null() { 0 } else { bit }, Ordering::Relaxed);
    }
}

/// Implements [`Node::visit`] for the children of a Node48 or a Node256. `occupied` returns the node's bytes with
/// children, 64 bits at a time, and `entry` returns the child of a byte.
#[inline(always)]
fn visit_bytes<const DOWN: bool>(
    position: usize,
    occupied: impl Fn(usize) -> u64,
    entry: impl Fn(usize) -> Edge,
    look: &mut impl FnMut(usize, Edge) -> ControlFlow<()>,
) {
    // The bytes to visit: from `first` on, or below `end`.
    let (first, end) = if DOWN { (0, position - 1) } else { (position - 1, 256) };
    let visit_word = |word: usize| {
        let mut bits = occupied(word);
        if word == first / 64 {
            bits &= !0 << (first % 64);
        }
        if word == end / 64 {
            bits &= !(!0 << (end % 64));
        }
        while bits != 0 {
            let bit = if DOWN { 63 - bits.leading_zeros() } else { bits.trailing_zeros() };
            bits ^= 1 << bit;
            let byte = 64 * word + bit as usize;
            let edge = entry(byte);
            if !edge.is_null() {
                look(1 + byte, edge)?;
            }
        }
        ControlFlow::Continue(())
    };
    let mut words = first / 64..end.div_ceil(64);
    let _ = if DOWN { words.rev().try_for_each(visit_word) } else { words.try_for_each(visit_word) };
}

fn bump(count: &AtomicU16, by: i16) {
    // The caller holds the lock. Readers without the lock use the count only as a hint.
    count.store(count.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Relaxed);
}

impl Edge {
    /// Prefetches the slots that an ordered walk reads for the next `edges` edges of the target from `position` on. It
    /// does nothing unless the target is a Node256: the slots of other nodes are in few cache lines.
    ///
    /// A Node256 of random keys has more than 37 children, typically about 64. So two edges are expected in the eight
    /// slots of a cache line.
    #[inline]
    pub(super) fn fetch_slots<const DOWN: bool>(self, position: usize, edges: usize) {
        // No other edge has the tag of this kind, whatever the edge leads to.
        if self.kind() != NodeKind::Node256 {
            return;
        }
        let slots = self.node_address().wrapping_byte_add(core::mem::offset_of!(Direct, children));
        let (below, first) = (position.saturating_sub(1), position.max(1) - 1);
        for at in (0..edges.div_ceil(2)).map(|line| line * (CACHE_LINE / size_of::<Slot>())) {
            let slot = if DOWN { below.checked_sub(1 + at) } else { Some(first + at).filter(|slot| *slot < 256) };
            let Some(slot) = slot else { break };
            prefetch_read(slots.wrapping_byte_add(slot * size_of::<Slot>()).cast_const());
        }
    }
}

/// A node that is not freed during `'g`.
#[derive(Clone, Copy)]
pub(super) struct Node<'g> {
    edge: Edge,
    _marker: PhantomData<&'g Header>,
}

enum Body<'g> {
    Node4(&'g Node4),
    Node16(&'g Node16),
    Node48(&'g Indexed),
    Node256(&'g Direct),
}

impl PartialEq for Node<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.edge == other.edge
    }
}

impl<'g> Node<'g> {
    /// Allocates an empty node that stands for a string of length `level` ending in `prefix`. The node belongs to the
    /// caller until the caller publishes its edge.
    pub(super) fn create(kind: NodeKind, level: usize, prefix: &[u8]) -> Node<'g> {
        let layout = kind.layout(prefix.len());
        // SAFETY: no node has size 0. Zeroed memory is valid for all fields: null slots, zero counts and bytes.
        let address = unsafe { std::alloc::alloc_zeroed(layout) };
        if address.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        // SAFETY: the layout has room there for a prefix of this length.
        unsafe { address.add(kind.prefix_at(prefix.len())).copy_from_nonoverlapping(prefix.as_ptr(), prefix.len()) };
        let header = Header {
            lock: VersionLock::new(),
            terminal: Slot::empty(),
            level: Plain::new(u32::try_from(level).expect("a key is shorter than 4 GiB")),
            prefix_len: Plain::new(prefix.len() as u32),
        };
        // SAFETY: every kind (`repr(C)`) starts with the header.
        unsafe { address.cast::<Header>().write(header) };
        Node { edge: Edge::to_node(address.cast(), kind, !prefix.is_empty()), _marker: PhantomData }
    }

    /// # Safety
    /// The edge must have been made by [`create`](Self::create), and its node must not be freed during `'g`.
    #[inline(always)]
    pub(super) unsafe fn from_edge(edge: Edge) -> Node<'g> {
        Node { edge, _marker: PhantomData }
    }

    /// Frees the node, but not its children.
    ///
    /// # Safety
    /// No thread may be able to reach the node any more.
    pub(super) unsafe fn free(self) {
        // SAFETY: allocated by `create` with this layout.
        unsafe { std::alloc::dealloc(self.edge.node_address().cast(), self.layout()) };
    }

    fn layout(self) -> Layout {
        self.edge.kind().layout(*self.header().prefix_len as usize)
    }

    /// Returns the number of bytes that the node takes.
    pub(super) fn bytes(self) -> usize {
        taken_by(self.layout())
    }

    #[inline(always)]
    pub(super) fn edge(self) -> Edge {
        self.edge
    }

    #[inline(always)]
    pub(super) fn kind(self) -> NodeKind {
        self.edge.kind()
    }

    #[inline(always)]
    fn header(self) -> &'g Header {
        // SAFETY: alive for 'g (`create`, `from_edge`); every kind starts with the header.
        unsafe { &*self.edge.node_address().cast::<Header>() }
    }

    #[inline(always)]
    fn body(self) -> Body<'g> {
        let address = self.edge.node_address();
        // SAFETY: alive for 'g (`create`, `from_edge`), and the edge's tag is the kind the node was created with.
        unsafe {
            match self.edge.kind() {
                NodeKind::Node4 => Body::Node4(&*address.cast()),
                NodeKind::Node16 => Body::Node16(&*address.cast()),
                NodeKind::Node48 => Body::Node48(&*address.cast()),
                NodeKind::Node256 => Body::Node256(&*address.cast()),
            }
        }
    }

    #[inline(always)]
    pub(super) fn lock(self) -> &'g VersionLock {
        &self.header().lock
    }

    /// Prefetches the header, for a thread that will lock the node. A look-up in a large node does not read the cache
    /// line of the header.
    #[inline(always)]
    pub(super) fn fetch_header(self) {
        prefetch_read(self.edge.node_address().cast_const());
    }

    /// Returns the length of the node's string, which is the index of the byte that distinguishes its children.
    #[inline(always)]
    pub(super) fn level(self) -> usize {
        *self.header().level as usize
    }

    /// Returns the level. If the node stores no prefix, the level is computed from the parent's level, so that the
    /// header is not read.
    #[inline(always)]
    pub(super) fn level_below(self, parent_level: usize) -> usize {
        if self.edge.skips() { self.level() } else { parent_level + 1 }
    }

    /// Returns the part of the node's string from `depth` on.
    ///
    /// `depth` is 0 for the root, and otherwise one more than the level of a node that is or was the parent: the stored
    /// prefix reaches back at least that far.
    #[inline]
    pub(super) fn gap(self, depth: usize) -> &'g [u8] {
        let prefix = self.prefix();
        &prefix[prefix.len() - (self.level() - depth)..]
    }

    /// Returns whether the stored prefix reaches back to `depth`.
    pub(super) fn reaches(self, depth: usize) -> bool {
        self.level() - self.prefix().len() <= depth
    }

    fn prefix(self) -> &'g [u8] {
        let len = *self.header().prefix_len as usize;
        let bytes = self.edge.node_address().cast::<u8>().wrapping_add(self.kind().prefix_at(len));
        touch(bytes, len);
        // SAFETY: `create` wrote `len` bytes there, which never change; alive for 'g.
        unsafe { core::slice::from_raw_parts(bytes, len) }
    }

    /// Returns the edge at `position`, null if none.
    #[inline(always)]
    pub(super) fn get(self, position: usize) -> Edge {
        let Some(byte) = position.checked_sub(1) else { return self.header().terminal.load() };
        let found = match self.body() {
            Body::Node4(node) => node.find(byte as u8),
            Body::Node16(node) => node.find(byte as u8),
            Body::Node48(node) => node.find(byte as u8),
            Body::Node256(node) => return node.children[byte as u8 as usize].load(),
        };
        found.map_or(Edge::NULL, |(_, child)| child)
    }

    /// Replaces an existing edge. The caller must hold the lock.
    pub(super) fn replace(self, position: usize, edge: Edge) {
        let Some(byte) = position.checked_sub(1) else { return self.header().terminal.store(edge) };
        let found = match self.body() {
            Body::Node4(node) => node.find(byte as u8),
            Body::Node16(node) => node.find(byte as u8),
            Body::Node48(node) => node.find(byte as u8),
            Body::Node256(node) => return node.put(byte, edge),
        };
        found.expect("the caller saw an edge here under the lock").0.store(edge);
    }

    /// Adds an edge at a position that has none. The caller must hold the lock, and the node must have
    /// [room](Self::has_room).
    pub(super) fn add(self, position: usize, edge: Edge) {
        let Some(byte) = position.checked_sub(1) else { return self.header().terminal.store(edge) };
        match self.body() {
            Body::Node4(node) => node.add(byte as u8, edge),
            Body::Node16(node) => node.add(byte as u8, edge),
            Body::Node48(node) => {
                node.add(byte as u8, edge);
                bump(&node.count, 1);
            }
            Body::Node256(node) => {
                node.put(byte, edge);
                bump(&node.count, 1);
            }
        }
    }

    /// Removes an existing edge. The caller must hold the lock.
    pub(super) fn clear(self, position: usize) {
        match self.body() {
            Body::Node48(node) if position > 0 => {
                let place = node.index[position - 1].load(Ordering::Relaxed);
                node.index[position - 1].store(0, Ordering::Release);
                node.children[place as usize - 1].store(Edge::NULL);
                bump(&node.count, -1);
            }
            Body::Node256(node) if position > 0 => {
                node.put(position - 1, Edge::NULL);
                bump(&node.count, -1);
            }
            _ => self.replace(position, Edge::NULL),
        }
    }

    /// Returns the number of children, without the terminal. Without the lock it is only a hint.
    pub(super) fn children(self) -> usize {
        match self.body() {
            Body::Node4(node) => node.count(),
            Body::Node16(node) => node.count(),
            Body::Node48(node) => node.count.load(Ordering::Relaxed) as usize,
            Body::Node256(node) => node.count.load(Ordering::Relaxed) as usize,
        }
    }

    /// Returns the number of edges, including the terminal. Without the lock it is only a hint.
    pub(super) fn len(self) -> usize {
        self.children() + usize::from(!self.header().terminal.load().is_null())
    }

    /// Returns whether an edge can be added at `position`. Without the lock it is only a hint.
    pub(super) fn has_room(self, position: usize) -> bool {
        position == 0 || self.kind() == NodeKind::Node256 || self.children() < self.kind().capacity()
    }

    /// Calls `look` with the edges at or after `position`, ascending (if `DOWN`: before `position`, descending), until
    /// `look` breaks. Without the lock, the edges are meaningful only if the node's version did not change.
    #[inline]
    pub(super) fn visit<const DOWN: bool>(self, position: usize, mut look: impl FnMut(usize, Edge) -> ControlFlow<()>) {
        let terminal = self.header().terminal.load();
        let look_at_terminal = |look: &mut dyn FnMut(usize, Edge) -> ControlFlow<()>| {
            if terminal.is_null() { ControlFlow::Continue(()) } else { look(0, terminal) }
        };
        if !DOWN && position == 0 && look_at_terminal(&mut look).is_break() {
            return;
        }
        let mut broken = false;
        let mut look_on = |position, edge| {
            let flow = look(position, edge);
            broken = flow.is_break();
            flow
        };
        let (children, look_on) = (position.max(1), &mut look_on);
        match self.body() {
            Body::Node4(node) => node.visit::<DOWN>(children, look_on),
            Body::Node16(node) => node.visit::<DOWN>(children, look_on),
            Body::Node48(node) => {
                visit_bytes::<DOWN>(children, |word| node.occupied(word), |byte| node.entry(byte), look_on);
            }
            Body::Node256(node) => {
                let occupied = |word: usize| node.occupied[word].load(Ordering::Relaxed);
                visit_bytes::<DOWN>(children, occupied, |byte| node.children[byte].load(), look_on);
            }
        }
        if DOWN && position > 0 && !broken {
            let _ = look_at_terminal(&mut look);
        }
    }

    /// Returns all edges in position order. The caller holds the lock, or no thread writes.
    pub(super) fn entries(self) -> Vec<(usize, Edge)> {
        let mut entries = Vec::with_capacity(self.len());
        self.visit::<false>(0, |position, edge| {
            entries.push((position, edge));
            ControlFlow::Continue(())
        });
        entries
    }

    /// Returns a copy of the given kind and with the given stored prefix (the string is the same), without the edge at
    /// `except`. The caller must hold the lock. The copy belongs to the caller until the caller publishes its edge.
    pub(super) fn copy(self, kind: NodeKind, prefix: &[u8], except: Option<usize>) -> Node<'g> {
        let copy = Node::create(kind, self.level(), prefix);
        self.visit::<false>(0, |position, edge| {
            if Some(position) != except {
                copy.add(position, edge);
            }
            ControlFlow::Continue(())
        });
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts() {
        assert_eq!(size_of::<Node4>(), 64);
        assert_eq!(size_of::<Node16>(), 176);
        assert_eq!(size_of::<Indexed>(), 672);
        assert_eq!(size_of::<Direct>(), 2112);
        let inline = [
            core::mem::offset_of!(Node4, inline_prefix),
            core::mem::offset_of!(Node16, inline_prefix),
            core::mem::offset_of!(Indexed, inline_prefix),
            core::mem::offset_of!(Direct, inline_prefix),
        ];
        assert_eq!(inline, [INLINE_PREFIX_AT; 4]);
    }
}
