//! Checks the invariants of a tree that no other thread uses.

use archipelago_platform::atomic::Ordering;

use super::keys::TreeKey;
use super::node::{FANOUT, Node, pointer};
use super::{BTreeOlc, SPARSE};

impl<K: TreeKey> BTreeOlc<K> {
    /// Checks the whole tree. Returns the number of nodes. No thread may change the tree meanwhile.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&mut self) -> usize {
        // SAFETY: the tree is exclusively borrowed, so its nodes stay.
        check_nodes(unsafe { &*pointer::<Node<K>>(self.anchor.1.load(Ordering::Relaxed)) })
    }

    /// Returns whether any leaf is empty, unless it is the only leaf.
    #[cfg(test)]
    pub fn has_empty_leaves(&mut self) -> bool {
        let mut seen = Seen { leaves: Vec::new(), nodes: 0, last: None };
        // SAFETY: as above.
        let root = unsafe { &*pointer::<Node<K>>(self.anchor.1.load(Ordering::Relaxed)) };
        walk(root, (None, None), root.level(), &mut seen);
        seen.leaves.iter().any(|leaf| leaf.count() == 0) && seen.leaves.len() > 1
    }
}

/// Checks all nodes below a root. Returns the number of nodes. No thread may change them meanwhile.
pub fn check_nodes<K: TreeKey, const KEYS: usize, const VALUES: usize>(root: &Node<K, KEYS, VALUES>) -> usize {
    let mut seen = Seen { leaves: Vec::new(), nodes: 0, last: None };
    walk(root, (None, None), root.level(), &mut seen);
    for (leaf, next) in seen.leaves.iter().zip(seen.leaves.iter().skip(1).map(|next| Some(*next)).chain([None])) {
        let linked = pointer::<Node<K, KEYS, VALUES>>(leaf.next());
        assert_eq!(
            linked.cast_const(),
            next.map_or(core::ptr::null(), core::ptr::from_ref),
            "leaves are linked in order"
        );
    }
    seen.nodes
}

struct Seen<'t, K, const KEYS: usize, const VALUES: usize> {
    leaves: Vec<&'t Node<K, KEYS, VALUES>>,
    nodes: usize,
    /// The last key of the walk; the next key must be greater.
    last: Option<K>,
}

fn walk<'t, K: TreeKey, const KEYS: usize, const VALUES: usize>(
    node: &'t Node<K, KEYS, VALUES>,
    (least, bound): (Option<u64>, Option<u64>),
    level: u32,
    seen: &mut Seen<'t, K, KEYS, VALUES>,
) {
    // SAFETY: no thread changes the tree.
    let own = |word: u64| K::from_shown(unsafe { K::show(word) });
    assert!(node.lock.read().is_some(), "no node of a tree is locked or obsolete");
    assert!(node.level() == level && node.count() <= KEYS, "levels fall by one, and nodes are not overfull");
    seen.nodes += 1;
    if node.is_leaf() {
        for at in 0..node.count() {
            let key = own(node.key(at));
            assert!(seen.last.as_ref().is_none_or(|last| *last < key), "keys ascend");
            assert!(least.is_none_or(|least| own(least) <= key), "no key is below its leaf's bound");
            assert!(bound.is_none_or(|bound| key < own(bound)), "no key is at or above its leaf's bound");
            seen.last = Some(key);
        }
        seen.leaves.push(node);
        return;
    }
    for at in 0..=node.count() {
        let from = if at == 0 { least } else { Some(node.key(at - 1)) };
        let to = if at == node.count() { bound } else { Some(node.key(at)) };
        assert!(from.zip(to).is_none_or(|(from, to)| own(from) < own(to)), "separators ascend");
        // SAFETY: no thread changes the tree.
        walk(unsafe { &*pointer::<Node<K, KEYS, VALUES>>(node.value(at)) }, (from, to), level - 1, seen);
    }
}

const _: () = assert!(SPARSE * 3 < FANOUT, "two sparse nodes fit into one with room to spare");
