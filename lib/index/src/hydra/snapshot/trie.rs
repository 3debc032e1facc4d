//! The search layer of byte strings: a trie of runs over 7-byte slices.
//!
//! A node stands for all anchors that begin with the same path. It skips the bytes that these anchors share beyond the
//! path (a prefix of any length). Then it distinguishes them by the next seven bytes, the *slice*. A slice is packed
//! big-endian and zero-padded into the upper bytes of a word, whose lowest byte is `min(bytes left, 8)`. These words
//! have the same order as the strings: where the seven bytes are equal, a string that ends earlier has the smaller
//! count. So trailing zero bytes are not ambiguous. The count 8, *continues*, is the greatest. If two anchors have the
//! same word with a count below 8, they are equal strings. All anchors with the same continuing word are in one child.
//! The child is a *tail* if it has only one anchor, of which at most seven more bytes are left, and otherwise a node.
//!
//! Each word has a *slot*, which contains the anchor's page or the child's number. A search for the predecessor needs
//! one descent and no backtracking. During the descent the search remembers in `floor` the slot just before the path.
//! The greatest anchor of a subtree is found by following the last slot of each node.
//!
//! Masstree has such a trie with a B+-tree per node. Here a node is a [`Run`] in arrays that all nodes share, since
//! a snapshot never changes.

use core::cmp::Ordering;
use core::ops::Range;

use archipelago_platform::hint::prefetch_read;
use archipelago_platform::memory::Array;
use archipelago_platform::topology::NodeId;
use archipelago_platform::touch;

use super::runs::{Near, Run, Runs};
use super::words::{Count, Counter, Scalar, flip, unflip};
use super::{AnchorIndex, Target};
use crate::structure::Bytes;

/// The number of bytes that one node distinguishes.
pub const SLICE: usize = 7;

/// The lowest byte of a slice if its string continues behind the slice.
const CONTINUES: u8 = 8;

/// The bit in a child's number which marks a tail.
pub const TAIL: u32 = 1 << 31;

/// Packs the first bytes of the rest of a string.
#[inline(always)]
pub fn pack(rest: &[u8]) -> u64 {
    if let Some(eight) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*eight) & !0xff | u64::from(CONTINUES);
    }
    let len = rest.len();
    if let (Some(head), Some(tail)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        // The two parts overlap, and have equal bytes where they do.
        let (head, tail) = (u32::from_be_bytes(*head), u32::from_be_bytes(*tail));
        return u64::from(head) << 32 | u64::from(tail) << (64 - 8 * len) | len as u64;
    }
    let place = |index: usize| u64::from(rest[index]) << (56 - 8 * index);
    if len == 0 { 0 } else { place(0) | place(len / 2) | place(len - 1) | len as u64 }
}

/// Returns the bytes of a slice, which is passed in big-endian order.
fn unpack(slice: &[u8; 8]) -> &[u8] {
    &slice[..SLICE.min(usize::from(slice[SLICE]))]
}

/// Returns whether a slice leads to a child.
#[inline(always)]
pub fn continues(slice: u64) -> bool {
    slice as u8 == CONTINUES
}

/// A page, or the number of a child if the slice continues.
#[derive(Clone, Copy)]
pub union Slot<P: Copy> {
    pub page: P,
    pub child: u32,
}

/// The bytes that a node skips: their position in the shared text, and the first eight of them as a big-endian,
/// zero-padded word.
#[derive(Clone, Copy)]
pub struct Prefix {
    pub start: u32,
    pub len: u32,
    pub lead: u64,
}

/// A node of the trie, as the module's documentation describes it.
#[derive(Clone, Copy)]
pub struct Node {
    pub prefix: Prefix,
    pub run: Run,
}

/// The rest of an anchor that shares no further bytes with another anchor. It is at most [`SLICE`] bytes, packed. (If
/// more bytes are left, the anchor has a node of its own.)
#[derive(Clone, Copy)]
pub struct Tail<P> {
    pub rest: u64,
    pub page: P,
}

/// The trie that the module's documentation describes. The module `trie_build` builds it.
pub struct Trie<P: Target> {
    pub(super) runs: Runs,
    /// One slot per position of `runs`. It is a page if the word at this position does not continue. (Padding has no
    /// slots.)
    pub(super) slots: Array<Slot<P>>,
    /// The nodes; the root is the first one.
    pub(super) nodes: Array<Node>,
    pub(super) tails: Array<Tail<P>>,
    pub(super) text: Array<u8>,
    pub(super) head: Option<P>,
    pub(super) len: usize,
    counter: Counter,
}

/// The content of a slot, which depends on whether its word continues.
enum Entry<P> {
    Page(P),
    Child(u32),
}

