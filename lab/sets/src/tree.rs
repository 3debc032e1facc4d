//! The binary search tree: internal, unbalanced.
//!
//! A removed node with two children is replaced by a new node with the key that follows its own (its *successor*), and
//! the successor is taken out below. Keys of nodes never change, so that RCU's readers can trust them. A reader on its way to
//! the successor has passed by the place where the new node is, so it must find the successor where it was:
//!
//! - Where updates run side by side ([`Update::changes_one_link`]) the nodes on the way to the successor are replaced by copies, and
//!   one link swings. A reader is on the old way or on the new one. No update waits for readers.
//! - Over RCU with one lock the tree is as Citrus (Arbel and Attiya, 2014): the successor is unlinked after a wait for
//!   readers ([`Update::settle`]).
//! - Over MV-RLU and RLU all changes are seen at once.
//!
//! Every update changes or retires all nodes that another update would have to change for the two to be wrong together:
//! a node is retired only with its children's and its parent's links as read.
//!
//! # Why a null that is seen twice stands for the same keys, or more
//! With one link a removal retires each node below which a range of keys becomes narrower: these are the nodes on the way to
//! the successor, whose leftmost keys are now above the successor's instead of the removed one's. At all other links a removal leaves
//! the keys between the same bounds, or wider ones.
//!
//! # Why a range is ascending, and has every key that stays
//! A walk keeps the way by which it came, which updates change behind it. It leaves out each key that is not above the last one it
//! has: after a removal a node that is retired may lead to keys below its own, inserted since. Call a key *steady* that
//! is there from the walk's beginning to its end. The walk finds all steady keys:
//!
//! - *None is lost.* One change of a link adds one key, or takes one away, among what is reachable by that link, hence by any
//!   link; so a steady key that is reachable by a link which the walk has read stays so.
//! - *None is below an earlier one.* Every node that the walk meets was in the tree at some moment of the walk, since retired nodes'
//!   links do not change. At that moment the keys left of it were below its own, and the steady ones among them are the same still.
//! - *None is left out because a greater key came first.* Let the walk have gone left at a node, and `y` be steady, in that node or
//!   right of it. Every key that it meets before it is back is below `y`: those that were there when it went left are, and a key that
//!   is inserted below one of them becomes its neighbour in the tree's order, in which `y` stands the whole time.

use crate::list::the_same;
use crate::mechanism::{Change, Conflict, Mechanism, Node, Session, Update, View};
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
        // SAFETY: no other thread uses the tree, and none does after this.
        unsafe { retire_all(&mut self.mechanism.session(), 0, self.root) };
    }
}

