//! A binary search tree: internal (keys are in all nodes) and unbalanced.
//!
//! A removed node with two children is replaced by a new node that has the next greater key (the key of the removed
//! node's *successor*), and the successor is unlinked further below. Keys of nodes never change, so that RCU's readers
//! can rely on them. A reader on its way to the successor may already have passed the position of the new node. So this
//! reader must still find the successor at its old position:
//!
//! - If updates run in parallel ([`Update::changes_one_link`]), the nodes on the way to the successor are replaced by
//!   copies, and one link is changed. A reader walks either the old nodes or the new ones. No update waits for readers.
//! - Over RCU with one lock the tree is that of Citrus (Arbel and Attiya, 2014): the successor is unlinked after a wait
//!   for readers ([`Update::settle`]).
//! - Over MV-RLU and RLU all changes become visible at once.
//!
//! If two updates must not both take effect, both change or retire a common node. A node is retired only if its links
//! and its parent's link are as the update read them.
//!
//! # Why a null link that was non-null in between can still be used
//! If updates change only one link that readers see, a removal retires each node below which a range of keys becomes
//! narrower. These nodes are those on the way to the successor: their leftmost keys must now be above the successor's
//! key instead of the removed key. At all other links, the keys below the link keep their bounds or have wider bounds
//! after a removal. So a null link that an insertion has found is still the position of its key, even if the link was
//! non-null in between.
//!
//! # Why a range is ascending, and has every key that stays
//! A walk remembers the path by which it came, while updates change the tree behind it. The walk skips each key that is
//! not above the last key it has found: after a removal, a retired node may lead to keys below its own key that were
//! inserted since. Call a key *steady* if it is present from the walk's beginning to its end. The walk finds all steady
//! keys:
//!
//! - *None becomes unreachable.* One change of a link adds or removes one key among those that are reachable by that
//!   link, and hence by any link. So a steady key that is reachable by a link which the walk has read stays reachable
//!   by it.
//! - *None is below an earlier one.* Every node that the walk reaches was in the tree at some moment of the walk, since
//!   retired nodes' links do not change. At that moment the keys to the left of the node were below its key, and the
//!   steady keys among them are still the same.
//! - *None is skipped because a greater key came first.* Suppose that the walk has gone left at a node, and that `y` is
//!   a steady key in this node or to its right. Every key that the walk finds before it returns to the node is below
//!   `y`. This holds for the keys that were present when the walk went left. A key that is inserted below one of these
//!   keys becomes its neighbour in the tree's order, and `y` is in this order the whole time.

use crate::list::the_same;
use crate::mechanism::{Change, Conflict, Mechanism, Node, Session, Update, View};
use crate::{Set, SetSession, Visit};

/// A binary search tree. Operations take O(depth), which is O(log n) for keys in random order. See [the crate](crate).
pub struct Tree<M: Mechanism<2>> {
    mechanism: M,
    /// A root without a key, whose left link is the tree.
    root: M::Link,
}

const LEFT: usize = 0;
const RIGHT: usize = 1;

impl<M: Mechanism<2>> Tree<M> {
    /// Makes an empty tree over `mechanism`.
    pub fn over(mechanism: M) -> Self {
        let mechanism = mechanism.for_scopes(1);
        Self { root: mechanism.root(), mechanism }
    }

    /// Returns the mechanism.
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
        // SAFETY: no other thread uses the tree now or later.
        unsafe { retire_all(&mut self.mechanism.session(), 0, self.root) };
    }
}

/// Retires all nodes of a tree, including its root.
///
/// # Safety
/// No other thread uses the tree now or later.
pub(crate) unsafe fn retire_all<S: Session<2>>(session: &mut S, scope: usize, root: S::Link) {
    let mut left = session.read(|view| links(view, root));
    left.push(root);
    for part in left.chunks(1_000) {
        // SAFETY: the caller's promise.
        session.update(&[scope], |tx| part.iter().try_for_each(|link| unsafe { tx.retire(*link, &tx.node(*link)) }));
    }
}