impl<P: Target> Trie<P> {
    #[inline(always)]
    fn text(&self, prefix: Prefix) -> &[u8] {
        &self.text[prefix.start as usize..][..prefix.len as usize]
    }

    /// Returns `Equal` if a string begins with `prefix`. Otherwise returns whether the string is less or greater than
    /// all strings that begin with `prefix`.
    #[inline(always)]
    fn side(&self, rest: &[u8], prefix: Prefix) -> Ordering {
        if prefix.len == 0 {
            return Ordering::Equal;
        }
        if let (Some(eight), true) = (rest.first_chunk::<8>(), prefix.len <= 8) {
            let mask = u64::MAX << (64 - 8 * prefix.len);
            return (u64::from_be_bytes(*eight) & mask).cmp(&prefix.lead);
        }
        let prefix = self.text(prefix);
        touch(prefix.as_ptr(), prefix.len());
        if rest.starts_with(prefix) { Ordering::Equal } else { rest.cmp(prefix) }
    }

    #[inline(always)]
    fn entry(&self, position: usize) -> (u64, Entry<P>) {
        let (slice, slot) = (unflip(self.runs.word(position)), self.slots[position]);
        touch(&raw const self.slots[position], size_of::<u32>());
        // SAFETY: the builder writes a child's number where the slice continues, and a page where it does not.
        (slice, unsafe { if continues(slice) { Entry::Child(slot.child) } else { Entry::Page(slot.page) } })
    }

    /// Returns the page of the greatest anchor at or under the slot.
    fn last_of(&self, mut position: usize) -> P {
        loop {
            match self.entry(position).1 {
                Entry::Page(page) => return page,
                Entry::Child(child) => match self.child(child) {
                    At::Tail(tail) => return tail.page,
                    At::Node(node) => position = node.run.range().end - 1,
                    At::Found(page) => return page,
                },
            }
        }
    }

    #[inline(always)]
    fn child(&self, child: u32) -> At<'_, P> {
        if child & TAIL != 0 {
            let tail = &self.tails[(child & !TAIL) as usize];
            touch(tail, size_of::<Tail<P>>());
            At::Tail(tail)
        } else {
            let node = &self.nodes[child as usize];
            touch(node, size_of::<Node>());
            At::Node(node)
        }
    }

    fn head(&self) -> P {
        self.head.expect("a filled trie has a head page")
    }

    fn descent<'a>(&'a self, probe: &'a [u8]) -> Descent<'a, P> {
        match self.nodes.first() {
            Some(root) => {
                touch(root, size_of::<Node>());
                Descent::from(probe, At::Node(root))
            }
            None => Descent::from(probe, At::Found(self.head())),
        }
    }

    /// The first half of a step: finds the bounds of the search in the node's run.
    ///
    /// # Safety
    /// The processor must have the features that `C` needs.
    #[inline(always)]
    unsafe fn approach<'a, C: Count, const BELOW: bool, const AHEAD: bool>(&'a self, descent: &mut Descent<'a, P>) {
        let node = match descent.at {
            At::Node(node) => node,
            At::Tail(tail) if pack(descent.rest) >= tail.rest + u64::from(BELOW) => {
                return descent.at = At::Found(tail.page);
            }
            At::Tail(_) => {
                if AHEAD {
                    // The tail's own slot is the first one behind the probe.
                    descent.behind.last().0 -= 1;
                }
                return descent.at = At::Found(self.floor(descent));
            }
            At::Found(_) => return,
        };
        match self.side(descent.rest, node.prefix) {
            Ordering::Less => {
                if AHEAD {
                    descent.behind.push(node.run.range());
                }
                return descent.at = At::Found(self.floor(descent));
            }
            Ordering::Equal => descent.rest = &descent.rest[node.prefix.len as usize..],
            Ordering::Greater => return descent.at = At::Found(self.last_of(node.run.range().end - 1)),
        }
        descent.slice = pack(descent.rest);
        // SAFETY: the run is this trie's own, and the build has sealed the runs; the caller guarantees the features for
        // `C`.
        descent.near = unsafe { self.runs.approach::<C>(&node.run, flip(descent.slice)) };
        let before = (node.run.range().start + descent.near.low()).wrapping_sub(1);
        prefetch_read(self.slots.as_ptr().wrapping_add(before));
    }

    /// The second half of a step: finds the slot. If the slot has a child, the descent continues at the child.
    ///
    /// # Safety
    /// The processor must have the features that `C` needs.
    #[inline(always)]
    unsafe fn land<'a, C: Count, const BELOW: bool, const AHEAD: bool>(&'a self, descent: &mut Descent<'a, P>) {
        let At::Node(node) = descent.at else { return };
        // SAFETY: the run is this trie's own, and the build has sealed the runs; the caller guarantees the features for
        // `C`.
        let count = unsafe { self.runs.land::<C>(&node.run, descent.near, flip(descent.slice)) };
        if AHEAD {
            descent.behind.push(node.run.range().start + count..node.run.range().end);
        }
        if count == 0 {
            return descent.at = At::Found(self.floor(descent));
        }
        let position = node.run.range().start + count - 1;
        let (found, entry) = self.entry(position);
        descent.at = match entry {
            Entry::Page(_) if BELOW && found == descent.slice => {
                At::Found(if count > 1 { self.last_of(position - 1) } else { self.floor(descent) })
            }
            Entry::Page(page) => At::Found(page),
            Entry::Child(_) if found != descent.slice => At::Found(self.last_of(position)),
            Entry::Child(child) => {
                if count > 1 {
                    descent.floor = Some(position - 1);
                }
                descent.rest = &descent.rest[SLICE..];
                self.child(child)
            }
        };
    }

    /// Returns the page before the descent's path.
    fn floor(&self, descent: &Descent<'_, P>) -> P {
        descent.floor.map_or_else(|| self.head(), |position| self.last_of(position))
    }

    /// Ends at the page of the greatest anchor at or below the probe; if `BELOW`, below the probe.
    ///
    /// # Safety
    /// The processor must have the features that `C` needs.
    #[inline(always)]
    unsafe fn jump_with<'a, C: Count, const BELOW: bool, const AHEAD: bool>(
        &'a self,
        descent: &mut Descent<'a, P>,
    ) -> P {
        loop {
            // SAFETY: the caller guarantees the same contract.
            unsafe { self.approach::<C, BELOW, AHEAD>(descent) };
            if let At::Found(page) = descent.at {
                return page;
            }
            // SAFETY: the caller guarantees the same contract.
            unsafe { self.land::<C, BELOW, AHEAD>(descent) };
            if let At::Found(page) = descent.at {
                return page;
            }
        }
    }

    /// # Safety
    /// The processor must have AVX2 and the other features that [`Counter::detect`] checks.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    unsafe fn jump_avx2(&self, probe: &[u8]) -> P {
        // SAFETY: the caller guarantees the same contract.
        unsafe { self.jump_with::<super::words::Avx2, false, false>(&mut self.descent(probe)) }
    }

    /// # Safety
    /// The contract of [`Self::jump_avx2`] must hold.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    unsafe fn jump_ahead_avx2(&self, probe: &[u8]) -> (P, Behind) {
        let mut descent = self.descent(probe);
        // SAFETY: the caller guarantees the same contract.
        (unsafe { self.jump_with::<super::words::Avx2, false, true>(&mut descent) }, descent.behind)
    }

    /// Returns a cursor before the first anchor.
    pub(super) fn cursor(&self) -> Cursor<'_, P> {
        let mut cursor = Cursor { trie: self, open: Vec::new(), path: Vec::new() };
        if let Some(root) = self.nodes.first() {
            cursor.enter(root);
        }
        cursor
    }
}

