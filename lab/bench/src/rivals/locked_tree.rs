//! A B+tree under one reader-writer lock. Accesses to the tree's memory are announced to the virtual machine, except
//! the moves of a split. The tree is the simulated counterpart of `rwlock-btreemap`: the virtual machine cannot see
//! accesses inside the standard library's tree.
//!
//! Invariants: a leaf's entries and an inner node's separators ascend. An inner node has one more child than
//! separators. The keys in the subtree of child `n` are at least separator `n - 1` and less than separator `n`. A leaf
//! has at most [`FULL`] entries, and an inner node at most `FULL` separators. Emptied leaves stay.

use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::plain::Plain;
use archipelago_platform::sync::RwLock;
use archipelago_platform::touch_mut;

use crate::contender::BenchIndex;

/// The most entries of a leaf, and the most separators of an inner node: a size between that of the standard library's
/// tree and that of common B+trees.
const FULL: usize = 30;
const POISONED: &str = "no thread panics inside the lock";

type List<T> = Plain<Vec<Plain<T>>>;

enum Node {
    Leaf(List<(u64, u64)>),
    Inner { separators: List<u64>, children: List<Box<Node>> },
}

/// A B+tree behind an `RwLock`.
pub struct RwLocked(RwLock<Node>);

/// Makes a list that is never reallocated, so that its memory is allocated and charged once.
fn list<T>() -> List<T> {
    Plain::new(Vec::with_capacity(FULL + 2))
}

/// Inserts an item, and announces the items that move.
fn put<T>(list: &mut List<T>, at: usize, item: T) {
    let room = list.reach_mut();
    touch_mut(room.as_ptr().wrapping_add(at), (room.len() + 1 - at) * size_of::<T>());
    list.insert(at, Plain::new(item));
}

/// Removes the upper half of a list, and returns it.
fn upper<T>(lower: &mut List<T>, from: usize) -> List<T> {
    let mut upper = list();
    upper.extend(lower.drain(from..));
    upper
}

impl Node {
    /// Returns the position of the child to which `key` belongs.
    fn child(separators: &List<u64>, key: u64) -> usize {
        separators.partition_point(|separator| **separator <= key)
    }

    fn leaf(&self, key: u64) -> &List<(u64, u64)> {
        match self {
            Node::Leaf(entries) => entries,
            Node::Inner { separators, children } => children[Self::child(separators, key)].leaf(key),
        }
    }

    fn leaf_mut(&mut self, key: u64) -> &mut List<(u64, u64)> {
        match self {
            Node::Leaf(entries) => entries,
            Node::Inner { separators, children } => {
                let at = Self::child(separators, key);
                children.reach_mut()[at].reach_mut().leaf_mut(key)
            }
        }
    }

    fn find(entries: &List<(u64, u64)>, key: u64) -> Result<usize, usize> {
        entries.binary_search_by_key(&key, |entry| entry.0)
    }

    /// Inserts or replaces. Returns the value replaced; and if the node was split, its upper half, with the separator
    /// before that half.
    fn insert(&mut self, key: u64, value: u64) -> (Option<u64>, Option<(u64, Box<Node>)>) {
        match self {
            Node::Leaf(entries) => match Self::find(entries, key) {
                Ok(at) => (Some(std::mem::replace(&mut entries.reach_mut()[at].1, value)), None),
                Err(at) => {
                    put(entries, at, (key, value));
                    let split = (entries.len() > FULL).then(|| upper(entries, FULL / 2));
                    (None, split.map(|upper| (upper[0].0, Box::new(Node::Leaf(upper)))))
                }
            },
            Node::Inner { separators, children } => {
                let at = Self::child(separators, key);
                let (old, split) = children.reach_mut()[at].reach_mut().insert(key, value);
                let Some((least, node)) = split else { return (old, None) };
                put(separators, at, least);
                put(children, at + 1, node);
                let split = (separators.len() > FULL).then(|| {
                    let (keys, nodes) = (upper(separators, FULL / 2 + 1), upper(children, FULL / 2 + 1));
                    let least = *separators.pop().expect("half a node has separators");
                    (least, Box::new(Node::Inner { separators: keys, children: nodes }))
                });
                (old, split)
            }
        }
    }

