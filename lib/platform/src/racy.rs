//! Reading several words that other threads may be writing.
//!
//! The protocol of every optimistic reader in the house:
//!
//! 1. load the version of what is to be read with `Acquire`; if it says "locked", wait or give up;
//! 2. load everything wanted with relaxed loads, several words at a time through the functions below;
//! 3. `fence(Acquire)`, then load the version again, relaxed: if it changed, throw everything away and start again;
//! 4. only now follow a pointer, trust a length, or hand out a value.
//!
//! The fence of step 3 meets the writer's `fence(Release)` after it marked the version locked: a reader that saw one
//! word of the writer's therefore sees the changed version. Between steps 2 and 4 the words may be a mix of several
//! writers' states, so whatever is computed from them must be harmless if they make no sense together: no index
//! without a bounds check, no address followed.
//!
//! A word that is written as an `AtomicU64` must be read as one: racing accesses of different sizes to the same memory
//! are undefined behaviour, even if all are atomic.

use core::mem::MaybeUninit;

use crate::atomic::{AtomicU64, Ordering};

/// Loads every word once, relaxed, in no particular order.
#[inline]
pub fn load_words<const N: usize>(src: &[AtomicU64; N]) -> [u64; N] {
    core::array::from_fn(|at| src[at].load(Ordering::Relaxed))
}

/// Copies the words of `src` into `dst` with relaxed loads; returns the part of `dst` that is now initialised, which is
/// all of it.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_words<'a>(src: &[AtomicU64], dst: &'a mut [MaybeUninit<u64>]) -> &'a mut [u64] {
    assert_eq!(src.len(), dst.len(), "copy_words needs as much room as there are words");
    for (word, room) in src.iter().zip(dst.iter_mut()) {
        room.write(word.load(Ordering::Relaxed));
    }
    // SAFETY: the loop has written every element, and `MaybeUninit<u64>` has the layout of `u64`.
    unsafe { &mut *(core::ptr::from_mut(dst) as *mut [u64]) }
}

/// Announces that `len` bytes at `ptr`, which no thread changes any more, are about to be read plainly: key bytes behind
/// a pointer, for instance. Natively this does nothing. A simulated machine charges the cache misses here, since
/// it sees no plain reads.
#[inline(always)]
pub fn touch<T: ?Sized>(ptr: *const T, len: usize) {
    #[cfg(archipelago_sim)]
    archipelago_sim::world::touch(ptr.cast(), len);
    let _ = (ptr, len);
}

/// Announces that `len` bytes at `ptr`, which no other thread touches now, are about to be written plainly: as [`touch`].
#[inline(always)]
pub fn touch_mut<T: ?Sized>(ptr: *const T, len: usize) {
    #[cfg(archipelago_sim)]
    archipelago_sim::world::touch_mut(ptr.cast(), len);
    let _ = (ptr, len);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn loads_and_copies() {
        let words: [AtomicU64; 8] = core::array::from_fn(|at| AtomicU64::new(at as u64 * 3));
        let expected: [u64; 8] = core::array::from_fn(|at| at as u64 * 3);
        assert_eq!(load_words(&words), expected);
        let mut room = [const { MaybeUninit::uninit() }; 8];
        assert_eq!(copy_words(&words[2..], &mut room[2..]), &expected[2..]);
        assert!(copy_words(&words[..0], &mut room[..0]).is_empty());
    }

    #[test]
    #[should_panic(expected = "as much room")]
    fn refuses_unequal_lengths() {
        copy_words(&[AtomicU64::new(1)], &mut []);
    }
}
