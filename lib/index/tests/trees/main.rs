//! The conformance suite for `BLinkTree` and Eunomia's maps, under every policy. It is a program of its own, so that it
//! is compiled at the same time as the program `maps`.

#[path = "../common/mod.rs"]
mod common;

mod blink_conformance;
mod blink_keys;
mod blink_model;
mod euno_conformance;
