//! Test support for the concurrent structures of the workspace.
//!
//! | module | contents |
//! |---|---|
//! | [`history`] | records what concurrent threads called and what was returned, with stamps that order the operations |
//! | [`linear`] | checks whether a history is linearizable, with any sequential [`Model`](linear::Model), a step budget, and a readable counter-example |
//! | [`map`] | checks histories of ordered maps key by key, and scans by their documented guarantees |
//! | [`pops`] | a model of a whole map, for operations on its least and greatest key |
//! | [`adya`] | finds the anomalies in a history of transactions with ranges and absent keys |
//! | [`snapshot`] | checks whether a history of transactions is snapshot-isolated or serializable |
//! | [`workload`] | seeded keys and operation mixes, reproducible on every run |
//! | [`topologies`](mod@topologies) | synthetic machines of 1, 2, 4 and 8 nodes |
//! | [`drops`] | values that count how many of them are alive |
//! | `forked` | (on Unix) child processes that have none of their parent's other threads |
//! | `growth` | (with `--cfg archipelago_sim`) counts on the virtual machine (a simulator) whether an operation costs more in a larger structure |
//! | [`hostile`] | crowds of threads, memory, the longest operation, and a control with which to compare it |
//! | [`late`] | runs code at the very end of a thread |
//! | `simulated` | (with `--cfg archipelago_sim`) runs programs under many schedules of the virtual machine |
//! | [`watchdog`] | ends a hanging test and reports where it hangs |
//!
//! A test records operations with a [`history::Recorder`], joins its threads, and passes the history to a checker. If
//! the verdict is not good, its `assert_ok` panics with the counter-example.
//!
//! # Why not a published checker
//! - *stateright* (0.31) is a model checker that contains a linearizability tester. It is heavy to build, and its
//!   tester recurses through interleavings without memoisation and without a step budget.
//! - *todc-utils* (0.1) and *lincheck* (0.2.1) are not maintained. They have no decomposition by keys, without which
//!   thousands of map operations cannot be checked. They cannot express a scan that is not atomic over several keys.
//! - None of them checks snapshot isolation.
//!
//! # How the checkers are tested
//! The tests check hand-made histories, legal and illegal ones. They compare a checker with brute force over all
//! permutations of small random histories. Random legal histories must be accepted, and most mutations of legal
//! histories must be rejected. Maps and stores with a planted bug must be caught within a bounded number of runs.

pub mod adya;
pub mod drops;
#[cfg(all(unix, not(any(miri, archipelago_sim))))]
pub mod forked;
#[cfg(archipelago_sim)]
pub mod growth;
pub mod history;
pub mod hostile;
pub mod late;
pub mod linear;
pub mod map;
pub mod pops;
#[cfg(archipelago_sim)]
pub mod simulated;
pub mod snapshot;
pub mod topologies;
pub mod watchdog;
pub mod workload;
