#![no_main]
//! HyperLogLogs that anyone may have made: `cargo fuzz run hyperloglog`. The head is made, so that runs of registers are met.

use archipelago_server::db::hyperloglog::{self, REGISTERS};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<(u16, u8)>, Vec<u8>)| {
    let (raises, runs) = input;
    let mut bytes = [&hyperloglog::new()[..16], &runs].concat();
    let sound = hyperloglog::count(&bytes).is_ok();
    for (index, value) in raises {
        let (index, value) = (usize::from(index) % REGISTERS, 1 + value % 51);
        let raised = hyperloglog::raise(&mut bytes, index, value, hyperloglog::SPARSE);
        assert!(raised.is_ok() || !sound);
    }
    assert_eq!(hyperloglog::count(&bytes).is_ok(), sound);
});
