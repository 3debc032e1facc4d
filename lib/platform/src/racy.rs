//! Reads of several words that other threads may be writing.
//!
//! Every optimistic reader of the workspace follows this protocol:
//!
//! 1. Load the version of the data with `Acquire`. If it says "locked", wait or give up.
//! 2. Load all needed words with relaxed loads; the functions below load several words at a time.
//! 3. Execute `fence(Acquire)`, then load the version again, relaxed. If it has changed, discard everything and start
//!    again.
//! 4. Only now follow a pointer, rely on a length, or return a value.
//!
//! The writer marks the version locked and then executes `fence(Release)`, with which the fence of step 3 synchronizes.
//! So a reader that saw one of the writer's words also sees the changed version. Between steps 2 and 4, the words may
//! be a mix of the states of several writers. Computations on them must therefore be harmless for any values: an index
//! is bounds-checked, and no address is followed.
//!
//! A word that is written as an `AtomicU64` must be read as one: racing accesses of different sizes to the same memory
//! are undefined behaviour, even if all of them are atomic.

use core::mem::MaybeUninit;

use crate::atomic::{AtomicU64, Ordering};

/// Loads every word once, relaxed, in no particular order.
#[inline]
pub fn load_words<const N: usize>(src: &[AtomicU64; N]) -> [u64; N] {
    core::array::from_fn(|at| src[at].load(Ordering::Relaxed))
}

/// Copies the words of `src` into `dst` with relaxed loads. Returns `dst`, which is now fully initialized.
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

/// Announces that `len` bytes at `ptr`, which no thread changes any more, will be read plainly, for example key bytes
/// behind a pointer. Natively this does nothing. The simulator cannot see plain reads, so it accounts for their cache
/// misses here.
#[inline(always)]
pub fn touch<T: ?Sized>(ptr: *const T, len: usize) {
    #[cfg(archipelago_sim)]
    archipelago_sim::world::touch(ptr.cast(), len);
    let _ = (ptr, len);
}

/// Announces that `len` bytes at `ptr`, which no other thread accesses now, will be written plainly. Otherwise it works
/// as [`touch`] does.
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
