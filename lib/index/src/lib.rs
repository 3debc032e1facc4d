//! Concurrent ordered maps.
//!
//! All of them are one generic type, [`Map`], with a different structure as its parameter. So they have the same
//! methods, signatures and consistency, see [`map`]. They implement [`OrderedIndex`], as adapters of other maps do, so
//! that benchmarks and figures are written only once, against this trait.
//!
//! The [`guide`] describes how to use the maps.

mod ahead;
pub mod art;
mod backlog;
pub mod blink;
pub mod euno;
#[doc = include_str!("guide.md")]
pub mod guide {}
pub mod hydra;
mod index;
mod key;
mod limits;
pub mod map;
#[doc(hidden)]
pub mod points;
mod search;
mod structure;
mod tally;
mod thin;
mod unwind;
mod value;

pub use art::Art;
pub use backlog::{Garbage, OnBacklog};
pub use blink::BLinkTree;
pub use euno::{EunoBTree, EunoSkipList};
pub use hydra::HydraList;
pub use index::{OrderedIndex, OrderedSession};
pub use key::{EncodeAs, Key, KeyAs, KeyPart, Parts, Probe, by_parts};
pub use map::{Change, Entry, Map, Ref, Refused, Session};
pub use structure::{Bytes, Encode, Form, FormKind, Word};
