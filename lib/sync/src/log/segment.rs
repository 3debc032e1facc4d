//! One circular array of log entries, and the word in each entry that tells whether it is filled.
//!
//! # The state word
//! Bit 0 is the paper's alternating bit: in the first pass over the array an entry is filled when the bit is 1, in the
//! second when it is 0, and so on, so that no thread has to clear entries when the log wraps. Bits 1 and 2 say what was
//! filled in.
//!
//! | pass | empty | filled |
//! |---|---|---|
//! | 0, 2, 4, … | bit 0 is 0 | bit 0 is 1 |
//! | 1, 3, 5, … | bit 0 is 1 | bit 0 is 0 |
//!
//! A reader can not take a value of two passes ago for this pass's: it has itself seen the value of the pass between
//! (its replica went over this entry then), and a later load of one atomic never yields an earlier value.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::alloc::Layout;

use archipelago_platform::atomic::{AtomicU8, Ordering};
use archipelago_platform::memory::BlockArena;
use archipelago_platform::topology::NodeId;

use archipelago_platform::cell::RaceCell;

/// What an entry was filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An operation.
    Operation,
    /// Nothing: the thread that reserved it gave up.
    Void,
    /// The mark behind which the log goes on in another segment.
    Moved,
}

const KIND_SHIFT: u8 = 1;

impl Kind {
    fn from_bits(bits: u8) -> Self {
        match bits >> KIND_SHIFT {
            0 => Kind::Operation,
            1 => Kind::Void,
            _ => Kind::Moved,
        }
    }

    fn bits(self) -> u8 {
        (self as u8) << KIND_SHIFT
    }
}

/// One place in the log. The operation is initialised while the state says "filled with an operation" for the current
/// pass and none has dropped it.
pub(super) struct Entry<Op> {
    state: AtomicU8,
    operation: RaceCell<MaybeUninit<Op>>,
}

/// The value of bit 0 that means "filled" in pass `pass`.
#[inline]
fn filled_bit(pass: u64) -> u8 {
    !(pass as u8) & 1
}

impl<Op> Entry<Op> {
    fn empty() -> Self {
        Self { state: AtomicU8::new(0), operation: RaceCell::new(MaybeUninit::uninit()) }
    }

    /// What the entry holds in pass `pass`, `None` while it is empty.
    #[inline]
    pub(super) fn kind(&self, pass: u64) -> Option<Kind> {
        // Acquire: pairs with the Release of `publish`, so that the operation's bytes are seen.
        let state = self.state.load(Ordering::Acquire);
        (state & 1 == filled_bit(pass)).then(|| Kind::from_bits(state & !1))
    }

    /// Moves `operation` in and shows it.
    ///
    /// # Safety
    /// The caller reserved this entry for pass `pass` and fills it once; what an earlier pass left was dropped.
    #[inline]
    pub(super) unsafe fn fill(&self, pass: u64, operation: Op) {
        debug_assert!(self.kind(pass).is_none(), "an entry that no thread filled is empty");
        self.operation.with_mut(|cell| {
            // SAFETY: the reservation makes the caller the only one who touches the cell until it is published.
            unsafe { (*cell).write(operation) };
        });
        self.publish(pass, Kind::Operation);
    }

    /// Shows the entry as filled with something other than an operation. The caller reserved it for this pass.
    #[inline]
    pub(super) fn publish(&self, pass: u64, kind: Kind) {
        // Release: pairs with the Acquire of `kind`.
        self.state.store(filled_bit(pass) | kind.bits(), Ordering::Release);
    }

    /// Runs `f` on the operation.
    ///
    /// # Safety
    /// The entry holds an operation for the current pass, seen through [`kind`](Self::kind), and is not recycled while
    /// `f` runs.
    #[inline]
    pub(super) unsafe fn with<R>(&self, f: impl FnOnce(&Op) -> R) -> R {
        // SAFETY: initialised, by the caller's promise, and written by no thread until it is recycled.
        self.operation.with(|cell| f(unsafe { (*cell).assume_init_ref() }))
    }

    /// Drops the operation.
    ///
    /// # Safety
    /// As for [`with`](Self::with); no other thread reads it any more, and it is dropped once.
    pub(super) unsafe fn drop_operation(&self) {
        // SAFETY: initialised and unshared, by the caller's promise.
        self.operation.with_mut(|cell| unsafe { (*cell).assume_init_drop() });
    }
}

/// The memory of one array.
pub(super) struct Segment<Op> {
    entries: NonNull<Entry<Op>>,
    capacity: usize,
    /// Owns the memory behind `entries`: one block, on the node it was asked for.
    _memory: BlockArena,
}

// SAFETY: a segment is its entries, which threads share by the log's protocol: an operation is written by one thread,
// then read by many (`Sync`), then dropped by any (`Send`).
unsafe impl<Op: Send + Sync> Send for Segment<Op> {}
// SAFETY: as above.
unsafe impl<Op: Send + Sync> Sync for Segment<Op> {}

impl<Op> Segment<Op> {
    /// Bytes of an array of `capacity` entries.
    pub(super) fn bytes(capacity: usize) -> usize {
        capacity.saturating_mul(size_of::<Entry<Op>>())
    }

    /// An array of `capacity` (a power of two) empty entries, near `node`.
    pub(super) fn new(capacity: usize, node: Option<NodeId>) -> Box<Self> {
        debug_assert!(capacity.is_power_of_two());
        let layout = Layout::array::<Entry<Op>>(capacity).expect("a log is far smaller than the address space");
        // Two replicas' threads work at a segment's two ends; its neighbours in memory are strangers.
        let layout = layout.align_to(128).expect("128 is a power of two");
        let memory = BlockArena::new(layout, node);
        let entries = memory.alloc().cast::<Entry<Op>>();
        for at in 0..capacity {
            // SAFETY: the block has room for `capacity` entries and is aligned for them.
            unsafe { entries.add(at).write(Entry::empty()) };
        }
        Box::new(Self { entries, capacity, _memory: memory })
    }

    #[inline]
    pub(super) fn entries(&self) -> NonNull<Entry<Op>> {
        self.entries
    }
}

impl<Op> Drop for Segment<Op> {
    fn drop(&mut self) {
        for at in 0..self.capacity {
            // SAFETY: `new` wrote this entry. Its operation, if any, was dropped by the log: entries do not drop it.
            unsafe { self.entries.add(at).drop_in_place() };
        }
        // The arena gives the block's memory back.
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_filled_in_its_own_pass_only() {
        let segment = Segment::<u64>::new(2, None);
        // SAFETY: the segment has two entries and outlives the reference.
        let entry = unsafe { segment.entries().as_ref() };
        for pass in 0..5 {
            assert_eq!(entry.kind(pass), None);
            // SAFETY: no other thread is here, and `u64` needs no drop.
            unsafe { entry.fill(pass, pass * 10) };
            assert_eq!(entry.kind(pass), Some(Kind::Operation));
            // SAFETY: just filled.
            assert_eq!(unsafe { entry.with(|&operation| operation) }, pass * 10);
        }
        for (pass, kind) in [(5, Kind::Void), (6, Kind::Moved), (7, Kind::Operation)] {
            entry.publish(pass, kind);
            assert_eq!(entry.kind(pass), Some(kind));
            assert_eq!(entry.kind(pass + 1), None);
        }
    }

    #[test]
    fn small_operations_share_a_line() {
        assert!(size_of::<Entry<u64>>() <= 16);
    }
}
