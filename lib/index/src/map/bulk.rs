//! Operations on many entries: inserting, keeping, removing.

use super::walk::bounds;
use super::{FormOf, Hold, Kind, Map, Session};
use crate::structure::{Form, KeyList};
use crate::structure::{Put, Structure};
use crate::{Encode, Key, value};
use core::borrow::Borrow;
use core::ops::{Bound, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The number of entries that are handled in one critical section.
const BULK: usize = 64;
/// The greatest number of entries that are taken from an iterator before they are sorted and inserted. The first
/// batches are smaller.
const MOST_TAKEN: usize = 2048;

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Inserts or replaces every entry; of entries with equal keys the last one stays. Entries are sorted in batches of
    /// about 2,000 (the first batches are smaller), and inserted in the order of their keys. In a `HydraList` and a
    /// `BLinkTree`, a run of ascending keys costs one search per 64 entries. Each other entry of the run costs O(1)
    /// amortized, since it is stored in the page of the previous entry or in one near it. Entries whose keys are far
    /// apart even after sorting, and entries of the other maps, cost as much as with `insert`.
    ///
    /// `entries` is advanced outside any critical section, up to about 2,000 entries ahead of the inserted ones. If
    /// advancing it panics, the entries that it returned before are inserted before the panic continues.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(2, "old")]);
    /// let map = map.pin();
    /// map.extend([(3, "three"), (1, "one"), (2, "two"), (3, "tres")]);
    /// assert_eq!(map.values().collect::<Vec<_>>(), ["one", "two", "tres"]);
    /// ```
    ///
    /// # Panics
    /// If some keys are too long. All other entries have been stored then. See [`upsert`](Self::upsert).
    pub fn extend(&self, entries: impl IntoIterator<Item = (K, V)>) {
        self.insert_many(entries);
    }

    /// Inserts or replaces every entry as [`extend`](Self::extend) does. Returns the number of keys that are new.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one")]);
    /// assert_eq!(map.pin().insert_many([(1, "uno"), (2, "two"), (2, "due")]), 1); // only 2 is a new key
    /// assert_eq!(map.pin().get(&2), Some("due"));
    /// ```
    pub fn insert_many(&self, entries: impl IntoIterator<Item = (K, V)>) -> usize {
        let mut entries = entries.into_iter();
        let (mut batch, mut wanted, mut new, mut too_long) = (Vec::new(), BULK, 0, 0);
        loop {
            // A panic here leaves no inconsistent state: the vector contains the items that it was given before.
            let taken = catch_unwind(AssertUnwindSafe(|| batch.extend(entries.by_ref().take(wanted))));
            let over = batch.len() < wanted;
            let (added, refused) = self.put_all(&mut batch);
            (new, too_long) = (new + added, too_long + refused);
            match taken {
                Err(panic) => resume_unwind(panic),
                Ok(()) if over => {
                    assert!(too_long == 0, "{too_long} keys are longer than the map's longest");
                    return new;
                }
                Ok(()) => wanted = (wanted * 2).min(MOST_TAKEN),
            }
        }
    }

    /// Inserts or replaces a batch of entries, in the order of their keys, and leaves the batch empty. Returns the
    /// number of new keys, and the number of entries that were left out since their keys are too long.
    ///
    /// Each key is encoded once, so that the order is consistent whatever the key's type does.
    fn put_all(&self, batch: &mut Vec<(K, V)>) -> (usize, usize) {
        let mut keys = <FormOf<K> as Form>::Keys::default();
        batch.iter().for_each(|(key, _)| key.encode(|key| keys.push(key)));
        let mut values: Vec<Option<V>> = batch.drain(..).map(|(_, value)| Some(value)).collect();
        let mut order: Vec<usize> = (0..values.len()).collect();
        let compare = |a: usize, b: usize| FormOf::<K>::compare(keys.get(a), keys.get(b));
        if order.windows(2).any(|pair| compare(pair[0], pair[1]).is_gt()) {
            order.sort_unstable_by(|&a, &b| compare(a, b).then(a.cmp(&b)));
        }
        let (mut new, mut too_long) = (0, 0);
        for places in order.chunks(BULK) {
            let guard = self.enter_to_store();
            let mut near = Default::default();
            for &at in places {
                let Some(value) = values[at].take() else { continue };
                if Map::<S, K, V>::is_too_long(keys.get(at)) {
                    too_long += 1;
                    continue;
                }
                let word = Self::word_for(keys.get(at), value);
                match self.core.put_near(self.place(), &guard, &mut near, keys.get(at), word) {
                    Put::Replaced(old) => self.retire_word(&guard, old),
                    _ => new += 1,
                }
            }
        }
        (new, too_long)
    }

    /// Calls `keep` with every entry, in ascending order of keys, and removes the entries for which it returns false.
    ///
    /// An entry is removed only if it still has the value with which `keep` was called. `keep` may or may not be called
    /// with entries that other threads insert or change meanwhile.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, String> = (0..10).map(|n| (n, "x".repeat(n as usize))).collect();
    /// map.pin().retain(|key, value| key < 3 || value.len() > 8); // by reference: nothing is cloned
    /// assert_eq!(map.pin().keys().collect::<Vec<_>>(), [0, 1, 2, 9]);
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(K::Ref<'_>, &V) -> bool) {
        let all = (Bound::<&K>::Unbounded, Bound::Unbounded);
        self.sweep(bounds::<K, K>(&all), |key, word| {
            // SAFETY: the key is an encoding of a K; `sweep` shows words of the map under its guard.
            let keep = unsafe { value::with_ref(word, |value| keep(K::decode_ref(key), value)) };
            if keep { Sweep::Keep } else { Sweep::RemoveThis }
        });
    }

    /// Removes the entries whose keys are in `range`, in ascending order, and returns their number. Each entry is
    /// removed atomically, at a different moment. Every entry that is in the map throughout the call is removed;
    /// entries that other threads insert meanwhile may or may not be.
    ///
    /// ```
    /// use archipelago::HydraList;
    /// use std::ops::Bound::{Excluded, Unbounded};
    ///
    /// let map = HydraList::from(["ant", "bee", "cat"].map(|name| (name.to_string(), ())));
    /// let map = map.pin();
    /// assert_eq!(map.remove_range::<str, _>((Excluded("ant"), Unbounded)), 2);
    /// assert_eq!(map.remove_range("x".to_string()..), 0);
    /// assert_eq!(map.len(), 1);
    /// ```
    pub fn remove_range<Q, R>(&self, range: R) -> usize
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
        R: RangeBounds<Q>,
    {
        self.sweep(bounds::<K, Q>(&range), |_, _| Sweep::Remove)
    }

    /// Calls the closure for each entry between two bounds, and removes the entries that it selects. Returns the number
    /// of removed entries.
    fn sweep(
        &self,
        (low, high): (Option<super::walk::OwnedKey<K>>, Option<super::walk::OwnedKey<K>>),
        mut ask: impl FnMut(crate::Probe<'_, K>, u64) -> Sweep,
    ) -> usize {
        let high = high.as_ref().map(FormOf::<K>::probe);
        let (mut removed, mut from) = (0, low);
        while let Some(low) = from.take() {
            let guard = self.enter_to_store();
            let (mut seen, mut unwanted) = (0, Vec::new());
            self.core.scan(self.place(), &guard, FormOf::<K>::probe(&low), BULK, self.map.words(), |key, word| {
                let inside = high.is_none_or(|high| FormOf::<K>::compare(key, high).is_lt());
                if inside {
                    seen += 1;
                    if seen == BULK {
                        from = FormOf::<K>::just_above(key);
                    }
                    match ask(key, word) {
                        Sweep::Keep => {}
                        Sweep::Remove => unwanted.push((FormOf::<K>::own(key), None)),
                        // If the key still has the same word, it has the same value: the guard prevents the reuse of
                        // the value's address.
                        Sweep::RemoveThis => unwanted.push((FormOf::<K>::own(key), Some(word))),
                    }
                }
                inside
            });
            for (key, word) in unwanted {
                if let Some(word) = self.core.take(self.place(), &guard, FormOf::<K>::probe(&key), word) {
                    self.retire_word(&guard, word);
                    removed += 1;
                }
            }
        }
        removed
    }
}

/// What [`Session::sweep`] does with an entry.
enum Sweep {
    Keep,
    /// Removes the entry with any value.
    Remove,
    /// Removes the entry if it still has the value that was seen.
    RemoveThis,
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Extend<(K, V)> for Session<'m, S, K, V, H> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        Session::extend(self, entries);
    }
}
