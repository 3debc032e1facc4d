//! The binary search tree: internal, unbalanced.
//!
//! A removed node with two children is replaced by a new node with the key that follows its own (its *successor*), and
//! the successor is taken out below. Keys of nodes never change, so that RCU's readers can trust them; between the two
//! changes RCU waits for readers, as Citrus (Arbel and Attiya, 2014) does, because a reader on its way to the successor
//! has passed by the place where the new node is.
//!
//! Every update changes or retires all nodes that another update would have to change for the two to be wrong together:
//! a node is retired only with its children's and its parent's links as read.

use crate::list::the_same;
use crate::mechanism::{Conflict, Mechanism, Node, Session, Update, View};
use crate::{Set, SetSession, Visit};

/// A binary search tree; O(depth), which is O(log n) for keys in random order. See [the crate](crate).
pub struct Tree<M: Mechanism<2>> {
    mechanism: M,
    /// Its left link is the tree.
    root: M::Link,
}

const LEFT: usize = 0;
const RIGHT: usize = 1;

impl<M: Mechanism<2>> Tree<M> {
    /// An empty tree over `mechanism`.
    pub fn over(mechanism: M) -> Self {
        let mechanism = mechanism.for_scopes(1);
        Self { root: mechanism.root(), mechanism }
    }

    /// The mechanism.
    pub fn mechanism(&self) -> &M {
        &self.mechanism
    }
}

impl<M: Mechanism<2>> Default for Tree<M> {
    fn default() -> Self {
        Self::over(M::default())
    }
}

impl<M: Mechanism<2>> Set for Tree<M> {
    type Session<'s> = TreeSession<'s, M>;

    fn session(&self) -> TreeSession<'_, M> {
        TreeSession { session: self.mechanism.session(), root: self.root }
    }
}

impl<M: Mechanism<2>> Drop for Tree<M> {
    fn drop(&mut self) {
        let mut session = self.mechanism.session();
        let mut left = session.read(|view| links(view, self.root));
        left.push(self.root);
        for part in left.chunks(1_000) {
            // SAFETY: no other thread uses the tree, and none does after this.
            session.update(&[0], |tx| part.iter().try_for_each(|link| unsafe { tx.retire(*link) }));
        }
    }
}

/// All nodes below the root.
fn links<V: View<2>>(view: &V, root: V::Link) -> Vec<V::Link> {
    // SAFETY: a root, and links read in the caller's section.
    let mut found: Vec<V::Link> = unsafe { view.node(root) }.next.into_iter().flatten().collect();
    let mut at = 0;
    while let Some(link) = found.get(at) {
        // SAFETY: as above.
        found.extend(unsafe { view.node(*link) }.next.into_iter().flatten());
        at += 1;
    }
    found
}

/// A session on a [`Tree`].
pub struct TreeSession<'s, M: Mechanism<2>> {
    session: M::Session<'s>,
    root: M::Link,
}

impl<M: Mechanism<2>> SetSession for TreeSession<'_, M> {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> bool {
        self.session.update(&[0], |tx| insert(tx, self.root, key, value))
    }

    #[inline]
    fn remove(&mut self, key: u64) -> Option<u64> {
        self.session.update(&[0], |tx| remove(tx, self.root, key))
    }

    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        self.session.read(|view| get(view, self.root, key))
    }

    fn get_many(&mut self, keys: &[u64]) -> Vec<Option<u64>> {
        self.session.read_at_once(&[0], |view| keys.iter().map(|key| get(view, self.root, *key)).collect())
    }

    fn move_key(&mut self, from: u64, to: u64) -> bool {
        self.session.update(&[0], |tx| {
            let Some(value) = get(tx, self.root, from) else { return Ok(false) };
            Ok(insert(tx, self.root, to, value)? && the_same(remove(tx, self.root, from)?, value)?)
        })
    }

    fn range(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        self.session.read_at_once(&[0], |view| range(view, self.root, from, to))
    }

    fn linger(&mut self, visit: &Visit) {
        self.session.read(|_| visit.stay());
    }

    fn aborts(&self) -> u64 {
        self.session.aborts()
    }
}

/// Where a key is, or would be.
struct Place<L> {
    parent: L,
    side: usize,
    at: Option<L>,
}

#[inline]
fn find<V: View<2>>(view: &V, root: V::Link, key: u64) -> Place<V::Link> {
    let (mut parent, mut side) = (root, LEFT);
    // SAFETY: a root, and below, links read in the caller's section.
    let (_, mut next) = unsafe { view.step(root, LEFT) };
    while let Some(link) = next {
        // SAFETY: as above.
        let (here, further) = unsafe { view.toward(link, key) };
        if here == key {
            return Place { parent, side, at: Some(link) };
        }
        (parent, side, next) = (link, usize::from(key > here), further);
    }
    Place { parent, side, at: None }
}

