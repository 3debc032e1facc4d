//! Tests of every ordered map, with one thread and with many. They are one program, so that each type of map is
//! compiled only once, and not once per file. Tests that need a process of their own (a counting allocator, a fork) are
//! in files next to this folder.

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod api;
mod art_concurrent;
mod art_conformance;
mod art_model;
mod atomic;
mod direct;
mod hydralist;
mod hydralist_life;
mod hydralist_stale;
mod keys;
mod prefixes;
mod reference;
