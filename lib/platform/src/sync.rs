//! The blocking primitives of `std`, behind the door.
//!
//! For cold paths only (registration, growth, statistics): hot paths use atomics and this library's own locks.

#[cfg(archipelago_sim)]
pub use crate::simulated::sync::{
    Arc, Barrier, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
#[cfg(loom)]
pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(any(loom, archipelago_sim)))]
pub use std::sync::{
    Arc, Barrier, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
