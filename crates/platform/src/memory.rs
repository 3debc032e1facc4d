//! Memory: blocks of one size placed on a chosen node, and how much memory there is.

mod arena;
mod chunk;
mod frozen;
mod pages;
mod usage;

pub use arena::BlockArena;
pub use frozen::FrozenSlice;
pub use usage::{available_bytes, resident_bytes, total_bytes};
