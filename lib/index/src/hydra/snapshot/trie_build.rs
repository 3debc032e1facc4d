//! Building a trie from sorted strings, breadth first, and merging changes into a trie.
//!
//! Nodes are numbered in the order in which their parents are built. So a queue of ranges of anchors is the only state,
//! and no recursion is needed, whatever the strings are. The upper nodes, which every look-up reads, are adjacent in
//! memory.

use super::Target;
use super::merge::Merge;
use super::runs::Runs;
use super::trie::{Node, Prefix, SLICE, Slot, TAIL, Tail, Trie, continues, pack};
use super::words::flip;
use crate::structure::Bytes;
use archipelago_platform::memory::Array;

/// A node that has a number but no contents yet. Its anchors are `first..end`, which share their first `depth` bytes.
#[derive(Clone, Copy)]
struct Pending {
    first: usize,
    end: usize,
    depth: usize,
}

impl<P: Target> Trie<P> {
    /// Fills an empty trie with `len` anchors, which must be ascending and distinct.
    ///
    /// # Panics
    /// If there are 2^31 anchors or more, or 4 GiB of text or more after common prefixes are shared.
    pub(super) fn build<'a>(&mut self, head: P, len: usize, anchor: impl Fn(usize) -> (&'a [u8], P)) {
        assert!(len < TAIL as usize, "a snapshot holds fewer than 2^31 anchors");
        (self.head, self.len) = (Some(head), len);
        let mut queue = Array::default();
        let mut groups = Vec::new();
        if len > 0 {
            queue.push(Pending { first: 0, end: len, depth: 0 });
        }
        while self.nodes.len() < queue.len() {
            let Pending { first, end, depth } = queue[self.nodes.len()];
            let (least, greatest) = (&anchor(first).0[depth..], &anchor(end - 1).0[depth..]);
            let common = least.iter().zip(greatest).take_while(|(a, b)| a == b).count();
            let prefix = self.add_prefix(&least[..common]);
            let depth = depth + common;
            group(first..end, |index| pack(&anchor(index).0[depth..]), &mut groups);
            self.add_run(&groups, end, depth + SLICE, prefix, &anchor, &mut queue);
        }
        self.runs.seal();
    }

    /// Reserves room for a little more than `like` contains.
    fn succeed(&mut self, like: &Self) {
        self.runs = Runs::successor_of(&like.runs);
        self.slots = Array::successor_of(&like.slots);
        self.nodes = Array::successor_of(&like.nodes);
        self.tails = Array::successor_of(&like.tails);
        self.text = Array::successor_of(&like.text);
    }

    /// Adds the node whose slices are `groups` (each with the index of its first anchor), and its tails, and adds its
    /// child nodes to the queue.
    fn add_run<'a>(
        &mut self,
        groups: &[(u64, usize)],
        end: usize,
        depth: usize,
        prefix: Prefix,
        anchor: &impl Fn(usize) -> (&'a [u8], P),
        queue: &mut Array<Pending>,
    ) {
        let start = self.runs.start(groups.len());
        self.slots.extend_with(Slot { child: 0 }, start - self.slots.len());
        for (index, &(slice, first)) in groups.iter().enumerate() {
            let end = groups.get(index + 1).map_or(end, |&(_, next)| next);
            self.runs.push(flip(slice));
            let slot = if !continues(slice) {
                Slot { page: anchor(first).1 }
            } else if end - first == 1 && anchor(first).0.len() <= depth + SLICE {
                let (bytes, page) = anchor(first);
                self.tails.push(Tail { rest: pack(&bytes[depth..]), page });
                Slot { child: (self.tails.len() - 1) as u32 | TAIL }
            } else {
                queue.push(Pending { first, end, depth });
                Slot { child: (queue.len() - 1) as u32 }
            };
            self.slots.push(slot);
        }
        let run = self.runs.finish(start);
        self.nodes.push(Node { prefix, run });
    }

    fn add_prefix(&mut self, bytes: &[u8]) -> Prefix {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        assert!(u32::try_from(self.text.len()).is_ok(), "a snapshot holds less than 4 GiB of text");
        let mut lead = [0; 8];
        let short = bytes.len().min(8);
        lead[..short].copy_from_slice(&bytes[..short]);
        Prefix { start: start as u32, len: bytes.len() as u32, lead: u64::from_be_bytes(lead) }
    }

    /// Fills an empty trie with the contents of `old` and the changes. The old anchors are rebuilt in a buffer that is
    /// dropped afterwards.
    pub(super) fn build_merged<'a>(&mut self, old: &Self, inserts: &[(&'a [u8], P)], removes: &[(&'a [u8], P)]) {
        let mut bytes = Array::with_capacity(old.text.len() + SLICE * 2 * (old.len + inserts.len()), None);
        let mut entries = Array::with_capacity(old.len + inserts.len(), None);
        let mut emit = |anchor: &[u8], page: P| {
            bytes.extend_from_slice(anchor);
            entries.push((bytes.len(), page));
        };
        let mut merge = Merge::<Bytes, P>::new(inserts, removes);
        let mut cursor = old.cursor();
        while let Some(page) = cursor.next() {
            merge.old(cursor.anchor(), page, &mut emit);
        }
        merge.finish(emit);
        self.succeed(old);
        let head = old.head.expect("a filled trie has a head page");
        self.build(head, entries.len(), |index| {
            let start = if index == 0 { 0 } else { entries[index - 1].0 };
            (&bytes[start..entries[index].0], entries[index].1)
        });
    }
}

/// Divides a range of anchors by their slices. Returns each distinct slice with the index of its first anchor.
fn group(range: core::ops::Range<usize>, slice: impl Fn(usize) -> u64, groups: &mut Vec<(u64, usize)>) {
    groups.clear();
    for index in range {
        let slice = slice(index);
        if groups.last().is_none_or(|&(last, _)| last != slice) {
            groups.push((slice, index));
        }
    }
}
