//! Operations that refuse instead of waiting or growing, for maps with a `backlog_limit` or a `memory_limit`. Before
//! they refuse, they try to free memory. Insertions also refuse keys that are too long.

use super::{FormOf, Hold, Kind, Map, Session};
use crate::limits::{Need, Refused, Space};
use crate::structure::Form;
use crate::structure::Structure;
use crate::{Key, value};

/// The bytes of an entry in a page, without a long key and a boxed value.
const SLOT: usize = 32;

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Inserts or replaces as [`upsert`](Self::upsert) does, unless the map is at a limit.
    ///
    /// ```
    /// use archipelago::{BLinkTree, index::Refused};
    ///
    /// let map: BLinkTree<String, u64> = BLinkTree::new();
    /// let long = "x".repeat(BLinkTree::<String, u64>::LONGEST_KEY + 1);
    /// let map = map.pin();
    /// assert_eq!(map.try_upsert("short".into(), 1), Ok(false)); // `true` if it had replaced a value
    /// assert_eq!(map.try_upsert(long.clone(), 2), Err(Refused::TooLong((long, 2)))); // `upsert` would panic
    /// ```
    ///
    /// # Errors
    /// Returns the entry, if the map is at a limit or the key is too long. Nothing was changed.
    pub fn try_upsert(&self, key: K, value: V) -> Result<bool, Refused<(K, V)>> {
        match self.room_for(&key) {
            Ok(()) => Ok(self.without_waiting(|| self.upsert::<K>(&key, value))),
            Err(refused) => Err(refused.of((key, value))),
        }
    }

    /// Stores entries as [`try_upsert`](Self::try_upsert) does, until an entry is refused. Returns the number of stored
    /// entries.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, [u8; 1000]> = HydraList::builder().memory_limit(1 << 20).build();
    /// let mut entries = (0..2_000).map(|n| (n, [7; 1000]));
    /// let (refused, _) = map.pin().try_extend(&mut entries).unwrap_err().into_inner();
    /// assert_eq!(map.len() as u64, refused); // all entries before the refused one
    /// assert_eq!(entries.next().map(|(next, _)| next), Some(refused + 1));
    /// ```
    ///
    /// # Errors
    /// Returns the first refused entry, if the map is at a limit or the key is too long. The entries before it are in
    /// the map, and the entries after it were not taken from the iterator.
    pub fn try_extend(&self, entries: impl IntoIterator<Item = (K, V)>) -> Result<usize, Refused<(K, V)>> {
        let mut stored = 0;
        for (key, value) in entries {
            self.try_upsert(key, value)?;
            stored += 1;
        }
        Ok(stored)
    }

    fn room_for(&self, key: &K) -> Result<(), Refused> {
        let bytes = key.encode(|key| FormOf::<K>::with_bytes(key, <[u8]>::len));
        if bytes > Map::<S, K, V>::LONGEST_KEY {
            return Err(Refused::TooLong(()));
        }
        self.backlog_room()?;
        let outside = key.encode(|key| self.core.outside(key));
        let need = Need { page: SLOT + bytes.saturating_sub(outside), outside: value::boxed_bytes::<V>() + outside };
        self.memory_room(need, Some(key))
    }

    fn backlog_room(&self) -> Result<(), Refused> {
        let has_room = self.core.limits().backlog.has_room(self.core.domain());
        if has_room { Ok(()) } else { Err(Refused::Backlogged(())) }
    }

    /// Returns an error if the map has no room for `need`. `key` is given if it may be a new key.
    fn memory_room(&self, need: Need, key: Option<&K>) -> Result<(), Refused> {
        if self.may_grow(need) || self.find_room(need, key) { Ok(()) } else { Err(Refused::Full(())) }
    }

    fn may_grow(&self, need: Need) -> bool {
        self.core.limits().may_grow(need, || self.space())
    }

    fn space(&self) -> Space {
        Space { held: self.map.bytes(), spare: self.core.spare(self.place()) }
    }

    #[cold]
    fn find_room(&self, need: Need, key: Option<&K>) -> bool {
        // Perhaps removed memory only waits to be freed. Collecting also advances the epoch, which permits the next
        // merging of nearly empty pages (`may_settle`). It executes barriers, so it is skipped if nothing waits.
        if self.core.domain().stats().pending > 0 || self.core.is_thin() {
            self.core.domain().collect();
            if self.may_grow(need) {
                return true;
            }
        }
        if self.core.limits().may_fill(need, self.space()) && key.is_none_or(|key| self.fits(key)) {
            return true;
        }
        // If this did not suffice, nearly empty pages may be merged.
        if !self.core.is_thin() || !self.core.limits().may_settle(self.core.domain().stats().epoch) {
            return false;
        }
        self.core.settle();
        self.may_grow(need)
    }

    /// Returns whether the key is in the map, or its page has room for it.
    fn fits(&self, key: &K) -> bool {
        let guard = self.enter();
        key.encode(|key| self.core.fits(self.place(), &guard, key))
    }

    /// Runs `store` inside a guard. A thread inside a guard does not wait at the backlog limit.
    fn without_waiting<R>(&self, store: impl FnOnce() -> R) -> R {
        let _guard = self.enter();
        store()
    }
}