#[inline]
fn get<V: View<2>>(view: &V, root: V::Link, key: u64) -> Option<u64> {
    let link = find(view, root, key).at?;
    // SAFETY: read in the caller's section.
    Some(unsafe { view.node(link) }.value)
}

#[inline]
fn insert<U: Update<2>>(tx: &mut U, root: U::Link, key: u64, value: u64) -> Result<bool, Conflict> {
    let place = find(tx, root, key);
    if place.at.is_some() {
        return Ok(false);
    }
    // SAFETY: linked at once, or the attempt fails; the parent was read in this update.
    unsafe {
        let new = tx.alloc(Node { key, value, next: [None; 2] });
        tx.set_next(place.parent, place.side, Some(new))?;
    }
    Ok(true)
}

#[inline]
fn remove<U: Update<2>>(tx: &mut U, root: U::Link, key: u64) -> Result<Option<u64>, Conflict> {
    let Place { parent, side, at: Some(link) } = find(tx, root, key) else { return Ok(None) };
    // SAFETY: both were read in this update; the change takes away the only link to the node.
    let node = unsafe { tx.node(link) };
    match node.next {
        [Some(left), Some(right)] if tx.changes_one_link() => replace_by_copies(tx, (parent, side), [left, right])?,
        [Some(left), Some(right)] => replace_by_successor(tx, (parent, side), [left, right])?,
        // SAFETY: as above.
        [only, None] | [None, only] => unsafe { tx.set_next(parent, side, only)? },
    }
    // SAFETY: as above.
    unsafe { tx.retire(link)? };
    Ok(Some(node.value))
}

/// Puts a new node with the successor's key where the parent's link is, above `children`.
fn replace_by_successor<U: Update<2>>(
    tx: &mut U,
    (parent, side): (U::Link, usize),
    [left, right]: [U::Link; 2],
) -> Result<(), Conflict> {
    let (mut above, mut successor) = (None, right);
    // SAFETY: links read in this update; the new node is linked at once, or the attempt fails; the last change to
    // link to the successor takes away the only link to it.
    unsafe {
        while let (_, Some(further)) = tx.step(successor, LEFT) {
            (above, successor) = (Some(successor), further);
        }
        let last = tx.node(successor);
        let below = if above.is_some() { Some(right) } else { last.next[RIGHT] };
        let new = tx.alloc(Node { key: last.key, value: last.value, next: [Some(left), below] });
        tx.set_next(parent, side, Some(new))?;
        if let Some(above) = above {
            tx.settle();
            tx.set_next(above, LEFT, last.next[RIGHT])?;
        }
        tx.retire(successor)
    }
}

/// As [`replace_by_successor`], by one change: the nodes on the way to the successor are replaced by copies.
fn replace_by_copies<U: Update<2>>(
    tx: &mut U,
    (parent, side): (U::Link, usize),
    [left, right]: [U::Link; 2],
) -> Result<(), Conflict> {
    let (mut path, mut successor) = (Vec::new(), right);
    // SAFETY: links read in this update; new nodes are linked by the last change, which takes away the only links to the
    // copied ones and the successor, or the attempt fails.
    unsafe {
        while let (_, Some(further)) = tx.step(successor, LEFT) {
            path.push(successor);
            successor = further;
        }
        let last = tx.node(successor);
        let mut below = last.next[RIGHT];
        for link in path.into_iter().rev() {
            let node = tx.node(link);
            below = Some(tx.alloc(Node { next: [below, node.next[RIGHT]], ..node }));
            tx.retire(link)?;
        }
        let new = tx.alloc(Node { key: last.key, value: last.value, next: [Some(left), below] });
        tx.set_next(parent, side, Some(new))?;
        tx.retire(successor)
    }
}

fn range<V: View<2>>(view: &V, root: V::Link, from: u64, to: u64) -> Vec<(u64, u64)> {
    let (mut found, mut path) = (Vec::new(), Vec::new());
    // SAFETY: a root, and links read in the caller's section.
    let (_, mut next) = unsafe { view.step(root, LEFT) };
    loop {
        while let Some(link) = next {
            // SAFETY: as above.
            let node = unsafe { view.node(link) };
            if node.key >= from {
                path.push(node);
                next = node.next[LEFT];
            } else {
                next = node.next[RIGHT];
            }
        }
        let Some(node) = path.pop().filter(|node| node.key < to) else { return found };
        found.push((node.key, node.value));
        next = node.next[RIGHT];
    }
}
