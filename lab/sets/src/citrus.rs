//! The Citrus tree of Arbel and Attiya (2014): readers use RCU, and writers run in parallel with one lock per node. The
//! tree is a baseline for comparison. None of its operations is atomic over several keys.
//!
//! A writer searches without locks, then tries to lock the nodes that it changes; if a lock is held, it begins anew.
//! Under the locks it checks that the nodes are not removed and that the link is unchanged. A removed node with two
//! children is replaced by a new node with the key of its successor (the node with the next greater key). If the
//! successor is a child of the removed node, the same change unlinks both. Otherwise the successor is unlinked after a
//! wait for readers.
//!
//! # Why a null link needs no count
//! An insertion finds the null link at which its key belongs, and links its node there later. In between the link may
//! become non-null and then null again, and another range of keys may belong at it. In the paper, a null link carries a
//! count of how often it became null, because a writer leaves its read section before it locks. So in the paper's tree,
//! the link may meanwhile have led to the successor of a removed node. If so, only greater keys belong at the link: the
//! keys below the successor belong to the left of the new node.
//!
//! In this implementation an insertion stays in the RCU guard of its search until it has linked its node. Three cases
//! show that no count is needed. A successor that is not a child of the removed node is unlinked only after a wait for
//! that guard. A successor that is a child of the removed node is itself removed together with its link, which the
//! insertion notices. Any other removal only widens the range of keys that belong to a null link.
//!
//! # Which readers a removal waits for
//! With plain RCU ([`AllReaders`], [`AllSections`]) it waits for all. With predicate RCU ([`ReadersOfKeys`],
//! [`CountedReaders`]; Arbel and Morrison, 2015) it waits for the operations whose key is above the removed key and not
//! above the successor's. Two kinds of operations need the wait. A search for the successor's key, which has passed the
//! position of the new node, must still find the successor. And an insertion that has found the link to be null, to
//! which the successor was linked meanwhile, must end before the link is null again, unless its key belongs there
//! afterwards, too. A key above the successor's does. A key that is not above the removed one is impossible: it would
//! have been below the lower bound of the link's keys, which only removals raise, each after such a wait for the keys
//! that it excludes. The walk of another removal to its own successor needs no wait: this removal checks what it found
//! under locks, and a node that is not removed stays on the way on which it was found. Ranges and readers that linger
//! have all keys.
//!
//! Memory is freed by RCU in all cases, since a predicate does not tell which nodes a reader may reach. So an operation
//! enters two sections, except with [`AllReaders`].

use core::ops::RangeInclusive;
use core::{cmp, ptr};

use archipelago_platform::atomic::{AtomicBool, AtomicPtr, Ordering};
use archipelago_platform::hint;
use archipelago_platform::plain::Plain;
use archipelago_platform::sync::{Mutex, MutexGuard};

use crate::counted_sections::{CountedSection, CountedSections};
use crate::sections::{Place, Section, Sections};
use crate::{Set, SetSession, Visit, points};
use archipelago_platform::watch::Watch;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::{Domain, Guard, Reader};

const LEFT: usize = 0;
const RIGHT: usize = 1;

struct Node {
    key: Plain<u64>,
    value: Plain<u64>,
    children: [AtomicPtr<Node>; 2],
    /// Set under the node's lock.
    removed: AtomicBool,
    lock: Mutex<()>,
    /// Checks accesses to key and value in tests.
    watch: Watch,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.watch.write();
    }
}

impl Node {
    fn boxed(key: u64, value: u64, children: [*mut Node; 2]) -> *mut Node {
        let (children, removed, watch) = (children.map(AtomicPtr::new), AtomicBool::new(false), Watch::new());
        let (key, value) = (Plain::new(key), Plain::new(value));
        watch.write();
        Box::into_raw(Box::new(Node { key, value, children, removed, lock: Mutex::new(()), watch }))
    }

    /// Tries to lock without waiting: the holder of the lock may wait for the caller's guard.
    fn lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.lock.try_lock().ok()
    }

    /// Returns a child. Acquire: pairs with the Release of `set`.
    #[inline]
    fn child(&self, side: usize) -> *mut Node {
        self.children[side].load(Ordering::Acquire)
    }

    /// Sets a child. The caller holds the node's lock.
    fn set(&self, side: usize, child: *mut Node) {
        self.children[side].store(child, Ordering::Release);
    }

    fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }
}

