//! Memory: blocks of one size placed on a chosen node, and how much memory there is.

mod arena;
mod array;
mod chunk;
mod class;
mod pages;
mod usage;

pub use arena::{BlockArena, Sparse};
pub use array::Array;
pub use class::taken_by;
pub use usage::{available_bytes, resident_bytes, total_bytes};
