//! Intel's RTM.
//!
//! An abort restores memory and all registers but EAX, the stack among them, and goes on behind `xbegin`: what called
//! it sees one return, with the abort's status. That holds after the function that contains `xbegin` has returned too,
//! since its frame is memory like any other.

use core::arch::asm;
use core::mem::forget;
use std::sync::OnceLock;

use super::Abort;

/// What a panic inside a transaction aborts it with.
const PANICKED: u8 = 0xfe;

/// Transactions that are tried before the processor is believed to have none.
const TRIES: usize = 256;

pub(super) fn available() -> bool {
    static COMMITS: OnceLock<bool> = OnceLock::new();
    *COMMITS.get_or_init(|| crate::cpu::features().rtm && (0..TRIES).any(|_| probe()))
}

/// Whether an empty transaction commits. The processor has RTM.
fn probe() -> bool {
    let began = xbegin().is_ok();
    if began {
        xend();
    }
    began
}

#[inline]
pub(super) fn transaction<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
    if !available() {
        return Err(Abort(0));
    }
    xbegin()?;
    let open = Open;
    let result = body();
    forget(open);
    xend();
    Ok(result)
}

/// An open transaction must not be left by unwinding: the program would go on in it.
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

#[inline]
fn xbegin() -> Result<(), Abort> {
    let mut status = u32::MAX;
    // SAFETY: the callers know that the processor has RTM. On an abort it goes on behind `xbegin` (file text), with a
    // status that is never all ones.
    unsafe { asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
    if status == u32::MAX { Ok(()) } else { Err(Abort(status)) }
}

#[inline]
fn xend() {
    // SAFETY: the callers are in a transaction: `xbegin` succeeded, and an abort would have gone back there.
    unsafe { asm!("xend", options(nostack)) };
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

pub(super) fn pause(turns: u32) {
    (0..turns).for_each(|_| crate::hint::spin_loop());
}
