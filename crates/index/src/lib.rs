//! Concurrent ordered maps.
//!
//! All of them implement [`OrderedIndex`]; benchmarks, tests and figures are written once against it.

pub mod art;
mod backlog;
pub mod blink;
pub mod hydra;
mod index;
mod key;
#[doc(hidden)]
pub mod points;
mod unwind;
mod value;

pub use art::Art;
pub use backlog::{Backlogged, Garbage, OnBacklog};
pub use blink::BLinkTree;
pub use hydra::HydraList;
pub use index::{OrderedIndex, OrderedSession};
pub use key::{Bytes, Encode, EncodeAs, Form, FormKind, Key, KeyForm, KeyPart, Probe, Word};
