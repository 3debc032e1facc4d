//! Cache padding, so that two threads' words never share a line.

pub use crossbeam_utils::CachePadded;
