//! Transactions by the simulator.

use archipelago_sim::world::htm;
pub(super) use archipelago_sim::world::htm::{doomed, inside};

use super::{Abort, Support};

pub(super) fn support() -> Support {
    if htm::available() { Support::Works } else { Support::Absent }
}

/// # Safety
/// None is required here.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn attempt<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
    htm::transaction(body).map_err(|why| Abort(why.0))
}

/// # Safety
/// None is required here.
pub(super) unsafe fn leave<const CODE: u8>() -> ! {
    htm::abort(CODE);
    unreachable!("outside of a transaction")
}

// Always inline: the simulator restores the part of the stack above the frame that calls it.
#[inline(always)]
#[track_caller]
pub(super) fn transaction<R>(body: impl FnOnce() -> R) -> Result<R, Abort> {
    htm::transaction(body).map_err(|why| Abort(why.0))
}

#[track_caller]
pub(super) fn begin() -> Result<(), Abort> {
    htm::begin().map_err(|why| Abort(why.0))
}

pub(super) fn end() -> Result<(), Abort> {
    htm::end().map_err(|why| Abort(why.0))
}

pub(super) fn abort<const CODE: u8>() {
    htm::abort(CODE);
}