/// A binary search tree with a lock per node, whose removals wait for all readers.
pub type CitrusTree = Citrus<AllReaders>;

/// A [`CitrusTree`] whose removals wait with a counter for each session, as in the program that the MV-RLU paper
/// measures as RCU's tree.
///
/// It has at most 1,024 sessions at a time; more panic.
pub type SynchronousCitrusTree = Citrus<AllSections>;

/// A binary search tree with a lock per node, whose removals wait only for operations on the keys that they move:
/// Citrus with predicate RCU.
///
/// It has at most 1,024 sessions at a time; more panic.
pub type PredicateCitrusTree = Citrus<ReadersOfKeys>;

/// A [`PredicateCitrusTree`] whose operations are counted by their keys, as in the program that the MV-RLU paper
/// measures (D-PRCU). It has any number of sessions.
pub type CountedCitrusTree = Citrus<CountedReaders>;

/// The way in which a removal waits for readers. The trait is sealed.
pub trait Waiting: Default + Send + Sync + 'static {
    /// A session's part of it.
    #[doc(hidden)]
    type Place<'w>;
    /// A section.
    #[doc(hidden)]
    type Section<'p>;

    #[doc(hidden)]
    fn place(&self) -> Self::Place<'_>;

    /// Enters a section with this key, or with all keys. The session has no other section.
    #[doc(hidden)]
    fn enter<'p>(place: &'p Self::Place<'_>, key: Option<u64>) -> Self::Section<'p>;

    /// Waits for the sections that are open and have one of `keys`. The caller has none open, and no guard of the
    /// domain.
    #[doc(hidden)]
    fn wait(&self, domain: &Domain, keys: &RangeInclusive<u64>);
}

/// A removal waits for all readers.
#[derive(Default)]
pub struct AllReaders;

/// The sections are the guards of the tree's domain.
impl Waiting for AllReaders {
    type Place<'w> = ();
    type Section<'p> = ();

    fn place(&self) {}

    #[inline]
    fn enter((): &(), _: Option<u64>) {}

    fn wait(&self, domain: &Domain, _: &RangeInclusive<u64>) {
        domain.synchronize();
    }
}

/// A removal waits for readers that have a counter for each session: if `BY_KEYS`, only for the readers of some keys.
#[derive(Default)]
pub struct OpenSections<const BY_KEYS: bool>(Sections);

/// A removal waits for all readers, which have a counter for each session.
pub type AllSections = OpenSections<false>;

/// A removal waits for the readers of some keys.
pub type ReadersOfKeys = OpenSections<true>;

/// Without `BY_KEYS`, each section has all keys. So every wait is for all sections.
impl<const BY_KEYS: bool> Waiting for OpenSections<BY_KEYS> {
    type Place<'w> = Place<'w>;
    type Section<'p> = Section<'p>;

    fn place(&self) -> Place<'_> {
        self.0.place()
    }

    #[inline]
    fn enter<'p>(place: &'p Place<'_>, key: Option<u64>) -> Section<'p> {
        key.filter(|_| BY_KEYS).map_or_else(|| place.enter(), |key| place.enter_for(key))
    }

    fn wait(&self, _: &Domain, keys: &RangeInclusive<u64>) {
        self.0.wait_for(keys);
    }
}

/// A removal waits for the readers of some keys, which are counted by key.
#[derive(Default)]
pub struct CountedReaders(CountedSections);

impl Waiting for CountedReaders {
    type Place<'w> = &'w CountedSections;
    type Section<'p> = CountedSection<'p>;

    fn place(&self) -> &CountedSections {
        &self.0
    }

    #[inline]
    fn enter<'p>(place: &'p Self::Place<'_>, key: Option<u64>) -> CountedSection<'p> {
        place.enter(key)
    }

    fn wait(&self, _: &Domain, keys: &RangeInclusive<u64>) {
        self.0.wait_for(keys);
    }
}

/// A binary search tree with a lock per node. See [`CitrusTree`], [`SynchronousCitrusTree`], [`PredicateCitrusTree`]
/// and [`CountedCitrusTree`].
pub struct Citrus<W: Waiting> {
    domain: Domain,
    waiting: W,
    /// A node without a key, whose left child is the tree.
    root: Box<Node>,
}

