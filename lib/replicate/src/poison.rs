//! What becomes of a structure whose code panicked: no thread can tell in what state it is, so no thread gets to see
//! it.

use core::any::Any;
use core::fmt;

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::sync::{Arc, OnceLock};

/// An operation panicked while it was carried out, so that replicas may differ: the structure refuses all further
/// operations. The operation that gets this error may or may not have taken effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poisoned {
    message: Arc<str>,
}

impl Poisoned {
    /// What the panic said.
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

/// Whether a structure is poisoned, and by what.
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

    /// Why: known a moment after the flag is up.
    #[cold]
    pub(crate) fn why(&self) -> Poisoned {
        let unknown = || Poisoned { message: "its message is not known yet".into() };
        self.why.get().cloned().unwrap_or_else(unknown)
    }

    /// Poisons the structure, if it is not already.
    #[cold]
    pub(crate) fn set(&self, panic: &(dyn Any + Send)) {
        let message = panic.downcast_ref::<&str>().copied();
        let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let message = message.unwrap_or("with something that is not a text").into();
        let _ = self.why.set(Poisoned { message });
        // Release: pairs with the Acquire of `check`.
        self.flag.store(true, Ordering::Release);
    }

    /// Raises the flag if a panic drops it: to be held while the structure changes, and dropped before its lock is
    /// released, so that the thread that gets the lock next knows.
    pub(crate) fn alarm(&self) -> Alarm<'_> {
        Alarm(self)
    }
}

/// See [`Poison::alarm`]. Forget it when all went well.
pub(crate) struct Alarm<'p>(&'p Poison);

impl Drop for Alarm<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.flag.store(true, Ordering::Release);
    }
}