/// Returns all nodes below the root.
fn links<V: View<2>>(view: &V, root: V::Link) -> Vec<V::Link> {
    // SAFETY: `root` is a root; the other links were read in the caller's section.
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
    /// Returns the greatest key at or below `key`, with its value. The key was present at some moment of the call. It
    /// is not below a key that is present during the whole call.
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

/// A key's position, whether the key is present or not.
struct Position<L> {
    parent: L,
    side: usize,
    at: Option<L>,
}

#[inline]
fn find<V: View<2>>(view: &V, root: V::Link, key: u64) -> Position<V::Link> {
    let (mut parent, mut side) = (root, LEFT);
    // SAFETY: `root` is a root; the other links were read in the caller's section.
    let (_, mut next) = unsafe { view.step(root, LEFT) };
    while let Some(link) = next {
        // SAFETY: as above.
        let (here, further) = unsafe { view.toward(link, key) };
        if here == key {
            return Position { parent, side, at: Some(link) };
        }
        (parent, side, next) = (link, usize::from(key > here), further);
    }
    Position { parent, side, at: None }
}

#[inline]
pub(crate) fn get<V: View<2>>(view: &V, root: V::Link, key: u64) -> Option<u64> {
    let link = find(view, root, key).at?;
    // SAFETY: the link was read in the caller's section.
    Some(unsafe { view.node(link) }.value)
}

/// Finds the greatest key at or below `key`. Invariant: a steady key at or below `key` is below the link that is read
/// next, or is not above the key found so far. By the module's text, such a key is not to the left of a node whose key
/// is at or below it, and not to the right of a node whose key is above it.
#[inline]
fn floor<V: View<2>>(view: &V, root: V::Link, key: u64) -> Option<(u64, u64)> {
    let mut found: Option<(u64, V::Link)> = None;
    // SAFETY: `root` is a root; the other links were read in the caller's section.
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
    // SAFETY: the node is linked at once, or the attempt fails; the parent was read in this update.
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
    // SAFETY: both links were read in this update; the change removes the only link to the node.
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

/// Inserts a key or replaces its value. Returns the old value. Readers that are at the old node see the nodes that were
/// below it; these readers came before the change.
#[inline]
pub(crate) fn put<U: Update<2>>(tx: &mut U, root: U::Link, key: u64, value: u64) -> Result<Option<u64>, Conflict> {
    let place = find(tx, root, key);
    // SAFETY: both links were read in this update. The new node is linked at once, instead of the only link to the old
    // node; or the attempt fails.
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

/// A link, and the content of the node to which it leads, as it was read.
type Seen<L> = (L, Node<L, 2>);

/// Returns the nodes on the way along left links from `link` to the last node, and the last node.
///
/// # Safety
/// As [`View::step`].
unsafe fn leftmost<V: View<2>>(view: &V, link: V::Link) -> (Vec<Seen<V::Link>>, Seen<V::Link>) {
    let (mut way, mut link) = (Vec::new(), link);
    loop {
        // SAFETY: the caller's promise; the other links were read in the caller's section.
        let node = unsafe { view.node(link) };
        let Some(further) = node.next[LEFT] else { return (way, (link, node)) };
        way.push((link, node));
        link = further;
    }
}

/// Replaces the node at `place` by a new node with the successor's key. `left` and `right` are the replaced node's
/// children.
fn replace_by_successor<U: Update<2>>(
    tx: &mut U,
    place: &Position<U::Link>,
    [left, right]: [U::Link; 2],
) -> Result<(), Conflict> {
    // SAFETY: the links were read in this update. The new node is linked at once, or the attempt fails. The last change
    // of a link to the successor removes the only link to it.
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

/// Has the same effect as [`replace_by_successor`] by one change of a link: the nodes on the way to the successor are
/// replaced by copies.
fn replace_by_copies<U: Update<2>>(
    tx: &mut U,
    place: &Position<U::Link>,
    [left, right]: [U::Link; 2],
) -> Result<(), Conflict> {
    // SAFETY: the links were read in this update. The last change links the new nodes, and removes the only links to
    // the copied nodes and to the successor; or the attempt fails.
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
    // SAFETY: `root` is a root; the other links were read in the caller's section.
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
