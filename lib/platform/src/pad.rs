//! Cache padding, so that the words of two threads are never in the same cache line.

pub use crossbeam_utils::CachePadded;