impl<W: Waiting> Default for Citrus<W> {
    fn default() -> Self {
        // SAFETY: the node was just made.
        let root = unsafe { Box::from_raw(Node::boxed(0, 0, [ptr::null_mut(); 2])) };
        Self { domain: Domain::new(), waiting: W::default(), root }
    }
}

impl<W: Waiting> Set for Citrus<W> {
    type Session<'s> = CitrusSession<'s, W>;

    fn session(&self) -> CitrusSession<'_, W> {
        CitrusSession { tree: self, reader: self.domain.reader(), place: self.waiting.place() }
    }
}

impl<W: Waiting> Drop for Citrus<W> {
    fn drop(&mut self) {
        let mut left = vec![self.root.child(LEFT)];
        while let Some(node) = left.pop() {
            if !node.is_null() {
                // SAFETY: linked nodes are boxes that are not retired; no other thread uses the tree.
                let node = unsafe { Box::from_raw(node) };
                left.extend([node.child(LEFT), node.child(RIGHT)]);
            }
        }
    }
}

/// A session on a [`Citrus`].
pub struct CitrusSession<'s, W: Waiting> {
    tree: &'s Citrus<W>,
    reader: Reader<'s>,
    place: W::Place<'s>,
}

/// An operation's guard and section.
struct Inside<'o, W: Waiting> {
    _guard: Guard<'o>,
    _section: W::Section<'o>,
}

/// The result of a search. The references are valid in the guard of the search. After the guard they are valid while
/// the node is locked and not removed, since only the holder of a node's lock removes the node.
struct Position<'n> {
    parent: &'n Node,
    side: usize,
    at: Option<&'n Node>,
}

impl Position<'_> {
    /// Returns whether the link is as the search saw it. The caller holds the parent's lock.
    fn holds(&self) -> bool {
        let seen = self.at.map_or(ptr::null(), ptr::from_ref);
        ptr::eq(self.parent.child(self.side), seen) && !self.parent.is_removed()
    }
}

/// The nodes that a removal has unlinked: one node, or the node and its successor.
type Out = [*mut Node; 2];

impl<W: Waiting> CitrusSession<'_, W> {
    /// Begins an operation on this key, or on all keys.
    #[inline]
    fn enter(&self, key: Option<u64>) -> Inside<'_, W> {
        Inside { _guard: self.reader.enter(), _section: W::enter(&self.place, key) }
    }

    /// Searches a key.
    ///
    /// # Safety
    /// The caller is in a guard, and uses the result as [`Position`] permits.
    #[inline]
    unsafe fn find<'n>(&self, key: u64) -> Position<'n> {
        // SAFETY: the root lives as long as the tree, which outlives every operation.
        let (mut parent, mut side) = (unsafe { &*ptr::from_ref::<Node>(&self.tree.root) }, LEFT);
        loop {
            // SAFETY: the node was reached in the guard.
            match unsafe { parent.child(side).as_ref() }.inspect(|node| node.watch.read()) {
                Some(node) => match key.cmp(&node.key) {
                    cmp::Ordering::Equal => return Position { parent, side, at: Some(node) },
                    less => (parent, side) = (node, if less.is_lt() { LEFT } else { RIGHT }),
                },
                None => return Position { parent, side, at: None },
            }
        }
    }

    /// Attempts to remove a key once. Returns `None` to try again; otherwise the value, if the key was present, and the
    /// unlinked nodes.
    fn try_remove(&self, key: u64) -> Option<Option<(u64, Out)>> {
        let inside = self.enter(Some(key));
        // SAFETY: the caller is in the guard; below, nodes are locked and checked before it ends.
        let place = unsafe { self.find(key) };
        let Some(node) = place.at else { return Some(None) };
        let (_parent, _node) = (place.parent.lock()?, node.lock()?);
        if !place.holds() || node.is_removed() {
            return None;
        }
        // Uses the pointer as it was linked: a pointer derived from the reference could not be freed.
        let removed = place.parent.child(place.side);
        let out = match [node.child(LEFT), node.child(RIGHT)] {
            [left, right] if !left.is_null() && !right.is_null() => self.replace(&place, node, inside)?,
            [left, right] => {
                node.removed.store(true, Ordering::Relaxed);
                place.parent.set(place.side, if left.is_null() { right } else { left });
                ptr::null_mut()
            }
        };
        Some(Some((*node.value, [removed, out])))
    }

    /// Puts a new node with the successor's key in the place of a locked node with two children. Returns the successor,
    /// or `None` to try again.
    fn replace(&self, place: &Position<'_>, node: &Node, inside: Inside<'_, W>) -> Option<*mut Node> {
        // SAFETY: inside the guard; the child is not null, by the caller. Nodes that are locked below outlive the
        // guard.
        let (mut above, mut last) = (node, unsafe { &*node.child(RIGHT) });
        // SAFETY: inside the guard.
        while let Some(further) = unsafe { last.child(LEFT).as_ref() } {
            (above, last) = (last, further);
        }
        let is_child = ptr::eq(above, node);
        let _above = if is_child { None } else { Some(above.lock()?) };
        let _last = last.lock()?;
        let side = if is_child { RIGHT } else { LEFT };
        let holds = !above.is_removed() && ptr::eq(above.child(side), last) && last.child(LEFT).is_null();
        if !holds || last.is_removed() {
            return None;
        }
        let successor = above.child(side);
        let right = if is_child { last.child(RIGHT) } else { node.child(RIGHT) };
        let new = Node::boxed(*last.key, *last.value, [node.child(LEFT), right]);
        // SAFETY: the node was just made. No thread can remove it before the successor is unlinked, since this thread
        // holds its lock until then. Otherwise two nodes with one key could be removed.
        let _new = unsafe { &*new }.lock();
        node.removed.store(true, Ordering::Relaxed);
        place.parent.set(place.side, new);
        drop(inside);
        if !is_child {
            // Waits for readers on their way to the successor, which have already passed the position of the new node.
            // The successor's key is greater than the removed one, so the sum does not overflow.
            self.tree.waiting.wait(&self.tree.domain, &(*node.key + 1..=*last.key));
            above.set(LEFT, last.child(RIGHT));
        }
        last.removed.store(true, Ordering::Relaxed);
        Some(successor)
    }
}

