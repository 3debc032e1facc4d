//! The memory that the global allocator uses for a block: more than was asked for, because of its size classes and
//! headers. An allocator cannot be asked for this amount. So it is measured, once for each size: several blocks are
//! allocated, and the smallest distance between two of them is the result.

// These atomics are not from the platform layer: models never use this code, and their atomics cannot be made in a
// constant expression.
use core::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::alloc::{Layout, alloc, dealloc};

/// The largest block size that is measured.
const LARGEST: usize = 4096;
/// The granularity of block sizes.
const STEP: usize = 8;
/// The header size that is assumed for larger blocks.
const HEADER: usize = 16;
/// The number of blocks that are allocated for a measurement.
const TRIED: usize = 48;

/// The measured size for each block size, or 0 if it was not measured yet. The first row is for alignments that every
/// allocator provides, the second for alignment to cache lines.
static TAKEN: [[AtomicU16; LARGEST / STEP + 1]; 2] = [const { [const { AtomicU16::new(0) }; LARGEST / STEP + 1] }; 2];

/// Returns the bytes that a block of the global allocator occupies, including the allocator's overhead. The result is
/// an estimate, but the same at every call. O(1). The first call for a size allocates and frees some tens of blocks.
///
/// ```
/// use archipelago_platform::memory::taken_by;
/// use std::alloc::Layout;
///
/// assert!(taken_by(Layout::new::<[u8; 100]>()) >= 100);
/// assert_eq!(taken_by(Layout::new::<()>()), 0);
/// ```
pub fn taken_by(layout: Layout) -> usize {
    let (size, align) = (layout.size(), layout.align());
    if size == 0 || align > 64 || cfg!(any(miri, loom, archipelago_sim)) {
        return size;
    }
    if size > LARGEST {
        return size.next_multiple_of(HEADER) + HEADER;
    }
    let align = if align <= HEADER { STEP } else { 64 };
    let taken = &TAKEN[usize::from(align > STEP)][size.div_ceil(STEP)];
    // Relaxed: the value is a number and publishes nothing else.
    match taken.load(Relaxed) {
        0 => {
            let found = try_out(size.next_multiple_of(STEP), align) as u16;
            // The first result is kept for all later calls, because callers add such amounts and later subtract them.
            taken.compare_exchange(0, found, Relaxed, Relaxed).map_or_else(usize::from, |_| usize::from(found))
        }
        taken => usize::from(taken),
    }
}

#[cold]
fn try_out(size: usize, align: usize) -> usize {
    let layout = Layout::from_size_align(size, align).expect("a small block");
    // SAFETY: the layout is not empty.
    let mut blocks: Vec<*mut u8> = (0..TRIED).map(|_| unsafe { alloc(layout) }).filter(|at| !at.is_null()).collect();
    blocks.sort_unstable();
    let least = blocks.windows(2).map(|pair| pair[1].addr() - pair[0].addr()).min();
    // SAFETY: allocated above with this layout, each freed once.
    blocks.into_iter().for_each(|at| unsafe { dealloc(at, layout) });
    // If no two blocks are adjacent, the measurement has no result.
    let most = size + size / 4 + align + HEADER;
    least.filter(|least| (size..=most).contains(least)).unwrap_or(size.next_multiple_of(HEADER) + HEADER)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Compares with the memory span of many blocks allocated one after the other.
    #[test]
    #[cfg(not(miri))]
    fn many_blocks_span_what_one_takes() {
        for (size, align) in [(16, 8), (40, 8), (100, 1), (1024, 64), (3000, 8)] {
            let layout = Layout::from_size_align(size, align).unwrap();
            let taken = taken_by(layout);
            assert!(taken >= size && taken_by(layout) == taken, "{taken} for {size}");
            let count = 20_000;
            // SAFETY: the layout is not empty.
            let mut blocks: Vec<*mut u8> = (0..count).map(|_| unsafe { alloc(layout) }).collect();
            blocks.sort_unstable();
            let mut distances: Vec<usize> = blocks.windows(2).map(|two| two[1].addr() - two[0].addr()).collect();
            distances.sort_unstable();
            let median = distances[count / 2];
            // SAFETY: allocated above with this layout, each freed once.
            blocks.into_iter().for_each(|at| unsafe { dealloc(at, layout) });
            assert!(taken.abs_diff(median) * 10 <= median, "{size}: {taken}, but {median} from block to block");
        }
    }
}
