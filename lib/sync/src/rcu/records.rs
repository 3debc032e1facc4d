//! All records of a domain: one for each thread slot, and those that quiescent readers and owned guards claim.
//!
//! Guards use the record of the slot. When they begin and end they check whether the thread still has the slot, which
//! costs one thread-local read. So a reader or a structure's session is a pair of references, which costs nothing to
//! make or to forget, however many are alive.
//!
//! Only the claim's holder uses a claimed record. A claim takes constant time, since returned records are in a list.
//! Records stay in the chain as long as the domain lives; the chain grows to the largest number of simultaneous claims.

use core::iter;
use core::ptr::{self, NonNull};

use archipelago_platform::atomic::{AtomicPtr, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_platform::thread;

use super::record::Record;

struct Node {
    record: CachePadded<Record>,
    /// Set before the node is published, and never again.
    older: *mut Node,
}

/// An unclaimed node.
struct Free(NonNull<Node>);

// SAFETY: a pointer to a node. A node is `Sync` except for `older`, which is not written after the node is shared.
unsafe impl Send for Free {}

pub(super) struct Records {
    /// Unique among all domains that the process has ever had.
    #[cfg(not(any(loom, archipelago_sim)))]
    id: u64,
    slots: PerThread<CachePadded<Record>>,
    /// The newest node of the chain. It changes only to a newer node whose `older` is the previous value.
    claimable: AtomicPtr<Node>,
    free: Mutex<Vec<Free>>,
}

impl Records {
    pub(super) fn new() -> Self {
        let claimable = AtomicPtr::new(ptr::null_mut());
        Self {
            #[cfg(not(any(loom, archipelago_sim)))]
            id: recent::next_id(),
            slots: PerThread::new(),
            claimable,
            free: Mutex::new(Vec::new()),
        }
    }

    /// Returns the result of an earlier call of [`own`](Self::own) in this thread if it is cached, and otherwise calls
    /// `own`. The record may belong to a slot that the thread has returned since, which [`Record::is_mine`] detects.
    #[inline(always)]
    pub(super) fn recent(&self) -> &Record {
        #[cfg(not(any(loom, archipelago_sim)))]
        return recent::find(self);
        #[cfg(any(loom, archipelago_sim))]
        self.own()
    }

    /// Returns the record of the calling thread's slot.
    #[inline]
    pub(super) fn own(&self) -> &Record {
        let index = thread::slot().index;
        self.slots.get_or(index, || CachePadded::new(Record::of_slot(index)))
    }

    /// Claims a record, which only the holder uses as long as it keeps the claim. `roams` says that the claim is for an
    /// owned guard.
    pub(super) fn claim(&self, roams: bool) -> Claim<'_> {
        // A separate statement releases the lock. The lock orders the last owner's critical sections before this one's.
        let free = self.free().pop();
        let node = free.map_or_else(|| self.push(Record::claimed()), |Free(node)| node);
        let claim = Claim { records: self, node };
        claim.record().change_owner();
        claim.record().set_roaming(roams);
        claim
    }

    fn free(&self) -> MutexGuard<'_, Vec<Free>> {
        // A poisoned lock would mean that a Vec's growth panicked half-way, which leaves the Vec intact.
        self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns all records. The iterator may miss records that are made meanwhile.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.slots.iter().map(|own| &**own).chain(self.claimable())
    }

    /// Returns the records in which the calling thread may be active: its slot's, and those that can be claimed. The
    /// iterator skips the records of other threads' slots, whose cache lines these threads write whenever they enter.
    pub(super) fn of_this_thread(&self) -> impl Iterator<Item = &Record> {
        iter::once(self.own()).chain(self.claimable())
    }

    fn claimable(&self) -> impl Iterator<Item = &Record> {
        // SAFETY: nodes live as long as the domain.
        self.chain().map(|node| unsafe { &*node.as_ref().record })
    }

    fn chain(&self) -> impl Iterator<Item = NonNull<Node>> {
        // Acquire: pairs with the Release of `push`, so that the node and all older ones are seen initialised.
        let newest = NonNull::new(self.claimable.load(Ordering::Acquire));
        // SAFETY: nodes live as long as the domain.
        iter::successors(newest, |node| NonNull::new(unsafe { node.as_ref() }.older))
    }

    #[cold]
    fn push(&self, record: Record) -> NonNull<Node> {
        let mut older = self.claimable.load(Ordering::Acquire);
        let node = Box::into_raw(Box::new(Node { record: CachePadded::new(record), older }));
        while let Err(now) = self.claimable.compare_exchange(older, node, Ordering::AcqRel, Ordering::Acquire) {
            older = now;
            // SAFETY: not published yet.
            unsafe { (*node).older = now };
        }
        // SAFETY: from a box.
        unsafe { NonNull::new_unchecked(node) }
    }
}

