//! Instantiations of the maps. This module is left out in tests for the virtual machine (a simulator). These tests are
//! compiled with more optimization, at which the compiler does not use instantiations of other crates.

use crate::Tested;
use archipelago_index::{Art, BLinkTree, EunoBTree, EunoSkipList, HydraList, Key};

/// Makes an empty map of each structure.
pub fn all<K: Key, V: Clone + Send + Sync + 'static>() -> [Tested<K, V>; 5] {
    [
        Tested::new(HydraList::<K, V>::new()),
        Tested::new(Art::<K, V>::new()),
        Tested::new(BLinkTree::<K, V>::new()),
        Tested::new(EunoBTree::<K, V>::new()),
        Tested::new(EunoSkipList::<K, V>::new()),
    ]
}

/// Maps with integer keys.
pub static WORDS: fn() -> [Tested<u64, u64>; 5] = all;

/// Maps with byte-string keys.
pub static BYTES: fn() -> [Tested<Vec<u8>, u64>; 5] = all;
