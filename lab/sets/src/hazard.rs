//! The lock-free list of Harris and Michael with hazard pointers (Michael, IEEE TPDS 2004), and a table of them: what the
//! MV-RLU paper calls HP-Harris. Its price is a fence for every node that a search passes.
//!
//! A link's low bit marks its *owner* as removed. Remove marks, then unlinks; the thread that meets a marked node
//! unlinks it, and the one whose unlink succeeds retires it.
//!
//! # Why nothing is freed too early
//! *Reader*: store the node into a hazard; `SeqCst` fence; read the link again, which must still lead to the node,
//! unmarked. *Who frees*: unlink; retire; `SeqCst` fence; read all hazards; free what is in none. Of the two fences one
//! is first. If the reader's is, the other sees the hazard. If not, the reader sees the link changed: by the unlink of the
//! node, or marked, if the link's owner was removed first (a removed node's link never leads anywhere unmarked again).
//!
//! A search has two hazards: [`AHEAD`] on the node it looks at, [`BEHIND`] on the one whose link led there. As it goes on, a
//! node moves from the first to the second: stored into `BEHIND` before `AHEAD` is overwritten, with Release, and read in
//! the other order, `AHEAD` first, with Acquire. So who frees meets it in one of them.
//!
//! A record of hazards is claimed by one session at a time (exchange on `taken`, Acquire; given back with Release) and is
//! never freed while the list lives; what its sessions retired stays with it.

use core::cell::UnsafeCell;
use core::ptr;

use archipelago_platform::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::plain::Plain;

use crate::hash::bucket;
use crate::tag::{is_tagged, tagged, untagged};
use crate::{Set, SetSession, Visit};

/// The node that is looked at.
const AHEAD: usize = 0;
/// The node whose link led there.
const BEHIND: usize = 1;
/// Retired nodes of a record before it looks which of them can go, beside twice the hazards there are.
const BATCH: usize = 64;

struct Node {
    key: AtomicU64,
    value: AtomicU64,
    /// The next node; marked once this one is removed.
    next: AtomicPtr<Node>,
}

/// What one session has, and leaves to the next one that takes it.
struct Record {
    hazards: [AtomicPtr<Node>; 2],
    taken: AtomicBool,
    /// The record that was added before.
    next: *const CachePadded<Record>,
    /// Unlinked, not freed yet. Belongs to the thread that has the record.
    retired: UnsafeCell<Vec<*mut Node>>,
}

/// One list, or a table of lists.
pub struct HazardList {
    heads: Plain<Box<[AtomicPtr<Node>]>>,
    records: AtomicPtr<CachePadded<Record>>,
    /// How many records there are.
    count: AtomicUsize,
}

// SAFETY: nodes are reached by the rules above; a record's `retired` by its one owner; `next` never changes.
unsafe impl Send for HazardList {}
// SAFETY: as above.
unsafe impl Sync for HazardList {}

/// A thread's way in.
pub struct HazardSession<'s> {
    list: &'s HazardList,
    record: &'s Record,
}

/// The link before a key's place, and the first node there that is not below, protected if there is one.
struct Place<'s> {
    link: &'s AtomicPtr<Node>,
    at: *mut Node,
    equal: bool,
}

impl HazardList {
    /// A table of this many lists (0 counts as 1). Ranges are empty if there is more than one.
    pub fn with_buckets(buckets: usize) -> Self {
        let heads = (0..buckets.max(1)).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Self { heads: Plain::new(heads), records: AtomicPtr::new(ptr::null_mut()), count: AtomicUsize::new(0) }
    }

