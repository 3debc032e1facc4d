//! The door to the machine.
//!
//! Everything above this crate reaches atomics, threads, time, topology and memory placement through it, and never
//! through `core::sync::atomic`, `std::sync`, `std::thread` or `std::time` directly (the *door rule*, see
//! `docs/architecture.md`). One source then runs in several worlds:
//!
//! | world | built with | answers |
//! |---|---|---|
//! | native | default | is it fast, here |
//! | model | `--cfg loom` | is it right under the weak memory model (small primitives only) |
//! | simulated | `--cfg archipelago_sim` | how does it bend on a machine that we don't have; does it break under odd schedules |

// This is the door.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod atomic;
pub mod cell;
pub mod clock;
pub mod cpu;
pub mod fork;
pub mod hint;
pub mod htm;
#[cfg(not(loom))]
pub mod machine;
pub mod membarrier;
pub mod memory;
#[cfg(loom)]
pub mod model;
pub mod pad;
pub mod per_thread;
pub mod plain;
pub mod racy;
pub mod simd;
#[cfg(archipelago_sim)]
mod simulated;
pub mod sync;
pub mod thread;
pub mod time;
pub mod topology;
pub mod watch;

pub use racy::{touch, touch_mut};

/// Whether this build runs on the virtual machine: `--cfg archipelago_sim`.
pub const SIMULATED: bool = cfg!(archipelago_sim);
