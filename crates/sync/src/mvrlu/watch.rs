//! In the model world: a witness of the accesses to a value that are not atomic. Natively nothing, of no size.
//!
//! Values in masters and copies are read and copied as plain bytes, which loom does not see. Each has a witness beside it
//! that is told, and loom ends the run if two accesses of which one writes are not ordered, whatever bytes they met.

/// See [the module](self).
#[cfg(not(loom))]
pub(super) struct Watch;

#[cfg(not(loom))]
impl Watch {
    pub(super) fn new() -> Self {
        Self
    }

    /// The value is read.
    #[inline(always)]
    pub(super) fn read(&self) {}

    /// The value is written, or gone.
    #[inline(always)]
    pub(super) fn write(&self) {}
}

/// See [the module](self).
#[cfg(loom)]
pub(super) struct Watch(loom::cell::UnsafeCell<()>);

#[cfg(loom)]
impl Watch {
    pub(super) fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(()))
    }

    pub(super) fn read(&self) {
        self.0.with(|_| ());
    }

    pub(super) fn write(&self) {
        self.0.with_mut(|_| ());
    }
}
