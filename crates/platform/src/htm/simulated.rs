//! The virtual machine's transactions.

use archipelago_sim::world::htm;
pub(super) use archipelago_sim::world::htm::{available, doomed, inside};

use super::Abort;

// Always inline: the machine restores what lies above the frame that calls it.
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

pub(super) fn pause(turns: u32) {
    archipelago_sim::world::pause(turns.into());
}