/// The position of a look-up.
#[derive(Clone, Copy)]
enum At<'a, P> {
    Node(&'a Node),
    Tail(&'a Tail<P>),
    Found(P),
}

/// The slots behind a path, in the order of their anchors: for each node on the path, those that follow the path's
/// slot. If the path is deeper than [`DEPTH`], the slots of the outermost nodes are missing.
#[derive(Clone, Copy, Default)]
pub struct Behind {
    /// A ring, of which the entries before `top` are used: the positions of each node's slots.
    runs: [(u32, u32); DEPTH],
    top: usize,
    len: usize,
}

/// The number of nodes from which [`Behind`] has slots.
pub const DEPTH: usize = 8;

impl Behind {
    #[inline(always)]
    fn push(&mut self, run: Range<usize>) {
        self.runs[self.top % DEPTH] = (run.start as u32, run.end as u32);
        self.top += 1;
        self.len = DEPTH.min(self.len + 1);
    }

    #[inline(always)]
    fn last(&mut self) -> &mut (u32, u32) {
        &mut self.runs[self.top.wrapping_sub(1) % DEPTH]
    }

    /// Removes the first slot.
    #[inline(always)]
    fn pop(&mut self) -> Option<usize> {
        while self.len > 0 {
            let (start, end) = self.last();
            if start < end {
                *start += 1;
                return Some(*start as usize - 1);
            }
            self.top -= 1;
            self.len -= 1;
        }
        None
    }
}

/// A look-up in progress.
struct Descent<'a, P> {
    at: At<'a, P>,
    /// The rest of the probe.
    rest: &'a [u8],
    /// The packed first bytes of `rest`, between the halves of a step.
    slice: u64,
    /// The bounds of the slice's position in the node's run, between the halves of a step.
    near: Near,
    /// The slot just before the path, if there is one.
    floor: Option<usize>,
    /// The slots behind the path. They are found only if the descent is `AHEAD`.
    behind: Behind,
}

