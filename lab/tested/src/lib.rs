//! Ordered maps under test, compiled once.
//!
//! A program has its own copy of each generic function that it calls, unless a crate that it uses already contains a
//! copy. Below optimization level 2 the compiler finds such a copy by itself. So this crate instantiates what most test
//! programs of the maps need, and a test program says `use archipelago_tested as _;`.
//!
//! | file | contents |
//! |---|---|
//! | [`faces`] | a map behind a trait object |
//! | [`copies`] | the instantiations: each structure with integer keys and with byte-string keys |

#[cfg(not(archipelago_sim))]
pub mod copies;
mod faces;

pub use faces::{FaceOfSession, Invariants, Make, Tested};
