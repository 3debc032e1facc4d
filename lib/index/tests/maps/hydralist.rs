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
