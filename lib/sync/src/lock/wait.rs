//! The wait loop of most locks: it waits for a condition without parking.

use archipelago_platform::hint;

use crate::backoff::Backoff;

/// How often a waiter loads the word, with one spin-loop hint after each load, before the pauses grow: about as long as
/// a hand-over between cores takes. Loads of a word that is written once, at the hand-over, disturb no thread, and a
/// late load delays all waiters behind.
const CLOSE_LOOKS: u32 = if cfg!(loom) { 0 } else { 64 };

/// Waits, spinning and then yielding, until `ready` returns `true`.
#[inline]
pub(super) fn wait_until(mut ready: impl FnMut() -> bool) {
    for _ in 0..CLOSE_LOOKS {
        if ready() {
            return;
        }
        hint::spin_loop();
    }
    let backoff = Backoff::new();
    while !ready() {
        backoff.wait();
    }
}
