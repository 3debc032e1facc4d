//! The conformance suite over `BLinkTree` and Eunomia's maps, under every policy: a program of its own beside `maps`, so that the
//! two are compiled side by side.

#[path = "../common/mod.rs"]
mod common;

mod blink_conformance;
mod blink_keys;
mod blink_model;
mod euno_conformance;
