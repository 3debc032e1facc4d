//! Lock elision.
//!
//! # Invariants
//! - The body of an elided section runs in a transaction that has read the lock as free, or while its thread holds the
//!   lock. So two bodies exclude each other as two critical sections would. The lock is read first ("subscription"), so
//!   the transaction aborts in the instant in which another thread takes the lock.
//! - A thread that finds the lock held waits until it is free before it begins. Otherwise one fallback would make all
//!   other threads fall back, one after the other (the "lemming effect"). Aborts because of a held lock do not count
//!   against the budgets of [`Retry`], but after `PATIENCE` of them the thread takes the lock.

use super::{Retry, Site, abort, transaction};
use crate::hint;

/// The abort code of a transaction that found the lock held.
pub const HELD: u8 = 0xff;

/// After this number of aborts because the lock was held, a thread takes the lock itself. Under heavy use, waiting for
/// an instant at which the lock is free is no better, and might never end.
const PATIENCE: u32 = 64;

/// The site at which the aborts of [`elide`] are counted.
static ELIDED: Site = Site::new("an elided lock");

/// Waits while `is_held` returns true, then runs `body` in a transaction, as if in a critical section of a lock.
/// `is_held` reads the lock's word. Runs `fallback` instead in three cases: there are no hardware transactions, the
/// tries are used up, or transactions have found the lock held 64 times. `fallback` takes the lock, has the effect of
/// `body`, and releases the lock. If a body aborts by itself ([`abort`]), with a code other than [`HELD`], `fallback`
/// is run at once.
///
/// As with any lock, a thread that holds it (in the fallback, for example) must not call this function: it would wait
/// for itself for ever.
#[inline]
#[track_caller]
pub fn elide<R>(
    mut retry: Retry,
    is_held: impl Fn() -> bool,
    mut body: impl FnMut() -> R,
    fallback: impl FnOnce() -> R,
) -> R {
    let mut waits = 0;
    if !super::available() {
        super::support::note_wanted();
    }
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
