//! Hardware transactions: Intel's RTM on processors that have it, and the simulator's transactions in the simulated
//! world.
//!
//! A transaction is a closure whose memory accesses take effect in one instant or not at all, including accesses to
//! captured locals. It may always abort, even at every attempt, so every user has a fallback, usually a lock:
//! [`elide`]. Inside a transaction, the program must not call the operating system, allocate, or free memory. Natively,
//! a system call aborts the transaction, and the abort undoes what the allocator has done. In the simulated world,
//! calls of the system and of the allocator take effect, and an abort does not undo them. Waiting
//! ([`hint::spin_loop`](crate::hint::spin_loop)) aborts in both worlds.
//!
//! # Ordering
//! Committed transactions are totally ordered with each other and with all other accesses to the cache lines that they
//! accessed: strong atomicity. The begin of a transaction and a commit order the thread's accesses before and after
//! them as a sequentially consistent fence does. The orderings of the accesses inside do not matter.
//!
//! # Differences in the simulated world
//! In the simulated world, an aborted body is left by unwinding. Its destructors run, and their writes are undone. A
//! value that was moved into the body is dropped inside it, and this drop is not undone. (Natively, the value is
//! dropped after the abort, outside the transaction.) So a body should only borrow.
//!
//! Plain writes of a body are undone if they were *announced* ([`touch_mut`](crate::touch_mut), or
//! [`Plain`](crate::plain::Plain), which calls it), or if they go to the own stack of the thread that called
//! [`transaction`](fn@transaction) (on x86-64 and AArch64 only). Other plain writes, for example to thread-locals and
//! to allocated memory, are not undone. A block that a body frees stays freed after an abort (natively, this is undone
//! too). A thread in a transaction may have lent a slice of its stack to *other* threads. Their plain writes to this
//! slice are lost if the transaction aborts; their atomic and announced writes are kept.
//!
//! Seven transactions may be nested. The next one aborts all of them without a stated reason, in both worlds. Guards of
//! `sync`'s locks that a body has taken are released by an abort.
//!
//! # Panics
//! If the body of [`transaction`](fn@transaction) panics, the transaction aborts. Natively, the abort undoes the panic
//! too, so the panic is forgotten and the result is `Err`. In the simulated world, the panic continues after the
//! transaction was undone. In both cases no transaction stays open. But if a panic unwinds from a [`begin`] past its
//! [`end`], the transaction stays open.
//!
//! Native transactions cannot run under Miri or loom, and most current processors have none: see [`available`].

use core::fmt;
use core::marker::PhantomData;

mod elision;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, archipelago_sim))))]
#[path = "htm/rtm.rs"]
mod imp;
#[cfg(archipelago_sim)]
#[path = "htm/simulated.rs"]
mod imp;
#[cfg(not(any(archipelago_sim, all(target_arch = "x86_64", not(any(miri, loom))))))]
#[path = "htm/none.rs"]
mod imp;
mod quiet;
mod retry;
mod site;
mod support;

pub use elision::{HELD, elide};
pub use quiet::{Quiet, is_quiet, quiet, refuse_in_regions, unrefused};
pub use retry::Retry;
pub use site::{Counts, Site, sites};
pub use support::{Support, from_env, missed, support};

/// The reason of an abort: RTM's status word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort(u32);

/// The cause of an [`Abort`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The program aborted, with this code.
    Explicit(u8),
    /// Another thread accessed a cache line of the transaction.
    Conflict,
    /// The transaction's cache lines did not fit.
    Capacity,
    /// The processor states no reason: an interrupt, a fault, or an instruction that is not allowed in a transaction.
    Silent,
}

impl Abort {
    /// Returns the cause of the abort.
    pub fn cause(self) -> Cause {
        match self.code() {
            Some(code) => Cause::Explicit(code),
            None if self.is_conflict() => Cause::Conflict,
            None if self.is_capacity() => Cause::Capacity,
            None => Cause::Silent,
        }
    }

    /// Returns whether another try may succeed.
    pub fn may_retry(self) -> bool {
        self.0 >> 1 & 1 == 1
    }

    /// Returns whether another thread accessed a cache line of the transaction.
    pub fn is_conflict(self) -> bool {
        self.0 >> 2 & 1 == 1
    }

    /// Returns whether the transaction's cache lines did not fit.
    pub fn is_capacity(self) -> bool {
        self.0 >> 3 & 1 == 1
    }

    /// Returns the code of the program's [`abort`]. Natively, the code is also 0xfe if a panic unwound to the end of
    /// the body. Most panics do not get so far: the system call that prints the message aborts without a code.
    pub fn code(self) -> Option<u8> {
        (self.0 & 1 == 1).then_some((self.0 >> 24) as u8)
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause() {
            Cause::Explicit(code) => write!(f, "aborted by the program with code {code}"),
            Cause::Conflict => f.write_str("aborted by a conflict"),
            Cause::Capacity => f.write_str("aborted for lack of capacity"),
            Cause::Silent => f.write_str("aborted for no stated reason"),
        }
    }
}

