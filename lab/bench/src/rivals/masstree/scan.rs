//! Scans: border node by border node, into the layers below and out again.
//!
//! A node's slots are copied and validated before any is shown, and nodes keep their lower bounds. So a scan shows all
//! entries that are present throughout, in order and once. The key is assembled from the slices of the layers above,
//! the slot's slice, and the slot's suffix.

use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;

use super::node::{LAYER, LONG, Node, Part, Retry, SLICE, WIDTH, pointer};
use super::{Met, border, bytes, until_done};

/// A slot's content.
#[derive(Clone, Copy)]
struct Entry {
    part: Part,
    kind: u64,
    value: u64,
    rest: u64,
}

/// A border node's content, in order.
struct Page {
    entries: [Entry; WIDTH],
    len: usize,
}

struct Scan<'g, F> {
    /// The slices of the layers above.
    key: Vec<u8>,
    /// How many entries are still wanted.
    wanted: usize,
    visit: F,
    _guard: &'g Guard<'g>,
}

/// Shows at most `limit` entries from the key `from` on. Returns how many it showed.
pub fn scan(root: &Node, from: &[u8], limit: usize, guard: &Guard<'_>, visit: impl FnMut(&[u8], &u64)) -> usize {
    let mut scan = Scan { key: Vec::with_capacity(64), wanted: limit, visit, _guard: guard };
    if limit > 0 {
        scan.layer(root, Some(from));
    }
    limit - scan.wanted
}

impl Page {
    fn new() -> Page {
        let nothing = Entry { part: Part { slice: 0, rank: 0 }, kind: 0, value: 0, rest: 0 };
        Page { entries: [nothing; WIDTH], len: 0 }
    }

    /// Copies a node's content from `start` on. Returns the next node's address.
    fn copy(&mut self, met: Met<'_>, start: Part) -> Result<u64, Retry> {
        let (node, order) = (met.node, met.node.order());
        let (Ok(from) | Err(from)) = node.find(order, start);
        self.len = order.count() - from;
        for (entry, slot) in self.entries.iter_mut().zip((from..order.count()).map(|at| order.slot(at))) {
            let (part, kind, value) = (node.part(slot), node.kind(slot), node.value(slot));
            *entry = Entry { part, kind, value, rest: if kind == LONG { node.rest(slot) } else { 0 } };
        }
        let next = node.next();
        met.validate()?;
        Ok(next)
    }

    /// Copies all entries of a node as [`copy`](Self::copy) does. The node's level cannot have changed, since only a
    /// layer's root changes its level and no node's `next` is a root.
    fn copy_next(&mut self, node: &Node) -> u64 {
        let backoff = Backoff::new();
        loop {
            if let Ok(next) = self.copy(Met::new(node), Part { slice: 0, rank: 0 }) {
                return next;
            }
            backoff.wait();
        }
    }
}

impl<F: FnMut(&[u8], &u64)> Scan<'_, F> {
    /// Shows the entries of a layer whose key suffixes are at or above `from`. Returns `false` if no more entries are
    /// wanted.
    fn layer(&mut self, layer: &Node, from: Option<&[u8]>) -> bool {
        let start = from.map_or(Part { slice: 0, rank: 0 }, Part::of);
        let mut page = Page::new();
        let mut next = until_done(|| page.copy(border(layer, start.slice)?, start));
        loop {
            for entry in &page.entries[..page.len] {
                // If a slot has the same slice as `from`, the comparison continues with what follows the slice.
                let behind = from.filter(|_| entry.part == start && start.rank == LONG).map(|from| &from[SLICE..]);
                if !self.entry(entry, behind) {
                    return false;
                }
            }
            if next == 0 {
                return true;
            }
            // SAFETY: it was a node's address, and nodes live as long as the tree.
            next = page.copy_next(unsafe { &*pointer(next) });
        }
    }

    fn entry(&mut self, entry: &Entry, behind: Option<&[u8]>) -> bool {
        let above = self.key.len();
        let len = entry.part.rank.min(SLICE as u64) as usize;
        self.key.extend_from_slice(&entry.part.slice.to_be_bytes()[..len]);
        let go_on = match entry.kind {
            // SAFETY: a layer's address; nodes live as long as the tree.
            LAYER => self.layer(unsafe { &*pointer(entry.value) }, behind),
            LONG => {
                // SAFETY: the block was in the node inside the guard, which keeps it.
                let rest = unsafe { bytes(entry.rest) };
                self.key.extend_from_slice(rest);
                behind.is_some_and(|behind| rest < behind) || self.show(entry.value)
            }
            _ => self.show(entry.value),
        };
        self.key.truncate(above);
        go_on
    }

    /// Shows the key with its value. Returns `false` if it was the last one wanted.
    fn show(&mut self, value: u64) -> bool {
        (self.visit)(&self.key, &value);
        self.wanted -= 1;
        self.wanted > 0
    }
}
