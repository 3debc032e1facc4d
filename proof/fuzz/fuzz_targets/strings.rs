#![no_main]
//! Maps of byte strings: `cargo fuzz run strings`. Keys are cut from few pieces, so that they share prefixes.

mod model;

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use model::{Op, check};

/// A key of up to eight pieces, one of which may be long.
#[derive(Debug)]
struct Pieces(Vec<u8>);

impl<'a> Arbitrary<'a> for Pieces {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let mut key = Vec::new();
        for _ in 0..bytes.int_in_range(0..=8)? {
            match bytes.int_in_range(0..=4)? {
                0 => key.push(0),
                1 => key.push(0xFF),
                2 => key.extend(b"common prefix"),
                3 => key.extend(std::iter::repeat_n(b'x', bytes.int_in_range(0..=300)?)),
                _ => key.extend(bytes.arbitrary::<[u8; 2]>()?),
            }
        }
        Ok(Self(key))
    }
}

fuzz_target!(|ops: Vec<Op<Pieces>>| {
    let ops: Vec<Op<Vec<u8>>> = ops.into_iter().map(|op| op.map(|Pieces(key)| key)).collect();
    check(&ops, <[u8]>::to_vec);
});
