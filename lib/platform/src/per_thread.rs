//! A table with one cell per thread slot (a small number that each live thread has, see `thread::slot`), in which
//! per-thread records, counters and lists are stored. Cells are made when they are first used, and are never moved.
//!
//! The table consists of buckets that double in size (4, 8, 16, … cells). Each bucket is allocated at the first use of
//! one of its slots. A cell is a pointer to a boxed `T`. The first caller with the slot's index makes the `T`. If the
//! allocator returns fresh pages, the operating system places them on this caller's NUMA node. The `T` is freed only
//! with the whole table. An unused table is 23 null pointers. Up to four threads need one bucket of four cells; `n`
//! threads need buckets with `O(n)` cells.
//!
//! Invariants: a bucket pointer and a cell pointer each change once, from null to their final value, by a
//! compare-and-exchange. A thread that loses this race frees what it made. So a shared reference to a cell is valid as
//! long as the borrow of the table.

use core::{array, ptr};

use crate::atomic::{AtomicPtr, Ordering};

/// The binary logarithm of the number of cells of bucket 0.
const FIRST_BITS: u32 = 2;
/// The number of buckets: enough for 2^25 - 4 slots, more than Linux can have threads. Under loom there is only one
/// bucket.
#[cfg(not(loom))]
const BUCKETS: usize = 23;
#[cfg(loom)]
const BUCKETS: usize = 1;

/// A growing table with one `T` per thread slot. See the module's text.
///
/// ```
/// use archipelago::platform::per_thread::PerThread;
///
/// let names = PerThread::new();
/// assert_eq!(names.get_or(3, || "third"), &"third");
/// assert_eq!(names.get_or(3, || "again"), &"third");
/// assert_eq!(names.iter().count(), 1);
/// ```
pub struct PerThread<T> {
    buckets: [AtomicPtr<AtomicPtr<T>>; BUCKETS],
}

/// Returns the bucket of slot `index`, and the offset in it.
#[inline]
fn place(index: usize) -> (usize, usize) {
    let shifted = index + (1 << FIRST_BITS);
    let bits = shifted.ilog2();
    ((bits - FIRST_BITS) as usize, shifted - (1 << bits))
}

fn bucket_len(bucket: usize) -> usize {
    1 << (bucket as u32 + FIRST_BITS)
}

impl<T: Send + Sync> PerThread<T> {
    /// Makes an empty table. Allocates nothing.
    pub fn new() -> Self {
        Self { buckets: array::from_fn(|_| AtomicPtr::new(ptr::null_mut())) }
    }

    /// Returns the value of slot `slot_index`. If the slot has a value, the call costs two loads. Otherwise `make`
    /// makes the value.
    ///
    /// If two threads race to make one cell, `make` runs in both, and one result is dropped.
    ///
    /// # Panics
    /// If `slot_index` is 2^25 - 4 or more (under loom, 4 or more).
    #[inline]
    pub fn get_or(&self, slot_index: usize, make: impl Fn() -> T) -> &T {
        let (bucket, offset) = place(slot_index);
        // Acquire (here and below): pairs with the Release of `publish`, so the pointee's initialization is visible.
        let cells = self.buckets[bucket].load(Ordering::Acquire);
        if !cells.is_null() {
            // SAFETY: a non-null bucket pointer is an array of `bucket_len(bucket)` cells that lives as long as `self`,
            // and `place` returns offsets less than this length.
            let cell = unsafe { &*cells.add(offset) };
            let value = cell.load(Ordering::Acquire);
            if !value.is_null() {
                // SAFETY: a non-null cell pointer is a boxed `T`, freed only in `drop`.
                return unsafe { &*value };
            }
        }
        self.make(bucket, offset, make)
    }

    #[cold]
    fn make(&self, bucket: usize, offset: usize, make: impl Fn() -> T) -> &T {
        let slot = &self.buckets[bucket];
        let mut cells = slot.load(Ordering::Acquire);
        if cells.is_null() {
            let fresh: Box<[AtomicPtr<T>]> = (0..bucket_len(bucket)).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
            let fresh = Box::into_raw(fresh).cast::<AtomicPtr<T>>();
            cells = publish(slot, fresh).unwrap_or_else(|winner| {
                // SAFETY: `fresh` was made from a boxed slice of this length just above, and no other thread has seen
                // it.
                unsafe { free_cells(fresh, bucket) };
                winner
            });
        }
        // SAFETY: as in `get_or`.
        let cell = unsafe { &*cells.add(offset) };
        let mut value = cell.load(Ordering::Acquire);
        if value.is_null() {
            let fresh = Box::into_raw(Box::new(make()));
            value = publish(cell, fresh).unwrap_or_else(|winner| {
                // SAFETY: `fresh` was made from a box just above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                winner
            });
        }
        // SAFETY: as in `get_or`.
        unsafe { &*value }
    }

