//! Atomic types, fences and orderings: `core`'s natively, loom's in the model world, the virtual machine's in the simulated one.

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
pub use loom::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32,
    AtomicU64, AtomicUsize, Ordering, fence,
};
