//! An ordered list.
//!
//! An insertion changes a link of the new node's predecessor. A removal changes a link of the removed node's
//! predecessor and retires the node. The mechanism checks or locks every node that is changed or retired. So if two
//! updates must not both take effect, one of them fails, although nodes that are only read are not locked.

use crate::mechanism::{Change, Conflict, Mechanism, Node, Session, Update, View};
use crate::{Set, SetSession, Visit};

/// An ordered list, whose operations all take O(n). See [the crate](crate).
pub struct List<M: Mechanism<1>> {
    mechanism: M,
    root: M::Link,
}

impl<M: Mechanism<1>> List<M> {
    /// Makes an empty list over `mechanism`.
    pub fn over(mechanism: M) -> Self {
        let mechanism = mechanism.for_scopes(1);
        Self { root: mechanism.root(), mechanism }
    }

    /// Returns the mechanism.
    pub fn mechanism(&self) -> &M {
        &self.mechanism
    }
}

impl<M: Mechanism<1>> Default for List<M> {
    fn default() -> Self {
        Self::over(M::default())
    }
}

impl<M: Mechanism<1>> Set for List<M> {
    type Session<'s> = ListSession<'s, M>;

    fn session(&self) -> ListSession<'_, M> {
        ListSession { session: self.mechanism.session(), root: self.root }
    }
}

impl<M: Mechanism<1>> Drop for List<M> {
    fn drop(&mut self) {
        // SAFETY: no other thread uses the list.
        unsafe { retire_all(&mut self.mechanism.session(), 0, self.root) };
    }
}

/// A session on a [`List`].
pub struct ListSession<'s, M: Mechanism<1>> {
    session: M::Session<'s>,
    root: M::Link,
}

impl<M: Mechanism<1>> SetSession for ListSession<'_, M> {
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
        self.session.update(&[0], |tx| move_key(tx, self.root, from, self.root, to))
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
    before: L,
    /// The first node whose key is not below the key, with its own key.
    at: Option<(u64, L)>,
}

#[inline]
fn find<V: View<1>>(view: &V, root: V::Link, key: u64) -> Position<V::Link> {
    let mut before = root;
    // SAFETY: `root` is a root; the other links were read in the caller's section.
    let (_, mut next) = unsafe { view.step(root, 0) };
    while let Some(link) = next {
        // SAFETY: as above.
        let (here, following) = unsafe { view.step(link, 0) };
        if here >= key {
            return Position { before, at: Some((here, link)) };
        }
        before = link;
        next = following;
    }
    Position { before, at: None }
}

impl<L: Copy> Position<L> {
    #[inline]
    fn node_with(&self, key: u64) -> Option<L> {
        self.at.filter(|(here, _)| *here == key).map(|(_, link)| link)
    }
}

#[inline]
pub(crate) fn get<V: View<1>>(view: &V, root: V::Link, key: u64) -> Option<u64> {
    let link = find(view, root, key).node_with(key)?;
    // SAFETY: the link was read in the caller's section.
    Some(unsafe { view.node(link) }.value)
}

#[inline]
pub(crate) fn insert<U: Update<1>>(tx: &mut U, root: U::Link, key: u64, value: u64) -> Result<bool, Conflict> {
    let place = find(tx, root, key);
    if place.node_with(key).is_some() {
        return Ok(false);
    }
    let from = place.at.map(|(_, link)| link);
    // SAFETY: the node is linked at once, or the attempt fails; `before` was read in this update.
    unsafe {
        let to = Some(tx.alloc(Node { key, value, next: [from] }));
        tx.set_next(place.before, 0, Change { from, to })?;
        from.into_iter().for_each(|successor| tx.beside(successor));
    }
    Ok(true)
}

#[inline]
pub(crate) fn remove<U: Update<1>>(tx: &mut U, root: U::Link, key: u64) -> Result<Option<u64>, Conflict> {
    let place = find(tx, root, key);
    let Some(link) = place.node_with(key) else { return Ok(None) };
    // SAFETY: both links were read in this update. The first change removes the only link to the node.
    unsafe {
        let node = tx.node(link);
        tx.set_next(place.before, 0, Change { from: Some(link), to: node.next[0] })?;
        tx.retire(link, &node)?;
        node.next[0].into_iter().for_each(|successor| tx.beside(successor));
        Ok(Some(node.value))
    }
}

/// Moves an entry from one list to another, which may be the same list.
pub(crate) fn move_key<U: Update<1>>(
    tx: &mut U,
    from_root: U::Link,
    from: u64,
    to_root: U::Link,
    to: u64,
) -> Result<bool, Conflict> {
    let Some(value) = get(tx, from_root, from) else { return Ok(false) };
    Ok(insert(tx, to_root, to, value)? && the_same(remove(tx, from_root, from)?, value)?)
}

/// A move must remove the value that it has inserted elsewhere. If another update came between the two, the move begins
/// again.
pub(super) fn the_same(removed: Option<u64>, value: u64) -> Result<bool, Conflict> {
    if removed == Some(value) { Ok(true) } else { Err(Conflict) }
}

fn range<V: View<1>>(view: &V, root: V::Link, from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut next = find(view, root, from).at.map(|(_, link)| link);
    while let Some(link) = next {
        // SAFETY: the link was read in the caller's section.
        let node = unsafe { view.node(link) };
        if node.key >= to {
            break;
        }
        found.push((node.key, node.value));
        next = node.next[0];
    }
    found
}

/// Retires all nodes of a list, including its root, a thousand at a time.
///
/// # Safety
/// No other thread uses the list now or later.
pub(crate) unsafe fn retire_all<S: Session<1>>(session: &mut S, scope: usize, root: S::Link) {
    const PART: usize = 1_000;
    loop {
        let done = session.update(&[scope], |tx| {
            for _ in 0..PART {
                // SAFETY: `root` is a root, and the link was just read. Each first node is retired once it is unlinked.
                unsafe {
                    let (_, Some(first)) = tx.step(root, 0) else { return Ok(true) };
                    let node = tx.node(first);
                    tx.set_next(root, 0, Change { from: Some(first), to: node.next[0] })?;
                    tx.retire(first, &node)?;
                }
            }
            Ok(false)
        });
        if done {
            // SAFETY: the caller's promise.
            return session.update(&[scope], |tx| unsafe { tx.retire(root, &tx.node(root)) });
        }
    }
}