    /// Returns the cells made so far, by slot index. A cell that is made during the iteration may or may not be
    /// returned.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.buckets.iter().enumerate().flat_map(|(bucket, slot)| {
            let cells = slot.load(Ordering::Acquire);
            let len = if cells.is_null() { 0 } else { bucket_len(bucket) };
            (0..len).filter_map(move |offset| {
                // SAFETY: `cells` is non-null here, see `get_or`; `offset` is less than the bucket's length.
                let value = unsafe { &*cells.add(offset) }.load(Ordering::Acquire);
                // SAFETY: a non-null cell pointer is a boxed `T`, freed only in `drop`.
                unsafe { value.as_ref() }
            })
        })
    }
}

/// Stores `fresh` in `slot` if `slot` is null. Otherwise returns the value of the thread that was faster, as an error.
/// Release publishes the pointee's initialization.
fn publish<U>(slot: &AtomicPtr<U>, fresh: *mut U) -> Result<*mut U, *mut U> {
    slot.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).map(|_| fresh)
}

/// # Safety
/// `cells` is the leaked boxed slice of bucket number `bucket`, and no thread uses it any more.
unsafe fn free_cells<T>(cells: *mut AtomicPtr<T>, bucket: usize) {
    let slice = ptr::slice_from_raw_parts_mut(cells, bucket_len(bucket));
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(slice) });
}

impl<T: Send + Sync> Default for PerThread<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for PerThread<T> {
    fn drop(&mut self) {
        for (bucket, slot) in self.buckets.iter().enumerate() {
            // Relaxed: `&mut self` orders every earlier use before this one.
            let cells = slot.load(Ordering::Relaxed);
            if cells.is_null() {
                continue;
            }
            for offset in 0..bucket_len(bucket) {
                // SAFETY: non-null bucket, offset less than its length; see `get_or`.
                let value = unsafe { &*cells.add(offset) }.load(Ordering::Relaxed);
                if !value.is_null() {
                    // SAFETY: the cell owns this box, and because of `&mut self` no thread borrows it.
                    drop(unsafe { Box::from_raw(value) });
                }
            }
            // SAFETY: made by `make` with this bucket number; its values were freed above.
            unsafe { free_cells(cells, bucket) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::atomic::AtomicUsize;
    use crate::thread;

    #[test]
    fn places_are_dense_and_distinct() {
        let mut expected = (0, 0);
        for index in 0..1000 {
            assert_eq!(place(index), expected);
            expected.1 += 1;
            if expected.1 == bucket_len(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn small_when_little_used() {
        let empty = size_of::<PerThread<[u64; 8]>>();
        assert!(empty < 600, "{empty}");
        assert!(empty + bucket_len(0) * size_of::<usize>() + 64 < 1200);
    }

    #[test]
    fn cells_stay_where_they_are() {
        let table = PerThread::new();
        let first = ptr::from_ref(table.get_or(0, || 7_usize));
        for index in (0..300).rev() {
            assert_eq!(*table.get_or(index, || index), if index == 0 { 7 } else { index });
        }
        assert_eq!(first, ptr::from_ref(table.get_or(0, || 8)));
        assert_eq!(table.iter().count(), 300);
        assert_eq!(table.iter().sum::<usize>(), 7 + (1..300).sum::<usize>());
    }

    #[test]
    fn racing_makers_agree_and_nothing_leaks() {
        static LIVE: AtomicUsize = AtomicUsize::new(0);
        struct Counted;
        impl Drop for Counted {
            fn drop(&mut self) {
                LIVE.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let slots = if cfg!(miri) { 8 } else { 200 };
        let table = PerThread::new();
        let made = |index| {
            ptr::from_ref(table.get_or(index, || {
                LIVE.fetch_add(1, Ordering::Relaxed);
                Counted
            })) as usize
        };
        thread::scope(|scope| {
            let walk = || (0..slots).map(made).collect::<Vec<_>>();
            let others: Vec<_> = (0..3).map(|_| scope.spawn(walk)).collect();
            let mine = walk();
            for other in others {
                assert_eq!(other.join().unwrap(), mine);
            }
        });
        assert_eq!(LIVE.load(Ordering::Relaxed), slots);
        drop(table);
        assert_eq!(LIVE.load(Ordering::Relaxed), 0);
    }
}
