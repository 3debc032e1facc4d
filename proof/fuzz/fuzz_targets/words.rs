#![no_main]
//! Maps of integers: `cargo fuzz run words`.

mod model;

use libfuzzer_sys::fuzz_target;
use model::{Op, check};

fuzz_target!(|ops: Vec<Op<u64>>| check(&ops, |key| key));
