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

/// Returns whether [`refuse_in_regions`] would panic. Without debug assertions, it never would.
#[inline(always)]
pub fn is_quiet() -> bool {
    #[cfg(all(debug_assertions, not(loom)))]
    return QUIET.with(Cell::get) > 0 && !std::thread::panicking();
    #[cfg(not(all(debug_assertions, not(loom))))]
    false
}

/// Declares that the following operation must not occur in a region's body. An operation that other threads can see
/// before it is complete declares this before it begins, since the panic would leave it half done.
///
/// # Panics
/// With debug assertions, if the calling thread is in a region's body.
#[inline(always)]
pub fn refuse_in_regions(what: &str) {
    if is_quiet() {
        refuse(what);
    }
}

#[cold]
#[inline(never)]
fn refuse(what: &str) -> ! {
    // Reset first, because the panic itself allocates.
    #[cfg(all(debug_assertions, not(loom)))]
    QUIET.with(|depth| depth.set(0));
    panic!("{what} in the body of a region");
}

/// Runs `work`, which may wait even in a region's body: the end of an operation that has begun and must not unwind.
#[inline(always)]
pub fn unrefused<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(all(debug_assertions, not(loom)))]
    let depth = QUIET.with(|depth| depth.replace(0));
    let result = work();
    #[cfg(all(debug_assertions, not(loom)))]
    QUIET.with(|now| now.set(depth));
    result
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_must_not_unwind_may_wait_in_a_body() {
        let _body = quiet();
        unrefused(|| refuse_in_regions("waiting"));
        assert!(is_quiet());
        assert!(std::panic::catch_unwind(|| refuse_in_regions("waiting")).is_err());
    }
}
