//! Calls of users' code whose panics must not stop the calling thread: wakers, and destructors of requests, wakers and
//! panic payloads.
//!
//! A combiner calls this code on behalf of other threads. A panic that left the combiner would lose the combiner's own
//! answer, and leave the other threads asleep. The panic hook has reported the panic before it is caught here.

use core::mem;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

/// Calls `f`, and ignores a panic. The panic's payload is dropped. If the payload's destructor panics too, the second
/// payload is leaked.
pub(crate) fn quietly(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f))
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        mem::forget(second);
    }
}

/// Drops a value, and ignores a panic of its destructor.
pub(crate) fn drop_quietly<T>(value: T) {
    quietly(|| drop(value));
}
