//! Retired objects waiting for their grace period: an open bag that fills, and sealed bags that ripen in order.

use archipelago_platform::panics::FirstPanic;
use core::iter::Sum;
use core::mem;
use std::collections::VecDeque;

/// The objects of a bag that was sealed in epoch e may be reclaimed (the bag is *ripe*) from epoch e + 3 on. The parent
/// module proves that no reader can have them then.
pub(super) const GRACE: u64 = 3;

/// How many emptied bags are kept for reuse per record (a thread's registration in the domain): as many as wait at the
/// same time in the steady state.
const SPARES: usize = 4;

/// One retired object and its reclaim function.
pub(super) struct Retired {
    pub(super) object: *mut (),
    pub(super) context: *mut (),
    pub(super) reclaim: unsafe fn(*mut (), *mut ()),
}

// SAFETY: `Guard::retire` has the caller promise that any thread may reclaim the object.
unsafe impl Send for Retired {}

/// Retired objects that no thread can reach once the epoch is `sealed + GRACE`.
pub(super) struct Bag {
    sealed: u64,
    /// The memory of the objects, as far as their sizes are known.
    bytes: usize,
    items: Vec<Retired>,
}

impl Bag {
    pub(super) fn size(&self) -> Size {
        Size { objects: self.items.len(), bytes: self.bytes }
    }
}

/// An amount of garbage: the number of objects, and their bytes as far as their sizes are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) objects: usize,
    pub(super) bytes: usize,
}

impl Size {
    /// Returns whether the objects or the bytes reach those of `limit`.
    #[inline]
    pub(super) fn reaches(self, limit: Self) -> bool {
        self.objects >= limit.objects || self.bytes >= limit.bytes
    }
}

impl Sum for Size {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        let add = |sum: Self, size: Self| Self { objects: sum.objects + size.objects, bytes: sum.bytes + size.bytes };
        sizes.fold(Self::default(), add)
    }
}

/// The objects that a record's owners have retired and that are not yet reclaimed.
#[derive(Default)]
pub(super) struct Garbage {
    open: Vec<Retired>,
    open_bytes: usize,
    /// By rising epoch.
    sealed: VecDeque<Bag>,
    spare: Vec<Vec<Retired>>,
    /// The epoch at which the owner last called [`visit`](Self::visit).
    last_seen: u64,
}

impl Garbage {
    /// Adds an object to the open bag. Returns the bag's amount.
    #[inline]
    pub(super) fn push(&mut self, item: Retired, bytes: usize) -> Size {
        self.open.push(item);
        self.open_bytes = self.open_bytes.saturating_add(bytes);
        self.open()
    }

    #[inline]
    fn open(&self) -> Size {
        Size { objects: self.open.len(), bytes: self.open_bytes }
    }

    /// Seals the open bag. Returns its amount. The caller has read `epoch` inside a guard, after all objects in the bag
    /// were retired.
    pub(super) fn seal(&mut self, epoch: u64) -> Size {
        let size = self.open();
        if size.objects == 0 {
            return size;
        }
        self.open_bytes = 0;
        let items = mem::replace(&mut self.open, self.spare.pop().unwrap_or_default());
        // Two threads may seal in the opposite order of their loads of the epoch. The later epoch is safe for both, and
        // keeps the list in order.
        let sealed = self.sealed.back().map_or(epoch, |last| last.sealed.max(epoch));
        self.sealed.push_back(Bag { sealed, bytes: size.bytes, items });
        size
    }

    /// Takes the oldest bag if it is ripe at `epoch`.
    pub(super) fn take_ripe(&mut self, epoch: u64) -> Option<Bag> {
        if self.sealed.front()?.sealed + GRACE <= epoch { self.sealed.pop_front() } else { None }
    }

    /// Keeps an emptied bag's memory for the next one.
    pub(super) fn put_spare(&mut self, bag: Bag) {
        debug_assert!(bag.items.is_empty());
        if self.spare.len() < SPARES {
            self.spare.push(bag.items);
        }
    }

    /// Notes a visit of the owner at `epoch`. Returns the epoch of the previous visit.
    pub(super) fn visit(&mut self, epoch: u64) -> u64 {
        mem::replace(&mut self.last_seen, epoch)
    }

    /// Returns the epoch of the owner's last visit.
    pub(super) fn last_visit(&self) -> u64 {
        self.last_seen
    }

    /// Sealed bags.
    #[cfg(not(loom))]
    pub(super) fn bags(&self) -> usize {
        self.sealed.len()
    }

    /// Returns the amount that is retired and not yet taken.
    pub(super) fn pending(&self) -> Size {
        self.sealed.iter().map(Bag::size).chain([self.open()]).sum()
    }
}

/// Reclaims and removes every object of the bag. After a panic the remaining objects are reclaimed nevertheless.
///
/// # Safety
/// The bag's grace period is over, or no thread can be reading the domain any more.
pub(super) unsafe fn reclaim(bag: &mut Bag, panics: &mut FirstPanic) {
    while !bag.items.is_empty() {
        panics.call(|| {
            while let Some(item) = bag.items.pop() {
                // SAFETY: by the caller's promise the grace period is over, which `retire` requires before an
                // object is reclaimed. The item was popped, so it is reclaimed only once.
                unsafe { (item.reclaim)(item.object, item.context) }
            }
        });
    }
}
