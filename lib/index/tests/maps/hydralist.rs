//! HydraList in the conformance suite: every kind of key, both search layers, with and without background threads,
//! topologies of one to eight nodes, and search layers that are never updated.

use crate::common::{conformance, encoding, variant};
use archipelago_index::HydraList;
use archipelago_index::hydra::{Builder, Experiment, Maintainers, SearchLayerKind};
use archipelago_platform::topology::Topology;

conformance!(words, u64, HydraList::new());
encoding!(signed, i64, HydraList::new());
encoding!(double_words, u128, HydraList::new());
encoding!(arrays, [u8; 12], HydraList::new());
conformance!(bytes, Vec<u8>, HydraList::new());
encoding!(strings, String, HydraList::new());
encoding!(pairs, (u32, String), HydraList::new());
encoding!(triples, (Vec<u8>, i16, Vec<u8>), HydraList::new());

variant!(words_by_tree, u64, Builder::default().search_layer(SearchLayerKind::Art).build());
variant!(
    bytes_by_tree,
    Vec<u8>,
    Builder::default().search_layer(SearchLayerKind::Art).topology(Topology::synthetic(2, 2)).build()
);
variant!(words_without_threads, u64, Builder::default().maintainers(Maintainers::Clients).build());
variant!(words_with_rounds_at_once, u64, Builder::default().experiment(Experiment::Synchronous).build());
variant!(words_on_two_nodes, u64, Builder::default().topology(Topology::synthetic(2, 2)).build());
variant!(bytes_on_four_nodes, Vec<u8>, Builder::default().topology(Topology::synthetic(4, 2)).build());
variant!(words_on_eight_nodes, u64, Builder::default().topology(Topology::synthetic(8, 1)).build());

/// Makes a map whose search layer never receives a change, so that every search begins at the first page.
fn stale<K: archipelago_index::Key, V: Send + Sync + 'static>() -> HydraList<K, V> {
    let map = HydraList::new();
    map.pause_maintenance(true);
    map
}

variant!(stale_words, u64, stale());
variant!(stale_bytes, Vec<u8>, stale());

/// Keys that share the bytes which a page keeps in its slots, and continue with zeros or end, are shown in order by the
/// scan that sorts their page. One of them is too long for a page.
#[test]
fn keys_that_differ_late_are_in_order() {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for head in [&b"a directory of a tree/"[..], b"a directory of a tree/with one more/"] {
        for tail in
            [&b""[..], b"f", b"fifteen letters", b"fifteen letters and more", b"fifteen lettaz", b"fifteen lettba"]
        {
            keys.extend((0..10).map(|zeros| [head, tail, &vec![0; zeros]].concat()));
        }
        keys.push([head, &[0; 300]].concat());
    }
    let map = HydraList::new();
    let session = map.pin();
    // 37 and the number of keys have no common divisor.
    for at in 0..keys.len() {
        session.insert(keys[at * 37 % keys.len()].clone(), at);
    }
    keys.sort_unstable();
    keys.dedup();
    let mut shown: Vec<Vec<u8>> = Vec::new();
    session.scan(&Vec::new(), usize::MAX, |key, _| shown.push(key.to_vec()));
    assert!(shown == keys, "{} of {} keys", shown.len(), keys.len());
    map.check_invariants();
}

/// Scans show keys that are nearly as long as a page stores them, and share nearly all of their bytes. Keys that share
/// even more bytes are longer than a page stores them.
#[test]
fn keys_that_share_nearly_all_bytes_are_shown() {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for (letter, shared) in (b'a'..).zip([60, 176, 180, 184, 187, 189, 190, 191, 195, 205, 210]) {
        let head = vec![letter; shared];
        for number in 0..300u16 {
            keys.push([&head[..], &number.to_be_bytes()[..if shared == 191 { 1 } else { 2 }]].concat());
            let filled = 192.max(shared + 2) - shared - 2;
            keys.push([&head[..], &number.to_be_bytes(), &vec![b'z'; filled]].concat());
        }
    }
    keys.sort_unstable();
    keys.dedup();
    let map = HydraList::new();
    let session = map.pin();
    // 1009 and the number of keys have no common divisor.
    for at in 0..keys.len() {
        session.insert(keys[at * 1_009 % keys.len()].clone(), at);
    }
    assert_eq!(map.len(), keys.len());
    let (mut up, mut down): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    session.scan(&Vec::new(), usize::MAX, |key, _| up.push(key.to_vec()));
    session.scan_rev(&vec![b'z'], usize::MAX, |key, _| down.push(key.to_vec()));
    down.reverse();
    assert!(up == keys, "{} of {} keys", up.len(), keys.len());
    assert!(down == keys, "{} of {} keys", down.len(), keys.len());
    map.check_invariants();
}
