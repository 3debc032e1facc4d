//! Byte strings to which a node's word points: immutable blocks of the length followed by the bytes.

use core::ptr;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use archipelago_platform::touch;
use archipelago_sync::rcu::Guard;

/// Bytes of the length, which precedes the string.
const HEADER: usize = size_of::<usize>();

fn layout(len: usize) -> Layout {
    Layout::from_size_align(HEADER + len, align_of::<usize>()).expect("a key is shorter than half of the memory")
}

/// Makes a block with a copy of the bytes. Returns its address.
pub fn stored(bytes: &[u8]) -> u64 {
    let layout = layout(bytes.len());
    // SAFETY: the layout has at least the header's size, and the writes are within the layout.
    unsafe {
        let block = alloc(layout);
        if block.is_null() {
            handle_alloc_error(layout);
        }
        block.cast::<usize>().write(bytes.len());
        ptr::copy_nonoverlapping(bytes.as_ptr(), block.add(HEADER), bytes.len());
        block.expose_provenance() as u64
    }
}

/// Returns the bytes of a block.
///
/// # Safety
/// The word was made by [`stored`], and its block is not freed during `'a`.
pub unsafe fn bytes<'a>(word: u64) -> &'a [u8] {
    let block = ptr::with_exposed_provenance::<u8>(word as usize);
    touch(block, HEADER);
    // SAFETY: the block is alive, and no thread changes a block after it was made.
    unsafe {
        let len = block.cast::<usize>().read();
        touch(block.add(HEADER), len);
        core::slice::from_raw_parts(block.add(HEADER), len)
    }
}

/// Frees a block.
///
/// # Safety
/// The word was made by [`stored`], and no thread uses its block any more.
pub unsafe fn free(word: u64) {
    // SAFETY: no other thread uses the block.
    unsafe {
        let len = bytes(word).len();
        dealloc(ptr::with_exposed_provenance_mut(word as usize), layout(len));
    }
}

/// Frees a block when no thread can see it any more.
///
/// # Safety
/// The word was made by [`stored`], is in no structure any more, and no other thread retires it.
pub unsafe fn retire(word: u64, guard: &Guard<'_>) {
    unsafe fn freed(block: *mut (), _: *mut ()) {
        // SAFETY: no guard that could see the block remains.
        unsafe { free(block.expose_provenance() as u64) }
    }
    // SAFETY: the caller's promise.
    unsafe { guard.retire(ptr::with_exposed_provenance_mut(word as usize), ptr::null_mut(), freed) }
}
