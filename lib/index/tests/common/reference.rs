//! A map that is correct because it runs every operation under one lock, and maps with one bug each, which the suite
//! must find.

use super::tested::Invariants;
use archipelago_index::{Encode, Key, OrderedIndex, OrderedSession};
use archipelago_platform::sync::RwLock;
use archipelago_platform::thread;
use core::mem;
use std::collections::BTreeMap;

/// The fault of a [`Reference`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// No fault.
    None,
    /// It replaces by removing and inserting, in two steps.
    OverwriteHides,
    /// It updates by reading and writing, in two steps.
    UpdateLosesWrites,
    /// It removes nothing if the map has 49 entries, 99 entries, and so on.
    RemoveForgets,
    /// It sometimes returns the new value instead of the replaced one.
    WrongOldValue,
    /// It scans four entries at a time, and continues after as many entries as it has shown. If shown entries are
    /// removed meanwhile, it misses as many others.
    ScanByPosition,
    /// Its scans stop one entry before a limit of 3 or more.
    ScanStopsShort,
    /// Its scans begin after the key at which they should begin.
    ScanSkipsFirst,
    /// Its batched look-up exchanges the first and the last result.
    GetManySwaps,
    /// It leaks a clone of each removed value.
    Leaks,
}

/// A `BTreeMap` behind one lock.
pub struct Reference<K, V> {
    map: RwLock<BTreeMap<K, V>>,
    bug: Bug,
}

impl<K: Ord, V> Reference<K, V> {
    pub fn new() -> Self {
        Self::with(Bug::None)
    }

    pub fn with(bug: Bug) -> Self {
        Reference { map: RwLock::new(BTreeMap::new()), bug }
    }
}

impl<K, V> Invariants for Reference<K, V> {
    /// Checks that no thread holds the lock, and that no thread panicked while it held it.
    fn check(&self) {
        assert!(self.map.try_write().is_ok());
    }
}

impl<K: Key + Ord, V: Clone + Send + Sync + 'static> OrderedIndex<K, V> for Reference<K, V> {
    type Session<'a> = &'a Reference<K, V>;

    fn pin(&self) -> &Reference<K, V> {
        self
    }
}

/// Shows an entry to a scan's visitor.
fn show<K: Key, V>(key: &K, value: &V, visit: &mut impl FnMut(K::Ref<'_>, &V)) {
    // SAFETY: the probe was just made by `K::encode`.
    key.encode(|probe| visit(unsafe { K::decode_ref(probe) }, value));
}

impl<K: Key + Ord, V: Clone + Send + Sync + 'static> OrderedSession<K, V> for &Reference<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        self.map.read().unwrap().get(key).cloned()
    }

    fn insert(&self, key: &K, value: V) -> Option<V> {
        if self.bug == Bug::OverwriteHides {
            let old = self.map.write().unwrap().remove(key);
            thread::yield_now();
            self.map.write().unwrap().insert(key.clone(), value);
            return old;
        }
        let mut map = self.map.write().unwrap();
        let old = map.insert(key.clone(), value);
        if self.bug == Bug::WrongOldValue && old.is_some() && map.len() % 7 == 3 { map.get(key).cloned() } else { old }
    }

    fn update(&self, key: &K, mut f: impl FnMut(&V) -> V) -> Option<V> {
        if self.bug == Bug::UpdateLosesWrites {
            let new = f(&self.get(key)?);
            thread::yield_now();
            return self.map.write().unwrap().get_mut(key).map(|value| mem::replace(value, new));
        }
        let mut map = self.map.write().unwrap();
        let value = map.get_mut(key)?;
        let new = f(value);
        Some(mem::replace(value, new))
    }

    fn remove(&self, key: &K) -> Option<V> {
        let mut map = self.map.write().unwrap();
        if self.bug == Bug::RemoveForgets && map.len() % 50 == 49 {
            return map.get(key).cloned();
        }
        let old = map.remove(key);
        if self.bug == Bug::Leaks {
            mem::forget(old.clone());
        }
        old
    }

    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> usize {
        if self.bug == Bug::ScanByPosition {
            return self.scan_by_position(from, limit, visit);
        }
        let limit = if self.bug == Bug::ScanStopsShort && limit >= 3 { limit - 1 } else { limit };
        let map = self.map.read().unwrap();
        let skip = usize::from(self.bug == Bug::ScanSkipsFirst && map.contains_key(from));
        map.range(from..).skip(skip).take(limit).map(|(key, value)| show(key, value, &mut visit)).count()
    }

    fn scan_rev(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> Option<usize> {
        let map = self.map.read().unwrap();
        Some(map.range(..=from).rev().take(limit).map(|(key, value)| show(key, value, &mut visit)).count())
    }

    fn get_many(&self, keys: &[K], found: &mut Vec<Option<V>>) {
        found.clear();
        found.extend(keys.iter().map(|key| self.get(key)));
        if self.bug == Bug::GetManySwaps && keys.len() > 1 {
            found.swap(0, keys.len() - 1);
        }
    }
}

impl<K: Key + Ord, V: Clone> Reference<K, V> {
    fn scan_by_position(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> usize {
        const PAGE: usize = 4;
        let mut count = 0;
        while count < limit {
            let map = self.map.read().unwrap();
            let page = map.range(from..).skip(count).take(PAGE.min(limit - count));
            let shown = page.map(|(key, value)| show(key, value, &mut visit)).count();
            drop(map);
            count += shown;
            if shown == 0 {
                break;
            }
            thread::yield_now();
        }
        count
    }
}
