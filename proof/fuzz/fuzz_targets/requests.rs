#![no_main]
//! Bytes of a connection: `cargo fuzz run requests`. However they are cut, they are the same requests, and none is larger than
//! what was sent.

use archipelago_server::args::Args;
use archipelago_server::resp::{Malformed, Parser};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (step, bytes) = (usize::from(input.0) + 1, input.1);
    let whole = requests(bytes, bytes.len().max(1));
    assert_eq!(whole, requests(bytes, step));
    assert!(whole.into_iter().flatten().all(|args| args.bytes() <= bytes.len()));
});

fn requests(bytes: &[u8], step: usize) -> Result<Vec<Args>, Malformed> {
    let (mut parser, mut held, mut found) = (Parser::default(), Vec::new(), Vec::new());
    for piece in bytes.chunks(step) {
        held.extend_from_slice(piece);
        loop {
            let (args, taken) = parser.take(&held)?;
            held.drain(..taken);
            let Some(args) = args else { break };
            found.push(args);
        }
    }
    Ok(found)
}
