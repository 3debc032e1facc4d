//! Reads of several words that other threads may be writing.
//!
//! Every optimistic reader of the workspace follows this protocol:
//!
//! 1. Load the version of the data with `Acquire`. If it says "locked", wait or give up.
//! 2. Load all needed words with relaxed loads.
//! 3. Execute `fence(Acquire)`, then load the version again, relaxed. If it has changed, discard everything and start
//!    again.
//! 4. Only now follow a pointer, rely on a length, or return a value.
//!
//! The writer marks the version locked and then executes `fence(Release)`, with which the fence of step 3 synchronizes.
//! So a reader that saw one of the writer's words also sees the changed version. Between steps 2 and 4, the words may
//! be a mix of the states of several writers. Computations on them must therefore be harmless for any values: an index
//! is bounds-checked, and no address is followed.
//!
//! A word that is written as an `AtomicU64` must be read as an `AtomicU64`: racing accesses of different sizes to the
//! same memory are undefined behaviour, even if all of them are atomic.

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
