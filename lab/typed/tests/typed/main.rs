//! Tests of every ordered map and every type of key, in one program.

#[path = "../../../../lib/index/tests/common/mod.rs"]
mod common;

mod face;
mod key_types;
