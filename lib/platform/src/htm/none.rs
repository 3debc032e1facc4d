//! The implementation for targets without transactions.

use super::{Abort, Support};

pub(super) fn support() -> Support {
    Support::Absent
}

/// # Safety
/// Never called.
pub(super) unsafe fn attempt<R>(_: impl FnOnce() -> R) -> Result<R, Abort> {
    Err(Abort(0))
}

/// # Safety
/// Never called.
pub(super) unsafe fn leave<const CODE: u8>() -> ! {
    unreachable!("there are no transactions")
}

pub(super) fn transaction<R>(_: impl FnOnce() -> R) -> Result<R, Abort> {
    super::support::note_wanted();
    Err(Abort(0))
}

pub(super) fn begin() -> Result<(), Abort> {
    Err(Abort(0))
}

pub(super) fn end() -> Result<(), Abort> {
    panic!("no transaction to end")
}

pub(super) fn doomed() -> bool {
    false
}

pub(super) fn abort<const CODE: u8>() {}

pub(super) fn inside() -> bool {
    false
}
