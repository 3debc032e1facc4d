//! Test support for the concurrent structures of the workspace.
//!
//! | module | what it gives |
//! |---|---|
//! | [`history`] | records what concurrent threads asked and were answered, with stamps that order them |
//! | [`linear`] | is a history linearizable? Any sequential [`Model`](linear::Model), a step budget, a readable counter-example |
//! | [`map`] | the same for ordered maps: key by key, with scans judged by what they promise |
//! | [`pops`] | a model of a whole map, for operations on its least and greatest key |
//! | [`adya`] | which anomalies does a history of transactions have, with ranges and absent keys? |
//! | [`snapshot`] | is a history of transactions snapshot-isolated, is it serializable? |
//! | [`workload`] | seeded keys and operation mixes, the same on every run |
//! | [`topologies`](mod@topologies) | imagined machines of 1, 2, 4 and 8 nodes |
//! | [`drops`] | values that know how many of them are alive |
//! | `forked` | (on Unix) child processes that have none of their parent's other threads |
//! | `growth` | (with `--cfg archipelago_sim`) does an operation cost more in a larger structure? Counted, on the virtual machine |
//! | [`hostile`] | crowds of threads, memory, the longest operation, and a control to judge it by |
//! | [`late`] | code that runs at the very end of a thread |
//! | `simulated` | (with `--cfg archipelago_sim`) programs under many schedules of the virtual machine |
//! | [`watchdog`] | turns a hanging test into one that dies and says where |
//!
//! A test records with [`history::Recorder`], joins its threads, and hands the history to a checker; the verdict's
//! `assert_ok` panics with the counter-example.
//!
//! # Why not a published checker
//! - *stateright* (0.31) is a model checker that carries a linearizability tester along: heavy to build, and its
//!   tester recurses through interleavings with neither memoisation nor a step budget.
//! - *todc-utils* (0.1) and *lincheck* (0.2.1) are stale, have neither per-key decomposition (without which thousands
//!   of map operations are out of reach) nor a notion of a scan that is not atomic over several keys.
//! - None of them judges snapshot isolation.
//!
//! # How the checkers are themselves checked
//! By hand-made histories of both kinds, by brute force over all permutations of small random histories, by random
//! legal histories that must be accepted, by mutations of them that must mostly be rejected, and by maps and stores
//! with a planted bug that must be caught within a bounded number of runs.

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
