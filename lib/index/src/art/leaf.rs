//! Leaves: one whole key and one value word each (lazy expansion: the path to a leaf may be shorter than its key).
//!
//! Keys of form [`Word`](crate::Word) have 16-byte leaves. Byte strings follow a 12-byte head in the same allocation.
//! The key never changes; the value word is atomic and is written under the lock of the node that holds the leaf.

use super::edge::Edge;
use crate::{Form, FormKind};
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::memory::taken_by;
use archipelago_platform::touch;
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::NonNull;

#[repr(C, align(16))]
struct WordLeaf {
    value: AtomicU64,
    key: [u8; 8],
}

#[repr(C)]
struct BytesHead {
    value: AtomicU64,
    len: u32,
}

const BYTES_AT: usize = core::mem::offset_of!(BytesHead, len) + size_of::<u32>();

/// A leaf that is not freed during `'g`.
pub(super) struct Leaf<'g, F> {
    address: NonNull<()>,
    _marker: PhantomData<(&'g AtomicU64, F)>,
}

impl<F> Clone for Leaf<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Leaf<'_, F> {}

impl<F> PartialEq for Leaf<'_, F> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl<'g, F: Form> Leaf<'g, F> {
    /// The length of the longest key that a leaf has room for, in bytes.
    pub(super) const LONGEST_KEY: usize = match F::KIND {
        FormKind::Word => usize::MAX,
        FormKind::Bytes => u32::MAX as usize,
    };

    /// Allocates a leaf. It belongs to the caller until the caller publishes the edge.
    ///
    /// # Panics
    /// If the key is longer than [`LONGEST_KEY`](Self::LONGEST_KEY).
    pub(super) fn create(key: &[u8], word: u64) -> Edge {
        let len = u32::try_from(key.len()).expect("a key is shorter than 4 GiB");
        let layout = layout(F::KIND, key.len());
        // SAFETY: no leaf has size 0.
        let address = unsafe { std::alloc::alloc(layout) };
        if address.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        match F::KIND {
            FormKind::Word => {
                let key = key.try_into().expect("a word's encoding has 8 bytes");
                // SAFETY: freshly allocated with this type's layout.
                unsafe { address.cast::<WordLeaf>().write(WordLeaf { value: AtomicU64::new(word), key }) };
            }
            FormKind::Bytes => {
                let head = address.cast::<BytesHead>();
                // SAFETY: freshly allocated, with room for the head's fields and `len` bytes from `BYTES_AT` on. The
                // head's tail padding is not written: the key starts there.
                unsafe {
                    (&raw mut (*head).value).write(AtomicU64::new(word));
                    (&raw mut (*head).len).write(len);
                    address.add(BYTES_AT).copy_from_nonoverlapping(key.as_ptr(), key.len());
                }
            }
        }
        Edge::to_leaf(address.cast())
    }

    /// # Safety
    /// `address` must be that of a leaf made by [`create`](Self::create) for the same form, which is not freed during
    /// `'g`.
    #[inline(always)]
    pub(super) unsafe fn from_address(address: *mut ()) -> Self {
        // SAFETY: no allocation is at address 0.
        Leaf { address: unsafe { NonNull::new_unchecked(address) }, _marker: PhantomData }
    }

    pub(super) fn edge(self) -> Edge {
        Edge::to_leaf(self.address.as_ptr())
    }

    /// Returns the whole key.
    #[inline(always)]
    pub(super) fn key(self) -> &'g [u8] {
        match F::KIND {
            FormKind::Word => {
                touch(self.address.as_ptr(), size_of::<WordLeaf>());
                // SAFETY: alive for 'g and made for this form (`from_address`); the key never changes.
                unsafe { &(*self.address.cast::<WordLeaf>().as_ptr()).key }
            }
            FormKind::Bytes => {
                touch(self.address.as_ptr(), BYTES_AT);
                // SAFETY: as above.
                let len = unsafe { (&raw const (*self.address.cast::<BytesHead>().as_ptr()).len).read() } as usize;
                let bytes = self.address.cast::<u8>().as_ptr().wrapping_add(BYTES_AT);
                touch(bytes, len);
                // SAFETY: as above; `len` bytes were written there.
                unsafe { core::slice::from_raw_parts(bytes, len) }
            }
        }
    }

    #[inline(always)]
    fn value(self) -> &'g AtomicU64 {
        // SAFETY: alive for 'g; both layouts (`repr(C)`) start with the value.
        unsafe { self.address.cast::<AtomicU64>().as_ref() }
    }

    /// Returns the value word. `Acquire`: the thread that sees a boxed value's address sees the value (partner:
    /// [`swap`](Self::swap)).
    #[inline(always)]
    pub(super) fn word(self) -> u64 {
        self.value().load(Ordering::Acquire)
    }

    /// Replaces the value word. The caller must hold the lock of the node that holds the leaf; so a load and a
    /// store suffice, without a read-modify-write.
    pub(super) fn swap(self, word: u64) -> u64 {
        let old = self.value().load(Ordering::Relaxed);
        self.value().store(word, Ordering::Release);
        old
    }

    /// Frees the leaf, but not the memory to which its word leads.
    ///
    /// # Safety
    /// No thread may be able to reach the leaf any more.
    pub(super) unsafe fn free(self) {
        let layout = layout(F::KIND, self.key().len());
        // SAFETY: allocated by `create` with this layout.
        unsafe { std::alloc::dealloc(self.address.cast().as_ptr(), layout) };
    }

    /// Returns the bytes of a leaf with this key, with the allocator's overhead.
    pub(super) fn bytes_for(key: &[u8]) -> usize {
        taken_by(layout(F::KIND, key.len()))
    }

    /// Returns the number of bytes that the leaf takes, without the memory to which its word leads.
    pub(super) fn bytes(self) -> usize {
        taken_by(layout(F::KIND, self.key().len()))
    }
}

fn layout(kind: FormKind, key_len: usize) -> Layout {
    match kind {
        FormKind::Word => Layout::new::<WordLeaf>(),
        FormKind::Bytes => {
            Layout::from_size_align(BYTES_AT + key_len, align_of::<BytesHead>()).expect("a key is shorter than 4 GiB")
        }
    }
}
