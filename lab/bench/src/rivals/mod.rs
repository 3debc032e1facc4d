//! Rivals that papers compare with, written here because they have to run on the virtual machine too: a published crate
//! uses the processor's atomics and the operating system's threads, which the machine cannot see.
//!
//! Each is written as its paper has it, with this library's version lock and memory reclamation, so that a comparison is
//! one of structures and not of those. (The lock-free lists and Citrus are in `archipelago_sets`.)

pub mod btree;
mod bytes;
mod elided;
pub mod fraser;
mod heights;
pub mod htm_btree;
pub mod htm_skiplist;
pub mod indexes;
pub mod locked_tree;
pub mod masstree;
pub mod pugh;

#[cfg(test)]
mod tests;
