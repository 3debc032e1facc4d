//! The virtual machine behind the door: what the other modules of this crate hand out under `--cfg archipelago_sim`.
//!
//! Inside of a run of `archipelago-sim`, every operation goes to the machine: accesses take their turn in virtual
//! time, threads are simulated ones, waiting suspends them. Outside of one, everything behaves as natively (and slowly),
//! so that a program built for the virtual machine can still read files, print tables and run its ordinary tests.
//! An object belongs to one side: what is waited for inside of a run must not be released outside of it.

pub(crate) mod atomic;
pub(crate) mod local;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod time;
