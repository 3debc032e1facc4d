//! Hardware transactions: Intel's RTM where the processor has it, the virtual machine's in the simulated world.
//!
//! A transaction is a closure whose memory accesses happen in one instant or not at all, those to captured locals too.
//! It may always abort, for ever even, so every user has another way: [`elide`] is the usual one, a lock. Inside of one
//! the program must not call the operating system, allocate, or free; an abort undoes memory, not calls. Waiting
//! ([`hint::spin_loop`](crate::hint::spin_loop)) aborts.
//!
//! # Ordering
//! Committed transactions are totally ordered with each other and with all other accesses to the lines they touched:
//! strong atomicity. A transaction that began orders what its thread did before, and one that committed what it does
//! after, as a sequentially consistent fence does; the orderings of accesses inside don't matter.
//!
//! # What the simulated world does otherwise
//! There an aborted body is left by unwinding. Its destructors run, and their writes leave no trace, nor is a value undone that
//! was moved into the body: it is dropped in there, where natively it is dropped afterwards, by a thread that has left the
//! transaction. So a body borrows. What it writes plainly is undone on its thread's own stack, and elsewhere if it was announced;
//! thread-locals and what was allocated are not, and a block that a body frees is gone for those who have it back after an abort
//! (natively that is undone too). What *other* threads write plainly to the stack of one that is in a transaction, to a slice
//! that it has lent to them, is lost if that aborts; what they write by atomics, or announce, stays.
//!
//! Seven transactions may lie in each other; the next one aborts all of them, without a reason that it states, in both worlds.
//! Guards of `sync`'s locks that a body takes are released by an abort.
//!
//! # Panics
//! A panic inside aborts: natively it is then forgotten, since an abort undoes the panic too, and `Err` is the result;
//! in the simulated world it goes on after the transaction was undone. Both leave no transaction open.
//!
//! Native transactions can't be run under Miri or loom, and most processors of today have none: ask [`available`].

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
pub use quiet::{Quiet, quiet, refuse_in_regions};
pub use retry::Retry;
pub use site::{Counts, Site, sites};
pub use support::{Support, from_env, support};

/// Why a transaction aborted: RTM's status word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort(u32);

/// What an [`Abort`] was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The program, with this code.
    Explicit(u8),
    /// Another thread touched its lines.
    Conflict,
    /// Its lines didn't fit.
    Capacity,
    /// The processor doesn't say: an interrupt, a fault, an instruction that a transaction can't contain.
    Silent,
}

impl Abort {
    /// What it was for.
    pub fn cause(self) -> Cause {
        match self.code() {
            Some(code) => Cause::Explicit(code),
            None if self.is_conflict() => Cause::Conflict,
            None if self.is_capacity() => Cause::Capacity,
            None => Cause::Silent,
        }
    }

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
        match self.cause() {
            Cause::Explicit(code) => write!(f, "aborted by the program with code {code}"),
            Cause::Conflict => f.write_str("aborted by a conflict"),
            Cause::Capacity => f.write_str("aborted for lack of capacity"),
            Cause::Silent => f.write_str("aborted for no stated reason"),
        }
    }
}

impl std::error::Error for Abort {}

/// Whether hardware transactions can commit here, and may be used: see [`support`], which also says why not. Natively
/// they are tried once, since a hypervisor or the kernel can make every one abort on a processor that advertises them.
#[inline]
pub fn available() -> bool {
    support().works()
}

/// The knowledge that transactions work here: with it they need no further look before they begin.
#[derive(Clone, Copy, Debug)]
pub struct Htm(());

impl Htm {
    /// Where [`available`].
    pub fn get() -> Option<Htm> {
        available().then_some(Htm(()))
    }

    /// As [`transaction`](fn@transaction), without asking whether there are any.
    ///
    /// # Errors
    /// Why it aborted.
    #[inline(always)]
    #[track_caller]
    pub fn transaction<R>(self, body: impl FnOnce(Inside) -> R) -> Result<R, Abort> {
        // SAFETY: only `get` makes this value.
        unsafe { imp::attempt(|| body(Inside(PhantomData))) }
    }
}

/// The knowledge of a body that it is in a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Inside(PhantomData<*mut ()>);

impl Inside {
    /// Aborts the transaction, which then fails with this code. Not in a destructor: in the simulated world it might run because
    /// the transaction has aborted, and this could not return.
    #[inline(always)]
    pub fn abort<const CODE: u8>(self) -> ! {
        // SAFETY: only `Htm::transaction` makes this value, for a body that it runs, and it can't leave the thread; what
        // keeps it longer finds itself outside of the transaction that it says it is in, which `leave` checks.
        unsafe { imp::leave::<CODE>() }
    }
}

/// Runs `body` as one transaction: afterwards all of its writes have happened, in one instant, or none.
///
/// # Errors
/// Why it aborted. Where [`available`] is false, the body isn't run.
#[inline]
#[track_caller]
pub fn transaction<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
    imp::transaction(body)
}

/// Begins a transaction that [`end`] ends, or nests one: for bodies that are no closure.
///
/// Natively an abort comes back here, as if this call had returned its error the first time, with all memory as it was
/// then. In the simulated world the body goes on: its loads see what is there, its writes leave no trace, and [`end`]
/// says why. A body is right in both if it never waits for what only it could see, and asks [`doomed`] in its loops.
///
/// # Errors
/// Why it aborted, or that there are no transactions.
#[inline]
#[track_caller]
pub fn begin() -> Result<(), Abort> {
    imp::begin()
}

/// Ends the innermost transaction that [`begin`] began; the outermost commits.
///
/// # Errors
/// Why it aborted: in the simulated world only.
///
/// # Panics
/// Outside of a transaction.
#[inline]
pub fn end() -> Result<(), Abort> {
    imp::end()
}

/// Whether the caller's transaction can't commit any more. Natively false: the caller would be elsewhere.
#[inline]
pub fn doomed() -> bool {
    imp::doomed()
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn without_transactions_the_body_is_not_run() {
        if available() {
            return;
        }
        assert_eq!(transaction(|| unreachable!("there are no transactions")), Err::<(), _>(Abort(0)));
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
