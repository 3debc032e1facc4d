//! Trying again, and eliding a lock.
//!
//! # Invariants
//! - The body of an elided section runs in a transaction that has read the lock as free, or while its thread holds the
//!   lock: two bodies conflict as two sections would. The lock is read first ("subscription"), so that the transaction
//!   aborts in the instant in which another thread takes it.
//! - A thread that finds the lock held waits until it is free before it begins: otherwise one fallback would make all
//!   others fall back, one after the other (the "lemming effect"). Such aborts count for less than a conflict.

use super::{Abort, abort, transaction};
use crate::hint;

/// The code of a transaction that found the lock held.
pub const HELD: u8 = 0xff;

/// How often a transaction is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Tries in all, at least 1, while the processor says that another one may succeed.
    pub tries: u32,
    /// Tries in all after an abort without such a hint: an interrupt has none, nor has what never succeeds.
    pub hopeless: u32,
    /// Turns of waiting after the first conflict; they double with every further one.
    pub pause: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { tries: 8, hopeless: 2, pause: 4 }
    }
}

/// After this many aborts because the lock was held, a thread takes the lock itself: under heavy use waiting for a free
/// instant is no better, and could last for ever.
const PATIENCE: u32 = 64;

impl Retry {
    /// Runs `body` as a transaction until it commits.
    ///
    /// # Errors
    /// The last abort, when it was not worthwhile to try again, or the program's own ([`Abort::code`]), at once.
    #[inline]
    #[track_caller]
    pub fn run<R>(self, mut body: impl FnMut() -> R) -> Result<R, Abort> {
        let mut tries = 0;
        loop {
            match transaction(&mut body) {
                Ok(result) => return Ok(result),
                Err(why) if self.gives_up(why, tries) => return Err(why),
                Err(_) => tries += 1,
            }
        }
    }

    /// Whether to stop after `tries` tries and then this abort; if not, the pause is over on return.
    fn gives_up(self, why: Abort, tries: u32) -> bool {
        let most = if why.may_retry() { self.tries } else { self.hopeless };
        if why.code().is_some() || tries + 1 >= most {
            return true;
        }
        if why.is_conflict() {
            super::imp::pause(self.pause << tries.min(8));
        }
        false
    }
}

/// Runs `body` as if in a critical section of a lock: in a transaction while the lock `is_held` by nobody, else by
/// `fallback`, which takes the lock, does the same, and releases it. `is_held` reads the lock's word.
#[inline]
#[track_caller]
pub fn elide<R>(
    retry: Retry,
    is_held: impl Fn() -> bool,
    mut body: impl FnMut() -> R,
    fallback: impl FnOnce() -> R,
) -> R {
    let (mut tries, mut waits) = (0, 0);
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
            Err(why) if why.code() == Some(HELD) => waits += 1,
            Err(why) if retry.gives_up(why, tries) => break,
            Err(_) => tries += 1,
        }
    }
    fallback()
}
