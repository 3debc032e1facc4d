//! A lock-free skip list after Fraser (2003), as in Herlihy and Shavit's book, with reclamation by epochs (RCU guards).
//! The list is a baseline for comparison. None of its operations is atomic over several keys.
//!
//! A value is replaced by one atomic operation. It must not be replaced in a node that has just been removed. So a
//! remover first takes the value and stores [`GONE`] instead; at this moment the key is removed. The marks follow. The
//! remover sets them, and so does a thread that is about to insert or remove the same key and finds the value taken.
//!
//! Every level is a list as in [`HarrisList`](crate::HarrisList): a link's low bit marks the link's *owner* (the node
//! that contains the link) as removed on this level. A key is in the map from the moment when its node is linked on
//! level 0 to the moment when the node's value is taken. Links above level 0 are shortcuts. The thread that inserted
//! the node sets them after level 0, and a thread that marks the node marks them before level 0. If `find` meets a
//! marked node on the way to a key, it unlinks the node on that level. Searches that only read pass marked nodes.
//!
//! # When a node may be retired
//! The book leaves reclamation to a garbage collector. A node is unlinked for good when three conditions hold: all its
//! levels are marked (the remover is done); no level will be linked any more (the inserter is done); and a search after
//! both has unlinked the node wherever it was. So remover and inserter each record in one word of the node when they
//! are done. The second of them makes that search and retires the node.
//!
//! That search must be *thorough*: on each level it continues behind the first node that is not below the key, through
//! all nodes with the same key. The reason is that a newer node of the key may be in front of an older one. This
//! happens if the newer node's inserter found the older node on an upper level just before the older node was marked on
//! this level, and did not find the older node on level 0 any more.

use core::alloc::Layout;
use core::array;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr;
use std::alloc::{alloc, dealloc, handle_alloc_error};

use archipelago_platform::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use archipelago_platform::plain::Plain;
use archipelago_platform::touch;

use crate::tag::{is_tagged, tagged, untagged};
use crate::{Set, SetSession, Visit};
use archipelago_platform::watch::Watch;
use archipelago_sync::rcu::{Domain, Guard, Reader};

/// The number of levels: enough for 2^20 entries if half of the nodes of each level are in the next.
const LEVELS: usize = if cfg!(loom) { 2 } else { 20 };

/// Stored instead of a value in a removed node. No value may equal it.
const GONE: u64 = 0x601e_601e_601e_601e;

/// The node's inserter will not link it on any further level.
const LINKED: u32 = 1;
/// The node's remover has marked all its levels.
const MARKED: u32 = 2;

type Link = AtomicPtr<Node>;

/// The first links of all levels.
type Head = [Link; LEVELS];

/// Returns the link of a node, or of the head, on a level.
fn link<'g>(head: &'g Head, node: Option<NodeRef<'g>>, level: usize) -> &'g Link {
    node.map_or(&head[level], |node| node.next(level))
}

#[repr(C)]
struct Node {
    key: Plain<u64>,
    value: AtomicU64,
    height: Plain<u32>,
    /// [`LINKED`], [`MARKED`], or both.
    done: AtomicU32,
    /// Checks accesses to key and value in tests.
    watch: Watch,
    /// The first of the node's `height` links.
    tower: [Link; 0],
}

/// A node that is not freed yet. The list's functions use it only in the guard in which they found it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NodeRef<'g>(*mut Node, PhantomData<&'g Node>);

impl<'g> NodeRef<'g> {
    fn layout(height: usize) -> Layout {
        let links = Layout::array::<Link>(height).expect("a tower is small");
        let (layout, at) = Layout::new::<Node>().extend(links).expect("a node is small");
        debug_assert_eq!(at, offset_of!(Node, tower));
        layout.pad_to_align()
    }

