#![no_main]
//! Payloads of `RESTORE`: `cargo fuzz run restore`. The checksum is made, so that what is behind it is met.

use archipelago_server::db::table::Hashing;
use archipelago_server::rdb;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    // A sum of 0 is not looked at.
    let payload = [body, &rdb::VERSION.to_le_bytes(), &[0; 8]].concat();
    if let Ok(value) = rdb::restore(&payload, Hashing::default()) {
        let again = rdb::restore(&rdb::dump(&value), Hashing::default()).expect("what is dumped is restored");
        assert_eq!(again.kind(), value.kind());
    }
});
