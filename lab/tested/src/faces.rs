//! A map under test behind a trait object. So the test suite is compiled once per key type and value type, instead of
//! once per map; and a map's walks are compiled once, instead of once for each closure that the suite passes.

use archipelago_index::map::{Kind, Map};
use archipelago_index::{Key, OrderedIndex, OrderedSession};

/// The invariants of a map.
pub trait Invariants {
    /// Checks every invariant. The caller is the only user of the map.
    fn check(&self);
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Invariants for Map<S, K, V> {
    fn check(&self) {
        self.check_invariants();
    }
}

/// A function with which a test makes a new, empty map.
pub type Make<'a, K, V> = &'a dyn Fn() -> Tested<K, V>;

/// A map of any type, behind a trait object.
pub struct Tested<K, V>(Box<dyn Face<K, V>>);

impl<K: Key, V: Clone + Send + Sync + 'static> Tested<K, V> {
    /// Puts `map` behind a trait object.
    pub fn new(map: impl OrderedIndex<K, V> + Invariants + 'static) -> Self {
        Self(Box::new(map))
    }
}

impl<K, V> Invariants for Tested<K, V> {
    fn check(&self) {
        self.0.check();
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> OrderedIndex<K, V> for Tested<K, V> {
    type Session<'a> = Box<dyn FaceOfSession<K, V> + 'a>;

    fn pin(&self) -> Self::Session<'_> {
        self.0.pin()
    }

    fn quiesce(&self) {
        self.0.quiesce();
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> OrderedSession<K, V> for Box<dyn FaceOfSession<K, V> + '_> {
    fn get(&self, key: &K) -> Option<V> {
        (**self).get(key)
    }

    fn insert(&self, key: &K, value: V) -> Option<V> {
        (**self).insert(key, value)
    }

    fn update(&self, key: &K, mut f: impl FnMut(&V) -> V) -> Option<V> {
        (**self).update(key, &mut f)
    }

    fn remove(&self, key: &K) -> Option<V> {
        (**self).remove(key)
    }

    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> usize {
        (**self).scan(from, limit, &mut visit)
    }

    fn scan_rev(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> Option<usize> {
        (**self).scan_rev(from, limit, &mut visit)
    }

    fn get_many(&self, keys: &[K], found: &mut Vec<Option<V>>) {
        (**self).get_many(keys, found);
    }
}

/// [`OrderedIndex`] without its type of sessions, so that it can be a trait object.
trait Face<K, V>: Invariants + Send + Sync {
    fn pin(&self) -> Box<dyn FaceOfSession<K, V> + '_>;
    fn quiesce(&self);
}

impl<K: Key, V: Clone + Send + Sync + 'static, I: OrderedIndex<K, V> + Invariants> Face<K, V> for I {
    fn pin(&self) -> Box<dyn FaceOfSession<K, V> + '_> {
        Box::new(OrderedIndex::pin(self))
    }

    fn quiesce(&self) {
        OrderedIndex::quiesce(self);
    }
}

/// [`OrderedSession`] with closures as trait objects.
pub trait FaceOfSession<K: Key, V> {
    /// Returns the value of `key`.
    fn get(&self, key: &K) -> Option<V>;
    /// Inserts or replaces. Returns the old value.
    fn insert(&self, key: &K, value: V) -> Option<V>;
    /// Replaces the value of a present key. Returns the old value.
    fn update(&self, key: &K, f: &mut dyn FnMut(&V) -> V) -> Option<V>;
    /// Removes a key. Returns its value.
    fn remove(&self, key: &K) -> Option<V>;
    /// Visits entries upwards. Returns how many.
    fn scan(&self, from: &K, limit: usize, visit: &mut dyn FnMut(K::Ref<'_>, &V)) -> usize;
    /// Visits entries downwards. Returns how many, or `None` if the map cannot scan downwards.
    fn scan_rev(&self, from: &K, limit: usize, visit: &mut dyn FnMut(K::Ref<'_>, &V)) -> Option<usize>;
    /// Looks up several keys.
    fn get_many(&self, keys: &[K], found: &mut Vec<Option<V>>);
}

impl<K: Key, V: Clone + Send + Sync + 'static, S: OrderedSession<K, V>> FaceOfSession<K, V> for S {
    fn get(&self, key: &K) -> Option<V> {
        OrderedSession::get(self, key)
    }

    fn insert(&self, key: &K, value: V) -> Option<V> {
        OrderedSession::insert(self, key, value)
    }

    fn update(&self, key: &K, f: &mut dyn FnMut(&V) -> V) -> Option<V> {
        OrderedSession::update(self, key, f)
    }

    fn remove(&self, key: &K) -> Option<V> {
        OrderedSession::remove(self, key)
    }

    fn scan(&self, from: &K, limit: usize, visit: &mut dyn FnMut(K::Ref<'_>, &V)) -> usize {
        OrderedSession::scan(self, from, limit, visit)
    }

    fn scan_rev(&self, from: &K, limit: usize, visit: &mut dyn FnMut(K::Ref<'_>, &V)) -> Option<usize> {
        OrderedSession::scan_rev(self, from, limit, visit)
    }

    fn get_many(&self, keys: &[K], found: &mut Vec<Option<V>>) {
        OrderedSession::get_many(self, keys, found);
    }
}
