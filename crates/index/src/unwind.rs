//! Maps and panics: what can be carried through `catch_unwind`.
//!
//! An operation in which users' code panics (a closure, `clone`, `drop`, `encode`) leaves the map as it was before the
//! call or as it is after it, and no lock behind; an iterator may end early. So maps, sessions and iterators can be used
//! on, and say so. Like `Arc` and `BTreeMap` they ask it of their values, which others keep seeing by reference; of keys they keep encodings only.

use crate::art::{self, Art, ArtSession};
use crate::hydra::{self, HydraList, IntoIter, Session};
use crate::key::Key;
use core::panic::{RefUnwindSafe, UnwindSafe};

impl<K: Key, V: Send + Sync + RefUnwindSafe + 'static> UnwindSafe for HydraList<K, V> {}
impl<K: Key, V: Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for HydraList<K, V> {}

impl<K: Key, V: Send + Sync + RefUnwindSafe + 'static> UnwindSafe for Session<'_, K, V> {}
impl<K: Key, V: Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for Session<'_, K, V> {}

impl<K: Key, V: Send + Sync + RefUnwindSafe + 'static> UnwindSafe for IntoIter<K, V> {}
impl<K: Key, V: Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for IntoIter<K, V> {}

impl<K: Key, V: Clone + Send + Sync + RefUnwindSafe + 'static> UnwindSafe for hydra::Range<'_, K, V> {}
impl<K: Key, V: Clone + Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for hydra::Range<'_, K, V> {}

impl<K: Key, V: Clone + Send + Sync + RefUnwindSafe + 'static> UnwindSafe for Art<K, V> {}
impl<K: Key, V: Clone + Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for Art<K, V> {}

impl<K: Key, V: Clone + Send + Sync + RefUnwindSafe + 'static> UnwindSafe for ArtSession<'_, K, V> {}
impl<K: Key, V: Clone + Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for ArtSession<'_, K, V> {}

impl<K: Key, V: Clone + Send + Sync + RefUnwindSafe + 'static> UnwindSafe for art::Range<'_, K, V> {}
impl<K: Key, V: Clone + Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for art::Range<'_, K, V> {}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_platform::sync::Mutex;

    #[test]
    fn whatever_users_hold_can_be_used_after_a_panic() {
        fn is<T: UnwindSafe + RefUnwindSafe>() {}

        fn all_of<K: Key, V: Clone + Send + Sync + RefUnwindSafe + 'static>() {
            is::<(HydraList<K, V>, Session<'_, K, V>, IntoIter<K, V>, hydra::Range<'_, K, V>)>();
            is::<(Art<K, V>, ArtSession<'_, K, V>, art::Range<'_, K, V>)>();
        }

        all_of::<u64, u64>();
        all_of::<String, Vec<String>>();
        all_of::<(u32, String), &'static str>();
        // Values need not be clonable for everything.
        is::<(HydraList<u64, Mutex<Vec<u8>>>, Session<'_, u64, Mutex<Vec<u8>>>)>();
    }
}
