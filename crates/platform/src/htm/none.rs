//! No transactions.

use super::Abort;

pub(super) fn available() -> bool {
    false
}

pub(super) fn transaction<R>(_: impl FnOnce() -> R) -> Result<R, Abort> {
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

pub(super) fn pause(turns: u32) {
    (0..turns).for_each(|_| crate::hint::spin_loop());
}
