//! A virtual NUMA machine in deterministic virtual time.
//!
//! [`run`] executes a program of many threads on a [`Machine`] that exists only as a model: sockets, caches, links,
//! hardware transactions. Its threads are coroutines on one OS thread. Before every access to shared memory a scheduler
//! chooses the next thread: by virtual time, to predict how the program scales, or by a schedule that searches for
//! bugs. Equal seeds give equal runs.
//!
//! The program accesses this crate only through [`world`], which `archipelago-platform` calls when it is built with
//! `--cfg archipelago_sim`. `docs/virtual-machine.md` lists what the model omits, and which claims it therefore does
//! not support.

// The virtual machine is called by the platform crate, so it cannot use the platform's types itself.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod arena;
mod config;
mod engine;
mod explore;
pub mod machine;
mod memory;
mod report;
mod rng;
mod run;
mod search;
mod sweep;
mod watch;
pub mod world;

pub use arena::SimAlloc;
pub use config::{Config, Fault, Placement, Point, Schedule, replay_seed};
pub use explore::{explore, find, hunt};
pub use machine::Machine;
pub use report::{Choice, HotLine, Outcome, PARTS, Report, Stats, TxCounts, TxLine, TxSite};
pub use run::{Client, run, run_with};
pub use search::{Search, search};
pub use sweep::{Cell, Sweep, Variation, sweep};
pub use watch::Unannounced;
