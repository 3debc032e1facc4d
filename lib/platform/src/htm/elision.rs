//! Eliding a lock.
//!
//! # Invariants
//! - The body of an elided section runs in a transaction that has read the lock as free, or while its thread holds the
//!   lock: two bodies conflict as two sections would. The lock is read first ("subscription"), so that the transaction
//!   aborts in the instant in which another thread takes it.
//! - A thread that finds the lock held waits until it is free before it begins: otherwise one fallback would make all
//!   others fall back, one after the other (the "lemming effect"). Such aborts are taken from no budget.

use super::{Retry, Site, abort, transaction};
use crate::hint;

/// The code of a transaction that found the lock held.
pub const HELD: u8 = 0xff;

/// After this many aborts because the lock was held, a thread takes the lock itself: under heavy use waiting for a free
/// instant is no better, and could last for ever.
const PATIENCE: u32 = 64;

/// Of those who name no site.
static ELIDED: Site = Site::new("an elided lock");

/// Runs `body` as if in a critical section of a lock: in a transaction while `is_held` says no, else by
/// `fallback`, which takes the lock, does the same, and releases it. `is_held` reads the lock's word. A body that aborts by
/// itself ([`abort`]) is run by the fallback.
///
/// As with any lock, a thread that holds it (in the fallback, say) must not come here again: it waits for itself for ever.
#[inline]
#[track_caller]
pub fn elide<R>(
    mut retry: Retry,
    is_held: impl Fn() -> bool,
    mut body: impl FnMut() -> R,
    fallback: impl FnOnce() -> R,
) -> R {
    let mut waits = 0;
    while super::available() && waits < PATIENCE {
        while is_held() {
            hint::spin_loop();
        }
        let section = || {
            if is_held() {
                abort::<HELD>();
            }
            body()
        };
        match transaction(section) {
            Ok(result) => return result,
            Err(why) if why.code() == Some(HELD) => {
                ELIDED.note_abort(why);
                waits += 1;
            }
            Err(why) if retry.spend_at(&ELIDED, why) => {}
            Err(_) => break,
        }
    }
    fallback()
}
