//! Implementations of the standard traits that `std`'s maps implement, and of `OrderedIndex`, the trait that benchmarks
//! use.

use super::{Entries, Hold, Kind, Map, Range, Session};
use crate::structure::Form;
use crate::{Key, OrderedIndex, OrderedSession};
use core::fmt;

impl<S: Kind, K: Key, V: Send + Sync + 'static> Map<S, K, V> {
    /// Returns an iterator over references to all entries.
    fn all_entries(&self) -> Entries<'_, S, K, V> {
        Entries::over(super::walk::Walk::all(self))
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Default for Map<S, K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> FromIterator<(K, V)> for Map<S, K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, const N: usize> From<[(K, V); N]> for Map<S, K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Extend<(K, V)> for Map<S, K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Extend<(K, V)> for &Map<S, K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.pin().insert_many(entries);
    }
}

impl<'m, S: Kind, K: Key, V: Clone + Send + Sync + 'static> IntoIterator for &'m Map<S, K, V> {
    type Item = (K, V);
    type IntoIter = Range<'m, S, K, V>;

    fn into_iter(self) -> Range<'m, S, K, V> {
        Range::all(self)
    }
}

/// A clone has the same settings, and clones of the entries, each as it is at some moment of the call.
impl<S: Kind, K: Key, V: Clone + Send + Sync + 'static> Clone for Map<S, K, V> {
    fn clone(&self) -> Self {
        let clone = self.like();
        clone.pin().extend(self);
        clone
    }
}

/// Two maps are equal if they have the same keys with equal values. Each entry is compared as it is at some moment of
/// the call.
impl<S: Kind, K: Key, V: PartialEq + Send + Sync + 'static> PartialEq for Map<S, K, V> {
    fn eq(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.all_entries(), other.all_entries());
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some(our), Some(their)) if our.same_key(&their) && our.value() == their.value() => {}
                _ => return false,
            }
        }
    }
}

impl<S: Kind, K: Key, V: Eq + Send + Sync + 'static> Eq for Map<S, K, V> {}

impl<K: Key, V: Send + Sync + 'static> super::Entry<'_, K, V> {
    /// Returns whether the keys are the same, by their encodings.
    fn same_key(&self, other: &Self) -> bool {
        super::FormOf::<K>::compare(self.encoded_key(), other.encoded_key()).is_eq()
    }
}

impl<S: Kind, K: Key + fmt::Debug, V: Send + Sync + fmt::Debug + 'static> fmt::Debug for Map<S, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_map();
        for entry in self.all_entries() {
            shown.entry(&entry.to_key(), entry.value());
        }
        shown.finish()
    }
}

impl<S: Kind, K: Key, V: Clone + Send + Sync + 'static> OrderedIndex<K, V> for Map<S, K, V> {
    type Session<'a> = Session<'a, S, K, V>;

    fn pin(&self) -> Session<'_, S, K, V> {
        self.pin()
    }

    fn quiesce(&self) {
        self.sync();
    }
}

impl<'m, S: Kind, K: Key, V: Clone + Send + Sync + 'static, H: Hold<'m, S, K>> OrderedSession<K, V>
    for Session<'m, S, K, V, H>
{
    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.get(key)
    }

    #[inline]
    fn insert(&self, key: &K, value: V) -> Option<V> {
        self.insert_as(key, value)
    }

    #[inline]
    fn replace(&self, key: &K, value: V) -> Option<V> {
        self.replace(key, value)
    }

    #[inline]
    fn update(&self, key: &K, f: impl FnMut(&V) -> V) -> Option<V> {
        self.update(key, f)
    }

    fn remove(&self, key: &K) -> Option<V> {
        self.remove(key)
    }

    fn scan(&self, from: &K, limit: usize, visit: impl FnMut(K::Ref<'_>, &V)) -> usize {
        self.scan(from, limit, visit)
    }

    fn scan_rev(&self, from: &K, limit: usize, visit: impl FnMut(K::Ref<'_>, &V)) -> Option<usize> {
        Some(self.scan_rev(from, limit, visit))
    }

    fn get_many(&self, keys: &[K], found: &mut Vec<Option<V>>) {
        found.clear();
        self.get_many_into(keys, found);
    }
}

#[cfg(feature = "serde")]
impl<S: Kind, K: Key + serde::Serialize, V: Send + Sync + serde::Serialize + 'static> serde::Serialize
    for Map<S, K, V>
{
    fn serialize<To: serde::Serializer>(&self, serializer: To) -> Result<To::Ok, To::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        for entry in self.all_entries() {
            map.serialize_entry(&entry.to_key(), entry.value())?;
        }
        map.end()
    }
}

#[cfg(feature = "serde")]
impl<'de, S: Kind, K, V> serde::Deserialize<'de> for Map<S, K, V>
where
    K: Key + serde::Deserialize<'de>,
    V: Send + Sync + serde::Deserialize<'de> + 'static,
{
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<S: Kind, K: Key, V: Send + Sync + 'static>(Map<S, K, V>);

        impl<'de, S: Kind, K, V> serde::de::Visitor<'de> for Visitor<S, K, V>
        where
            K: Key + serde::Deserialize<'de>,
            V: Send + Sync + serde::Deserialize<'de> + 'static,
        {
            type Value = Map<S, K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let session = self.0.pin();
                while let Some((key, value)) = access.next_entry::<K, V>()? {
                    if key.encode(Map::<S, K, V>::is_too_long) {
                        return Err(serde::de::Error::custom("a key is longer than the map's longest"));
                    }
                    session.upsert::<K>(&key, value);
                }
                Ok(self.0)
            }
        }

        deserializer.deserialize_map(Visitor(Map::new()))
    }
}
