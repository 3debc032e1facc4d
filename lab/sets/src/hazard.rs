//! The lock-free list of Harris and Michael with hazard pointers (Michael, IEEE TPDS 2004), and a table of such lists.
//! Its cost is a fence for every node that a search passes.
//!
//! The papers on RLU and MV-RLU measure a program that they call HP-Harris, which takes more time:
//! [`HazardList::as_published`].
//!
//! A link's low bit marks the link's *owner* (the node that contains the link) as removed. A removal first marks the
//! node, then unlinks it. A thread that finds a marked node unlinks it, and the thread that unlinked the node retires
//! it.
//!
//! # Why nothing is freed too early
//! A reader stores the node's address into a hazard pointer, executes a `SeqCst` fence, and reads the link again. The
//! link must still lead to the node, unmarked. A reclaimer unlinks a node, retires it, executes a `SeqCst` fence, reads
//! all hazard pointers, and frees the retired nodes that are in none. One of the two fences is first. If the reader's
//! fence is first, the reclaimer sees the hazard pointer. If not, the reader sees that the link has changed. Either the
//! node was unlinked, or the link was marked because the link's owner was removed first (a removed node's link never
//! becomes unmarked again).
//!
//! A search has two hazard pointers: [`AHEAD`] protects the node that it examines, and [`BEHIND`] protects the node
//! whose link led to that node. When the search moves on, a node's address moves from `AHEAD` to `BEHIND`: it is stored
//! into `BEHIND` with Release before `AHEAD` is overwritten. A reclaimer reads in the other order, `AHEAD` first, with
//! Acquire. So the reclaimer finds the address in one of them.
//!
//! A record of hazard pointers is owned by one session at a time. A session claims it by an exchange on `taken` with
//! Acquire, and returns it with Release. A record is never freed while the list lives, and keeps the nodes that its
//! sessions retired.

use core::cell::UnsafeCell;
use core::ptr;

use archipelago_platform::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::plain::Plain;

use crate::hash::bucket;
use crate::tag::{is_tagged, tagged, untagged};
use crate::{Set, SetSession, Visit};

/// The hazard pointer of the node that is examined.
const AHEAD: usize = 0;
/// The hazard pointer of the node whose link led to the examined node.
const BEHIND: usize = 1;
/// In HP-Harris as published: how many hazard pointers a search sets for a node besides [`AHEAD`], each with a fence.
const MORE_A_NODE: usize = 2;
/// The same before the first node: three for the list's head, one for the caller's, and one for the node that the search
/// returns.
const MORE_A_SEARCH: usize = 5;
/// A record tries to free its retired nodes when it has this many, plus twice the number of hazard pointers.
const BATCH: usize = 64;

struct Node {
    key: AtomicU64,
    value: AtomicU64,
    /// The next node; the pointer is marked once this node is removed.
    next: AtomicPtr<Node>,
}

/// The data of one session, which the next session that claims the record takes over.
struct Record {
    hazards: [AtomicPtr<Node>; 2],
    /// Stands for the other hazard pointers of HP-Harris as published.
    more: AtomicPtr<Node>,
    taken: AtomicBool,
    /// The record that was added before this one.
    next: *const CachePadded<Record>,
    /// Nodes that are unlinked but not freed yet. They belong to the thread that owns the record.
    retired: UnsafeCell<Vec<*mut Node>>,
}

/// One list, or a table of lists.
pub struct HazardList {
    heads: Plain<Box<[AtomicPtr<Node>]>>,
    records: AtomicPtr<CachePadded<Record>>,
    /// The number of records.
    count: AtomicUsize,
    /// Searches set the hazard pointers of the published program, and the list frees no node before it is dropped.
    published: bool,
}

// SAFETY: nodes are accessed by the rules above, a record's `retired` only by the record's owner, and `next` never
// changes.
unsafe impl Send for HazardList {}
// SAFETY: as above.
unsafe impl Sync for HazardList {}

/// A thread's access to the list.
pub struct HazardSession<'s> {
    list: &'s HazardList,
    record: &'s Record,
    /// The list's `published`: searches read it for each node.
    published: bool,
}

/// A key's position: the link before it, and the first node that is not below the key, protected if there is one.
struct Position<'s> {
    link: &'s AtomicPtr<Node>,
    at: *mut Node,
    equal: bool,
}

impl HazardList {
    /// Makes a table of this many lists (0 counts as 1). Ranges are empty if there is more than one list.
    pub fn with_buckets(buckets: usize) -> Self {
        let heads = (0..buckets.max(1)).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        let (records, count) = (AtomicPtr::new(ptr::null_mut()), AtomicUsize::new(0));
        Self { heads: Plain::new(heads), records, count, published: false }
    }