impl<'m, S: Kind, K: Key, V: Clone + Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Inserts or replaces as [`insert`](Self::insert) does, unless the map is at a limit.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, [u8; 1000]> = HydraList::builder().memory_limit(1 << 20).build();
    /// let map = map.pin();
    /// assert_eq!(map.try_insert(0, [7; 1000]), Ok(None));
    /// let refused = (1..2_000).find_map(|n| map.try_insert(n, [7; 1000]).err());
    /// assert!(refused.is_some());
    /// map.insert(2_000, [7; 1000]); // operations without `try_` ignore the limit
    /// ```
    ///
    /// # Errors
    /// Returns the entry, if the map is at a limit or the key is too long. Nothing was changed.
    pub fn try_insert(&self, key: K, value: V) -> Result<Option<V>, Refused<(K, V)>> {
        match self.room_for(&key) {
            Ok(()) => Ok(self.without_waiting(|| self.insert(key, value))),
            Err(refused) => Err(refused.of((key, value))),
        }
    }

    /// Replaces a value as [`replace`](Self::replace) does, unless the map is at a limit.
    ///
    /// ```
    /// use archipelago::index::{HydraList, OnBacklog, Refused};
    ///
    /// let map: HydraList<u64, [u8; 1000]> = HydraList::builder().backlog_limit(1 << 20, OnBacklog::Wait).build();
    /// let map = map.pin();
    /// assert_eq!(map.try_replace(&1, [1; 1000]), Ok(None)); // nothing to replace
    /// map.insert(1, [0; 1000]);
    /// let reader = map.get_ref(&1); // keeps every replaced value in memory
    /// let refused = (0..5_000).find_map(|_| map.try_replace(&1, [1; 1000]).err());
    /// assert_eq!(refused, Some(Refused::Backlogged([1; 1000])));
    /// # drop(reader);
    /// ```
    ///
    /// # Errors
    /// Returns the new value, if the map is at a limit. Nothing was changed.
    pub fn try_replace(&self, key: &K, value: V) -> Result<Option<V>, Refused<V>> {
        let room = self
            .backlog_room()
            .and_then(|()| self.memory_room(Need { page: 0, outside: value::boxed_bytes::<V>() }, None));
        match room {
            Ok(()) => Ok(self.without_waiting(|| self.replace::<K>(key, value))),
            Err(refused) => Err(refused.of(value)),
        }
    }

    /// Removes a key as [`remove`](Self::remove) does, unless the map is at its backlog limit.
    ///
    /// ```
    /// use archipelago::index::{HydraList, OnBacklog, Refused};
    ///
    /// let map: HydraList<u64, [u8; 1000]> = HydraList::builder().backlog_limit(1 << 20, OnBacklog::Wait).build();
    /// let map = map.pin();
    /// map.extend((0..5_000).map(|n| (n, [7; 1000])));
    /// let reader = map.get_ref(&4_999); // keeps every removed value in memory
    /// let refused = (0..5_000).find(|key| map.try_remove(key) == Err(Refused::Backlogged(())));
    /// assert!(map.contains_key(&refused.unwrap())); // nothing was changed
    /// # drop(reader);
    /// ```
    ///
    /// # Errors
    /// If more memory waits for readers than the map's `backlog_limit`.
    pub fn try_remove(&self, key: &K) -> Result<Option<V>, Refused> {
        self.backlog_room()?;
        Ok(self.without_waiting(|| self.remove::<K>(key)))
    }
}