    fn new(key: u64, value: u64, height: usize) -> Self {
        let layout = Self::layout(height);
        // SAFETY: the layout's size is not 0.
        let node = unsafe { alloc(layout) }.cast::<Node>();
        if node.is_null() {
            handle_alloc_error(layout);
        }
        assert!(value != GONE, "a value that stands for none");
        let (key, value) = (Plain::new(key), AtomicU64::new(value));
        let header = Node {
            key,
            value,
            height: Plain::new(height as u32),
            done: AtomicU32::new(0),
            watch: Watch::new(),
            tower: [],
        };
        header.watch.write();
        // SAFETY: the memory is fresh, with room for a header and `height` links after it.
        unsafe {
            node.write(header);
            let tower = (&raw mut (*node).tower).cast::<Link>();
            (0..height).for_each(|level| tower.add(level).write(AtomicPtr::new(ptr::null_mut())));
        }
        Self(node, PhantomData)
    }

    /// Frees a node.
    ///
    /// # Safety
    /// The node is from [`new`](Self::new), and no thread uses it any more.
    unsafe fn free(node: *mut Node) {
        // SAFETY: the caller's promise.
        unsafe {
            (*node).watch.write();
            let height = *(*node).height as usize;
            let tower = (&raw mut (*node).tower).cast::<Link>();
            ptr::drop_in_place(ptr::slice_from_raw_parts_mut(tower, height));
            ptr::drop_in_place(node);
            dealloc(node.cast(), Self::layout(height));
        }
    }

    /// Returns the node at a pointer, or `None` for null.
    ///
    /// # Safety
    /// The pointer is null, or the node is not freed before `'g` ends.
    unsafe fn met(node: *mut Node) -> Option<Self> {
        debug_assert!(!is_tagged(node));
        (!node.is_null()).then_some(Self(node, PhantomData))
    }

    fn header(self) -> &'g Node {
        // SAFETY: the node is not freed before `'g` ends. The header is shared, and does not contain the links.
        unsafe { &*self.0 }
    }

    fn key(self) -> u64 {
        self.header().watch.read();
        *self.header().key
    }

    /// Returns the value, unless the node is removed. Acquire pairs with the Release of `replace`: a thread that reads
    /// the value sees what its writer had seen.
    fn value(self) -> Option<u64> {
        Some(self.header().value.load(Ordering::Acquire)).filter(|value| *value != GONE)
    }

    /// Replaces the value by `f`'s result for it. Returns the old value, or `None` if the node is removed.
    fn replace(self, mut f: impl FnMut(u64) -> u64) -> Option<u64> {
        let word = &self.header().value;
        let mut old = self.value()?;
        loop {
            let new = f(old);
            assert!(new != GONE, "a value that stands for none");
            match word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(old),
                Err(GONE) => return None,
                Err(now) => old = now,
            }
        }
    }

    fn height(self) -> usize {
        *self.header().height as usize
    }

    /// Returns the link to the next node on a level, which is below the node's height.
    fn next(self, level: usize) -> &'g Link {
        debug_assert!(level < self.height());
        // SAFETY: as above. The pointer is to the whole allocation, which has `height` links.
        unsafe { &*(&raw const (*self.0).tower).cast::<Link>().add(level) }
    }

    /// Marks all levels of a removed node, from the top.
    fn mark(self) {
        (0..self.height()).rev().for_each(|level| self.mark_level(level));
    }

    fn mark_level(self, level: usize) {
        let link = self.next(level);
        let mut next = link.load(Ordering::Acquire);
        while !is_tagged(next) {
            // AcqRel: a thread that sees this mark sees the marks above it, and this thread sees the content of the
            // next node.
            match link.compare_exchange(next, tagged(next), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => next = now,
            }
        }
    }
}

/// A lock-free skip list of `u64` keys and values. It also has the operations of a priority queue, and those of a map
/// ([`upsert`](FraserSession::upsert), [`update`](FraserSession::update), [`scan`](FraserSession::scan)).
///
/// Operations panic if they would store the value `0x601e_601e_601e_601e`, which the list reserves for removed nodes.
///
/// ```
/// use archipelago_sets::{FraserSkipList, Set, SetSession};
///
/// let list = FraserSkipList::default();
/// let mut session = list.session();
/// assert!(session.insert(7, 70) && session.insert(3, 30));
/// assert_eq!((session.get(7), session.first()), (Some(70), Some(3)));
/// assert_eq!((session.pop_first(), session.pop_first(), session.pop_first()), (Some((3, 30)), Some((7, 70)), None));
/// ```
pub type FraserSkipList = SkipList<false>;

