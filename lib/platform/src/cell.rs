//! A cell whose accesses the model world checks for races, and the virtual machine charges for; natively `core`'s
//! `UnsafeCell`.

#[cfg(not(loom))]
use crate::{touch, touch_mut};

#[cfg(not(loom))]
/// See the [module](self).
#[derive(Debug)]
pub struct RaceCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> RaceCell<T> {
    #[inline]
    /// A cell with a value.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Runs `f` on the address, for reading.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        touch(self, size_of::<T>());
        f(self.0.get())
    }

    /// Runs `f` on the address, for writing.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        touch_mut(self, size_of::<T>());
        f(self.0.get())
    }
}

#[cfg(loom)]
pub use loom::cell::UnsafeCell as RaceCell;
