//! The wait loop of most locks: it waits for a condition without parking.
//!
//! # Waiting in the body of a region
//! In debug builds a thread that waits in the body of a [region](crate::region) panics. A thread that other threads see
//! as waiting must not panic: other threads would write to the node on its former stack, or hand the lock to a thread
//! that never unlocks it. So each lock refuses to wait *before* it changes anything: by [`refuse_to_wait`] where its
//! slow path begins, or else by [`locked_in_region`]. Unlocking never panics: it waits by [`wait_until_linked`].

use archipelago_platform::hint;
use archipelago_platform::htm::{is_quiet, refuse_in_regions, unrefused};

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

/// Waits as [`wait_until`] does, even in a region's body, for another thread that is between two stores.
#[inline]
pub(super) fn wait_until_linked(ready: impl FnMut() -> bool) {
    unrefused(|| wait_until(ready));
}

/// In a region's body in a debug build, takes the lock by `try_lock`, and returns `true`. Otherwise does nothing, and
/// returns `false`.
///
/// # Panics
/// In a region's body in a debug build, if `try_lock` fails. The lock is as it was before.
#[inline(always)]
pub(super) fn locked_in_region(try_lock: impl FnOnce() -> bool) -> bool {
    let in_region = is_quiet();
    if in_region && !try_lock() {
        refuse_to_wait();
    }
    in_region
}

/// Declares that the thread is going to wait, before it changes anything.
///
/// # Panics
/// In a region's body, in debug builds.
#[inline(always)]
pub(super) fn refuse_to_wait() {
    refuse_in_regions("waiting");
}