/// The skip list as the benchmark of flat combining has it (Hendler, Incze, Shavit, Tzafrir 2010), in which the paper
/// on node replication compares. In two things it differs from the book's:
///
/// - All threads draw heights from one seed, which is in the line that every operation reads first. So every insertion
///   takes this line from all threads.
/// - An insertion links a node whether or not its key is there. So a key may be there several times, and the nodes of
///   a popular key multiply. A removal that meets another removal of the same node removes nothing, even if the key
///   is there once more.
pub type SharedSeedSkipList = SkipList<true>;

/// [`FraserSkipList`] or, if `SHARED`, [`SharedSeedSkipList`].
pub struct SkipList<const SHARED: bool> {
    domain: Domain,
    head: Box<Head>,
    /// The height of the highest node so far.
    height: AtomicUsize,
    /// Numbers the sessions; if `SHARED`, the seed of all heights, which must be in the line of `height`.
    seed: AtomicU64,
    owns: PhantomData<Node>,
}

/// The rival's point: the seed is in a line that every operation reads.
const _: () = {
    type List = SharedSeedSkipList;
    assert!(align_of::<List>() < 64 || offset_of!(List, seed) / 64 == offset_of!(List, height) / 64);
};

impl<const SHARED: bool> Default for SkipList<SHARED> {
    fn default() -> Self {
        Self {
            domain: Domain::new(),
            head: Box::new(array::from_fn(|_| AtomicPtr::new(ptr::null_mut()))),
            height: AtomicUsize::new(1),
            seed: AtomicU64::new(1),
            owns: PhantomData,
        }
    }
}

impl<const SHARED: bool> Set for SkipList<SHARED> {
    type Session<'s> = SkipListSession<'s, SHARED>;

    fn session(&self) -> SkipListSession<'_, SHARED> {
        // Relaxed: the counter carries no data. An odd multiple of an odd number is odd, so the result is never 0.
        let number = self.seed.fetch_add(2, Ordering::Relaxed);
        SkipListSession { list: self, reader: self.domain.reader(), random: number.wrapping_mul(0x9E37_79B9_7F4A_7C15) }
    }
}

impl<const SHARED: bool> Drop for SkipList<SHARED> {
    fn drop(&mut self) {
        let mut node = self.head[0].load(Ordering::Relaxed);
        while !node.is_null() {
            // SAFETY: nodes on level 0 are not retired: their inserter and their remover, if there was one, have
            // finished, and would have unlinked a removed node. No other thread uses the list.
            unsafe {
                let next = untagged((*(&raw const (*node).tower).cast::<Link>()).load(Ordering::Relaxed));
                NodeRef::free(node);
                node = next;
            }
        }
    }
}

/// A key's position on every level: the link before it, and the node to which the link leads, the first that is not
/// below the key.
struct Path<'g> {
    links: [&'g Link; LEVELS],
    at: [*mut Node; LEVELS],
}

impl<'g> Path<'g> {
    /// Returns the node with `key`, if there is one.
    ///
    /// # Safety
    /// The caller is in the guard of the search.
    unsafe fn node_with(&self, key: u64) -> Option<NodeRef<'g>> {
        // SAFETY: the caller's promise.
        unsafe { NodeRef::met(self.at[0]) }.filter(|node| node.key() == key)
    }
}

/// Another thread changed a link during a search, which has to begin again.
struct Again;

/// Walks along a level from `before` while `passes` accepts the nodes, and unlinks marked nodes on the way. Returns
/// the last accepted node, and the first other node.
fn pass<'g>(
    head: &'g Head,
    mut before: Option<NodeRef<'g>>,
    level: usize,
    passes: impl Fn(NodeRef<'g>) -> bool,
) -> Result<(Option<NodeRef<'g>>, *mut Node), Again> {
    let mut at = link(head, before, level).load(Ordering::Acquire);
    if is_tagged(at) {
        return Err(Again);
    }
    // SAFETY: the node was reached in the guard, by unmarked links, or by the link of a marked node that was still
    // linked when the exchange succeeded. A marked link does not change, so the node was in the list then.
    while let Some(node) = unsafe { NodeRef::met(at) } {
        let next = node.next(level).load(Ordering::Acquire);
        if is_tagged(next) {
            let link = link(head, before, level);
            // AcqRel: passes on the content of the next node.
            link.compare_exchange(at, untagged(next), Ordering::AcqRel, Ordering::Relaxed).map_err(|_| Again)?;
            at = untagged(next);
        } else if passes(node) {
            (before, at) = (Some(node), next);
        } else {
            break;
        }
    }
    Ok((before, at))
}

