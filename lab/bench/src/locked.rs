//! The standard library's `BTreeMap` under one lock: the baseline for every index, and in some columns the fastest peer
//! at one thread.

use std::collections::BTreeMap;

use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::contender::BenchIndex;
use crate::keys::BenchKey;

/// `RwLock<BTreeMap>`.
pub struct RwLocked<K>(RwLock<BTreeMap<K, u64>>);

/// `Mutex<BTreeMap>`.
pub struct Mutexed<K>(Mutex<BTreeMap<K, u64>>);

const POISONED: &str = "no thread panics inside the lock";

impl<K> RwLocked<K> {
    #[inline]
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<K, u64>> {
        self.0.read().expect(POISONED)
    }

    #[inline]
    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<K, u64>> {
        self.0.write().expect(POISONED)
    }
}

impl<K> Mutexed<K> {
    #[inline]
    fn read(&self) -> MutexGuard<'_, BTreeMap<K, u64>> {
        self.0.lock().expect(POISONED)
    }

    #[inline]
    fn write(&self) -> MutexGuard<'_, BTreeMap<K, u64>> {
        self.read()
    }
}

macro_rules! locked_map {
    ($($map:ident),*) => { $(
        impl<K: BenchKey> BenchIndex<K> for $map<K> {
            fn empty() -> Self {
                $map(Default::default())
            }
        }

        impl<K: BenchKey> OrderedIndex<K, u64> for $map<K> {
            type Session<'a> = &'a Self;

            fn pin(&self) -> &Self {
                self
            }
        }

        impl<K: BenchKey> OrderedSession<K, u64> for &$map<K> {
            #[inline]
            fn get(&self, key: &K) -> Option<u64> {
                self.read().get(key).copied()
            }

            #[inline]
            fn insert(&self, key: &K, value: u64) -> Option<u64> {
                // The key is copied before the lock is taken.
                let key = key.clone();
                self.write().insert(key, value)
            }

            #[inline]
            fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
                let mut map = self.write();
                let value = map.get_mut(key)?;
                Some(std::mem::replace(value, f(value)))
            }

            fn remove(&self, key: &K) -> Option<u64> {
                self.write().remove(key)
            }

            #[inline]
            fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
                self.read().range(from..).take(limit).map(|(key, value)| visit(key.shown(), value)).count()
            }
        }
    )* };
}

locked_map!(RwLocked, Mutexed);
