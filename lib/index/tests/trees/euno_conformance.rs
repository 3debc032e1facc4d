//! `EunoBTree` and `EunoSkipList` in the conformance suite: with chunks that are scattered as they heat up, always, and never.

use crate::common::{conformance, encoding, variant};
use archipelago_index::euno::Contention;
use archipelago_index::{EunoBTree, EunoSkipList, Key};

fn tree<K: Key, V: Send + Sync + 'static>(contention: Contention) -> EunoBTree<K, V> {
    EunoBTree::builder().contention(contention).build()
}

conformance!(words, u64, EunoBTree::new());
conformance!(bytes, Vec<u8>, EunoBTree::new());
encoding!(pairs, (u32, String), EunoBTree::new());
variant!(scattered_words, u64, tree(Contention::Always));
variant!(scattered_bytes, Vec<u8>, tree(Contention::Always));
conformance!(list_words, u64, EunoSkipList::new());
conformance!(list_bytes, Vec<u8>, EunoSkipList::new());
variant!(quiet_words, u64, tree(Contention::Never));
