//! The simulated world: the implementations that the other modules of this crate export under `--cfg archipelago_sim`.
//!
//! Inside a run of `archipelago-sim`, every operation is executed by the simulator: accesses are scheduled in virtual
//! time, threads are simulated threads, and waiting suspends them. Outside a run, everything behaves as it does
//! natively (but slowly). So a program that is built for the simulator can still read files, print tables and run its
//! ordinary tests. An object is used either inside or outside: a thread that waits inside a run must not be woken from
//! outside.

pub(crate) mod atomic;
pub(crate) mod local;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod time;
