#![no_main]
//! Encodings of keys: `cargo fuzz run keys`. A map must give keys back as they were stored, in the order of `Ord`.

use std::collections::BTreeSet;
use std::fmt::Debug;

use arbitrary::Arbitrary;
use archipelago_index::{HydraList, Key};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Keys {
    signed: Vec<i64>,
    wide: Vec<u128>,
    strings: Vec<String>,
    bytes: Vec<Vec<u8>>,
    pairs: Vec<(String, u64)>,
    triples: Vec<(i32, Vec<u8>, String)>,
    nested: Vec<((String, bool), char, [u8; 3])>,
}

fn round_trip<K: Key + Ord + Debug>(keys: Vec<K>) {
    let map: HydraList<K, u64> = HydraList::new();
    let session = map.pin();
    for (at, key) in keys.iter().enumerate() {
        session.upsert(key, at as u64);
    }
    let expected: BTreeSet<K> = keys.into_iter().collect();
    let stored: Vec<K> = session.iter().map(|(key, _)| key).collect();
    assert!(stored.iter().eq(&expected), "{stored:?}");
    assert!(expected.iter().all(|key| session.get(key).is_some()));
}

fuzz_target!(|keys: Keys| {
    round_trip(keys.signed);
    round_trip(keys.wide);
    round_trip(keys.strings);
    round_trip(keys.bytes);
    round_trip(keys.pairs);
    round_trip(keys.triples);
    round_trip(keys.nested);
});
