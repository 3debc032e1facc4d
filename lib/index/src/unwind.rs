//! Unwind safety of maps: which types may cross `catch_unwind`.
//!
//! If users' code panics in an operation on one key (a closure, `clone`, `drop`, `encode`), the map is as it was before
//! the call or as it is after the call. An operation on several keys may have been carried out in part, and an iterator
//! may end early. In no case does a lock stay locked. So maps, sessions and iterators can be used after a panic, and
//! implement `UnwindSafe` and `RefUnwindSafe`. Like `Arc` and `BTreeMap` they require unwind safety of their values,
//! since other threads may have references to the values. They do not require it of keys, since they store only
//! encodings of keys.

use crate::key::Key;
use crate::map::{Entries, Entry, ExtractIf, Hold, IntoIter, Kind, Map, MapRefs, Range, Ref, Session, Take};
use core::panic::{RefUnwindSafe, UnwindSafe};

impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static> UnwindSafe for Map<S, K, V> {}
impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for Map<S, K, V> {}

impl<'m, S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static, H: Hold<'m, S, K>> UnwindSafe
    for Session<'m, S, K, V, H>
{
}
impl<'m, S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static, H: Hold<'m, S, K>> RefUnwindSafe
    for Session<'m, S, K, V, H>
{
}

impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static> UnwindSafe for IntoIter<S, K, V> {}
impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for IntoIter<S, K, V> {}

impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static, T: Take<K, V>> UnwindSafe for Range<'_, S, K, V, T> {}
impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static, T: Take<K, V>> RefUnwindSafe for Range<'_, S, K, V, T> {}

impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static> UnwindSafe for Entries<'_, S, K, V> {}
impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for Entries<'_, S, K, V> {}

impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static, F> UnwindSafe for MapRefs<'_, S, K, V, F> {}
impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static, F> RefUnwindSafe for MapRefs<'_, S, K, V, F> {}

impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static, F> UnwindSafe for ExtractIf<'_, S, K, V, F> {}
impl<S: Kind, K: Key, V: Send + Sync + RefUnwindSafe + 'static, F> RefUnwindSafe for ExtractIf<'_, S, K, V, F> {}

impl<V: Send + Sync + RefUnwindSafe + 'static> UnwindSafe for Ref<'_, V> {}
impl<V: Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for Ref<'_, V> {}

impl<K: Key, V: Send + Sync + RefUnwindSafe + 'static> UnwindSafe for Entry<'_, K, V> {}
impl<K: Key, V: Send + Sync + RefUnwindSafe + 'static> RefUnwindSafe for Entry<'_, K, V> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::art::{self, Art, ArtSession};
    use crate::blink::{self, BLinkTree};
    use crate::hydra::{self, HydraList};
    use archipelago_platform::sync::Mutex;

    #[test]
    fn whatever_users_hold_can_be_used_after_a_panic() {
        fn is<T: UnwindSafe + RefUnwindSafe>() {}

        fn all_of<K: Key, V: Clone + Send + Sync + RefUnwindSafe + 'static>() {
            is::<(HydraList<K, V>, hydra::Session<'_, K, V>, hydra::IntoIter<K, V>, hydra::Range<'_, K, V>)>();
            is::<(Ref<'_, V>, Entry<'_, K, V>, Entries<'_, hydra::Hydra, K, V>)>();
            is::<(BLinkTree<K, V>, blink::BLinkSession<'_, K, V>, blink::Range<'_, K, V>)>();
            is::<(Art<K, V>, ArtSession<'_, K, V>, art::Range<'_, K, V>)>();
        }

        all_of::<u64, u64>();
        all_of::<String, Vec<String>>();
        all_of::<(u32, String), &'static str>();
        // Values that are not `Clone` work, too.
        is::<(HydraList<u64, Mutex<Vec<u8>>>, hydra::Session<'_, u64, Mutex<Vec<u8>>>)>();
    }
}
