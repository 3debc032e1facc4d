//! Checks the invariants of a tree that no other thread uses.

use super::Masstree;
use super::bytes;
use super::node::{LAYER, LONG, Node, Part, SLICE, WIDTH, pointer};

/// What a walk over a layer has found so far.
#[derive(Default)]
struct Seen<'t> {
    nodes: usize,
    keys: usize,
    borders: Vec<&'t Node>,
    last: Option<Part>,
}

impl<K> Masstree<K> {
    /// Checks the whole tree. Returns the numbers of nodes and of keys. No thread may change the tree meanwhile.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&mut self) -> (usize, usize) {
        layer(&self.root)
    }
}

fn child<'t>(word: u64) -> &'t Node {
    // SAFETY: the word is a node's address; no thread changes the tree, which lives longer.
    unsafe { &*pointer(word) }
}

/// Checks a layer and the layers below it. Returns the numbers of nodes and of keys.
pub fn layer(root: &Node) -> (usize, usize) {
    let mut seen = Seen::default();
    walk(root, (0, None), root.level(), &mut seen);
    let behind = seen.borders.iter().skip(1).map(|next| core::ptr::from_ref(*next)).chain([core::ptr::null()]);
    for (border, next) in seen.borders.iter().zip(behind) {
        assert_eq!(pointer(border.next()).cast_const(), next, "border nodes are linked in order");
    }
    (seen.nodes, seen.keys)
}

fn walk<'t>(node: &'t Node, (least, bound): (u64, Option<u64>), level: u32, seen: &mut Seen<'t>) {
    assert!(node.version.read().is_some() && node.writer.read().is_some(), "no node is locked, or leaves the tree");
    assert!(node.level() == level && node.count() <= WIDTH, "levels fall by one, and nodes are not overfull");
    seen.nodes += 1;
    if level == 0 {
        return border(node, (least, bound), seen);
    }
    let count = node.count();
    assert!(count > 0, "an inner node has two children at least");
    for at in 0..=count {
        let from = if at == 0 { least } else { node.slice(at - 1) };
        let to = if at == count { bound } else { Some(node.slice(at)) };
        assert!(to.is_none_or(|to| from < to), "separators ascend");
        walk(child(node.value(at)), (from, to), level - 1, seen);
    }
}

fn border<'t>(node: &'t Node, (least, bound): (u64, Option<u64>), seen: &mut Seen<'t>) {
    let order = node.order();
    seen.borders.push(node);
    for slot in (0..order.count()).map(|at| order.slot(at)) {
        let (part, kind) = (node.part(slot), node.kind(slot));
        assert!(seen.last.is_none_or(|last| last < part), "slots ascend, and a slice has one that goes on");
        assert!(least <= part.slice && bound.is_none_or(|bound| part.slice < bound), "slices lie within the bounds");
        let behind = u64::MAX.checked_shr(8 * kind as u32).unwrap_or(0);
        assert!(kind <= LAYER && (kind >= SLICE as u64 || part.slice & behind == 0), "short slices end with zeros");
        seen.last = Some(part);
        if kind == LAYER {
            let (nodes, keys) = layer(child(node.value(slot)));
            seen.nodes += nodes;
            seen.keys += keys;
        } else {
            // SAFETY: the block is in the tree.
            assert!(kind != LONG || !unsafe { bytes(node.rest(slot)) }.is_empty(), "a long key goes on");
            seen.keys += 1;
        }
    }
}
