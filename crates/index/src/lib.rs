//! Concurrent ordered maps.
//!
//! All of them implement [`OrderedIndex`]; benchmarks, tests and figures are written once against it.
#![doc = include_str!("guide.md")]

pub mod art;
mod backlog;
pub mod hydra;
mod index;
mod key;
pub mod map;
#[doc(hidden)]
pub mod points;
mod unwind;
mod value;

pub use art::Art;
pub use backlog::{Garbage, OnBacklog};
pub use hydra::HydraList;
pub use index::{OrderedIndex, OrderedSession};
pub use key::{Bytes, Encode, EncodeAs, Form, FormKind, Key, KeyAs, KeyForm, KeyPart, Parts, Probe, Word, by_parts};
pub use map::{Change, Entry, Map, Ref, Refused, Session};
