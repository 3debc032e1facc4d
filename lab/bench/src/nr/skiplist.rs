//! A sequential skip list (Pugh), optionally with ranks: the structure that the methods make concurrent.
//!
//! Nodes are elements of an array, identified by number. A node has its key, its value and its lowest links in one
//! cache line, as a node has that is allocated by itself. The higher links of the few towers that have them are in a
//! second array. A freed node is reused, with its links, for the next new node of the same height. Tower heights come
//! from the list's own random generator, which has the same seed in every replica. All memory is [`Plain`], so the
//! virtual machine (a simulator) is told of every access.

use core::cmp::Ordering;

use archipelago_platform::plain::Plain;
use archipelago_platform::touch_mut;

/// The number of the head, which has a link on every level and no key. In a link it stands for "no node".
const HEAD: u32 = 0;
/// The most levels: enough for 2^20 entries when every second node has a further level. The workloads have far fewer
/// entries.
const LEVELS: usize = 20;

/// A step to the next node on one level.
#[derive(Clone, Copy)]
struct Link {
    to: u32,
    /// With ranks: the distance in entries to the linked node (1 if it is the next entry; to the end if there is no
    /// linked node).
    width: u32,
}

/// How many of a tower's links are in its node, the lowest first: as many as fill a cache line beside a key and a value
/// of a word each, or a key of two. One node in 32 has more links.
const NEAR: usize = 5;

#[derive(Clone)]
#[repr(align(64))]
struct Node<K, V> {
    key: K,
    value: V,
    near: [Link; NEAR],
    /// The position of the link above the near ones.
    far: u32,
    height: u8,
}

/// What a search reads. It loads the arrays' addresses once.
struct Towers<'l, K, V> {
    nodes: &'l [Plain<Node<K, V>>],
    far: &'l [Plain<Link>],
}

impl<'l, K, V> Towers<'l, K, V> {
    #[inline]
    fn node(&self, node: u32) -> &'l Node<K, V> {
        &self.nodes[node as usize]
    }

    #[inline]
    fn link(&self, from: &Node<K, V>, level: usize) -> Link {
        match level.checked_sub(NEAR) {
            None => from.near[level],
            Some(above) => *self.far[from.far as usize + above],
        }
    }
}

/// An ordered map. `RANKS`: whether to keep the widths that [`rank`](Self::rank) needs, which make changes slower.
#[derive(Clone)]
pub struct SkipList<K, V, const RANKS: bool> {
    nodes: Plain<Vec<Plain<Node<K, V>>>>,
    /// The links above the nodes' own.
    far: Plain<Vec<Plain<Link>>>,
    /// The numbers of freed nodes, by height.
    free: [Plain<Vec<Plain<u32>>>; LEVELS + 1],
    size: Plain<Size>,
    random: Plain<u64>,
}

#[derive(Clone)]
struct Size {
    levels: usize,
    len: usize,
}

/// On every level, the last link before a key.
struct Path {
    /// The nodes to which the links belong.
    at: [u32; LEVELS],
    /// With ranks: the rank of each of these nodes plus one; 0 for the head.
    rank: [u32; LEVELS],
}

impl<K: Ord + Copy + Default, V: Copy + Default, const RANKS: bool> SkipList<K, V, RANKS> {
    /// Makes an empty list.
    pub fn new() -> Self {
        let mut list = Self {
            nodes: Plain::default(),
            far: Plain::default(),
            free: Default::default(),
            size: Plain::new(Size { levels: 1, len: 0 }),
            random: Plain::new(0x9E37_79B9_7F4A_7C15),
        };
        list.grow(K::default(), V::default(), LEVELS);
        list
    }

    /// Makes an empty list with room for at least `items` entries, so that the measurement does not include growth.
    pub fn with_room(items: usize) -> Self {
        let mut list = Self::new();
        list.nodes.reserve(2 * items);
        list.far.reserve(items / 4);
        list.free.iter_mut().for_each(|free| free.reserve(items));
        list
    }

    /// Returns a copy with the room of [`with_room`](Self::with_room). Every cache line of the copy is announced to the
    /// virtual machine, as if the list had been filled here, but in a fraction of the time.
    pub fn copy(&self, items: usize) -> Self {
        let mut copy = Self::with_room(items);
        copy.nodes.clear();
        copy.far.clear();
        extend(&mut copy.nodes, &self.nodes);
        extend(&mut copy.far, &self.far);
        *copy.size = self.size.clone().into_inner();
        *copy.random = self.random.into_inner();
        copy
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.size.len
    }

