//! Atomic types, fences and orderings: `core`'s in the native world, loom's in the model world (with a `load` of our
//! own), and the simulator's in the simulated world.

#[cfg(loom)]
mod model;

#[cfg(archipelago_sim)]
pub use crate::simulated::atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32,
    AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};
#[cfg(not(any(loom, archipelago_sim)))]
pub use core::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32,
    AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};
#[cfg(loom)]
pub use model::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32,
    AtomicU64, AtomicUsize, Ordering, fence,
};

/// Orders an atomic read-modify-write of this thread before its later loads, as a `SeqCst` fence between them does. If
/// each of two threads changes a word and then reads the word of the other, at least one of them sees the other's
/// change.
///
/// On x86-64, a read-modify-write is a full barrier by itself, so this function costs nothing there. (The fence would
/// be another locked instruction.)
#[inline]
pub fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri, archipelago_sim))))]
    compiler_fence(Ordering::SeqCst);
    // This takes no virtual time, because it costs nothing on the simulated machines.
    #[cfg(archipelago_sim)]
    core::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(not(any(archipelago_sim, all(target_arch = "x86_64", not(any(loom, miri))))))]
    fence(Ordering::SeqCst);
}