    fn head(&self, key: u64) -> &AtomicPtr<Node> {
        let heads = &*self.heads;
        &heads[bucket(key, heads.len())]
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        let mut at: *const CachePadded<Record> = self.records.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: records are boxes that live as long as the list; published with Release.
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
            taken: AtomicBool::new(true),
            next: ptr::null(),
            retired: UnsafeCell::new(Vec::new()),
        }));
        loop {
            let first = self.records.load(Ordering::Relaxed);
            record.next = first;
            let published = Box::into_raw(record);
            // Release: who finds the record finds it whole.
            if self.records.compare_exchange(first, published, Ordering::Release, Ordering::Relaxed).is_ok() {
                // SAFETY: it lives as long as the list.
                return unsafe { &*published };
            }
            // SAFETY: not published.
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
        HazardSession { list: self, record: self.claim() }
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
            // SAFETY: retired nodes are boxes that no link leads to, each retired once.
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
    /// Nothing is protected any more.
    fn leave(&self) {
        self.record.hazards.iter().for_each(|hazard| hazard.store(ptr::null_mut(), Ordering::Release));
    }

    /// Finds a key's place, and unlinks the removed nodes on the way. What it found is protected until the next search.
    fn find(&self, key: u64) -> Place<'s> {
        let [ahead, behind] = [AHEAD, BEHIND].map(|which| &self.record.hazards[which]);
        'again: loop {
            let mut link: &'s AtomicPtr<Node> = self.list.head(key);
            let mut at = link.load(Ordering::Acquire);
            loop {
                if at.is_null() {
                    return Place { link, at, equal: false };
                }
                ahead.store(at, Ordering::Release);
                fence(Ordering::SeqCst);
                if link.load(Ordering::Acquire) != at {
                    continue 'again;
                }
                // SAFETY: protected, and linked after that was said.
                let node: &'s Node = unsafe { &*at };
                let next = node.next.load(Ordering::Acquire);
                if is_tagged(next) {
                    let rest = untagged(next);
                    if link.compare_exchange(at, rest, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                        continue 'again;
                    }
                    // SAFETY: the exchange unlinked it, and no other thread's did.
                    unsafe { self.retire(at) };
                    at = rest;
                    continue;
                }
                let found = node.key.load(Ordering::Relaxed);
                if found >= key {
                    return Place { link, at, equal: found == key };
                }
                // Before it is overwritten ahead.
                behind.store(at, Ordering::Release);
                link = &node.next;
                at = next;
            }
        }
    }

    /// # Safety
    /// The node was unlinked by the caller.
    unsafe fn retire(&self, node: *mut Node) {
        // SAFETY: the record is this session's, and sessions are one thread's.
        let retired = unsafe { &mut *self.record.retired.get() };
        retired.push(node);
        if retired.len() >= BATCH + 4 * self.list.count.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
            let mut kept: Vec<*mut Node> = Vec::new();
            for record in self.list.records() {
                // In this order: see the module.
                kept.extend([AHEAD, BEHIND].map(|which| record.hazards[which].load(Ordering::Acquire)));
            }
            kept.sort_unstable();
            retired.retain(|node| {
                let keep = kept.binary_search(node).is_ok();
                if !keep {
                    // SAFETY: unlinked before the fence, and no hazard after it.
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
            // SAFETY: not linked, so this session's alone.
            unsafe { &*node }.next.store(place.at, Ordering::Relaxed);
            // Release: who finds the node finds it whole.
            if place.link.compare_exchange(place.at, node, Ordering::Release, Ordering::Relaxed).is_ok() {
                new = None;
                break true;
            }
        };
        // SAFETY: made here, and not linked.
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
            // SAFETY: protected by the search.
            let node = unsafe { &*place.at };
            let next = node.next.load(Ordering::Acquire);
            let exchange = |next| node.next.compare_exchange(next, tagged(next), Ordering::AcqRel, Ordering::Relaxed);
            if is_tagged(next) || exchange(next).is_err() {
                continue;
            }
            let value = node.value.load(Ordering::Relaxed);
            if place.link.compare_exchange(place.at, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // SAFETY: the exchange unlinked it, and no other thread's did.
                unsafe { self.retire(place.at) };
            }
            break Some(value);
        };
        self.leave();
        removed
    }

    fn get(&mut self, key: u64) -> Option<u64> {
        let place = self.find(key);
        // SAFETY: protected by the search.
        let value = place.equal.then(|| unsafe { &*place.at }.value.load(Ordering::Relaxed));
        self.leave();
        value
    }

    /// One key after another.
    fn range(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut from = (self.list.heads.len() == 1).then_some(from);
        while let Some(key) = from.filter(|key| *key < to) {
            let place = self.find(key);
            // SAFETY: protected by the search.
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

    /// A search that stays holds two nodes, and holds up no thread.
    fn linger(&mut self, visit: &Visit) {
        visit.stay();
    }
}
