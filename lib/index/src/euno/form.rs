//! Keys in chunks (the leaves of the map) are stored as one word each. The word of a `u64` is the key itself; the word
//! of a byte string is the address of an immutable box with the bytes.
//!
//! # Ownership of boxes
//! Each key word in an entry, in a chunk's or tower's `low`, in a chunk's `high`, or among an inner node's separators
//! owns a box of its own. (The key beside a tower's link is the word of the following tower's `low`.) The thread that
//! removes the word retires the box, or retires the page with the box.

use crate::structure::{Bytes, Form, Word};
use archipelago_platform::memory::taken_by;
use archipelago_platform::touch;
use core::alloc::Layout;

/// The tag of a slot of a scattered chunk whose entry was removed.
pub const GONE: u8 = 1;

/// A form of keys that chunks can store.
pub trait ChunkForm: Form {
    /// Returns the tag of a slot with this key: neither 0 nor [`GONE`].
    #[inline(always)]
    fn slot_tag(key: Self::Probe<'_>) -> u8 {
        Self::tag(key).max(GONE + 1)
    }

    /// Whether words are addresses of keys. If so, a word must be proven (validated) before its key is read.
    const BOXED: bool;

    /// Returns the word of a key.
    fn keep(key: Self::Probe<'_>) -> u64;

    /// Returns the key of a word.
    ///
    /// # Safety
    /// `word` must have been made by [`keep`](Self::keep), and must not be discarded during `'a`.
    unsafe fn kept<'a>(word: u64) -> Self::Probe<'a>;

    /// Frees the memory that [`keep`](Self::keep) has allocated.
    ///
    /// # Safety
    /// `word` must have been made by [`keep`](Self::keep), and no thread may use it from now on.
    unsafe fn discard(word: u64);

    /// Returns the bytes that a key takes in addition to its word, with the allocator's overhead.
    fn kept_bytes(key: Self::Probe<'_>) -> usize;
}

impl ChunkForm for Word {
    const BOXED: bool = false;

    #[inline(always)]
    fn keep(key: u64) -> u64 {
        key
    }

    #[inline(always)]
    unsafe fn kept<'a>(word: u64) -> Self::Probe<'a> {
        word
    }

    #[inline(always)]
    unsafe fn discard(_: u64) {}

    #[inline(always)]
    fn kept_bytes(_: u64) -> usize {
        0
    }
}

/// The size of a box's head. A box contains the number of bytes, and then the bytes.
const HEAD: usize = size_of::<usize>();

fn layout(len: usize) -> Layout {
    Layout::from_size_align(HEAD + len, align_of::<usize>()).expect("a key's bytes lie in memory")
}

impl ChunkForm for Bytes {
    const BOXED: bool = true;

    fn keep(key: &[u8]) -> u64 {
        let layout = layout(key.len());
        // SAFETY: no layout here has size 0.
        let at = unsafe { std::alloc::alloc(layout) };
        if at.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        // SAFETY: freshly allocated, with room for the number and the bytes.
        unsafe {
            at.cast::<usize>().write(key.len());
            at.add(HEAD).copy_from_nonoverlapping(key.as_ptr(), key.len());
        }
        at.expose_provenance() as u64
    }

    #[inline]
    unsafe fn kept<'a>(word: u64) -> Self::Probe<'a> {
        let at = core::ptr::with_exposed_provenance::<u8>(word as usize);
        touch(at, HEAD);
        // SAFETY: the caller guarantees the contract; a key does not change.
        let len = unsafe { at.cast::<usize>().read() };
        let bytes = at.wrapping_add(HEAD);
        touch(bytes, len);
        // SAFETY: as above; `len` bytes were written behind the head.
        unsafe { core::slice::from_raw_parts(bytes, len) }
    }

    unsafe fn discard(word: u64) {
        // SAFETY: the caller guarantees the same contract.
        let layout = layout(unsafe { Self::kept(word) }.len());
        // SAFETY: allocated by `keep` with this layout.
        unsafe { std::alloc::dealloc(core::ptr::with_exposed_provenance_mut(word as usize), layout) }
    }

    fn kept_bytes(key: &[u8]) -> usize {
        taken_by(layout(key.len()))
    }
}