    #[inline]
    fn towers(&self) -> Towers<'_, K, V> {
        Towers { nodes: &self.nodes, far: &self.far }
    }

    #[inline]
    fn node(&self, node: u32) -> &Node<K, V> {
        &self.nodes[node as usize]
    }

    #[inline]
    fn link(&self, node: u32, level: usize) -> Link {
        self.towers().link(self.node(node), level)
    }

    #[inline]
    fn link_mut(&mut self, node: u32, level: usize) -> &mut Link {
        match level.checked_sub(NEAR) {
            None => &mut at_mut(&mut self.nodes, node as usize).near[level],
            Some(above) => {
                let at = self.node(node).far as usize + above;
                at_mut(&mut self.far, at)
            }
        }
    }

    /// Takes the key itself: the caller's may be in a log, in a line that other threads change.
    fn path(&self, key: K) -> Path {
        let mut path = Path { at: [HEAD; LEVELS], rank: [0; LEVELS] };
        let (towers, mut node, mut rank) = (self.towers(), HEAD, 0);
        let mut from = towers.node(node);
        for level in (0..self.size.levels).rev() {
            loop {
                let link = towers.link(from, level);
                if link.to == HEAD {
                    break;
                }
                let next = towers.node(link.to);
                if next.key >= key {
                    break;
                }
                (node, from) = (link.to, next);
                rank += link.width;
            }
            path.at[level] = node;
            path.rank[level] = rank;
        }
        path
    }

    /// Returns the node behind the path, if it has the key.
    fn found(&self, path: &Path, key: K) -> Option<u32> {
        let node = self.link(path.at[0], 0).to;
        (node != HEAD && self.node(node).key == key).then_some(node)
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &K) -> Option<V> {
        let towers = self.towers();
        let mut from = towers.node(HEAD);
        for level in (0..self.size.levels).rev() {
            loop {
                let to = towers.link(from, level).to;
                if to == HEAD {
                    break;
                }
                let next = towers.node(to);
                match next.key.cmp(key) {
                    Ordering::Less => from = next,
                    Ordering::Equal => return Some(next.value),
                    Ordering::Greater => break,
                }
            }
        }
        None
    }

    /// Returns how many keys are smaller than `key`, if `key` is present.
    pub fn rank(&self, key: &K) -> Option<usize> {
        const { assert!(RANKS) };
        let path = self.path(*key);
        self.found(&path, *key).map(|_| path.rank[0] as usize)
    }

    /// Returns the smallest key.
    pub fn first(&self) -> Option<K> {
        (self.size.len > 0).then(|| self.node(self.link(HEAD, 0).to).key)
    }

    /// Inserts the key, or replaces its value. Returns the old value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let mut path = self.path(key);
        if let Some(node) = self.found(&path, key) {
            return Some(std::mem::replace(&mut at_mut(&mut self.nodes, node as usize).value, value));
        }
        let height = self.draw_height();
        while self.size.levels < height {
            let Size { levels, len } = *self.size;
            path.at[levels] = HEAD;
            path.rank[levels] = 0;
            *self.link_mut(HEAD, levels) = Link { to: HEAD, width: len as u32 + 1 };
            self.size.levels += 1;
        }
        let node = self.allocate(key, value, height);
        let place = path.rank[0] + 1;
        for level in 0..height {
            let before = self.link_mut(path.at[level], level);
            let behind = *before;
            let step = place - path.rank[level];
            *before = Link { to: node, width: if RANKS { step } else { 1 } };
            *self.link_mut(node, level) =
                Link { to: behind.to, width: if RANKS { behind.width + 1 - step } else { 1 } };
        }
        if RANKS {
            (height..self.size.levels).for_each(|level| self.link_mut(path.at[level], level).width += 1);
        }
        self.size.len += 1;
        None
    }

    /// Removes the key. Returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let path = self.path(*key);
        let node = self.found(&path, *key)?;
        self.unlink(node, &path);
        Some(self.node(node).value)
    }

    /// Removes and returns the smallest key.
    pub fn pop_first(&mut self) -> Option<K> {
        let key = self.first()?;
        let node = self.link(HEAD, 0).to;
        self.unlink(node, &Path { at: [HEAD; LEVELS], rank: [0; LEVELS] });
        Some(key)
    }

    /// Removes the `count` smallest keys, or all keys if there are fewer, and passes each to `removed`, ascending. Each
    /// level of the head changes once.
    pub fn pop_firsts(&mut self, count: usize, mut removed: impl FnMut(K)) {
        const { assert!(!RANKS) };
        let (mut node, mut height, mut last) = (self.link(HEAD, 0).to, 0, None);
        for _ in 0..count.min(self.size.len) {
            let Node { key, height: its, .. } = *self.node(node);
            push(&mut self.free[its as usize], node);
            (height, last) = (height.max(its as usize), Some(key));
            removed(key);
            node = self.link(node, 0).to;
            self.size.len -= 1;
        }
        let Some(last) = last else { return };
        for level in 0..height {
            let mut to = self.link(HEAD, level).to;
            while to != HEAD && self.node(to).key <= last {
                to = self.link(to, level).to;
            }
            *self.link_mut(HEAD, level) = Link { to, width: 1 };
        }
    }

    fn unlink(&mut self, node: u32, path: &Path) {
        let height = self.node(node).height as usize;
        for level in 0..height {
            let gone = self.link(node, level);
            let before = self.link_mut(path.at[level], level);
            *before = Link { to: gone.to, width: if RANKS { before.width + gone.width - 1 } else { 1 } };
        }
        if RANKS {
            (height..self.size.levels).for_each(|level| self.link_mut(path.at[level], level).width -= 1);
        }
        push(&mut self.free[height], node);
        self.size.len -= 1;
    }

    fn draw_height(&mut self) -> usize {
        // xorshift64
        let random = &mut *self.random;
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        (1 + (*random >> 32).trailing_ones() as usize).min(LEVELS)
    }

    fn allocate(&mut self, key: K, value: V, height: usize) -> u32 {
        if let Some(node) = self.reused(height) {
            let old = at_mut(&mut self.nodes, node as usize);
            (old.key, old.value) = (key, value);
            return node;
        }
        self.grow(key, value, height)
    }

    /// Adds a node to the array. Returns its number.
    fn grow(&mut self, key: K, value: V, height: usize) -> u32 {
        let (far, unlinked) = (self.far.len() as u32, Link { to: HEAD, width: 1 });
        (NEAR..height).for_each(|_| push(&mut self.far, unlinked));
        push(&mut self.nodes, Node { key, value, near: [unlinked; NEAR], far, height: height as u8 });
        self.nodes.len() as u32 - 1
    }

    /// Returns a freed node of this height, if there is one.
    fn reused(&mut self, height: usize) -> Option<u32> {
        let node = **self.free[height].last()?;
        self.free[height].pop();
        Some(node)
    }
}

