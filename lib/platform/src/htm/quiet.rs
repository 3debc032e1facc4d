//! A check in debug builds: the body of a *region* (code that runs in a transaction, or under locks as the fallback)
//! does nothing that is not allowed in a transaction.
//!
//! A transaction undoes memory accesses but not calls, and a system call aborts it. A panic inside a transaction that
//! reports such a mistake would be undone, too. Therefore the same rule is checked for bodies that run on the fallback
//! path, where a panic is not undone.

#[cfg(all(debug_assertions, not(loom)))]
use core::cell::Cell;

#[cfg(all(debug_assertions, not(loom)))]
crate::thread::thread_local! {
    static QUIET: Cell<u32> = const { Cell::new(0) };
}

/// While this value exists, the calling thread is in the body of a region. Without debug assertions it has size 0 and
/// does nothing.
#[derive(Debug)]
pub struct Quiet(());

/// Enters the body of a region.
#[inline(always)]
pub fn quiet() -> Quiet {
    #[cfg(all(debug_assertions, not(loom)))]
    QUIET.with(|depth| depth.set(depth.get() + 1));
    Quiet(())
}

impl Quiet {
    /// Runs code that is not part of the body, for example the waiting of the code that runs the body.
    #[inline(always)]
    pub fn suspended<R>(&self, work: impl FnOnce() -> R) -> R {
        #[cfg(all(debug_assertions, not(loom)))]
        QUIET.with(|depth| depth.set(depth.get() - 1));
        let result = work();
        #[cfg(all(debug_assertions, not(loom)))]
        QUIET.with(|depth| depth.set(depth.get() + 1));
        result
    }
}

impl Drop for Quiet {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(all(debug_assertions, not(loom)))]
        // The depth is zero after a refusal.
        QUIET.with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}

/// Declares that the following operation must not occur in a region's body.
///
/// # Panics
/// With debug assertions, if the calling thread is in a region's body.
#[inline(always)]
pub fn refuse_in_regions(what: &str) {
    #[cfg(all(debug_assertions, not(loom)))]
    QUIET.with(|depth| {
        if depth.get() > 0 && !std::thread::panicking() {
            // Reset first, because the panic itself allocates.
            depth.set(0);
            panic!("{what} in the body of a region");
        }
    });
    let _ = what;
}
