//! A series of calls of users' code that continues after a panic.

use core::any::Any;
use core::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use archipelago_platform::thread;

/// The first panic of a series of calls. It is resumed after the last call.
#[derive(Default)]
pub(crate) struct Panics(Option<Box<dyn Any + Send>>);

impl Panics {
    /// Calls `f`. Returns `None` if `f` panics.
    pub fn call<R>(&mut self, f: impl FnOnce() -> R) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(result) => Some(result),
            Err(payload) if self.0.is_none() => {
                self.0 = Some(payload);
                None
            }
            Err(payload) => {
                // The payload is leaked, because its destructor may panic too.
                mem::forget(payload);
                None
            }
        }
    }

    /// Resumes the first panic, if there was one. Does nothing while the thread unwinds: a second panic would abort the
    /// process.
    pub fn resume(self) {
        if let Some(payload) = self.0
            && !thread::panicking()
        {
            resume_unwind(payload);
        }
    }
}
