//! The one wait loop of the locks that only ever wait for a condition to come true.

use crate::backoff::Backoff;

/// Waits, spinning and then yielding, until `ready` says so.
#[inline]
pub(super) fn wait_until(mut ready: impl FnMut() -> bool) {
    let backoff = Backoff::new();
    while !ready() {
        backoff.wait();
    }
}
