//! Memory: blocks of one size on a chosen node, arrays, and the amount of memory that exists and is used.

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
