//! Raw memory for chunks: mapped from the operating system where that pays, from the global allocator elsewhere.
//!
//! From 64 KiB on, Linux is asked for a mapping of its own, so that giving the memory back really gives it back. From
//! 2 MiB on, the mapping is aligned to 2 MiB and transparent huge pages are asked for. On a real machine with several
//! nodes, the mapping prefers its node; the preference is a wish, and a node that is full or has no memory falls back
//! to its neighbours. Smaller pieces come from the global allocator and lie where their first writer runs.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use crate::topology::NodeId;

/// The size and alignment of a huge page, and of a grown chunk.
pub(super) const HUGE: usize = 2 << 20;

/// Mappings are multiples of this. A kernel with larger pages rounds up by itself.
const PAGE: usize = 4096;

/// From this size on, memory is mapped.
const MAPPED: usize = 64 << 10;

/// Whether this world can map memory.
const CAN_MAP: bool = cfg!(all(target_os = "linux", not(any(miri, loom, archipelago_sim))));

/// An owned piece of memory, given back when dropped.
pub(super) struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    /// Rounds a layout up to what will be allocated for it, so that no byte of a page is wasted.
    pub(super) fn round_up(layout: Layout) -> Layout {
        let (size, align) = (layout.size(), layout.align());
        let (size, align) = match size {
            HUGE.. => (size.next_multiple_of(PAGE), align.max(HUGE)),
            MAPPED.. => (size.next_multiple_of(PAGE), align.max(PAGE)),
            // So that the virtual machine can say whose node it is on.
            PAGE.. if cfg!(archipelago_sim) => (size.next_multiple_of(PAGE), align.max(PAGE)),
            _ => (size, align),
        };
        Layout::from_size_align(size, align).expect("a chunk is far smaller than the address space")
    }

    /// Allocates uninitialised memory; `layout` comes from [`round_up`](Self::round_up) and is not empty. Aborts, as
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

    /// Tells the virtual machine where the memory lies: on `node`, or where it is touched first.
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

    /// How much of it is backed by memory when its first `written` bytes have been written, huge pages apart.
    pub(super) fn backed(&self, written: usize) -> usize {
        if is_mapped(self.layout) { written.next_multiple_of(PAGE).min(self.size()) } else { self.size() }
    }
}

fn is_mapped(layout: Layout) -> bool {
    CAN_MAP && layout.size() >= MAPPED
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.set_home(None);
        if is_mapped(self.layout) {
            // SAFETY: `allocate` mapped exactly this range, and dropping is the last use of it.
            unsafe { mapping::unmap(self.start.as_ptr(), self.layout.size()) };
        } else {
            // SAFETY: `allocate` got this from the global allocator with this layout, and dropping is the last use.
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

    /// Maps aligned, zeroed, private memory; `None` if there is none.
    pub(super) fn map(layout: Layout, node: Option<NodeId>) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        // The kernel aligns to pages. For more, map more and give back both ends.
        let extra = if align > PAGE { align } else { 0 };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping touches nothing that exists.
        let whole = unsafe { libc::mmap(null_mut(), size + extra, protection, flags, -1, 0) };
        if whole == libc::MAP_FAILED {
            return None;
        }
        let whole = whole.cast::<u8>();
        let before = whole.addr().next_multiple_of(align) - whole.addr();
        // SAFETY: `before <= extra`, so all three parts lie in the mapping just made, which no other thread knows.
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

    /// Asks for huge pages and for the node. Both are wishes: a kernel that refuses costs speed only.
    fn place(start: *mut u8, size: usize, node: Option<NodeId>) {
        if size >= HUGE {
            // SAFETY: the range is a mapping of the caller's.
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
        // The kernel counts one bit more than it reads.
        let bits = mask.len() * 64 + 1;
        // SAFETY: the range is a mapping of the caller's, and the mask is readable for as many bits as are named, less
        // the one that the kernel does not read.
        unsafe { libc::syscall(libc::SYS_mbind, start, size, PREFERRED, mask.as_ptr(), bits, 0) };
    }
}

#[cfg(not(all(target_os = "linux", not(any(miri, loom, archipelago_sim)))))]
mod mapping {
    use core::ptr::NonNull;
    use std::alloc::Layout;

    use crate::topology::NodeId;

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
        let sizes: &[usize] = if cfg!(miri) { &[64, 70_000] } else { &[64, 70_000, HUGE, HUGE + 1, 5 * HUGE] };
        for &size in sizes {
            let layout = Pages::round_up(Layout::from_size_align(size, 64).unwrap());
            let pages = Pages::allocate(layout, Some(NodeId(0)));
            assert!(pages.size() >= size);
            assert_eq!(pages.start().addr().get() % layout.align(), 0);
            assert!(size < HUGE || layout.align() == HUGE);
            // SAFETY: both bytes lie in the allocation.
            unsafe {
                pages.start().write(1);
                pages.start().add(pages.size() - 1).write(2);
            }
        }
    }
}