impl<const SHARED: bool> SkipList<SHARED> {
    /// Returns a guard that keeps removed nodes from being freed while it lives. The operations of every session hold
    /// such a guard.
    pub fn guard(&self) -> Guard<'_> {
        self.domain.pin()
    }

    /// Returns the head's links. A search calls this once: if `SHARED`, their address is in the line of the seed.
    fn head(&self) -> &Head {
        if SHARED {
            touch(&raw const self.head, size_of::<Box<Head>>());
        }
        &self.head
    }

    /// Finds a key's position on every level, and unlinks marked nodes on the way.
    fn find<'g>(&'g self, key: u64, guard: &'g Guard<'_>) -> Path<'g> {
        loop {
            if let Ok(path) = self.try_find(key, false, guard) {
                return path;
            }
        }
    }

    /// Tries to find a key's position once. If `thorough`, also unlinks marked nodes behind other nodes of the same
    /// key.
    fn try_find<'g>(&'g self, key: u64, thorough: bool, _guard: &'g Guard<'_>) -> Result<Path<'g>, Again> {
        let head = self.head();
        let mut path = Path { links: array::from_fn(|level| &head[level]), at: [const { ptr::null_mut() }; LEVELS] };
        let mut before = None;
        // Relaxed: a node's inserter raises the height before it links the node, so a thread that has seen the node
        // sees the raised height.
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            let below = |node: NodeRef<'g>| node.key() < key;
            let (last, at) = pass(head, before, level, below)?;
            path.links[level] = link(head, last, level);
            path.at[level] = at;
            if thorough {
                pass(head, last, level, |node| node.key() <= key)?;
            }
            before = last;
        }
        Ok(path)
    }

    /// Links a node, which is on level 0, on its upper levels. Stops if the node is removed meanwhile.
    fn raise<'g>(&'g self, node: NodeRef<'g>, mut path: Path<'g>, guard: &'g Guard<'_>) {
        let mut level = 1;
        while level < node.height() {
            let (next, at) = (node.next(level).load(Ordering::Acquire), path.at[level]);
            // Only a mark can have changed the link meanwhile.
            if is_tagged(next)
                || next != at
                    && node.next(level).compare_exchange(next, at, Ordering::AcqRel, Ordering::Relaxed).is_err()
            {
                return;
            }
            // Release: as on level 0.
            if path.links[level].compare_exchange(at, node.0, Ordering::Release, Ordering::Relaxed).is_ok() {
                level += 1;
                continue;
            }
            path = self.find(node.key(), guard);
            if path.at[0] != node.0 {
                return;
            }
        }
    }

    /// Records that the inserter or the remover of a node has finished. The second of them unlinks the node wherever it
    /// still is, and retires it.
    fn finish<'g>(&'g self, node: NodeRef<'g>, mine: u32, guard: &'g Guard<'_>) {
        // AcqRel: the second thread sees all links and marks of the first.
        if node.header().done.fetch_or(mine, Ordering::AcqRel) | mine != LINKED | MARKED {
            return;
        }
        while self.try_find(node.key(), true, guard).is_err() {}
        debug_assert!(!self.leads_to(node), "a node that is to be retired is still linked");
        let free = |node: *mut (), _: *mut ()| {
            // SAFETY: the node is retired below, and all earlier guards have ended.
            unsafe { NodeRef::free(node.cast()) };
        };
        // SAFETY: the node is on no level any more, and will not be linked again; no other thread retires it.
        unsafe { guard.retire(node.0.cast(), ptr::null_mut(), free) };
    }

    /// Returns whether the node can be reached on any level.
    fn leads_to(&self, node: NodeRef<'_>) -> bool {
        let (head, mut before) = (self.head(), None);
        (0..self.height.load(Ordering::Relaxed)).rev().any(|level| {
            let mut at = untagged(link(head, before, level).load(Ordering::Acquire));
            // SAFETY: as in `first`, for the caller's guard.
            while let Some(here) = unsafe { NodeRef::met(at) }.filter(|here| here.key() <= node.key()) {
                let next = here.next(level).load(Ordering::Acquire);
                if here == node {
                    return true;
                }
                if here.key() < node.key() && !is_tagged(next) {
                    before = Some(here);
                }
                at = untagged(next);
            }
            false
        })
    }

    /// Removes a node: takes its value, marks its levels, and records that the remover has finished. Returns the value,
    /// or `None` if another thread took it.
    fn take<'g>(&'g self, node: NodeRef<'g>, guard: &'g Guard<'_>) -> Option<u64> {
        // AcqRel: as in a replacement.
        let value = node.header().value.swap(GONE, Ordering::AcqRel);
        node.mark();
        if value == GONE {
            return None;
        }
        self.finish(node, MARKED, guard);
        Some(value)
    }

    /// Returns the first node on level 0 that is not removed.
    fn first<'g>(&'g self, _guard: &'g Guard<'_>) -> Option<NodeRef<'g>> {
        // The cache line of `head` also contains the height, which changes.
        touch(&raw const self.head, size_of::<Box<Head>>());
        let mut at = self.head[0].load(Ordering::Acquire);
        // SAFETY: the node was reached in the guard. A marked node's link leads to nodes that are protected by the
        // guard as well.
        while let Some(node) = unsafe { NodeRef::met(at) } {
            let next = node.next(0).load(Ordering::Acquire);
            if !is_tagged(next) && node.value().is_some() {
                return Some(node);
            }
            at = untagged(next);
        }
        None
    }

    /// Visits the entries from a key on, while `visit` returns true.
    fn each<'g>(&'g self, from: u64, guard: &'g Guard<'_>, mut visit: impl FnMut(u64, u64) -> bool) {
        let mut at = self.find(from, guard).at[0];
        // SAFETY: as in `first`.
        while let Some(node) = unsafe { NodeRef::met(at) } {
            let next = node.next(0).load(Ordering::Acquire);
            if !is_tagged(next) && node.value().is_some_and(|value| !visit(node.key(), value)) {
                return;
            }
            at = untagged(next);
        }
    }

    /// Returns a node with this key that is not marked. Its value may have been taken already, so that the key is
    /// absent. Only reads.
    fn seek<'g>(&'g self, key: u64, _guard: &'g Guard<'_>) -> Option<NodeRef<'g>> {
        let (head, mut before) = (self.head(), None);
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            let mut at = untagged(link(head, before, level).load(Ordering::Acquire));
            // SAFETY: as in `first`.
            while let Some(node) = unsafe { NodeRef::met(at) } {
                let next = node.next(level).load(Ordering::Acquire);
                if !is_tagged(next) {
                    if node.key() == key {
                        // The node is not marked on this level. So it is not marked on level 0 either, where it was
                        // linked earlier and is marked later.
                        return Some(node);
                    }
                    if node.key() > key {
                        break;
                    }
                    before = Some(node);
                }
                at = untagged(next);
            }
        }
        None
    }
}

