//! Keys as words of a node: numbers as themselves, byte strings behind a pointer.

use core::cmp::Ordering;
use core::ptr;

use archipelago_sync::rcu::Guard;

use crate::keys::BenchKey;
use crate::rivals::bytes;

/// A key that a node can hold in one word.
///
/// *Alive*: the word was made by [`word`](Self::word) or [`copy`](Self::copy), and either its node is locked by the
/// caller, or it was read there at a version that has been validated since, inside a guard that began before the read:
/// the thread that takes a word out of a node retires it, so it is freed after that guard only.
pub trait TreeKey: BenchKey {
    /// Whether a word stands for itself: any may be compared, whatever was read.
    const PLAIN: bool;

    /// A word for a node.
    fn word(&self) -> u64;

    /// Another word of the same key.
    ///
    /// # Safety
    /// The word is alive.
    unsafe fn copy(word: u64) -> u64;

    /// This key against a node's.
    ///
    /// # Safety
    /// The word is alive, or [`PLAIN`](Self::PLAIN).
    unsafe fn compare(&self, word: u64) -> Ordering;

    /// The key for those who visit it.
    ///
    /// # Safety
    /// The word is alive for `'a`.
    unsafe fn show<'a>(word: u64) -> Self::Ref<'a>;

    /// Frees a word.
    ///
    /// # Safety
    /// It was made by this trait, is in no node that others reach, and is not used any more.
    unsafe fn free(word: u64);

    /// Frees a word when no thread can see it any more.
    ///
    /// # Safety
    /// It was alive and is no longer in any node.
    unsafe fn retire(word: u64, guard: &Guard<'_>) {
        unsafe fn free<K: TreeKey>(word: *mut (), _: *mut ()) {
            // SAFETY: the guards that saw it are gone.
            unsafe { K::free(word.expose_provenance() as u64) }
        }
        if !Self::PLAIN {
            let word = ptr::with_exposed_provenance_mut(word as usize);
            // SAFETY: passed on; no other thread retires what was taken out of a node under its lock.
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
