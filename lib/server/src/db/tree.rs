//! An ordered sequence with ranks: a B+-tree whose inner nodes count the items below them.
//!
//! # Invariants
//! - All leaves have the same depth. Only the root may be empty.
//! - A child's `low` is at most the child's first item, and larger than the last item of the previous child.
//! - A child's `count` is the number of items below the child.

use core::slice;

use super::seen::{look, read, wrote};

/// The most items of a leaf, and the most children of an inner node.
const MOST: usize = 64;

/// A set of items in order.
#[derive(Clone, Debug)]
pub struct Tree<T> {
    root: Node<T>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Node<T> {
    Leaf(Vec<T>),
    Inner(Vec<Child<T>>),
}

#[derive(Clone, Debug)]
struct Child<T> {
    low: T,
    count: usize,
    node: Node<T>,
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self { root: Node::Leaf(Vec::new()), len: 0 }
    }
}

impl<T: Ord + Clone> Node<T> {
    fn insert(&mut self, item: T) -> (bool, Option<Child<T>>) {
        match self {
            Self::Leaf(items) => {
                let Err(at) = items.binary_search_by(|met| look(met).cmp(&item)) else { return (false, None) };
                // A full list moves to other memory before it grows.
                let moved = if items.len() == items.capacity() { 0 } else { at };
                items.insert(at, item);
                wrote(slice::from_ref(items));
                wrote(&items[moved..]);
                if items.len() <= MOST {
                    return (true, None);
                }
                // After insertions in ascending order, all leaves but the last are full.
                let middle = if at + 1 == items.len() { MOST } else { MOST / 2 };
                let upper = items.split_off(middle);
                read(items);
                items.shrink_to_fit();
                wrote(items);
                wrote(&upper);
                (true, Some(Child { low: upper[0].clone(), count: upper.len(), node: Self::Leaf(upper) }))
            }
            Self::Inner(children) => {
                let at = children.partition_point(|child| look(child).low <= item).saturating_sub(1);
                let child = &mut children[at];
                if item < child.low {
                    child.low = item.clone();
                }
                let (inserted, split) = child.node.insert(item);
                child.count += usize::from(inserted);
                wrote(slice::from_ref(child));
                let Some(new) = split else { return (inserted, None) };
                child.count -= new.count;
                children.insert(at + 1, new);
                wrote(&children[at + 1..]);
                if children.len() <= MOST {
                    return (inserted, None);
                }
                let middle = if at + 2 == children.len() { MOST } else { MOST / 2 };
                let upper = children.split_off(middle);
                let count = upper.iter().map(|child| child.count).sum();
                (inserted, Some(Child { low: upper[0].low.clone(), count, node: Self::Inner(upper) }))
            }
        }
    }

    fn remove(&mut self, item: &T) -> bool {
        match self {
            Self::Leaf(items) => {
                let Ok(at) = items.binary_search_by(|met| look(met).cmp(item)) else { return false };
                // Announced before, since the last item's place is read, too.
                wrote(&items[at..]);
                items.remove(at);
                true
            }
            Self::Inner(children) => {
                let at = children.partition_point(|child| look(child).low <= *item);
                let Some(at) = at.checked_sub(1) else { return false };
                if !children[at].node.remove(item) {
                    return false;
                }
                children[at].count -= 1;
                wrote(&children[at..=at]);
                if children[at].node.width() == 0 {
                    wrote(&children[at..]);
                    children.remove(at);
                } else if at > 0 && children[at - 1].node.width() + children[at].node.width() <= MOST / 2 {
                    wrote(&children[at..]);
                    let Child { count, node, .. } = children.remove(at);
                    children[at - 1].count += count;
                    children[at - 1].node.append(node);
                }
                true
            }
        }
    }

    fn append(&mut self, other: Self) {
        match (self, other) {
            (Self::Leaf(items), Self::Leaf(more)) => items.extend(more),
            (Self::Inner(children), Self::Inner(more)) => children.extend(more),
            _ => unreachable!("neighbours are of one depth"),
        }
    }

    fn width(&self) -> usize {
        match self {
            Self::Leaf(items) => items.len(),
            Self::Inner(children) => children.len(),
        }
    }

