//! In the model world: a witness of the accesses to a value that are not atomic. Natively nothing, of no size.
//!
//! Values in MV-RLU's masters and copies are read and copied as plain bytes, and so are what a waiter of a lock says of
//! itself and the keys and values of sets' nodes; loom does not see that. Each has a witness beside it that is told, and
//! loom ends the run if two accesses of which one writes are not ordered, whatever bytes they met.

/// See [the module](self).
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub struct Watch;

#[cfg(not(loom))]
impl Watch {
    /// A witness of a value that has just been made.
    pub fn new() -> Self {
        Self
    }

    /// The value is read.
    #[inline(always)]
    pub fn read(&self) {}

    /// The value is written.
    #[inline(always)]
    pub fn write(&self) {}

    /// The value is gone: nothing touches it any more.
    #[inline(always)]
    pub fn gone(&self) {}
}

/// See [the module](self).
#[cfg(loom)]
#[derive(Debug, Default)]
pub struct Watch {
    accesses: loom::cell::UnsafeCell<()>,
    /// Not loom's: it is part of no model. What is freed keeps it, as long as the memory is not used for something else.
    is_gone: core::sync::atomic::AtomicBool,
}

// SAFETY: it guards nothing; loom ends the run when its accesses are not ordered.
#[cfg(loom)]
unsafe impl Sync for Watch {}

#[cfg(loom)]
impl Watch {
    /// A witness of a value that has just been made.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value is read.
    pub fn read(&self) {
        self.assert_there();
        self.accesses.with(|_| ());
    }

    /// The value is written.
    pub fn write(&self) {
        self.assert_there();
        self.accesses.with_mut(|_| ());
    }

    /// The value is gone: nothing touches it any more.
    pub fn gone(&self) {
        self.write();
        self.is_gone.store(true, core::sync::atomic::Ordering::Relaxed);
    }

    fn assert_there(&self) {
        assert!(!self.is_gone.load(core::sync::atomic::Ordering::Relaxed), "used after it was freed");
    }
}
