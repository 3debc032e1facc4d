//! The one wait loop of the locks that only ever wait for a condition to come true.

use archipelago_platform::hint;

use crate::backoff::Backoff;

/// Looks in close succession before the looks grow apart: about as long as a hand-over between cores takes. Who waits
/// for a word that is written once, to hand over to it, disturbs no thread by looking; looking late delays all behind
/// it.
const CLOSE_LOOKS: u32 = if cfg!(loom) { 0 } else { 64 };

/// Waits, spinning and then yielding, until `ready` says so.
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