    fn visit<'t>(&'t self, mut skip: usize, left: &mut usize, each: &mut impl FnMut(&'t T)) {
        match self {
            Self::Leaf(items) => {
                let items = &items[skip..];
                let count = items.len().min(*left);
                items[..count].iter().for_each(|item| each(look(item)));
                *left -= count;
            }
            Self::Inner(children) => {
                for child in children {
                    if skip >= look(child).count {
                        skip -= child.count;
                        continue;
                    }
                    if *left == 0 {
                        return;
                    }
                    child.node.visit(core::mem::take(&mut skip), left, each);
                }
            }
        }
    }
}

impl<T: Ord + Clone> Tree<T> {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the tree has no items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Inserts an item. Returns whether the item is new. O(log n).
    pub fn insert(&mut self, item: T) -> bool {
        look(&*self);
        let (inserted, split) = self.root.insert(item);
        self.len += usize::from(inserted);
        wrote(slice::from_ref(&self.len));
        if let Some(new) = split {
            let old = core::mem::replace(&mut self.root, Node::Inner(Vec::new()));
            let low = match &old {
                Node::Leaf(items) => items[0].clone(),
                Node::Inner(children) => children[0].low.clone(),
            };
            self.root = Node::Inner(vec![Child { low, count: self.len - new.count, node: old }, new]);
        }
        inserted
    }

    /// Removes an item. Returns whether the item existed. O(log n).
    pub fn remove(&mut self, item: &T) -> bool {
        look(&*self);
        let removed = self.root.remove(item);
        self.len -= usize::from(removed);
        wrote(slice::from_ref(&self.len));
        while let Node::Inner(children) = &mut self.root
            && children.len() < 2
        {
            self.root = children.pop().map_or(Node::Leaf(Vec::new()), |child| child.node);
        }
        removed
    }

    /// Returns the number of items for which `before` returns `true`. If `before` is `true` for an item, it must be
    /// `true` for all smaller values, too, as in a slice's `partition_point`. O(log n).
    pub fn rank(&self, before: impl Fn(&T) -> bool) -> usize {
        let (mut node, mut rank) = (&self.root, 0);
        loop {
            match node {
                Node::Leaf(items) => return rank + items.partition_point(|item| before(look(item))),
                Node::Inner(children) => {
                    let at = children.partition_point(|child| before(&look(child).low)).saturating_sub(1);
                    rank += children[..at].iter().map(|child| look(child).count).sum::<usize>();
                    node = &children[at].node;
                }
            }
        }
    }

    /// Passes at most `count` items to `each`, in order, beginning with the item of rank `from`. O(log n + count).
    pub fn visit<'t>(&'t self, from: usize, mut count: usize, mut each: impl FnMut(&'t T)) {
        if from < self.len {
            self.root.visit(from, &mut count, &mut each);
        }
    }

    /// Returns the tree's approximate size in bytes, computed from the number of items. O(1).
    pub fn estimate(&self) -> usize {
        self.len * size_of::<T>() * 4 / 3
    }

    /// Returns how many bytes of memory the nodes take, without memory that items own elsewhere. O(number of nodes).
    pub fn bytes(&self) -> usize {
        fn of<T>(node: &Node<T>) -> usize {
            match node {
                Node::Leaf(items) => items.capacity() * size_of::<T>(),
                Node::Inner(children) => {
                    children.capacity() * size_of::<Child<T>>()
                        + children.iter().map(|child| of(&child.node)).sum::<usize>()
                }
            }
        }
        of(&self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Random;
    use std::collections::BTreeSet;

    #[test]
    fn is_a_set_with_ranks() {
        let (mut tree, mut model, mut random) = (Tree::default(), BTreeSet::new(), Random(5));
        for step in 0..120_000 {
            let item = random.below(20_000);
            if random.below(10) < if step % 40_000 < 20_000 { 8 } else { 2 } {
                assert_eq!(tree.insert(item), model.insert(item));
            } else {
                assert_eq!(tree.remove(&item), model.remove(&item));
            }
            assert_eq!(tree.len(), model.len());
            if step % 2_000 == 0 {
                assert_eq!(tree.rank(|other| *other < item), model.range(..item).count());
                let mut met = Vec::new();
                let from = random.below(tree.len() + 1);
                tree.visit(from, 100, |item| met.push(*item));
                assert!(met.iter().eq(model.iter().skip(from).take(100)));
            }
        }
        model.iter().for_each(|item| assert!(tree.remove(item)));
        assert!(tree.is_empty() && !tree.remove(&1));
    }
}
