//! What every ordered map answers, alone and from many threads. One program, so that a map of one type is compiled once and
//! not once a file. What needs a process of its own (an allocator that counts, a fork) has a file beside this folder.

#[path = "../common/mod.rs"]
mod common;

mod api;
mod art_concurrent;
mod art_conformance;
mod art_model;
mod atomic;
mod face;
mod hydralist;
mod hydralist_life;
mod hydralist_stale;
mod key_types;
mod keys;
mod prefixes;
mod reference;
