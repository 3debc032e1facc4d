//! In the model world: a witness of the accesses to a value that are not atomic. Natively nothing, of no size.
//!
//! Values in MV-RLU's masters and copies are read and copied as plain bytes, and so are what a waiter of a lock says of
//! itself and the keys and values of sets' nodes; loom does not see that. Each has a witness beside it that is told, and loom ends the run if two accesses of which
//! one writes are not ordered, whatever bytes they met.

/// See [the module](self).
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Watch;

#[cfg(not(loom))]
impl Watch {
    pub(crate) fn new() -> Self {
        Self
    }

    /// The value is read.
    #[inline(always)]
    pub(crate) fn read(&self) {}

    /// The value is written, or gone.
    #[inline(always)]
    pub(crate) fn write(&self) {}
}

/// See [the module](self).
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Watch(loom::cell::UnsafeCell<()>);

// SAFETY: it guards nothing; loom ends the run when its accesses are not ordered.
#[cfg(loom)]
unsafe impl Sync for Watch {}

#[cfg(loom)]
impl Watch {
    pub(crate) fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(()))
    }

    pub(crate) fn read(&self) {
        self.0.with(|_| ());
    }

    pub(crate) fn write(&self) {
        self.0.with_mut(|_| ());
    }
}
