//! Copies of the maps. The virtual machine's tests are optimized more and would not find them.

use crate::Tested;
use archipelago_index::{Art, BLinkTree, EunoBTree, EunoSkipList, HydraList, Key};

/// An empty map of each structure.
pub fn all<K: Key, V: Clone + Send + Sync + 'static>() -> [Tested<K, V>; 5] {
    [
        Tested::new(HydraList::<K, V>::new()),
        Tested::new(Art::<K, V>::new()),
        Tested::new(BLinkTree::<K, V>::new()),
        Tested::new(EunoBTree::<K, V>::new()),
        Tested::new(EunoSkipList::<K, V>::new()),
    ]
}

/// Words.
pub static WORDS: fn() -> [Tested<u64, u64>; 5] = all;

/// Byte strings.
pub static BYTES: fn() -> [Tested<Vec<u8>, u64>; 5] = all;