    /// Makes the list cost what HP-Harris costs in the program that the authors of RLU published and those of MV-RLU
    /// measured: a search sets three hazard pointers for each node and five more, each with a fence, and removed nodes
    /// are not freed before the list is dropped.
    #[must_use]
    pub fn as_published(mut self) -> Self {
        self.published = true;
        self
    }

    fn head(&self, key: u64) -> &AtomicPtr<Node> {
        let heads = &*self.heads;
        &heads[bucket(key, heads.len())]
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        let mut at: *const CachePadded<Record> = self.records.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: records are boxes that live as long as the list; they were published with Release.
            let record = unsafe { at.as_ref() }?;
            at = record.next;
            Some(&**record)
        })
    }

    fn claim(&self) -> &Record {
        let free =
            |record: &&Record| !record.taken.load(Ordering::Relaxed) && !record.taken.swap(true, Ordering::Acquire);
        if let Some(record) = self.records().find(free) {
            return record;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut record = Box::new(CachePadded::new(Record {
            hazards: [AHEAD, BEHIND].map(|_| AtomicPtr::new(ptr::null_mut())),
            more: AtomicPtr::new(ptr::null_mut()),
            taken: AtomicBool::new(true),
            next: ptr::null(),
            retired: UnsafeCell::new(Vec::new()),
        }));
        loop {
            let first = self.records.load(Ordering::Relaxed);
            record.next = first;
            let published = Box::into_raw(record);
            // Release: a thread that finds the record sees its content.
            if self.records.compare_exchange(first, published, Ordering::Release, Ordering::Relaxed).is_ok() {
                // SAFETY: the record lives as long as the list.
                return unsafe { &*published };
            }
            // SAFETY: the record is not published.
            record = unsafe { Box::from_raw(published) };
        }
    }
}

impl Default for HazardList {
    fn default() -> Self {
        Self::with_buckets(1)
    }
}

impl Set for HazardList {
    type Session<'s> = HazardSession<'s>;

    fn session(&self) -> HazardSession<'_> {
        HazardSession { list: self, record: self.claim(), published: self.published }
    }
}

impl Drop for HazardList {
    fn drop(&mut self) {
        for head in &*self.heads {
            let mut node = head.load(Ordering::Relaxed);
            while !node.is_null() {
                // SAFETY: linked nodes are boxes that no thread has retired; no other thread uses the list.
                node = untagged(unsafe { Box::from_raw(node) }.next.load(Ordering::Relaxed));
            }
        }
        let mut record = self.records.load(Ordering::Relaxed);
        while !record.is_null() {
            // SAFETY: records are boxes, and no session is left.
            let mut one = unsafe { Box::from_raw(record) };
            // SAFETY: retired nodes are boxes to which no link leads, and each was retired once.
            one.retired.get_mut().drain(..).for_each(|node| drop(unsafe { Box::from_raw(node) }));
            record = one.next.cast_mut();
        }
    }
}

impl Drop for HazardSession<'_> {
    fn drop(&mut self) {
        self.leave();
        self.record.taken.store(false, Ordering::Release);
    }
}

impl<'s> HazardSession<'s> {
    /// Clears the hazard pointers: no node is protected any more.
    fn leave(&self) {
        self.record.hazards.iter().for_each(|hazard| hazard.store(ptr::null_mut(), Ordering::Release));
    }

    /// Sets this many hazard pointers more, if the list is HP-Harris as published.
    #[inline]
    fn set_more(&self, count: usize, node: *mut Node) {
        if self.published {
            for _ in 0..count {
                self.record.more.store(node, Ordering::Release);
                fence(Ordering::SeqCst);
            }
        }
    }

