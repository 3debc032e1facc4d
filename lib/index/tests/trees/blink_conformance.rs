//! `BLinkTree` in the conformance suite: with the smallest pages, in which a few dozen keys make a tree; with pages of
//! the usual size; and with pages that have room for the suite's longest keys. The suite runs under every policy, and
//! on topologies of several NUMA nodes.

use crate::common::{conformance, encoding, variant};
use archipelago_index::blink::{
    Builder, Central, CohortNp, CohortWp, Dense, Granular, InnerReplicas, Latched, LogFed, Mirrored, Pages, Policy,
};
use archipelago_index::{BLinkTree, Key};
use archipelago_platform::topology::Topology;

type Small<K, V> = BLinkTree<K, V, Pages<512>>;
type Large<K, V> = BLinkTree<K, V, Pages<{ 128 << 10 }>>;
type Under<L, const READS: bool, V> = BLinkTree<u64, V, Latched<512, L, READS>>;

pub fn on_nodes<P: Policy, K: Key, V: Send + Sync + 'static>(nodes: usize) -> BLinkTree<K, V, P> {
    Builder::default().topology(Topology::synthetic(nodes, 2)).build()
}

conformance!(words, u64, BLinkTree::<u64, _>::new());
variant!(words_in_small_pages, u64, Small::new());
variant!(arrays_on_eight_nodes, [u8; 12], on_nodes::<Pages<512>, _, _>(8));
conformance!(bytes, Vec<u8>, Large::new());
encoding!(strings, String, Large::new());
encoding!(triples, (Vec<u8>, i16, Vec<u8>), Large::new());

// Policies with other latches. With `true` readers acquire latches, with `false` they only validate versions.
variant!(words_under_central, u64, Under::<Central, true, _>::new());
variant!(words_under_cohort_wp, u64, Under::<CohortWp, true, _>::new());
variant!(words_written_under_cohort_np, u64, Under::<CohortNp, false, _>::new());

// A policy whose leaves have no latches of their own: the latch of the page above covers them.
type Coarse = Granular<Latched<512, CohortWp, true>, 1>;
variant!(words_under_latched_parents, u64, BLinkTree::<_, _, Coarse>::new());

// A policy with fuller pages.
variant!(arrays_in_dense_pages, [u8; 12], BLinkTree::<_, _, Dense<Pages<512>>>::new());

// Policies with a replica of the tree on each node.
variant!(words_in_two_replicas, u64, on_nodes::<Mirrored<Pages<512>>, _, _>(2));
variant!(arrays_in_three_latched_replicas, [u8; 12], on_nodes::<Mirrored<Latched<512, CohortWp, true>>, _, _>(3));

// Policies with replicas to which each node's threads apply the updates of common logs.
variant!(words_from_a_log, u64, on_nodes::<LogFed<Pages<512>>, _, _>(2));
variant!(bytes_from_a_log_under_latches, Vec<u8>, on_nodes::<LogFed<Latched<{ 128 << 10 }, CohortWp, true>>, _, _>(3));

// Policies with copies of the inner pages on each node.
variant!(words_below_copies, u64, on_nodes::<InnerReplicas<Pages<512>>, _, _>(2));
