//! Keys as words of a node: numbers are stored in the word, byte strings behind a pointer.

use core::cmp::Ordering;
use core::ptr;

use archipelago_sync::rcu::Guard;

use crate::keys::BenchKey;
use crate::rivals::bytes;

/// A key that a node can hold in one 64-bit word.
///
/// *Alive*: the word was made by [`word`](Self::word) or [`copy`](Self::copy), and one of two conditions holds. Either
/// the caller has the word's node locked. Or the caller read the word in the node at a version that has been validated
/// since, inside an RCU guard that began before the read. In the second case the word is freed only after the guard,
/// since the thread that removes a word from a node retires it.
pub trait TreeKey: BenchKey {
    /// Whether a word is the key itself. If so, any word may be compared, even one that was not validated.
    const PLAIN: bool;

    /// Makes a word for a node.
    fn word(&self) -> u64;

    /// Makes another word of the same key.
    ///
    /// # Safety
    /// The word is alive.
    unsafe fn copy(word: u64) -> u64;

    /// Compares this key with the key of a word.
    ///
    /// # Safety
    /// The word is alive, or [`PLAIN`](Self::PLAIN).
    unsafe fn compare(&self, word: u64) -> Ordering;

    /// Returns the key as visitors see it.
    ///
    /// # Safety
    /// The word is alive for `'a`.
    unsafe fn show<'a>(word: u64) -> Self::Ref<'a>;

    /// Frees a word.
    ///
    /// # Safety
    /// The word was made by this trait, is in no node that other threads reach, and is not used any more.
    unsafe fn free(word: u64);

    /// Frees a word when no thread can see it any more.
    ///
    /// # Safety
    /// The word was alive, and is in no node any more.
    unsafe fn retire(word: u64, guard: &Guard<'_>) {
        unsafe fn free<K: TreeKey>(word: *mut (), _: *mut ()) {
            // SAFETY: no guard that could see the word remains.
            unsafe { K::free(word.expose_provenance() as u64) }
        }
        if !Self::PLAIN {
            let word = ptr::with_exposed_provenance_mut(word as usize);
            // SAFETY: the caller's promise. No other thread retires a word that was removed from a node under its lock.
            unsafe { guard.retire(word, ptr::null_mut(), free::<Self>) }
        }
    }
}

impl TreeKey for u64 {
    const PLAIN: bool = true;

    #[inline]
    fn word(&self) -> u64 {
        *self
    }

    #[inline]
    unsafe fn copy(word: u64) -> u64 {
        word
    }

    #[inline]
    unsafe fn compare(&self, word: u64) -> Ordering {
        self.cmp(&word)
    }

    #[inline]
    unsafe fn show<'a>(word: u64) -> Self::Ref<'a> {
        word
    }

    unsafe fn free(_: u64) {}
}

impl TreeKey for Vec<u8> {
    const PLAIN: bool = false;

    fn word(&self) -> u64 {
        bytes::stored(self)
    }

    unsafe fn copy(word: u64) -> u64 {
        // SAFETY: the caller's promise.
        bytes::stored(unsafe { bytes::bytes(word) })
    }

    #[inline]
    unsafe fn compare(&self, word: u64) -> Ordering {
        // SAFETY: the caller's promise.
        self.as_slice().cmp(unsafe { bytes::bytes(word) })
    }

    unsafe fn show<'a>(word: u64) -> Self::Ref<'a> {
        // SAFETY: the caller's promise.
        unsafe { bytes::bytes(word) }
    }

    unsafe fn free(word: u64) {
        // SAFETY: the caller's promise.
        unsafe { bytes::free(word) }
    }
}
