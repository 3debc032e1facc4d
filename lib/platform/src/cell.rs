//! A cell for shared data that is accessed non-atomically. Under loom its accesses are checked for data races; in the
//! simulator they take virtual time. Natively it is `core`'s `UnsafeCell`.

#[cfg(not(loom))]
use crate::{touch, touch_mut};

#[cfg(not(loom))]
/// See the [module](self).
#[derive(Debug)]
pub struct RaceCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> RaceCell<T> {
    #[inline]
    /// Makes a cell with a value.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with the address of the value, for reading.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        touch(self, size_of::<T>());
        f(self.0.get())
    }

    /// Calls `f` with the address of the value, for writing.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        touch_mut(self, size_of::<T>());
        f(self.0.get())
    }
}

#[cfg(loom)]
pub use loom::cell::UnsafeCell as RaceCell;
