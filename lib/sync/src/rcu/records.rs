//! All records of a domain: for each thread slot one that is the slot's own, and those that quiescent readers claim.
//!
//! Guards use the slot's own record, and ask whether the thread still has the slot when they begin and end: one
//! thread-local read. So a reader or a structure's session is a pair of references: it costs nothing to make, whatever
//! number of them is alive, and nothing to forget.
//!
//! A claimed record is its claimer's alone. Claims cost constant time: given-back records lie in a list. Records stay in
//! the chain for as long as the domain lives; it grows to the largest number of claims there ever were at a time.

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

/// A node that no claim has.
struct Free(NonNull<Node>);

// SAFETY: a pointer to a node, which is `Sync` but for `older`, which is not written once it is shared.
unsafe impl Send for Free {}

pub(super) struct Records {
    /// No other domain of the process has had it.
    #[cfg(not(any(loom, archipelago_sim)))]
    id: u64,
    slots: PerThread<CachePadded<Record>>,
    /// The newest node of the chain. Goes from one node to a newer one, whose `older` is the former.
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

    /// What [`own`](Self::own) returned in this thread before, if that is quick to know. It may be of a slot that the
    /// thread has given back since: [`Record::is_mine`] tells.
    #[inline(always)]
    pub(super) fn recent(&self) -> &Record {
        #[cfg(not(any(loom, archipelago_sim)))]
        return recent::find(self);
        #[cfg(any(loom, archipelago_sim))]
        self.own()
    }

    /// The record of the calling thread's slot.
    #[inline]
    pub(super) fn own(&self) -> &Record {
        let index = thread::slot().index;
        self.slots.get_or(index, || CachePadded::new(Record::of_slot(index)))
    }

    /// A record that the holder has to itself as long as it keeps the claim; for an owned guard if `roams`.
    pub(super) fn claim(&self, roams: bool) -> Claim<'_> {
        // Its own statement, so that the lock is released. It orders the last owner's critical sections before this one's.
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

    /// All records. One that is made meanwhile may or may not be met.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.slots.iter().map(|own| &**own).chain(self.claimable())
    }

    /// The records that the calling thread may be active in: its slot's, and those that can be claimed. It leaves alone the lines
    /// that other threads write whenever they enter.
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

/// For each thread, the records of the domains that it used last: making a session is a few instructions, which leaves the
/// processor's window to the look-ups before and after it.
#[cfg(not(any(loom, archipelago_sim)))]
mod recent {
    use core::cell::Cell;
    use core::ptr;

    use archipelago_platform::atomic::{AtomicU64, Ordering};
    use archipelago_platform::thread::thread_local;

    use super::{Record, Records};

    const PLACES: usize = 8;

    /// The id of a domain, and this thread's record in it.
    type Recent = Cell<(u64, *const Record)>;

    /// Ids are so far apart that their low bits are where a place lies among the places, in bytes.
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
        // SAFETY: a pair with this id was made below from these records, as no others have the id; they live as long as
        // their domain.
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
            // SAFETY: from a box, in the chain once; claims borrow the records, so there are none.
            node = unsafe { Box::from_raw(node) }.older;
        }
    }
}

/// A record of one thread, until this is dropped. Its guards end before.
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
    /// Notes that the calling thread has the claim now.
    pub(super) fn touch(&self) {
        self.record().change_owner();
    }
}

// SAFETY: a claimed record has one owner at a time, and the thread that has the claim is the owner. Its fields are
// atomics, and what hands the claim to another thread orders that thread's writes after the former's.
unsafe impl Send for Claim<'_> {}
// SAFETY: a shared claim gives nothing but a shared record, which is `Sync`.
unsafe impl Sync for Claim<'_> {}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.records.free().push(Free(self.node));
    }
}
