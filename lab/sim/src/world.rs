//! What `archipelago-platform` calls, under `--cfg archipelago_sim`, from inside a simulated thread.
//!
//! # Contract
//! - *Accesses.* Every access to a word that two threads may touch goes through [`load`], [`store`] or [`update`] with
//!   the word's address and size. The closure does the real access, at once and without calling back into this module;
//!   it runs in the instant of virtual time in which the access takes effect. A word doesn't cross a 64-byte line.
//!   `SeqCst` stores are [`update`]s. The execution is sequentially consistent whatever orderings the program names.
//! - *Waiting.* Every wait loop calls [`spin_hint`] in each turn. Nothing may block the OS thread: mutexes, condition
//!   variables, joins and once-cells are built from [`wait_while`] and [`wake`], or [`park`] and [`unpark`].
//! - *Outside of a run* (no simulated thread runs on this OS thread) every function does the plain thing or nothing:
//!   the closure of an access is called, [`spin_hint`] is the processor's, [`now`] is 0, [`current`] is `None`,
//!   [`wait_while`] spins on its condition, [`spawn`] hands the body back. Structures may therefore be made and dropped
//!   anywhere. But a structure belongs to one run at a time, and one with background threads must be made and dropped
//!   inside of it: in the set-up and the tear-down of [`run_with`](crate::run_with).
//! - *Ends.* When a run is over, its unfinished threads unwind: any function here may leave by a panic that no hook
//!   reports. Destructors that run then still see working atomics, without virtual time; they may wait for each other.
//! - *Transactions.* Memory written in an open transaction must not be freed before it ends. Inside of one the program
//!   allocates nothing and drops nothing that frees: an abort undoes words, not calls. It also undoes plain writes that
//!   were announced ([`touch_mut`]), and, of [`htm::transaction`], those to the caller's own stack: captured locals.
//! - *Keys.* [`wait_while`], [`local_get`] take an address of the program's own as the key: of the mutex's word, of
//!   the thread-local's static.

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
pub use run::{Part, ending, machine, outside, part, point, random, run_number, slots_high_water, stats, untimed};
pub use thread::{
    Current, LocalValue, bind, current, is_finished, join, local_get, local_set, pin, spawn, spawn_background,
    yield_now,
};
pub use time::{clock_ps, clock_uncertainty_ps, now, now_ps, stamp, work};
use wait::wait_for;
pub use wait::{park, park_timeout, sleep, unpark, wait_while, wake};

/// Whether a simulated thread is calling.
#[inline]
pub fn active() -> bool {
    engine().is_some()
}

/// Runs `f` on the engine. It must not suspend.
#[inline]
fn with<R>(engine: *mut Engine, f: impl FnOnce(&mut Engine) -> R) -> R {
    // SAFETY: `engine` comes from `engine()`, so it is valid; `f` gets the only reference, since it neither suspends
    // nor calls back into this module.
    arena::apart(|| f(unsafe { &mut *engine }))
}