    /// Visits up to `limit` entries from `from` on. Returns how many it visited.
    fn scan(&self, from: u64, limit: usize, visit: &mut impl FnMut(u64, &u64)) -> usize {
        match self {
            Node::Leaf(entries) => {
                let first = entries.partition_point(|entry| entry.0 < from);
                entries[first..].iter().take(limit).map(|entry| visit(entry.0, &entry.1)).count()
            }
            Node::Inner { separators, children } => {
                let mut seen = 0;
                for child in &children[Self::child(separators, from)..] {
                    if seen == limit {
                        break;
                    }
                    seen += child.scan(from, limit - seen, visit);
                }
                seen
            }
        }
    }
}

impl BenchIndex<u64> for RwLocked {
    fn empty() -> Self {
        RwLocked(RwLock::new(Node::Leaf(list())))
    }
}

impl OrderedIndex<u64, u64> for RwLocked {
    type Session<'a> = &'a Self;

    fn pin(&self) -> &Self {
        self
    }
}

impl OrderedSession<u64, u64> for &RwLocked {
    fn get(&self, key: &u64) -> Option<u64> {
        let tree = self.0.read().expect(POISONED);
        let entries = tree.leaf(*key);
        Node::find(entries, *key).ok().map(|at| entries[at].1)
    }

    fn insert(&self, key: &u64, value: u64) -> Option<u64> {
        let mut tree = self.0.write().expect(POISONED);
        let (old, split) = tree.insert(*key, value);
        if let Some((least, upper_half)) = split {
            let lower_half = std::mem::replace(&mut *tree, Node::Leaf(Plain::default()));
            let (mut separators, mut children) = (list(), list());
            put(&mut separators, 0, least);
            put(&mut children, 0, Box::new(lower_half));
            put(&mut children, 1, upper_half);
            *tree = Node::Inner { separators, children };
        }
        old
    }

    fn update(&self, key: &u64, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let mut tree = self.0.write().expect(POISONED);
        let entries = tree.leaf_mut(*key);
        let at = Node::find(entries, *key).ok()?;
        let entry = &mut *entries.reach_mut()[at];
        let value = f(&entry.1);
        Some(std::mem::replace(&mut entry.1, value))
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        let mut tree = self.0.write().expect(POISONED);
        let entries = tree.leaf_mut(*key);
        let at = Node::find(entries, *key).ok()?;
        let room = entries.reach_mut();
        touch_mut(&raw const room[at], (room.len() - at) * size_of::<(u64, u64)>());
        Some(entries.remove(at).1)
    }

    fn scan(&self, from: &u64, limit: usize, mut visit: impl FnMut(u64, &u64)) -> usize {
        self.0.read().expect(POISONED).scan(*from, limit, &mut visit)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn agrees_with_a_map() {
        let (tree, mut map) = (RwLocked::empty(), BTreeMap::new());
        let session = &tree;
        let mut number = 1_u64;
        for turn in 0..20_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = number >> 33 & 0x7FF;
            match number >> 60 {
                0..=8 => assert_eq!(session.insert(&key, turn), map.insert(key, turn)),
                9..=11 => assert_eq!(session.remove(&key), map.remove(&key)),
                12 => assert_eq!(
                    session.update(&key, |old| old + 1),
                    map.get_mut(&key).map(|it| std::mem::replace(it, *it + 1))
                ),
                13 => {
                    let mut seen = Vec::new();
                    assert_eq!(session.scan(&key, 100, |key, value| seen.push((key, *value))), seen.len());
                    assert!(map.range(key..).take(100).map(|(key, value)| (*key, *value)).eq(seen));
                }
                _ => assert_eq!(session.get(&key), map.get(&key).copied()),
            }
        }
        assert!(matches!(*tree.0.read().unwrap(), Node::Inner { .. }));
    }
}
