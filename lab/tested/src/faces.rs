//! A map under test, its type forgotten: the suite is compiled once for a kind of key and of value and not once for a map, and
//! a map's walks once and not once for each closure that the suite hands them.

use archipelago_index::map::{Kind, Map};
use archipelago_index::{Key, OrderedIndex, OrderedSession};

/// What can be checked of a map.
pub trait Invariants {
    /// Checks every invariant, for a caller that has the map to itself.
    fn check(&self);
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Invariants for Map<S, K, V> {
    fn check(&self) {
        self.check_invariants();
    }
}

/// What a test calls for a new, empty map.
pub type Make<'a, K, V> = &'a dyn Fn() -> Tested<K, V>;

/// A map of any type.
pub struct Tested<K, V>(Box<dyn Face<K, V>>);

impl<K: Key, V: Clone + Send + Sync + 'static> Tested<K, V> {
    /// Forgets the type of `map`.
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

/// [`OrderedIndex`] without its type of sessions.
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

/// [`OrderedSession`] with closures behind references.
pub trait FaceOfSession<K: Key, V> {
    /// The value of `key`.
    fn get(&self, key: &K) -> Option<V>;
    /// Inserts or replaces; returns the value replaced.
    fn insert(&self, key: &K, value: V) -> Option<V>;
    /// Replaces the value of a key that is there; returns the old one.
    fn update(&self, key: &K, f: &mut dyn FnMut(&V) -> V) -> Option<V>;
    /// Removes; returns the value removed.
    fn remove(&self, key: &K) -> Option<V>;
    /// Visits entries upwards; returns how many.
    fn scan(&self, from: &K, limit: usize, visit: &mut dyn FnMut(K::Ref<'_>, &V)) -> usize;
    /// Visits entries downwards; returns how many.
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