/// Retires all nodes of a tree, its root too.
///
/// # Safety
/// No other thread uses it, and none does after this.
pub(crate) unsafe fn retire_all<S: Session<2>>(session: &mut S, scope: usize, root: S::Link) {
    let mut left = session.read(|view| links(view, root));
    left.push(root);
    for part in left.chunks(1_000) {
        // SAFETY: the caller's promise.
        session.update(&[scope], |tx| part.iter().try_for_each(|link| unsafe { tx.retire(*link, &tx.node(*link)) }));
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

impl<M: Mechanism<2>> TreeSession<'_, M> {
    /// The greatest key at or below `key`, and its value: one that was there at a moment of the call, and none below a key that is
    /// there all the time.
    #[inline]
    pub fn floor(&mut self, key: u64) -> Option<(u64, u64)> {
        self.session.read(|view| floor(view, self.root, key))
    }
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
pub(crate) fn get<V: View<2>>(view: &V, root: V::Link, key: u64) -> Option<u64> {
    let link = find(view, root, key).at?;
    // SAFETY: read in the caller's section.
    Some(unsafe { view.node(link) }.value)
}

/// A steady key at or below `key` is below the link that is read next, or not above what was found: by the module's text it is not
/// left of a node with a key at or below it, and not right of one with a key above.
#[inline]
fn floor<V: View<2>>(view: &V, root: V::Link, key: u64) -> Option<(u64, u64)> {
    let mut found: Option<(u64, V::Link)> = None;
    // SAFETY: a root, and links read in the caller's section.
    unsafe {
        let (_, mut next) = view.step(root, LEFT);
        while let Some(link) = next {
            let (here, further) = view.toward(link, key);
            if here <= key && found.is_none_or(|(best, _)| best < here) {
                found = Some((here, link));
            }
            next = if here == key { None } else { further };
        }
        found.map(|(key, link)| (key, view.node(link).value))
    }
}

#[inline]
pub(crate) fn insert<U: Update<2>>(tx: &mut U, root: U::Link, key: u64, value: u64) -> Result<bool, Conflict> {
    let place = find(tx, root, key);
    if place.at.is_some() {
        return Ok(false);
    }
    // SAFETY: linked at once, or the attempt fails; the parent was read in this update.
    unsafe {
        let to = Some(tx.alloc(Node { key, value, next: [None; 2] }));
        tx.set_next(place.parent, place.side, Change { from: None, to })?;
    }
    Ok(true)
}

#[inline]
pub(crate) fn remove<U: Update<2>>(tx: &mut U, root: U::Link, key: u64) -> Result<Option<u64>, Conflict> {
    let place = find(tx, root, key);
    let Some(link) = place.at else { return Ok(None) };
    // SAFETY: both were read in this update; the change takes away the only link to the node.
    unsafe {
        let node = tx.node(link);
        match node.next {
            [Some(left), Some(right)] if tx.changes_one_link() => replace_by_copies(tx, &place, [left, right])?,
            [Some(left), Some(right)] => replace_by_successor(tx, &place, [left, right])?,
            [to, None] | [None, to] => tx.set_next(place.parent, place.side, Change { from: place.at, to })?,
        }
        tx.retire(link, &node)?;
        Ok(Some(node.value))
    }
}

/// Gives a key its value. Returns the one it had. Readers that stand on the old node see what was below it then, and were there
/// before.
#[inline]
pub(crate) fn put<U: Update<2>>(tx: &mut U, root: U::Link, key: u64, value: u64) -> Result<Option<u64>, Conflict> {
    let place = find(tx, root, key);
    // SAFETY: both were read in this update; the new node is linked at once, in place of the only link to the old one, or the
    // attempt fails.
    unsafe {
        let old = place.at.map(|link| (link, tx.node(link)));
        let next = old.as_ref().map_or([None; 2], |(_, node)| node.next);
        let to = Some(tx.alloc(Node { key, value, next }));
        tx.set_next(place.parent, place.side, Change { from: place.at, to })?;
        let Some((link, node)) = old else { return Ok(None) };
        tx.retire(link, &node)?;
        Ok(Some(node.value))
    }
}

/// A link, and the node there as it was read.
type Seen<L> = (L, Node<L, 2>);

/// The nodes on the way by left links from `link` to the last one, and that one.
///
/// # Safety
/// As [`View::step`].
unsafe fn leftmost<V: View<2>>(view: &V, link: V::Link) -> (Vec<Seen<V::Link>>, Seen<V::Link>) {
    let (mut way, mut link) = (Vec::new(), link);
    loop {
        // SAFETY: the caller's promise, and below, links read in its section.
        let node = unsafe { view.node(link) };
        let Some(further) = node.next[LEFT] else { return (way, (link, node)) };
        way.push((link, node));
        link = further;
    }
}

/// Puts a new node with the successor's key where the node is, above `children`.
fn replace_by_successor<U: Update<2>>(
    tx: &mut U,
    place: &Place<U::Link>,
    [left, right]: [U::Link; 2],
) -> Result<(), Conflict> {
    // SAFETY: links read in this update; the new node is linked at once, or the attempt fails; the last change to
    // link to the successor takes away the only link to it.
    unsafe {
        let (way, (successor, last)) = leftmost(tx, right);
        let below = if way.is_empty() { last.next[RIGHT] } else { Some(right) };
        let to = Some(tx.alloc(Node { next: [Some(left), below], ..last }));
        tx.set_next(place.parent, place.side, Change { from: place.at, to })?;
        if let Some((above, _)) = way.last() {
            tx.settle();
            tx.set_next(*above, LEFT, Change { from: Some(successor), to: last.next[RIGHT] })?;
        }
        tx.retire(successor, &last)
    }
}

/// As [`replace_by_successor`], by one change: the nodes on the way to the successor are replaced by copies.
fn replace_by_copies<U: Update<2>>(
    tx: &mut U,
    place: &Place<U::Link>,
    [left, right]: [U::Link; 2],
) -> Result<(), Conflict> {
    // SAFETY: links read in this update; new nodes are linked by the last change, which takes away the only links to the
    // copied ones and the successor, or the attempt fails.
    unsafe {
        let (way, (successor, last)) = leftmost(tx, right);
        let mut below = last.next[RIGHT];
        for (link, node) in way.into_iter().rev() {
            below = Some(tx.alloc(Node { next: [below, node.next[RIGHT]], ..node }));
            tx.retire(link, &node)?;
        }
        let to = Some(tx.alloc(Node { next: [Some(left), below], ..last }));
        tx.set_next(place.parent, place.side, Change { from: place.at, to })?;
        tx.retire(successor, &last)
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
        if found.last().is_none_or(|(last, _)| *last < node.key) {
            found.push((node.key, node.value));
        }
        next = node.next[RIGHT];
    }
}
