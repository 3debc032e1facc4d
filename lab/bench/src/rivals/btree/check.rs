//! Checks the invariants of a tree that no other thread uses.

use archipelago_platform::atomic::Ordering;

use super::BTreeOlc;
use super::keys::{Body, InPlace, TreeKey};
use super::node::{Node, pointer};

impl<K: TreeKey> BTreeOlc<K> {
    /// Checks the whole tree. Returns the number of nodes. No thread may change the tree meanwhile.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&mut self) -> usize {
        const { assert!(Self::SPARSE * 3 < Self::KEYS, "two sparse nodes fit into one with room to spare") };
        // SAFETY: the tree is exclusively borrowed, so its nodes stay.
        check_nodes(unsafe { &*pointer::<Node<K::InPlace>>(self.anchor.1.load(Ordering::Relaxed)) })
    }

    /// Returns whether any leaf is empty, unless it is the only leaf.
    #[cfg(test)]
    pub fn has_empty_leaves(&mut self) -> bool {
        let mut seen = Seen { leaves: Vec::new(), nodes: 0, last: None };
        // SAFETY: as above.
        let root = unsafe { &*pointer::<Node<K::InPlace>>(self.anchor.1.load(Ordering::Relaxed)) };
        walk(root, (None, None), root.level(), &mut seen);
        seen.leaves.iter().any(|leaf| leaf.count() == 0) && seen.leaves.len() > 1
    }
}

/// Checks all nodes below a root. Returns the number of nodes. No thread may change them meanwhile.
pub fn check_nodes<K: InPlace, B: Body>(root: &Node<K, B>) -> usize {
    let mut seen = Seen { leaves: Vec::new(), nodes: 0, last: None };
    walk(root, (None, None), root.level(), &mut seen);
    for (leaf, next) in seen.leaves.iter().zip(seen.leaves.iter().skip(1).map(|next| Some(*next)).chain([None])) {
        let linked = pointer::<Node<K, B>>(leaf.next());
        assert_eq!(
            linked.cast_const(),
            next.map_or(core::ptr::null(), core::ptr::from_ref),
            "leaves are linked in order"
        );
    }
    seen.nodes
}

struct Seen<'t, K: InPlace, B> {
    leaves: Vec<&'t Node<K, B>>,
    nodes: usize,
    /// The last key of the walk; the next key must be greater.
    last: Option<K>,
}

fn walk<'t, K: InPlace, B: Body>(
    node: &'t Node<K, B>,
    (least, bound): (Option<K>, Option<K>),
    level: u32,
    seen: &mut Seen<'t, K, B>,
) {
    assert!(node.lock.read().is_some(), "no node of a tree is locked or obsolete");
    assert!(
        node.level() == level && node.count() <= Node::<K, B>::KEYS,
        "levels fall by one, and nodes are not overfull"
    );
    seen.nodes += 1;
    if node.is_leaf() {
        for at in 0..node.count() {
            let key = node.key(at);
            assert!(seen.last.is_none_or(|last| last < key), "keys ascend");
            assert!(least.is_none_or(|least| least <= key), "no key is below its leaf's bound");
            assert!(bound.is_none_or(|bound| key < bound), "no key is at or above its leaf's bound");
            seen.last = Some(key);
        }
        seen.leaves.push(node);
        return;
    }
    for at in 0..=node.count() {
        let from = if at == 0 { least } else { Some(node.key(at - 1)) };
        let to = if at == node.count() { bound } else { Some(node.key(at)) };
        assert!(from.zip(to).is_none_or(|(from, to)| from < to), "separators ascend");
        // SAFETY: no thread changes the tree.
        walk(unsafe { &*pointer::<Node<K, B>>(node.value(at)) }, (from, to), level - 1, seen);
    }
}