impl<'a, P> Descent<'a, P> {
    fn from(probe: &'a [u8], at: At<'a, P>) -> Self {
        Self { at, rest: probe, slice: 0, near: Near::default(), floor: None, behind: Behind::default() }
    }
}

impl<P: Target> AnchorIndex<Bytes, P> for Trie<P> {
    type Behind = Behind;

    type Entries<'a>
        = Cursor<'a, P>
    where
        P: 'a;

    fn node(&self) -> Option<NodeId> {
        self.slots.node()
    }

    fn empty(node: Option<NodeId>) -> Self {
        Self {
            runs: Runs::on(node),
            slots: Array::on(node),
            nodes: Array::on(node),
            tails: Array::on(node),
            text: Array::on(node),
            head: None,
            len: 0,
            counter: Counter::detect(),
        }
    }

    fn fill(&mut self, head: P, anchors: &[(&[u8], P)]) {
        self.build(head, anchors.len(), |index| anchors[index]);
    }

    fn fill_merged<'a>(&mut self, old: &Self, inserts: &[(&'a [u8], P)], removes: &[(&'a [u8], P)]) {
        self.build_merged(old, inserts, removes);
    }

    #[inline(never)]
    fn jump(&self, probe: &[u8]) -> P {
        match self.counter {
            // SAFETY: the scalar counter needs no processor feature.
            Counter::Scalar => unsafe { self.jump_with::<Scalar, false, false>(&mut self.descent(probe)) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: AVX2 was detected.
            Counter::Avx2 => unsafe { self.jump_avx2(probe) },
        }
    }

    fn jump_below(&self, bound: Option<&[u8]>) -> P {
        match (bound, self.nodes.first()) {
            // SAFETY: the scalar counter needs no processor feature.
            (Some(bound), _) => unsafe { self.jump_with::<Scalar, true, false>(&mut self.descent(bound)) },
            (None, Some(root)) => self.last_of(root.run.range().end - 1),
            (None, None) => self.head(),
        }
    }

    #[inline(never)]
    fn jump_ahead(&self, probe: &[u8]) -> (P, Behind) {
        match self.counter {
            Counter::Scalar => {
                let mut descent = self.descent(probe);
                // SAFETY: the scalar counter needs no processor feature.
                (unsafe { self.jump_with::<Scalar, false, true>(&mut descent) }, descent.behind)
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: AVX2 was detected.
            Counter::Avx2 => unsafe { self.jump_ahead_avx2(probe) },
        }
    }

    fn follower(&self, behind: &mut Behind) -> Option<P> {
        loop {
            match self.entry(behind.pop()?).1 {
                Entry::Page(page) => return Some(page),
                Entry::Child(child) => match self.child(child) {
                    At::Tail(tail) => return Some(tail.page),
                    At::Node(node) => behind.push(node.run.range()),
                    At::Found(page) => return Some(page),
                },
            }
        }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> usize {
        self.runs.bytes() + self.slots.bytes() + self.nodes.bytes() + self.tails.bytes() + self.text.bytes()
    }

    fn entries(&self) -> Cursor<'_, P> {
        self.cursor()
    }
}

/// A walk in order, which rebuilds each anchor: the trie contains all bytes of the anchors.
pub struct Cursor<'a, P: Target> {
    trie: &'a Trie<P>,
    /// For each node on the path: the next position, the end, and the length of the part of `path` that leads to the
    /// node's slices.
    open: Vec<(usize, usize, usize)>,
    path: Vec<u8>,
}

impl<'a, P: Target> Cursor<'a, P> {
    fn enter(&mut self, node: &Node) {
        self.path.extend_from_slice(self.trie.text(node.prefix));
        let run = node.run.range();
        self.open.push((run.start, run.end, self.path.len()));
    }

    /// Returns the anchor of the page that was returned last.
    pub fn anchor(&self) -> &[u8] {
        &self.path
    }
}

impl<P: Target> Iterator for Cursor<'_, P> {
    type Item = P;

    fn next(&mut self) -> Option<P> {
        loop {
            let (position, end, depth) = self.open.last_mut()?;
            if position == end {
                self.open.pop();
                continue;
            }
            let (slice, entry) = self.trie.entry(*position);
            *position += 1;
            self.path.truncate(*depth);
            self.path.extend_from_slice(unpack(&slice.to_be_bytes()));
            match entry {
                Entry::Page(page) => return Some(page),
                Entry::Child(child) => match self.trie.child(child) {
                    At::Node(node) => self.enter(node),
                    At::Tail(tail) => {
                        self.path.extend_from_slice(unpack(&tail.rest.to_be_bytes()));
                        return Some(tail.page);
                    }
                    At::Found(page) => return Some(page),
                },
            }
        }
    }
}
