//! The blocking primitives of `std`, or those of loom or the simulator that replace them.
//!
//! They are for rarely executed code only (registration, growth, statistics). Frequently executed code uses atomics and
//! this library's own locks.

#[cfg(archipelago_sim)]
pub use crate::simulated::sync::{
    Arc, Barrier, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
#[cfg(loom)]
pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
/// The error of `Mutex::try_lock` in every world.
pub use std::sync::TryLockError;
#[cfg(not(any(loom, archipelago_sim)))]
pub use std::sync::{
    Arc, Barrier, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
