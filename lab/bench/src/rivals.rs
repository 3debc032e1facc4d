//! The structures of other authors (rivals) with which the papers compare theirs. They are written here because they
//! have to run on the virtual machine (a simulator), too. A published crate uses the processor's atomics and the
//! operating system's threads, which the virtual machine cannot see.
//!
//! Each rival follows its paper, except for the differences that its module names, and except that it has this
//! library's locks and memory reclamation. So a comparison shows the difference of the structures, not of the locks and
//! the reclamation. (The lock-free lists and Citrus are in `archipelago_sets`. Flat combining is a method, not a structure.)

pub mod btree;
pub mod bw_tree;
mod bytes;
pub mod cuckoo;
mod elided;
pub mod flat_combining;
pub mod fraser;
mod hashed;
mod heights;
pub mod htm_btree;
pub mod htm_masstree;
pub mod htm_skiplist;
pub mod indexes;
pub mod locked_tree;
pub mod masstree;
pub mod pugh;
pub mod slotted_art;
pub mod tids;
pub mod wormhole;

#[cfg(test)]
mod tests;
