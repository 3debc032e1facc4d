//! Calls of users' code whose panics must not unwind through the caller: destructors, wakers, callbacks.
//!
//! Such code often runs on behalf of another thread, or in the middle of a series of calls. A panic that unwound there
//! would lose an answer, or the rest of the series. The panic hook has reported a panic before it is caught here.

use core::any::Any;
use core::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::thread;

/// Calls `f`. Returns `None` if `f` panics.
///
/// The panic's payload is dropped. If the payload's destructor panics too, the second payload is leaked.
///
/// ```
/// # use archipelago_platform::panics::quietly;
/// assert_eq!(quietly(|| 1 + 1), Some(2));
/// assert_eq!(quietly(|| panic!("reported by the panic hook")), None::<()>);
/// ```
pub fn quietly<R>(f: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(f)).map_err(drop_quietly).ok()
}

/// Drops a value, and ignores a panic of its destructor.
pub fn drop_quietly<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value)))
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        mem::forget(second);
    }
}

/// The first panic of a series of calls, which is resumed after the last call. Later panics are ignored.
#[derive(Debug, Default)]
pub struct FirstPanic(Option<Box<dyn Any + Send>>);

impl FirstPanic {
    /// Calls `f`. Returns `None` if `f` panics.
    #[inline]
    pub fn call<R>(&mut self, f: impl FnOnce() -> R) -> Option<R> {
        catch_unwind(AssertUnwindSafe(f)).map_err(|payload| self.keep(payload)).ok()
    }

    #[cold]
    fn keep(&mut self, payload: Box<dyn Any + Send>) {
        match self.0 {
            None => self.0 = Some(payload),
            Some(_) => drop_quietly(payload),
        }
    }

    /// Resumes the first panic, if a call panicked. Does nothing while the thread unwinds: a second panic would abort
    /// the process.
    ///
    /// # Panics
    /// With the payload of the first panic.
    pub fn resume(self) {
        match self.0 {
            Some(payload) if thread::panicking() => drop_quietly(payload),
            Some(payload) => resume_unwind(payload),
            None => {}
        }
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::*;

    /// A payload, or a value, whose destructor panics with a payload of the same kind, `self.0` times in all.
    struct Chain(u32);

    impl Drop for Chain {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Chain(self.0 - 1));
            }
        }
    }

    #[test]
    fn payloads_that_panic_stop_nothing() {
        for depth in 0..4 {
            assert_eq!(quietly(|| std::panic::panic_any(Chain(depth))), None::<()>);
            drop_quietly(Chain(depth));
        }
    }

    #[test]
    fn a_series_goes_on_and_its_first_panic_continues() {
        let mut series = FirstPanic::default();
        let results = [0, 1, 2, 3].map(|n| series.call(|| if n % 2 == 1 { std::panic::panic_any(n) } else { n }));
        assert_eq!(results, [Some(0), None, Some(2), None]);
        let payload = catch_unwind(AssertUnwindSafe(|| series.resume())).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&1));
        FirstPanic::default().resume();
    }

    #[test]
    fn no_panic_continues_while_the_thread_unwinds() {
        struct Resumes(Option<FirstPanic>);
        impl Drop for Resumes {
            fn drop(&mut self) {
                self.0.take().unwrap().resume();
            }
        }
        let payload = catch_unwind(|| {
            let mut series = FirstPanic::default();
            series.call(|| std::panic::panic_any(Chain(1)));
            let _resumes = Resumes(Some(series));
            std::panic::panic_any("outer");
        });
        assert_eq!(payload.unwrap_err().downcast_ref(), Some(&"outer"));
    }
}
