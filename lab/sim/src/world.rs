//! The functions that `archipelago-platform` calls, under `--cfg archipelago_sim`, from inside a simulated thread.
//!
//! # Contract
//! - *Accesses.* Every access to a word that two threads may access goes through [`load`], [`store`] or [`update`],
//!   with the word's address and size. The closure makes the real access at once, and does not call back into this
//!   module. It runs in the instant of virtual time in which the access takes effect. A word does not cross a 64-byte
//!   line. `SeqCst` stores are [`update`]s. The execution is sequentially consistent, whatever orderings the program
//!   uses.
//! - *Waiting.* Every wait loop calls [`spin_hint`] in each turn. Nothing may block the OS thread: mutexes, condition
//!   variables, joins and once-cells are built from [`wait_while`] and [`wake`], or from [`park`] and [`unpark`].
//! - *Outside of a run*, that is, when no simulated thread runs on this OS thread, every function works without the
//!   model or does nothing. The closure of an access is called, [`spin_hint`] is the processor's, [`now`] is 0,
//!   [`current`] is `None`, [`wait_while`] spins on its condition, and [`spawn`] returns the body. So structures may be
//!   made and dropped anywhere. But a structure belongs to one run at a time. A structure with background threads must
//!   be made and dropped inside the run: in the set-up and the tear-down of [`run_with`](crate::run_with).
//! - *Ends.* When a run is over, its unfinished threads unwind: any function of this module may then panic, and no
//!   panic hook reports this. Destructors that run then still have working atomics, without virtual time; they may wait
//!   for each other.
//! - *Transactions.* Memory that was written in an open transaction must not be freed before the transaction ends.
//!   Inside a transaction the program must not allocate, and must not drop anything that frees memory: an abort undoes
//!   writes of words, not calls. An abort also undoes announced plain writes ([`touch_mut`]). For [`htm::transaction`],
//!   on x86-64 and AArch64, it also undoes writes to the caller's own stack, that is, to captured locals.
//! - *Keys.* [`wait_while`] and [`local_get`] take an address of the program as the key: that of the mutex's word, or
//!   that of the thread-local's static.

mod access;
pub mod htm;
mod place;
mod run;
mod thread;
mod time;
mod wait;

use crate::arena;
use crate::engine::Engine;
use crate::engine::switch::engine;

pub(crate) use access::allocated;
pub use access::{charged, fence, load, pause, prefetch, spin_hint, store, touch, touch_mut, update};
pub use place::{home_of, label, release, set_home, unmapped, warm, warm_all, warm_homes};
pub(crate) use run::leaks;
pub use run::{
    Part, abandon, ending, held_bytes, machine, outside, part, point, random, retime, run_number, slots_high_water,
    stats, untimed,
};
pub use thread::{
    Current, LocalValue, bind, current, is_finished, join, local_get, local_set, pin, spawn, spawn_background,
    yield_now,
};
pub use time::{clock_ps, clock_uncertainty_ps, now, now_ps, pace, stamp, work};
use wait::wait_for;
pub use wait::{park, park_timeout, sleep, unpark, wait_while, wake};

/// Returns whether a simulated thread is calling.
#[inline]
pub fn active() -> bool {
    engine().is_some()
}

/// Runs `f` on the engine. `f` must not suspend.
#[inline]
fn with<R>(engine: *mut Engine, f: impl FnOnce(&mut Engine) -> R) -> R {
    // SAFETY: `engine` comes from `engine()`, so it is valid; `f` gets the only reference, since it neither suspends
    // nor calls back into this module.
    arena::apart(|| f(unsafe { &mut *engine }))
}
