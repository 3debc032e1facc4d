//! `EunoBTree` and `EunoSkipList` in the conformance suite. Their leaves, the chunks, can be scattered: new keys go to
//! several parts of the chunk, so that threads conflict less. There are maps whose chunks are scattered when they are
//! contended, always, and never, and maps with chunks of the paper's size.

use crate::common::{conformance, encoding, suite, variant};
use archipelago_index::euno::{Contention, Eunomia, NarrowSkip, NarrowTree, Tree};
use archipelago_index::map::Map;
use archipelago_index::{EunoBTree, EunoSkipList, Key};

fn tree<K: Key, V: Send + Sync + 'static>(contention: Contention) -> EunoBTree<K, V> {
    of::<Tree, K, V>(contention)
}

fn of<S: Eunomia, K: Key, V: Send + Sync + 'static>(contention: Contention) -> Map<S, K, V> {
    Map::builder().contention(contention).build()
}

conformance!(words, u64, EunoBTree::new());
conformance!(bytes, Vec<u8>, EunoBTree::new());
encoding!(pairs, (u32, String), EunoBTree::new());
variant!(scattered_words, u64, tree(Contention::Always));
variant!(scattered_bytes, Vec<u8>, tree(Contention::Always));
conformance!(list_words, u64, EunoSkipList::new());
conformance!(list_bytes, Vec<u8>, EunoSkipList::new());
variant!(quiet_words, u64, tree(Contention::Never));

/// Makes tests with the paper's geometry, which only experiments use.
macro_rules! narrow {
    ($name:ident, $key:ty, $kind:ty, $contention:ident) => {
        suite!($name, $key, of::<$kind, _, _>(Contention::$contention);
            model: any_sequence; histories: few_keys; threads: churn;);
    };
}
narrow!(narrow_words, u64, NarrowTree, Adaptive);
narrow!(narrow_scattered_words, u64, NarrowTree, Always);
narrow!(narrow_bytes, Vec<u8>, NarrowTree, Always);
narrow!(narrow_list_words, u64, NarrowSkip, Adaptive);
