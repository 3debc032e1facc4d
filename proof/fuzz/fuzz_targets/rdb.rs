#![no_main]
//! RDB files: `cargo fuzz run rdb`. What is read can be written and read again.

use archipelago_server::db::table::Hashing;
use archipelago_server::rdb;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(loaded) = rdb::read(&mut &*bytes, Hashing::default()) {
        let mut again = Vec::new();
        rdb::write(&loaded.db, &mut again).expect("a vector takes all");
        let read = rdb::read(&mut &*again, Hashing::default()).expect("what is written is read");
        assert_eq!(read.db.digest(), loaded.db.digest());
    }
});
