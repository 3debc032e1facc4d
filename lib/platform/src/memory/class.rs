//! What the global allocator takes for a block: more than is asked for, by its size classes and headers. There is no way to
//! ask it, so it is tried, once for each size: blocks are allocated, and the least distance between two of them is what one
//! takes.

// Not of the world: the models never come to it, and theirs are not made by constant expressions.
use core::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::alloc::{Layout, alloc, dealloc};

/// Blocks up to this size are tried.
const LARGEST: usize = 4096;
/// Sizes between which no difference is made.
const STEP: usize = 8;
/// What larger blocks are taken to have beside them.
const HEADER: usize = 16;
/// Blocks allocated for a try.
const TRIED: usize = 48;

/// What blocks of a size take; 0: not tried yet. For alignments that every allocator has anyway, and for lines.
static TAKEN: [[AtomicU16; LARGEST / STEP + 1]; 2] = [const { [const { AtomicU16::new(0) }; LARGEST / STEP + 1] }; 2];

/// Bytes that a block of the global allocator takes, with what the allocator adds: an estimate, the same whenever it is
/// asked for. O(1); the first time that a size is asked for, some tens of blocks are allocated and freed.
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
    // Relaxed: a number, which whichever thread finds it.
    match taken.load(Relaxed) {
        0 => {
            let found = try_out(size.next_multiple_of(STEP), align) as u16;
            // One answer for all times: amounts are added and taken away again.
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
    // Where no two lie side by side, nothing has been learned.
    let most = size + size / 4 + align + HEADER;
    least.filter(|least| (size..=most).contains(least)).unwrap_or(size.next_multiple_of(HEADER) + HEADER)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Against what many blocks, one after the other, span.
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