/// For each thread, the records of the domains that it used last. So making a session takes a few instructions, and the
/// processor can overlap the look-ups before and after it.
#[cfg(not(any(loom, archipelago_sim)))]
mod recent {
    use core::cell::Cell;
    use core::ptr;

    use archipelago_platform::atomic::{AtomicU64, Ordering};
    use archipelago_platform::thread::thread_local;

    use super::{Record, Records};

    const PLACES: usize = 8;

    /// The id of a domain, and this thread's record in the domain.
    type Recent = Cell<(u64, *const Record)>;

    /// Ids are multiples of an entry's size, so that an id's low bits are the byte offset of its entry in the cache.
    const STEP: u64 = size_of::<Recent>() as u64;

    thread_local! {
        static RECENT: [Recent; PLACES] = const { [const { Cell::new((0, ptr::null())) }; PLACES] };
    }

    pub(super) fn next_id() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(STEP);
        NEXT.fetch_add(STEP, Ordering::Relaxed)
    }

    #[inline(always)]
    fn place(recent: &[Recent; PLACES], id: u64) -> &Recent {
        const { assert!(PLACES.is_power_of_two() && STEP.is_power_of_two()) };
        let offset = id as usize & ((PLACES - 1) * STEP as usize);
        // SAFETY: a multiple of the size, below the array's.
        unsafe { &*recent.as_ptr().byte_add(offset) }
    }

    #[inline(always)]
    pub(super) fn find(records: &Records) -> &Record {
        let (id, record) = RECENT.with(|recent| place(recent, records.id).get());
        // SAFETY: an entry with this id was made below from these records, since no other records have the id; records
        // live as long as their domain.
        if id == records.id { unsafe { &*record } } else { find_anew(records) }
    }

    #[cold]
    fn find_anew(records: &Records) -> &Record {
        let own = records.own();
        RECENT.with(|recent| place(recent, records.id).set((records.id, own)));
        own
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        let mut node = self.claimable.load(Ordering::Relaxed);
        while !node.is_null() {
            // SAFETY: the node is from a box, and once in the chain; claims borrow the records, so none exists.
            node = unsafe { Box::from_raw(node) }.older;
        }
    }
}

/// A claimed record, until this value is dropped. Its guards end before.
pub(super) struct Claim<'d> {
    records: &'d Records,
    node: NonNull<Node>,
}

impl<'d> Claim<'d> {
    pub(super) fn record(&self) -> &'d Record {
        // SAFETY: nodes live as long as the domain.
        unsafe { &(*self.node.as_ptr()).record }
    }
}

impl Claim<'_> {
    /// Notes that the calling thread now has the claim.
    pub(super) fn touch(&self) {
        self.record().change_owner();
    }
}

// SAFETY: a claimed record has one owner at a time, and the thread that has the claim is the owner. The record's
// fields are atomics, and sending the claim to another thread orders the receiver's writes after the sender's.
unsafe impl Send for Claim<'_> {}
// SAFETY: a shared claim gives only a shared record, which is `Sync`.
unsafe impl Sync for Claim<'_> {}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.records.free().push(Free(self.node));
    }
}
