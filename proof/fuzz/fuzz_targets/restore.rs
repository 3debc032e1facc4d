#![no_main]
//! Payloads of `RESTORE`: `cargo fuzz run restore`. The checksum is made, so that what is behind it is met.

use archipelago_server::db::table::Hashing;
use archipelago_server::rdb;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let payload = rdb::sealed(body.to_vec(), rdb::VERSION);
    if let Ok(value) = rdb::restore(&payload, Hashing::default()) {
        let again = rdb::restore(&rdb::dump(&value), Hashing::default()).expect("what is dumped is restored");
        assert_eq!(again.kind(), value.kind());
    }
});
