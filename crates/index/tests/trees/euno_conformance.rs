//! `EunoBTree` and `EunoSkipList` in the conformance suite: with chunks that are scattered as they heat up, always, and never.

use crate::common::conformance;
use archipelago_index::euno::Contention;
use archipelago_index::{EunoBTree, EunoSkipList, Key};

fn tree<K: Key, V: Send + Sync + 'static>(contention: Contention) -> EunoBTree<K, V> {
    EunoBTree::builder().contention(contention).build()
}

conformance!(words, u64, EunoBTree::new(), |map| map.check_invariants());
conformance!(bytes, Vec<u8>, EunoBTree::new(), |map| map.check_invariants());
conformance!(pairs, (u32, String), EunoBTree::new(), |map| map.check_invariants());
conformance!(scattered_words, u64, tree(Contention::Always), |map| map.check_invariants());
conformance!(scattered_bytes, Vec<u8>, tree(Contention::Always), |map| map.check_invariants());
conformance!(list_words, u64, EunoSkipList::new(), |map| map.check_invariants());
conformance!(list_bytes, Vec<u8>, EunoSkipList::new(), |map| map.check_invariants());
conformance!(quiet_words, u64, tree(Contention::Never), |map| map.check_invariants());
