//! All records of a domain: for each thread slot one that is the slot's own, and a chain of records that readers claim.
//!
//! The domain shares a claimable record with the reader that has it, by a count of references, so that dropping a reader
//! after its domain is no error (and a structure's session may stay in scope when the structure is used again whole).
//!
//! A guard from [`Domain::pin`](super::Domain::pin) uses the slot's own record and has to ask whether the thread still has
//! the slot. A [`Reader`](super::Reader) has a record to itself for as long as it lives, so that entering through it asks
//! nothing. Claimed records stay in the chain of the slot that made them, in memory of its thread; chains only grow, to
//! the largest number of readers that one slot's threads ever had at a time.

use core::iter;
use core::ptr::{self, NonNull};

use archipelago_platform::atomic::{AtomicPtr, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::thread;

use super::record::Record;

struct Node {
    record: CachePadded<Record>,
    /// Set before the node is published, and never again, except in a chain's last drop.
    older: *mut Node,
}

struct Slot {
    own: CachePadded<Record>,
    /// The newest node of the chain. Goes from one node to a newer one, whose `older` is the former.
    claimable: AtomicPtr<Node>,
}

// SAFETY: a node's `older` is written before the node is shared; the rest is `Sync`.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

pub(super) struct Records(PerThread<Slot>);

impl Records {
    pub(super) fn new() -> Self {
        Self(PerThread::new())
    }

    #[inline]
    fn slot(&self) -> &Slot {
        let index = thread::slot().index;
        self.0.get_or(index, || Slot {
            own: CachePadded::new(Record::of_slot(index)),
            claimable: AtomicPtr::new(ptr::null_mut()),
        })
    }

    /// The record of the calling thread's slot.
    #[inline]
    pub(super) fn own(&self) -> &Record {
        &self.slot().own
    }

    /// A record that the calling thread has to itself as long as it keeps the claim.
    pub(super) fn claim(&self) -> Claim {
        let slot = self.slot();
        // SAFETY: the chain has a reference to the node.
        let free = slot.chain().find(|node| unsafe { node.as_ref() }.record.try_claim());
        Claim(free.unwrap_or_else(|| slot.push(Record::claimed())))
    }

    /// All records. One that is made meanwhile may or may not be met.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        // SAFETY: the chain has a reference to the node as long as the domain lives.
        let record = |node: NonNull<Node>| unsafe { &*node.as_ref().record };
        self.0.iter().flat_map(move |slot| iter::once(&*slot.own).chain(slot.chain().map(record)))
    }
}

impl Slot {
    /// The nodes, which are the chain's until `drop`. As pointers: the last reference to one frees it by such a pointer.
    fn chain(&self) -> impl Iterator<Item = NonNull<Node>> {
        // Acquire: pairs with the Release of `push`, so that the node and all older ones are seen initialised.
        let newest = NonNull::new(self.claimable.load(Ordering::Acquire));
        // SAFETY: the chain has a reference to each of its nodes.
        iter::successors(newest, |node| NonNull::new(unsafe { node.as_ref() }.older))
    }

    #[cold]
    fn push(&self, record: Record) -> NonNull<Node> {
        let mut older = self.claimable.load(Ordering::Acquire);
        let node = Box::into_raw(Box::new(Node { record: CachePadded::new(record), older }));
        // Another thread may push here too: one that a late destructor's thread gave the slot to.
        while let Err(now) = self.claimable.compare_exchange(older, node, Ordering::AcqRel, Ordering::Acquire) {
            older = now;
            // SAFETY: not published yet.
            unsafe { (*node).older = now };
        }
        // SAFETY: from a box.
        unsafe { NonNull::new_unchecked(node) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut node = self.claimable.load(Ordering::Relaxed);
        while let Some(here) = NonNull::new(node) {
            // SAFETY: the chain has a reference to it.
            let here_ref = unsafe { here.as_ref() };
            node = here_ref.older;
            if here_ref.record.abandon() {
                // SAFETY: the reference of a claim whose last guard was forgotten; no guard outlives the domain.
                unsafe { release(here) };
            }
            // SAFETY: the chain's reference, once, and nobody uses the chain any more.
            unsafe { release(here) };
        }
    }
}

/// Gives up one reference to a node, and frees it with the last.
///
/// # Safety
/// The caller has a reference and does not use it again.
unsafe fn release(node: NonNull<Node>) {
    // SAFETY: the caller's reference.
    let references = unsafe { &node.as_ref().record.references };
    // Release for the next claimer; Acquire so that the last one frees after all others' uses.
    if references.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: it came from a box, and that was the last reference.
        drop(unsafe { Box::from_raw(node.as_ptr()) });
    }
}

/// A record of one thread, until this is dropped and the last guard has ended.
pub(super) struct Claim(NonNull<Node>);

impl Claim {
    #[inline]
    pub(super) fn record(&self) -> &Record {
        // SAFETY: the claim has a reference to the node.
        unsafe { &self.0.as_ref().record }
    }

    /// The record, for as long as its domain lives.
    ///
    /// # Safety
    /// This is a claim of `domain`'s.
    #[inline]
    pub(super) unsafe fn record_in<'d>(&self, _domain: &'d Records) -> &'d Record {
        // SAFETY: the caller names the domain whose chain has a reference to the node until the domain is dropped.
        unsafe { &(*self.0.as_ptr()).record }
    }
}

impl Drop for Claim {
    #[inline]
    fn drop(&mut self) {
        if self.record().end_claim() {
            // SAFETY: the claim's reference; no guard of the record is alive.
            unsafe { release(self.0) };
        }
    }
}