/// Returns an element for writing: the virtual machine sees a read of the vector and a write of the element.
#[inline]
fn at_mut<T>(vector: &mut Plain<Vec<Plain<T>>>, at: usize) -> &mut T {
    &mut vector.reach_mut()[at]
}

/// Appends an element: the virtual machine sees writes of the vector and of the element.
fn push<T>(vector: &mut Plain<Vec<Plain<T>>>, element: T) {
    vector.push(Plain::new(element));
    let _: Option<&mut T> = vector.reach_mut().last_mut().map(|element| &mut **element);
}

/// Appends copies of the elements of a vector that was made outside of the run. Reading that vector is not announced to
/// the virtual machine.
fn extend<T: Clone>(vector: &mut Plain<Vec<Plain<T>>>, elements: &Plain<Vec<Plain<T>>>) {
    let elements = elements.clone().into_inner();
    let vector = &mut **vector;
    touch_mut(vector.as_ptr().wrapping_add(vector.len()), size_of_val(&*elements));
    vector.extend(elements);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_a_btreemap_and_knows_ranks() {
        let mut rng = SmallRng::seed_from_u64(1);
        let (mut list, mut plain, mut model) =
            (SkipList::<u32, u32, true>::new(), SkipList::<u32, u32, false>::new(), BTreeMap::new());
        for round in 0..20_000 {
            let key = rng.random_range(0..300);
            let expected = match rng.random_range(0..5) {
                0 | 1 => {
                    assert_eq!(plain.insert(key, round), list.insert(key, round));
                    model.insert(key, round)
                }
                2 => {
                    assert_eq!(plain.remove(&key), model.get(&key).copied());
                    assert_eq!(list.remove(&key), model.get(&key).copied());
                    model.remove(&key)
                }
                3 => {
                    assert_eq!(plain.pop_first(), list.pop_first());
                    model.pop_first().map(|(_, value)| value)
                }
                _ => {
                    let rank = model.contains_key(&key).then(|| model.range(..key).count());
                    assert_eq!(list.rank(&key), rank);
                    model.get(&key).copied()
                }
            };
            let _ = expected;
            assert_eq!((list.get(&key), list.len()), (model.get(&key).copied(), model.len()));
            assert_eq!(plain.get(&key), list.get(&key));
            assert_eq!(list.first(), model.keys().next().copied());
        }
        assert!(list.nodes.len() < 700, "freed nodes are reused");
        assert!(!list.far.is_empty(), "some towers are higher than a node has links");
        assert_eq!(size_of::<Node<(u64, u64), ()>>(), 64);
        assert_eq!(size_of::<Node<u64, u64>>(), 64);
    }

    /// A copy equals a list that was filled in the same way: it has the same entries, the same room, and the same
    /// future tower heights.
    #[test]
    fn a_copy_goes_on_like_what_it_was_made_from() {
        let mut list = SkipList::<u32, u32, true>::with_room(500);
        (0..500).for_each(|n| _ = list.insert(n * 7919 % 1009, n));
        let mut copy = list.copy(500);
        assert!(copy.nodes.capacity() >= 1_000 && copy.far.capacity() >= 125);
        for key in 0..1009 {
            assert_eq!((copy.insert(key, 0), copy.rank(&key)), (list.insert(key, 0), list.rank(&key)));
        }
        assert_eq!(copy.far.len(), list.far.len());
    }
}
