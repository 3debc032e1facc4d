//! Raw memory for chunks: mapped from the operating system if it is large, otherwise from the global allocator.
//!
//! From 64 KiB on, Linux maps the memory separately, so that it is really returned when it is freed. From 2 MiB on, the
//! mapping is aligned to 2 MiB, and transparent huge pages are requested. On a real machine with several nodes, the
//! mapping prefers its node. This is only a preference: if the node is full or has no memory, the system uses other
//! nodes. Smaller pieces come from the global allocator and are placed on the node of the thread that writes them
//! first.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use crate::topology::NodeId;

/// The size and alignment of a huge page, and the size of the largest chunks.
pub(super) const HUGE: usize = 2 << 20;

/// The usual size of a page.
const PAGE: usize = 4096;

/// The size from which on memory is mapped.
const MAPPED: usize = 64 << 10;

/// Whether this build maps memory.
const CAN_MAP: bool = cfg!(all(target_os = "linux", not(any(miri, loom, archipelago_sim))));

/// An owned piece of memory, freed when dropped.
pub(super) struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    /// Rounds a layout up to the size that will be allocated for it, so that no byte of a page is unused.
    pub(super) fn round_up(layout: Layout) -> Layout {
        let (size, align) = rounded(layout.size(), layout.align(), mapping::page());
        Layout::from_size_align(size, align).expect("a chunk is far smaller than the address space")
    }

    /// Allocates uninitialized memory. `layout` comes from [`round_up`](Self::round_up) and is not empty. Aborts, as
    /// `Box` does, if there is no memory.
    pub(super) fn allocate(layout: Layout, node: Option<NodeId>) -> Self {
        debug_assert!(layout.size() > 0);
        let start = if is_mapped(layout) {
            mapping::map(layout, node)
        } else {
            // SAFETY: the layout is not empty, by this function's contract.
            NonNull::new(unsafe { alloc(layout) })
        };
        let pages = Pages { start: start.unwrap_or_else(|| handle_alloc_error(layout)), layout };
        pages.set_home(node);
        pages
    }

    /// Tells the simulator where the memory is: on `node`, or on the node that accesses it first.
    fn set_home(&self, node: Option<NodeId>) {
        #[cfg(archipelago_sim)]
        if self.layout.size() >= PAGE {
            let (start, size) = (self.start.as_ptr().cast_const().cast(), self.layout.size());
            match node {
                Some(node) => archipelago_sim::world::set_home(start, size, node.0),
                None => archipelago_sim::world::release(start, size),
            }
        }
        let _ = node;
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn size(&self) -> usize {
        self.layout.size()
    }

    /// Returns the bytes that are backed by memory when the first `written` bytes have been written, not considering
    /// huge pages.
    pub(super) fn backed(&self, written: usize) -> usize {
        if is_mapped(self.layout) { written.next_multiple_of(mapping::page()).min(self.size()) } else { self.size() }
    }
}

/// Rounds a size and an alignment as [`Pages::round_up`] does, for pages of this size. Parts of mappings are unmapped,
/// and the kernel refuses to unmap parts of pages.
fn rounded(size: usize, align: usize, page: usize) -> (usize, usize) {
    let whole = size.next_multiple_of(page);
    match size {
        MAPPED.. if whole >= HUGE => (whole, align.max(HUGE)),
        MAPPED.. => (whole, align.max(page)),
        // Whole pages, so that the simulator can assign them to a node.
        PAGE.. if cfg!(archipelago_sim) => (whole, align.max(page)),
        _ => (size, align),
    }
}

