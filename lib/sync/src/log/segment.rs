//! A segment: one circular array of log entries. A state word in each entry says whether the entry is filled.
//!
//! # The state word
//! Bit 0 is the paper's alternating bit. In the first pass over the array, an entry is filled when the bit is 1; in the
//! second pass, when it is 0; and so on. So no thread has to clear the entries when the log wraps around.
//!
//! A reader cannot confuse the value of two passes ago with the value of the current pass. Its replica replayed this
//! entry in the pass between the two, so the reader has seen that pass's value. Later loads of the same atomic never
//! return an earlier value.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::alloc::Layout;

use archipelago_platform::atomic::{AtomicU8, Ordering};
use archipelago_platform::memory::BlockArena;
use archipelago_platform::topology::NodeId;

use archipelago_platform::cell::RaceCell;

/// The content of a filled entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// An operation.
    Operation,
    /// Nothing: the thread that reserved the entry did not use it.
    Void,
    /// The mark after which the log continues in another segment.
    Moved,
}

const KIND_SHIFT: u8 = 1;

impl Content {
    fn from_bits(bits: u8) -> Self {
        match bits >> KIND_SHIFT {
            0 => Content::Operation,
            1 => Content::Void,
            _ => Content::Moved,
        }
    }

    fn bits(self) -> u8 {
        (self as u8) << KIND_SHIFT
    }
}

/// One entry of the log. `operation` is initialized if the state says "filled with an operation" for the current pass,
/// until the operation is dropped.
pub(super) struct Entry<Op> {
    /// | bits | in passes 0, 2, 4, … | in passes 1, 3, 5, … |
    /// |---|---|---|
    /// | 0 | 0: empty; 1: filled | 1: empty; 0: filled |
    /// | 1, 2 | of a filled entry: its [`Content`] | the same |
    state: AtomicU8,
    operation: RaceCell<MaybeUninit<Op>>,
}

/// Returns the value of bit 0 that means "filled" in pass `pass`.
#[inline]
fn filled_bit(pass: u64) -> u8 {
    !(pass as u8) & 1
}

impl<Op> Entry<Op> {
    fn empty() -> Self {
        Self { state: AtomicU8::new(0), operation: RaceCell::new(MaybeUninit::uninit()) }
    }

    /// Returns the entry's content in pass `pass`, or `None` while the entry is empty.
    #[inline]
    pub(super) fn kind(&self, pass: u64) -> Option<Content> {
        // Acquire: pairs with the Release of `publish`, so the operation's bytes are visible to this thread.
        let state = self.state.load(Ordering::Acquire);
        (state & 1 == filled_bit(pass)).then(|| Content::from_bits(state & !1))
    }

    /// Moves `operation` into the entry and publishes it.
    ///
    /// # Safety
    /// The caller reserved this entry for pass `pass` and fills it once. The operation of an earlier pass was dropped.
    #[inline]
    pub(super) unsafe fn fill(&self, pass: u64, operation: Op) {
        debug_assert!(self.kind(pass).is_none(), "an entry that no thread filled is empty");
        self.operation.with_mut(|cell| {
            // SAFETY: because of the reservation, no other thread accesses the cell until it is published.
            unsafe { (*cell).write(operation) };
        });
        self.publish(pass, Content::Operation);
    }

    /// Publishes the entry as filled with `kind`. The caller reserved the entry for this pass.
    #[inline]
    pub(super) fn publish(&self, pass: u64, kind: Content) {
        // Release: pairs with the Acquire of `kind`.
        self.state.store(filled_bit(pass) | kind.bits(), Ordering::Release);
    }

    /// Calls `f` with the operation.
    ///
    /// # Safety
    /// The caller has seen, through [`kind`](Self::kind), that the entry contains an operation for the current pass.
    /// The entry is not recycled while `f` runs.
    #[inline]
    pub(super) unsafe fn with<R>(&self, f: impl FnOnce(&Op) -> R) -> R {
        // SAFETY: initialized, by the caller's promise, and not written by any thread until it is recycled.
        self.operation.with(|cell| f(unsafe { (*cell).assume_init_ref() }))
    }

    /// Drops the operation.
    ///
    /// # Safety
    /// As for [`with`](Self::with). In addition, no other thread reads the operation any more, and it is dropped only
    /// once.
    pub(super) unsafe fn drop_operation(&self) {
        // SAFETY: initialized and not shared, by the caller's promise.
        self.operation.with_mut(|cell| unsafe { (*cell).assume_init_drop() });
    }
}

/// A segment: the memory of one array.
pub(super) struct Segment<Op> {
    entries: NonNull<Entry<Op>>,
    capacity: usize,
    /// Owns the memory of `entries`: one block, on the NUMA node that `new` was given.
    _memory: BlockArena,
}

// SAFETY: a segment consists of its entries, which threads share by the log's protocol: one thread writes an operation,
// then many threads read it (`Sync`), then any thread drops it (`Send`).
unsafe impl<Op: Send + Sync> Send for Segment<Op> {}
// SAFETY: as above.
unsafe impl<Op: Send + Sync> Sync for Segment<Op> {}

impl<Op> Segment<Op> {
    /// Returns the size in bytes of an array of `capacity` entries.
    pub(super) fn bytes(capacity: usize) -> usize {
        capacity.saturating_mul(size_of::<Entry<Op>>())
    }

    /// Makes an array of `capacity` (a power of two) empty entries, in memory of the NUMA node `node` if it is given.
    pub(super) fn new(capacity: usize, node: Option<NodeId>) -> Box<Self> {
        debug_assert!(capacity.is_power_of_two());
        let layout = Layout::array::<Entry<Op>>(capacity).expect("a log is far smaller than the address space");
        // The first and the last cache line are not shared with other data, which unrelated threads may write.
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
            // SAFETY: `new` wrote this entry. An entry does not drop its operation: the log has dropped it, if there
            // was one.
            unsafe { self.entries.add(at).drop_in_place() };
        }
        // The arena frees the block's memory.
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
            // SAFETY: no other thread accesses the entry, and `u64` needs no drop.
            unsafe { entry.fill(pass, pass * 10) };
            assert_eq!(entry.kind(pass), Some(Content::Operation));
            // SAFETY: the entry was filled just now.
            assert_eq!(unsafe { entry.with(|&operation| operation) }, pass * 10);
        }
        for (pass, kind) in [(5, Content::Void), (6, Content::Moved), (7, Content::Operation)] {
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
