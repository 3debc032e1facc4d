//! `BLinkTree` in the conformance suite: with the smallest pages, so that a few dozen keys make a tree, with the usual ones,
//! with pages that hold the suite's longest keys, and as on machines of several nodes.

mod common;

use archipelago_index::BLinkTree;
use archipelago_index::blink::Pages;
use archipelago_platform::topology::Topology;
use common::conformance;

type Small<K, V> = BLinkTree<K, V, Pages<512>>;
type Large<K, V> = BLinkTree<K, V, Pages<{ 128 << 10 }>>;

conformance!(words, u64, BLinkTree::<u64, _>::new(), |map| map.check_invariants());
conformance!(words_in_small_pages, u64, Small::new(), |map| map.check_invariants());
conformance!(signed, i64, Small::new(), |map| map.check_invariants());
conformance!(double_words, u128, Small::new(), |map| map.check_invariants());
conformance!(arrays, [u8; 12], Small::new(), |map| map.check_invariants());
conformance!(bytes, Vec<u8>, Large::new(), |map| map.check_invariants());
conformance!(strings, String, Large::new(), |map| map.check_invariants());
conformance!(pairs, (u32, String), Large::new(), |map| map.check_invariants());
conformance!(triples, (Vec<u8>, i16, Vec<u8>), Large::new(), |map| map.check_invariants());
conformance!(words_on_two_nodes, u64, Small::with_topology(Topology::synthetic(2, 4)), |map| map.check_invariants());
conformance!(arrays_on_eight_nodes, [u8; 12], Small::with_topology(Topology::synthetic(8, 2)), |map| map
    .check_invariants());
