//! The platform layer, called the *door*: the only way from the workspace's code to the machine.
//!
//! All code above this crate uses atomics, threads, time, topology and memory placement through this crate, and never
//! through `core::sync::atomic`, `std::sync`, `std::thread` or `std::time` directly (the *door rule*, see
//! `docs/architecture.md`). So the same source runs in three *worlds*:
//!
//! | world | built with | question that it answers |
//! |---|---|---|
//! | native | default | How fast is it on this machine? |
//! | model | `--cfg loom` | Is it correct under the weak memory model? (small primitives only) |
//! | simulated | `--cfg archipelago_sim` | How does it scale on a machine that is not available? Does it fail under unusual schedules? |

// This crate is the door itself, so it may use the disallowed types and methods.
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
pub mod panics;
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

/// Whether this build runs in the simulated world: `--cfg archipelago_sim`.
pub const SIMULATED: bool = cfg!(archipelago_sim);