/// A session on a [`FraserSkipList`].
pub type FraserSession<'s> = SkipListSession<'s, false>;

/// A session on a [`SkipList`].
pub struct SkipListSession<'s, const SHARED: bool> {
    list: &'s SkipList<SHARED>,
    reader: Reader<'s>,
    random: u64,
}

impl<const SHARED: bool> SkipListSession<'_, SHARED> {
    /// Returns the smallest key. A smaller key that is inserted during the call may be missed.
    pub fn first(&mut self) -> Option<u64> {
        let guard = self.reader.enter();
        self.list.first(&guard).map(NodeRef::key)
    }

    /// Removes the entry with the smallest key. Linearizable as the removal of this key. A smaller key that is inserted
    /// during the call may be missed. So the removed key need not have been the smallest one at any moment.
    pub fn pop_first(&mut self) -> Option<(u64, u64)> {
        self.reader.give_way();
        let guard = self.reader.enter();
        loop {
            let node = self.list.first(&guard)?;
            let key = node.key();
            if let Some(value) = self.list.take(node, &guard) {
                return Some((key, value));
            }
        }
    }

    /// If a node has this key, calls `there` with the node. The result `None` means that the node was removed; any
    /// other result is returned. If no node has the key, or only a removed node, inserts a new node and returns `None`;
    /// if `SHARED`, always does so.
    fn put(&mut self, key: u64, value: u64, mut there: impl FnMut(NodeRef<'_>) -> Option<u64>) -> Option<u64> {
        self.reader.give_way();
        let height = self.draw_height();
        let (list, guard) = (self.list, self.reader.enter());
        let mut node: Option<NodeRef<'_>> = None;
        let path = loop {
            let path = list.find(key, &guard);
            // SAFETY: inside the guard.
            if let Some(old) = unsafe { path.node_with(key) }.filter(|_| !SHARED) {
                if let Some(value) = there(old) {
                    // SAFETY: the node is not linked.
                    node.into_iter().for_each(|node| unsafe { NodeRef::free(node.0) });
                    return Some(value);
                }
                old.mark();
                continue;
            }
            if list.height.load(Ordering::Relaxed) < height {
                list.height.fetch_max(height, Ordering::Relaxed);
            }
            let node = *node.get_or_insert_with(|| NodeRef::new(key, value, height));
            (0..height).for_each(|level| node.next(level).store(path.at[level], Ordering::Relaxed));
            // Release: a thread that finds the node sees its content, and sees the raised height.
            if path.links[0].compare_exchange(path.at[0], node.0, Ordering::Release, Ordering::Relaxed).is_ok() {
                break path;
            }
        };
        let node = node.expect("it was linked");
        list.raise(node, path, &guard);
        list.finish(node, LINKED, &guard);
        None
    }

    fn draw_height(&mut self) -> usize {
        if SHARED {
            // Relaxed: the seed carries no data. Two threads may draw the same height.
            self.random = self.list.seed.load(Ordering::Relaxed);
        }
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if SHARED {
            self.list.seed.store(self.random, Ordering::Relaxed);
        }
        (1 + (self.random >> 32).trailing_ones() as usize).min(LEVELS)
    }
}

