//! Poisoning: after a panic in a structure's code, the state of the structure is unknown, so all further operations are
//! refused.

use core::any::Any;
use core::fmt;

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::sync::{Arc, OnceLock};

/// An operation (or the observer) panicked while a change was carried out, so the replicas may differ. The structure
/// refuses all further operations. The operation that returns this error may or may not have taken effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poisoned {
    message: Arc<str>,
}

impl Poisoned {
    /// Returns the panic's message.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let list = Replicated::new(|| Closures::new(Vec::<u64>::new()));
    /// let first = list.handle().update(|list| list[7]);
    /// let second = list.handle().view(|list| list.len()); // refused: the replicas may differ
    /// assert_eq!(first, second.map(|_| 0));
    /// let poisoned = first.unwrap_err();
    /// assert!(poisoned.message().contains("out of bounds"));
    /// ```
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Poisoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an operation panicked while it was carried out ({}): the structure can not be used any more; build a new one",
            self.message
        )
    }
}

impl std::error::Error for Poisoned {}

/// Whether a structure is poisoned, and the reason.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    flag: AtomicBool,
    why: OnceLock<Poisoned>,
}

impl Poison {
    /// # Errors
    /// If the structure is poisoned.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Poisoned> {
        // Acquire: pairs with the Release of `Alarm`.
        if self.flag.load(Ordering::Acquire) { Err(self.why()) } else { Ok(()) }
    }

    /// Returns the reason. It is known a moment after the flag is raised.
    #[cold]
    pub(crate) fn why(&self) -> Poisoned {
        let unknown = || Poisoned { message: "its message is not known yet".into() };
        self.why.get().cloned().unwrap_or_else(unknown)
    }

    /// Poisons the structure, unless it is poisoned already.
    #[cold]
    pub(crate) fn set(&self, panic: &(dyn Any + Send)) {
        let message = panic.downcast_ref::<&str>().copied();
        let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let message = message.unwrap_or("with something that is not a text").into();
        let _ = self.why.set(Poisoned { message });
        // Release: pairs with the Acquire of `check`.
        self.flag.store(true, Ordering::Release);
    }

    /// Returns a guard that raises the flag when a panic drops it. It is held while the structure changes, and dropped
    /// before the structure's lock is released, so the next thread that gets the lock sees the flag.
    pub(crate) fn alarm(&self) -> Alarm<'_> {
        Alarm(self)
    }
}

/// See [`Poison::alarm`]. Must be forgotten (`mem::forget`) if no panic occurred.
pub(crate) struct Alarm<'p>(&'p Poison);

impl Drop for Alarm<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.flag.store(true, Ordering::Release);
    }
}
