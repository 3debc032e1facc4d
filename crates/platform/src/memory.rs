//! Memory: blocks of one size placed on a chosen node, and how much memory there is.

mod arena;
mod array;
mod chunk;
mod pages;
mod usage;

pub use arena::BlockArena;
pub use array::Array;
pub use usage::{available_bytes, resident_bytes, total_bytes};