impl<W: Waiting> SetSession for CitrusSession<'_, W> {
    fn insert(&mut self, key: u64, value: u64) -> bool {
        let backoff = Backoff::new();
        loop {
            let inside = self.enter(Some(key));
            // SAFETY: inside the guard.
            let place = unsafe { self.find(key) };
            if place.at.is_some() {
                return false;
            }
            hint::point(points::FOUND);
            // Still inside the guard of the search: see the module's text.
            if let Some(_parent) = place.parent.lock().filter(|_| place.holds()) {
                place.parent.set(place.side, Node::boxed(key, value, [ptr::null_mut(); 2]));
                return true;
            }
            drop(inside);
            backoff.wait();
        }
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        self.reader.give_way();
        let backoff = Backoff::new();
        loop {
            if let Some(removal) = self.try_remove(key) {
                let (value, out) = removal?;
                let guard = self.reader.enter();
                for node in out.into_iter().filter(|node| !node.is_null()) {
                    // SAFETY: the node is out of the tree, by this thread alone, and unlocked.
                    unsafe { guard.retire_box(node) };
                }
                return Some(value);
            }
            backoff.wait();
        }
    }

    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        let _inside = self.enter(Some(key));
        // SAFETY: inside the guard.
        unsafe { self.find(key) }.at.map(|node| *node.value)
    }

    fn linger(&mut self, visit: &Visit) {
        let _inside = self.enter(None);
        visit.stay();
    }

    /// The entries are read at different moments.
    fn range(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let _inside = self.enter(None);
        let (mut found, mut path, mut next) = (Vec::new(), Vec::<&Node>::new(), self.tree.root.child(LEFT));
        loop {
            // SAFETY: the node was reached in the guard.
            while let Some(node) = unsafe { next.as_ref() } {
                if *node.key >= from {
                    path.push(node);
                    next = node.child(LEFT);
                } else {
                    next = node.child(RIGHT);
                }
            }
            let Some(node) = path.pop().filter(|node| *node.key < to) else { return found };
            // During a removal, the successor is in the tree twice.
            if found.last().is_none_or(|(last, _)| *last < *node.key) {
                found.push((*node.key, *node.value));
            }
            next = node.child(RIGHT);
        }
    }
}