impl FraserSession<'_> {
    /// Inserts a key or replaces its value. Returns the old value. Linearizable.
    pub fn upsert(&mut self, key: u64, value: u64) -> Option<u64> {
        self.put(key, value, |node| node.replace(|_| value))
    }

    /// Replaces the value of a present key by `f(old)`. Returns the old value. Linearizable. `f` may run more than
    /// once.
    pub fn update(&mut self, key: u64, f: impl FnMut(u64) -> u64) -> Option<u64> {
        let guard = self.reader.enter();
        self.list.seek(key, &guard).and_then(|node| node.replace(f))
    }

    /// Visits up to `limit` entries with keys from `from` on, ascending. Returns how many it visited. The entries are
    /// not of one moment.
    pub fn scan(&mut self, from: u64, limit: usize, mut visit: impl FnMut(u64, u64)) -> usize {
        let (guard, mut seen) = (self.reader.enter(), 0);
        if limit > 0 {
            self.list.each(from, &guard, |key, value| {
                visit(key, value);
                seen += 1;
                seen < limit
            });
        }
        seen
    }
}

impl<const SHARED: bool> SetSession for SkipListSession<'_, SHARED> {
    fn insert(&mut self, key: u64, value: u64) -> bool {
        self.put(key, value, |node| node.value()).is_none()
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        self.reader.give_way();
        let (list, guard) = (self.list, self.reader.enter());
        let node = list.seek(key, &guard)?;
        list.take(node, &guard)
    }

    fn get(&mut self, key: u64) -> Option<u64> {
        let guard = self.reader.enter();
        self.list.seek(key, &guard).and_then(NodeRef::value)
    }

    fn linger(&mut self, visit: &Visit) {
        let _guard = self.reader.enter();
        visit.stay();
    }

    fn range(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let (guard, mut found) = (self.reader.enter(), Vec::new());
        self.list.each(from, &guard, |key, value| {
            found.extend((key < to).then_some((key, value)));
            key < to
        });
        found
    }
}