impl std::error::Error for Abort {}

/// Returns whether hardware transactions can commit on this machine and may be used; [`support`] also returns the
/// reason if not. Natively, this is tested once by trying transactions: a hypervisor or the kernel can make all of them
/// abort although the processor advertises them.
#[inline]
pub fn available() -> bool {
    support().works()
}

/// A proof that transactions work here, so that no check is needed before they begin.
#[derive(Clone, Copy, Debug)]
pub struct Htm(());

impl Htm {
    /// Returns the proof if transactions are [`available`].
    pub fn get() -> Option<Htm> {
        if available() {
            return Some(Htm(()));
        }
        support::note_wanted();
        None
    }

    /// Works as [`transaction`](fn@transaction) does, but without the check whether transactions are available.
    ///
    /// # Errors
    /// The reason of the abort.
    #[inline(always)]
    #[track_caller]
    pub fn transaction<R>(self, body: impl FnOnce(Inside) -> R) -> Result<R, Abort> {
        // SAFETY: only `get` makes this value.
        unsafe { imp::attempt(|| body(Inside(PhantomData))) }
    }
}

/// A proof for a body that it runs in a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Inside(PhantomData<*mut ()>);

impl Inside {
    /// Aborts the transaction, which then fails with this code. The function must not be called in a destructor. In the
    /// simulated world, a destructor may run because the transaction has aborted. In such a destructor this function
    /// panics, which usually ends the process.
    #[inline(always)]
    pub fn abort<const CODE: u8>(self) -> ! {
        // SAFETY: only `Htm::transaction` makes this value, for the body that it runs, and the value cannot leave the
        // thread. If a body keeps it beyond the end of its transaction, `leave` detects that no transaction is open.
        unsafe { imp::leave::<CODE>() }
    }
}

/// Runs `body` as one transaction: afterwards either all of its writes have taken effect, in one instant, or none.
///
/// # Errors
/// The reason of the abort. If transactions are not [`available`], the body is not run.
#[inline]
#[track_caller]
pub fn transaction<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
    imp::transaction(body)
}

/// Begins a transaction that [`end`] ends. Inside a transaction, it begins a nested one. This is for bodies that are
/// not closures.
///
/// Natively, an abort returns to this call, as if it had returned its error the first time, with all memory in the
/// state of that time. In the simulated world, the body continues after an abort: its loads see the current memory, its
/// writes are undone, and [`end`] returns the reason. A body is correct in both worlds if it never waits until it reads
/// what it has written itself, and checks [`doomed`] in its loops.
///
/// # Errors
/// The reason of the abort. If transactions are not [`available`], an abort without a stated reason.
#[inline]
#[track_caller]
pub fn begin() -> Result<(), Abort> {
    imp::begin()
}

/// Ends the innermost transaction that [`begin`] began. The end of the outermost one commits.
///
/// # Errors
/// The reason of the abort, in the simulated world only.
///
/// # Panics
/// Outside a transaction.
#[inline]
pub fn end() -> Result<(), Abort> {
    imp::end()
}

/// Returns whether the caller's transaction can no longer commit. Natively the result is always false, because an abort
/// leaves the transaction at once.
#[inline]
pub fn doomed() -> bool {
    imp::doomed()
}

/// Aborts the caller's transaction, which then fails with this code. Does nothing outside a transaction.
#[inline]
pub fn abort<const CODE: u8>() {
    imp::abort::<CODE>();
}

/// Returns whether the caller is in a transaction.
#[inline]
pub fn inside() -> bool {
    imp::inside()
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
        assert_eq!(missed(), (!crate::SIMULATED).then(support), "a report can say that none ran");
        assert!(begin().is_err() && !inside() && !doomed());
        abort::<3>();
    }

    #[test]
    fn with_transactions_one_commits_and_one_aborts() {
        if !available() {
            return;
        }
        let commits = (0..1000).any(|_| transaction(inside) == Ok(true));
        assert!(commits);
        let codes: Vec<_> = (0..1000).filter_map(|_| transaction(abort::<7>).unwrap_err().code()).collect();
        assert!(!codes.is_empty() && codes.iter().all(|&code| code == 7), "{codes:?}");
    }

    #[test]
    fn status_words_are_read() {
        let word = Abort(1 | 9 << 24);
        assert_eq!((word.code(), word.is_conflict()), (Some(9), false));
        assert_eq!(word.to_string(), "aborted by the program with code 9");
        assert!(Abort(0b110).is_conflict() && Abort(0b110).may_retry() && Abort(0b1000).is_capacity());
    }
}