fn is_mapped(layout: Layout) -> bool {
    CAN_MAP && layout.size() >= MAPPED
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.set_home(None);
        if is_mapped(self.layout) {
            // SAFETY: `allocate` mapped exactly this range, and it is not used after the drop.
            unsafe { mapping::unmap(self.start.as_ptr(), self.layout.size()) };
        } else {
            // SAFETY: `allocate` got this from the global allocator with this layout, and it is not used after the
            // drop.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

#[cfg(all(target_os = "linux", not(any(miri, loom, archipelago_sim))))]
mod mapping {
    use core::ptr::{NonNull, null_mut};
    use std::alloc::Layout;

    use super::{HUGE, PAGE};
    use crate::topology::{NodeId, Topology};

    /// Returns the size of the kernel's pages, 64 KiB on some machines.
    pub(super) fn page() -> usize {
        // SAFETY: the call has no precondition.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).map_or(PAGE, |size| size.max(PAGE))
    }

    /// Maps aligned, zeroed, private memory. Returns `None` if there is none.
    pub(super) fn map(layout: Layout, node: Option<NodeId>) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        // The kernel aligns to pages. For a larger alignment, map more and unmap both ends.
        let extra = if align > page() { align } else { 0 };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping affects no existing memory.
        let whole = unsafe { libc::mmap(null_mut(), size + extra, protection, flags, -1, 0) };
        if whole == libc::MAP_FAILED {
            return None;
        }
        let whole = whole.cast::<u8>();
        let before = whole.addr().next_multiple_of(align) - whole.addr();
        // SAFETY: `before <= extra`, so all three parts are in the mapping made above, which no other thread knows.
        let start = unsafe {
            let start = whole.add(before);
            unmap(whole, before);
            unmap(start.add(size), extra - before);
            start
        };
        place(start, size, node);
        NonNull::new(start)
    }

    /// # Safety
    /// The range is mapped, page-aligned, and never used again.
    pub(super) unsafe fn unmap(start: *mut u8, size: usize) {
        if size > 0 {
            // SAFETY: by this function's contract.
            let result = unsafe { libc::munmap(start.cast(), size) };
            debug_assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        }
    }

    /// Requests huge pages and the node. Both are only preferences: if the kernel refuses, the memory is slower.
    fn place(start: *mut u8, size: usize, node: Option<NodeId>) {
        if size >= HUGE {
            // SAFETY: the range is a mapping that belongs to the caller.
            unsafe { libc::madvise(start.cast(), size, libc::MADV_HUGEPAGE) };
        }
        let topology = Topology::current();
        let real = !topology.is_synthetic() && topology.nodes().len() > 1;
        if let Some(node) = node.and_then(|node| topology.nodes().get(node.0)).filter(|_| real) {
            prefer_node(start, size, node.os_id);
        }
    }

    fn prefer_node(start: *mut u8, size: usize, os_id: usize) {
        /// `MPOL_PREFERRED` of the kernel's `mempolicy.h`.
        const PREFERRED: libc::c_long = 1;
        let mut mask = [0u64; 16];
        let Some(word) = mask.get_mut(os_id / 64) else { return };
        *word = 1 << (os_id % 64);
        // The kernel reads one bit less than the number that it is given.
        let bits = mask.len() * 64 + 1;
        // SAFETY: the range is a mapping that belongs to the caller. The mask is readable for all bits that the kernel
        // reads, one less than `bits`.
        unsafe { libc::syscall(libc::SYS_mbind, start, size, PREFERRED, mask.as_ptr(), bits, 0) };
    }
}

#[cfg(not(all(target_os = "linux", not(any(miri, loom, archipelago_sim)))))]
mod mapping {
    use core::ptr::NonNull;
    use std::alloc::Layout;

    use super::PAGE;
    use crate::topology::NodeId;

    pub(super) fn page() -> usize {
        PAGE
    }

    pub(super) fn map(_: Layout, _: Option<NodeId>) -> Option<NonNull<u8>> {
        unreachable!("nothing is mapped in this world")
    }

    pub(super) unsafe fn unmap(_: *mut u8, _: usize) {
        unreachable!("nothing is mapped in this world")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_aligned_and_writable() {
        let sizes: &[usize] =
            if cfg!(miri) { &[64, 70_000] } else { &[64, 70_000, HUGE - 4000, HUGE, HUGE + 1, 5 * HUGE] };
        for &size in sizes {
            let layout = Pages::round_up(Layout::from_size_align(size, 64).unwrap());
            let pages = Pages::allocate(layout, Some(NodeId(0)));
            assert!(pages.size() >= size);
            assert_eq!(pages.start().addr().get() % layout.align(), 0);
            assert!(layout.size() < HUGE || layout.align() == HUGE);
            // SAFETY: both bytes are in the allocation.
            unsafe {
                pages.start().write(1);
                pages.start().add(pages.size() - 1).write(2);
            }
        }
    }

    #[test]
    fn mappings_are_whole_pages_of_the_kernel() {
        for page in [PAGE, 64 << 10] {
            for size in [MAPPED, HUGE - 4000, HUGE + PAGE, 5 * HUGE + 1] {
                let (size, align) = rounded(size, 64, page);
                assert!(size.is_multiple_of(page) && align.is_multiple_of(page), "{size}, {align}");
            }
            assert_eq!(rounded(64, 64, page), (64, 64), "the global allocator's");
        }
    }

    /// The largest chunk is a huge page, whatever the size of its blocks.
    #[test]
    fn the_largest_chunks_are_huge_pages() {
        for block in [512, 1024, 1984, 4096, 8192] {
            let block = Layout::from_size_align(block, 64).unwrap();
            let (chunk, _) = crate::memory::chunk::layout(block, HUGE);
            assert_eq!((chunk.size(), chunk.align()), (HUGE, HUGE), "of {block:?}");
        }
    }
}
