//! Atomic types, fences and orderings: `core`'s natively, loom's in the model world (with loads of their own), the
//! virtual machine's in the simulated one.

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

/// Orders an atomic read-modify-write of this thread before the loads that follow, as a `SeqCst` fence between them does:
/// of two threads that each change a word and then look at the other's, one sees the other's change.
///
/// On x86-64 such an operation is a full barrier as it is, and this costs nothing. (The fence would be another locked
/// instruction.)
#[inline]
pub fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri, archipelago_sim))))]
    compiler_fence(Ordering::SeqCst);
    // Free in virtual time, for what it is on the machines that are simulated.
    #[cfg(archipelago_sim)]
    core::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(not(any(archipelago_sim, all(target_arch = "x86_64", not(any(loom, miri))))))]
    fence(Ordering::SeqCst);
}
