//! Hardware transactions: Intel's RTM where the processor has it, the virtual machine's in the simulated world.
//!
//! A transaction is a closure whose memory accesses happen in one instant or not at all. It may always abort, for ever
//! even, so every user has another way. Inside of one the program must not call the operating system, allocate, or
//! free; an abort undoes words, not calls.
//!
//! Native transactions can't be run under Miri or loom, and most processors of today have none: ask [`available`].

use core::fmt;

/// Why a transaction aborted: RTM's status word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort(u32);

impl Abort {
    /// Whether trying again may succeed.
    pub fn may_retry(self) -> bool {
        self.0 >> 1 & 1 == 1
    }

    /// Whether another thread touched its lines.
    pub fn is_conflict(self) -> bool {
        self.0 >> 2 & 1 == 1
    }

    /// Whether its lines didn't fit.
    pub fn is_capacity(self) -> bool {
        self.0 >> 3 & 1 == 1
    }

    /// The program's own reason, if it called [`abort`].
    pub fn code(self) -> Option<u8> {
        (self.0 & 1 == 1).then_some((self.0 >> 24) as u8)
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code() {
            Some(code) => write!(f, "aborted by the program with code {code}"),
            None if self.is_conflict() => f.write_str("aborted by a conflict"),
            None if self.is_capacity() => f.write_str("aborted for lack of capacity"),
            None => f.write_str("aborted for no stated reason"),
        }
    }
}

impl std::error::Error for Abort {}

/// Whether the machine has hardware transactions that can commit.
pub fn available() -> bool {
    imp::available()
}

/// Runs `body` as one transaction: afterwards all of its writes have happened, in one instant, or none.
///
/// # Errors
/// Why it aborted. Where [`available`] is false, the body isn't run.
#[inline]
pub fn transaction<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
    imp::transaction(body)
}

/// Aborts the transaction that the caller is in, which then fails with this code. Outside of one it does nothing.
#[inline]
pub fn abort<const CODE: u8>() {
    imp::abort::<CODE>();
}

/// Whether the caller is in a transaction.
#[inline]
pub fn inside() -> bool {
    imp::inside()
}

#[cfg(archipelago_sim)]
mod imp {
    use archipelago_sim::world::htm;
    pub(super) use archipelago_sim::world::htm::{available, inside};

    use super::Abort;

    pub(super) fn transaction<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
        htm::transaction(body).map_err(|why| Abort(why.0))
    }

    pub(super) fn abort<const CODE: u8>() {
        htm::abort(CODE);
    }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, loom, archipelago_sim))))]
mod imp {
    use core::arch::asm;

    use super::Abort;

    pub(super) fn available() -> bool {
        crate::cpu::features().rtm
    }

    #[inline]
    pub(super) fn transaction<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
        if !available() {
            return Err(Abort(0));
        }
        let mut status = u32::MAX;
        // SAFETY: the processor has RTM. On an abort it restores memory and all registers but EAX, and goes on behind
        // `xbegin` as if that had just returned, with a status that is never all ones.
        unsafe { asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
        if status != u32::MAX {
            return Err(Abort(status));
        }
        let result = body();
        // SAFETY: a transaction is open: `xbegin` succeeded, and an abort would have gone back there.
        unsafe { asm!("xend", options(nostack)) };
        Ok(result)
    }

    #[inline]
    pub(super) fn abort<const CODE: u8>() {
        if inside() {
            // SAFETY: the processor has RTM, since a transaction is open.
            unsafe { asm!("xabort {}", const CODE, options(nostack)) };
        }
    }

    #[inline]
    pub(super) fn inside() -> bool {
        if !available() {
            return false;
        }
        let inside: u8;
        // SAFETY: the processor has RTM.
        unsafe { asm!("xtest", "setnz {}", out(reg_byte) inside, options(nostack)) };
        inside != 0
    }
}

#[cfg(not(any(archipelago_sim, all(target_arch = "x86_64", not(any(miri, loom))))))]
mod imp {
    use super::Abort;

    pub(super) fn available() -> bool {
        false
    }

    pub(super) fn transaction<R>(_: impl FnOnce() -> R) -> Result<R, Abort> {
        Err(Abort(0))
    }

    pub(super) fn abort<const CODE: u8>() {}

    pub(super) fn inside() -> bool {
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn without_transactions_the_body_is_not_run() {
        if available() {
            return;
        }
        assert_eq!(transaction(|| unreachable!("there are no transactions")), Err::<(), _>(Abort(0)));
        assert!(!inside());
        abort::<3>();
    }

    #[test]
    fn with_transactions_one_commits_and_one_aborts() {
        if !available() {
            return;
        }
        let commits = (0..1000).any(|_| transaction(inside) == Ok(true));
        assert!(commits);
        let codes = (0..1000).filter_map(|_| transaction(abort::<7>).unwrap_err().code());
        assert!(codes.into_iter().all(|code| code == 7));
    }

    #[test]
    fn status_words_are_read() {
        let word = Abort(1 | 9 << 24);
        assert_eq!((word.code(), word.is_conflict()), (Some(9), false));
        assert_eq!(word.to_string(), "aborted by the program with code 9");
        assert!(Abort(0b110).is_conflict() && Abort(0b110).may_retry() && Abort(0b1000).is_capacity());
    }
}
