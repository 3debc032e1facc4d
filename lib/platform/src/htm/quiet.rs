//! In debug builds: that a region's body does nothing that a transaction must not.
//!
//! A transaction undoes memory, not calls, and a call into the system aborts it. What could catch a mistake inside of one
//! is undone with it, so the same is asked of a body that runs by the other way, where a panic is heard.

#[cfg(all(debug_assertions, not(loom)))]
use core::cell::Cell;

#[cfg(all(debug_assertions, not(loom)))]
crate::thread::thread_local! {
    static QUIET: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, the calling thread is in the body of a region. Of no size, and nothing, without debug assertions.
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
    /// Runs what is not the body's: the wait of the machinery that runs it.
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
        // Zero after a refusal.
        QUIET.with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}

/// Says that what follows must not happen in a region's body.
///
/// # Panics
/// With debug assertions, in one.
#[inline(always)]
pub fn refuse_in_regions(what: &str) {
    #[cfg(all(debug_assertions, not(loom)))]
    QUIET.with(|depth| {
        if depth.get() > 0 && !std::thread::panicking() {
            // The panic itself allocates.
            depth.set(0);
            panic!("{what} in the body of a region");
        }
    });
    let _ = what;
}
