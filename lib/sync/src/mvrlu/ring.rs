//! A ring of versions that a handle has committed and its log does not have yet. The owner adds them without a lock,
//! and the holder of the log's lock removes them. So the last commits of an idle handle are collected, too.
//!
//! `put - taken` versions, at most [`FRESH`], are in the slots from `taken` on. Only the owner stores `put`, and only
//! the holder of the lock stores `taken`.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::{touch, touch_mut};

use super::version::Version;
use crate::watch::Watch;

/// The most versions in the ring.
pub(super) const FRESH: usize = if cfg!(loom) { 2 } else { 64 };

struct Slot {
    version: UnsafeCell<MaybeUninit<Version>>,
    watch: Watch,
}

pub(super) struct Ring {
    taken: AtomicUsize,
    put: AtomicUsize,
    slots: [Slot; FRESH],
}

// SAFETY: the owner writes a slot only while it is not between `taken` and `put`, and the holder of the log's lock
// reads it only while it is; any thread may use the versions in it.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    pub(super) fn new() -> Self {
        let slot = |_| Slot { version: UnsafeCell::new(MaybeUninit::uninit()), watch: Watch::new() };
        Self { taken: AtomicUsize::new(0), put: AtomicUsize::new(0), slots: core::array::from_fn(slot) }
    }

    /// Owner only: adds a version, unless the ring is full. Returns whether it did.
    #[inline]
    pub(super) fn put(&self, version: Version) -> bool {
        let put = self.put.load(Ordering::Relaxed);
        // Acquire: pairs with `take`, which has read the slot.
        if put.wrapping_sub(self.taken.load(Ordering::Acquire)) == FRESH {
            return false;
        }
        let slot = &self.slots[put % FRESH];
        slot.watch.write();
        touch_mut(slot, size_of::<Slot>());
        // SAFETY: no thread reads the slot before the store below.
        unsafe { (*slot.version.get()).write(version) };
        // Release: pairs with `take`.
        self.put.store(put.wrapping_add(1), Ordering::Release);
        true
    }

    /// With the log's lock: removes all versions, the oldest first.
    pub(super) fn take(&self, mut to: impl FnMut(Version)) {
        let mut taken = self.taken.load(Ordering::Relaxed);
        // Acquire: pairs with `put`.
        let put = self.put.load(Ordering::Acquire);
        while taken != put {
            let slot = &self.slots[taken % FRESH];
            slot.watch.read();
            touch(slot, size_of::<Slot>());
            // SAFETY: written before `put` was stored, and not written again before `taken` is.
            to(unsafe { (*slot.version.get()).assume_init_read() });
            taken = taken.wrapping_add(1);
        }
        // Release: pairs with `put`.
        self.taken.store(taken, Ordering::Release);
    }

    /// Returns about how many versions the ring has.
    pub(super) fn len(&self) -> usize {
        // `taken` is loaded first, since it never passes `put`.
        let taken = self.taken.load(Ordering::Acquire);
        self.put.load(Ordering::Acquire).wrapping_sub(taken).min(FRESH)
    }

    /// Returns how many versions were ever added, which shows whether the owner still commits.
    pub(super) fn total(&self) -> usize {
        self.put.load(Ordering::Relaxed)
    }
}
