//! The guarantees of databases on a disk.
#![cfg(all(feature = "durable", not(archipelago_sim)))]

#[path = "../common/bank.rs"]
mod bank;
mod crash;
mod failures;
mod openings;
mod threads;
