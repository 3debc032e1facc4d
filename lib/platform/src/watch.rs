//! A detector of unordered non-atomic accesses, for models under loom. Natively it does nothing and has size 0.
//!
//! Some values are read and copied as plain bytes. These are the values of MV-RLU's masters and copies, the data that
//! the waiters of a lock store about themselves, and the keys and values of sets' nodes. loom does not see such
//! accesses. So each of these values has a `Watch` beside it, to which its accesses are reported. loom ends the run if
//! two accesses, at least one of them a write, are not ordered, whatever bytes they accessed.

/// See [the module](self).
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub struct Watch;

#[cfg(not(loom))]
impl Watch {
    /// Makes a detector for a value that was just made.
    pub fn new() -> Self {
        Self
    }

    /// Reports a read of the value.
    #[inline(always)]
    pub fn read(&self) {}

    /// Reports a write of the value.
    #[inline(always)]
    pub fn write(&self) {}

    /// Reports the end of the value: no thread accesses it any more.
    #[inline(always)]
    pub fn gone(&self) {}
}

/// See [the module](self).
#[cfg(loom)]
#[derive(Debug, Default)]
pub struct Watch {
    accesses: loom::cell::UnsafeCell<()>,
    /// It is not an atomic of loom's, so it is not part of a model. A freed value keeps it as long as its memory is not
    /// reused.
    is_gone: core::sync::atomic::AtomicBool,
}

// SAFETY: it protects no data; loom ends the run if its accesses are not ordered.
#[cfg(loom)]
unsafe impl Sync for Watch {}

#[cfg(loom)]
impl Watch {
    /// Makes a detector for a value that was just made.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports a read of the value.
    pub fn read(&self) {
        self.assert_there();
        self.accesses.with(|_| ());
    }

    /// Reports a write of the value.
    pub fn write(&self) {
        self.assert_there();
        self.accesses.with_mut(|_| ());
    }

    /// Reports the end of the value: no thread accesses it any more.
    pub fn gone(&self) {
        self.write();
        self.is_gone.store(true, core::sync::atomic::Ordering::Relaxed);
    }

    fn assert_there(&self) {
        assert!(!self.is_gone.load(core::sync::atomic::Ordering::Relaxed), "used after it was freed");
    }
}
