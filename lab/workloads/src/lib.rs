//! Application workloads: transactions ([`tpcc`], [`ycsb`], [`smallbank`]) over any database that implements [`Store`],
//! and requests to caches and address spaces.
//!
//! ```text
//! store      the operations of a database        engine    this library's database: a scheme and a map
//! record     rows and their keys                 global    a rival: one lock over trees
//! disk       a database with a log               flat      rivals that store bytes, each by an adapter of a few lines
//! arena      a loaded workload as a trait object, as the command runs it
//! catalog    stores and workloads by name        chosen    a map by name
//! caches     caches of records                   traces    requests to caches, and the most hits that are possible
//! spaces     address spaces, ours and rivals
//! ```
//!
//! ```
//! use archipelago_txn::{Silo, on};
//! use archipelago_workloads::tpcc::{Scale, Tpcc};
//! use archipelago_workloads::{Arena, Engine};
//!
//! let tpcc = Tpcc::load(Engine::<Silo, on::Art>::serializable(), Scale::TINY, 1, 7);
//! let mut terminal = tpcc.client(0, 7);
//! (0..100).for_each(|_| _ = terminal.turn());
//! drop(terminal);
//! tpcc.check().expect("the twelve conditions hold");
//! ```

#![allow(clippy::inconsistent_digit_grouping, reason = "money is in cents: 5000_00 is 5,000 dollars")]

pub mod arena;
pub mod caches;
pub mod catalog;
pub mod chosen;
#[cfg(not(archipelago_sim))]
mod disk;
pub mod engine;
pub mod flat;
pub mod global;
pub mod random;
pub mod record;
pub mod smallbank;
pub mod spaces;
pub mod store;
pub mod tpcc;
pub mod traces;
pub mod ycsb;

pub use archipelago_txn::{Error, Isolation};
pub use arena::{Arena, Client, Turn};
pub use engine::Engine;
pub use flat::{Bytes, Flat, Steps};
pub use global::Global;
pub use record::Record;
pub use store::{Read, Stop, Store, Way, Write};