    /// Finds a key's position, and unlinks removed nodes on the way. The nodes found are protected until the next
    /// search.
    fn find(&self, key: u64) -> Position<'s> {
        let [ahead, behind] = [AHEAD, BEHIND].map(|which| &self.record.hazards[which]);
        'again: loop {
            let mut link: &'s AtomicPtr<Node> = self.list.head(key);
            let mut at = link.load(Ordering::Acquire);
            self.set_more(MORE_A_SEARCH, at);
            loop {
                if at.is_null() {
                    return Position { link, at, equal: false };
                }
                ahead.store(at, Ordering::Release);
                fence(Ordering::SeqCst);
                self.set_more(MORE_A_NODE, at);
                if link.load(Ordering::Acquire) != at {
                    continue 'again;
                }
                // SAFETY: the node is protected, and was still linked after its hazard pointer was set.
                let node: &'s Node = unsafe { &*at };
                let next = node.next.load(Ordering::Acquire);
                if is_tagged(next) {
                    let rest = untagged(next);
                    if link.compare_exchange(at, rest, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                        continue 'again;
                    }
                    // SAFETY: this exchange unlinked the node, so no other thread did.
                    unsafe { self.retire(at) };
                    at = rest;
                    continue;
                }
                let found = node.key.load(Ordering::Relaxed);
                if found >= key {
                    return Position { link, at, equal: found == key };
                }
                // `BEHIND` is stored before `AHEAD` is overwritten; see the module's text.
                behind.store(at, Ordering::Release);
                link = &node.next;
                at = next;
            }
        }
    }

    /// Retires a node.
    ///
    /// # Safety
    /// The caller unlinked the node.
    unsafe fn retire(&self, node: *mut Node) {
        // SAFETY: the record is this session's, and a session belongs to one thread.
        let retired = unsafe { &mut *self.record.retired.get() };
        retired.push(node);
        if !self.published && retired.len() >= BATCH + 4 * self.list.count.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
            let mut kept: Vec<*mut Node> = Vec::new();
            for record in self.list.records() {
                // `AHEAD` is read before `BEHIND`; see the module's text.
                kept.extend([AHEAD, BEHIND].map(|which| record.hazards[which].load(Ordering::Acquire)));
            }
            kept.sort_unstable();
            retired.retain(|node| {
                let keep = kept.binary_search(node).is_ok();
                if !keep {
                    // SAFETY: the node was unlinked before the fence, and no hazard pointer has it after the fence.
                    drop(unsafe { Box::from_raw(*node) });
                }
                keep
            });
        }
    }
}

impl SetSession for HazardSession<'_> {
    fn insert(&mut self, key: u64, value: u64) -> bool {
        let mut new: Option<*mut Node> = None;
        let added = loop {
            let place = self.find(key);
            if place.equal {
                break false;
            }
            let node = *new.get_or_insert_with(|| {
                let next = AtomicPtr::new(ptr::null_mut());
                Box::into_raw(Box::new(Node { key: AtomicU64::new(key), value: AtomicU64::new(value), next }))
            });
            // SAFETY: the node is not linked, so it belongs to this session alone.
            unsafe { &*node }.next.store(place.at, Ordering::Relaxed);
            // Release: a thread that finds the node sees its content.
            if place.link.compare_exchange(place.at, node, Ordering::Release, Ordering::Relaxed).is_ok() {
                new = None;
                break true;
            }
        };
        // SAFETY: the node was made here, and is not linked.
        new.into_iter().for_each(|node| drop(unsafe { Box::from_raw(node) }));
        self.leave();
        added
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        let removed = loop {
            let place = self.find(key);
            if !place.equal {
                break None;
            }
            // SAFETY: the search protects the node.
            let node = unsafe { &*place.at };
            let next = node.next.load(Ordering::Acquire);
            let exchange = |next| node.next.compare_exchange(next, tagged(next), Ordering::AcqRel, Ordering::Relaxed);
            if is_tagged(next) || exchange(next).is_err() {
                continue;
            }
            let value = node.value.load(Ordering::Relaxed);
            if place.link.compare_exchange(place.at, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // SAFETY: this exchange unlinked the node, so no other thread did.
                unsafe { self.retire(place.at) };
            }
            break Some(value);
        };
        self.leave();
        removed
    }

    fn get(&mut self, key: u64) -> Option<u64> {
        let place = self.find(key);
        // SAFETY: the search protects the node.
        let value = place.equal.then(|| unsafe { &*place.at }.value.load(Ordering::Relaxed));
        self.leave();
        value
    }

    /// Each key is read at a moment of its own.
    fn range(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut from = (self.list.heads.len() == 1).then_some(from);
        while let Some(key) = from.filter(|key| *key < to) {
            let place = self.find(key);
            // SAFETY: the search protects the node.
            let Some(node) = (unsafe { place.at.as_ref() }) else { break };
            let key = node.key.load(Ordering::Relaxed);
            if key < to {
                found.push((key, node.value.load(Ordering::Relaxed)));
            }
            from = key.checked_add(1);
        }
        self.leave();
        found
    }

    /// Sets no hazard pointer: a search that stays would protect only two nodes, and no other thread would wait for it.
    fn linger(&mut self, visit: &Visit) {
        visit.stay();
    }
}
