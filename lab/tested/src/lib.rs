//! Ordered maps under test, compiled once.
//!
//! A program has its own copy of each generic function that it calls, unless a crate that it uses has one already, which the
//! compiler finds out by itself below optimization level 2. So what most test programs of the maps need is made here, and a test
//! program says `use archipelago_tested as _;`.
//!
//! | file | what it has |
//! |---|---|
//! | [`faces`] | a map whose type is forgotten |
//! | [`copies`] | the copies: each structure for words and for byte strings |

#[cfg(not(archipelago_sim))]
pub mod copies;
mod faces;

pub use faces::{FaceOfSession, Invariants, Make, Tested};
