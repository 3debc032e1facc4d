//! Transactions by Intel's RTM.
//!
//! An abort restores memory, including the stack, and all registers except EAX, and continues after `xbegin`. So the
//! caller sees the call return once more, with the abort's status. This is also correct after the function that
//! contains `xbegin` has returned, because its stack frame is restored like any other memory.

use core::arch::asm;
use core::mem::forget;

use super::support::note_wanted;
use super::{Abort, Support, available};

/// The abort code of a transaction in which a panic occurred.
const PANICKED: u8 = 0xfe;

/// The number of transactions that are tried before the processor is considered to have none.
const TRIES: usize = 256;

/// Returns whether the processor says that it has transactions, and whether they commit.
pub(super) fn support() -> Support {
    let features = crate::cpu::features();
    if features.rtm_always_aborts {
        return Support::AlwaysAbort;
    }
    if !features.rtm {
        return Support::Absent;
    }
    let mut last = Abort(0);
    for _ in 0..TRIES {
        match probe() {
            Ok(()) => return Support::Works,
            Err(why) => last = why,
        }
    }
    Support::NeverCommit(last)
}

/// Runs an empty transaction, and returns the reason if it aborts. The processor has RTM.
fn probe() -> Result<(), Abort> {
    xbegin()?;
    xend();
    Ok(())
}

#[inline]
pub(super) fn transaction<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
    if !available() {
        note_wanted();
        return Err(Abort(0));
    }
    // SAFETY: checked just now.
    unsafe { attempt(body) }
}

/// # Safety
/// The processor has RTM.
#[inline(always)]
pub(super) unsafe fn attempt<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
    xbegin()?;
    let open = Open;
    let result = body();
    forget(open);
    xend();
    Ok(result)
}

/// Aborts when it is dropped: an open transaction must not be left by unwinding, because the program would continue
/// inside it.
struct Open;

impl Drop for Open {
    fn drop(&mut self) {
        abort::<PANICKED>();
    }
}

#[inline]
pub(super) fn begin() -> Result<(), Abort> {
    if available() { xbegin() } else { Err(Abort(0)) }
}

#[inline]
pub(super) fn end() -> Result<(), Abort> {
    assert!(inside(), "no transaction to end");
    xend();
    Ok(())
}

#[inline]
pub(super) fn doomed() -> bool {
    false
}

#[inline(always)]
fn xbegin() -> Result<(), Abort> {
    let mut status = u32::MAX;
    // SAFETY: the callers know that the processor has RTM. An abort continues after `xbegin` (see the module's text),
    // with a status that is never all ones.
    unsafe { asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
    if status == u32::MAX { Ok(()) } else { Err(Abort(status)) }
}

#[inline(always)]
fn xend() {
    // SAFETY: the callers are in a transaction: `xbegin` succeeded, and an abort would have continued there.
    unsafe { asm!("xend", options(nostack)) };
}

#[inline]
pub(super) fn abort<const CODE: u8>() {
    if inside() {
        // SAFETY: the processor has RTM, since a transaction is open.
        unsafe { asm!("xabort {}", const CODE, options(nostack)) };
    }
}

/// Aborts in any case.
///
/// # Safety
/// The caller is in a transaction. (Outside one, `xabort` does nothing, and `ud2` ends the program.)
#[inline(always)]
pub(super) unsafe fn leave<const CODE: u8>() -> ! {
    // SAFETY: the caller's promise: the abort continues after `xbegin`.
    unsafe { asm!("xabort {}", "ud2", const CODE, options(noreturn, nostack)) };
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
