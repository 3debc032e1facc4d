//! Operations on a whole map: building, emptying, splitting, joining, taking apart, dropping. Most of them need a map
//! that no other thread uses.

use super::batch::Batch;
use super::{FormOf, Kind, Map};
use crate::structure::Form;
use crate::structure::{End, Put, Structure, Words};
use crate::value::{self, DropAll};
use crate::{Encode, Key};
use archipelago_platform::thread;
use core::borrow::Borrow;
use core::fmt;
use core::iter::FusedIterator;
use core::mem::ManuallyDrop;

/// The number of entries that are moved from one map to another at a time.
const MOVED: usize = 512;

impl<S: Kind, K: Key, V: Send + Sync + 'static> Map<S, K, V> {
    /// Builds a map from entries in ascending order of keys. It inserts them as [`extend`](super::Session::extend)
    /// does, at the same cost; a `HydraList` fills its pages completely, one after the other. Entries that are out of
    /// order are inserted, too, at the cost of `insert`. Of entries with equal keys the last one stays.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from_sorted([(1, "one"), (2, "two"), (2, "due"), (1, "uno")]); // 1 is out of order
    /// assert_eq!(map.into_iter().collect::<Vec<_>>(), [(1, "uno"), (2, "due")]);
    /// ```
    pub fn from_sorted(entries: impl IntoIterator<Item = (K, V)>) -> Self {
        let map = Self::new();
        map.pin().extend(entries);
        map.sync();
        map
    }

    /// Builds a map as [`from_sorted`](Self::from_sorted) does, by up to `threads` threads, each with its share of the
    /// entries. Of entries with equal keys that are not adjacent, any one may stay.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let entries = (0..10_000_u64).map(|n| (n / 2, n)).collect(); // each key twice
    /// let map = HydraList::from_sorted_parallel(entries, 4);
    /// assert_eq!(map.len(), 5_000);
    /// assert_eq!(map.pin().get(&7), Some(15)); // the last of adjacent entries with equal keys
    /// ```
    ///
    /// # Panics
    /// If a key's or a value's code panics in any of the threads.
    pub fn from_sorted_parallel(mut entries: Vec<(K, V)>, threads: usize) -> Self {
        let map = Self::new();
        let share = entries.len().div_ceil(threads.max(1)).max(MOVED);
        thread::scope(|s| {
            while entries.len() > share {
                let part = entries.split_off(Self::first_alike(&entries, entries.len() - share));
                let map = &map;
                s.spawn(move || map.pin().extend(part));
            }
            map.pin().extend(entries);
        });
        map.sync();
        map
    }

    /// Returns the first index of the adjacent entries that have the same key as the entry at `at`. One thread inserts
    /// all of them, so that the last of them is inserted last.
    fn first_alike(entries: &[(K, V)], at: usize) -> usize {
        entries[at].0.encode(|key| {
            let alike = |entry: &&(K, V)| entry.0.encode(|other| FormOf::<K>::compare(other, key).is_eq());
            at - entries[..at].iter().rev().take_while(alike).count()
        })
    }

    /// Removes all entries and frees all memory. (Use [`Session::remove_range`](super::Session::remove_range) to empty
    /// a map that other threads use.)
    ///
    /// ```
    /// use archipelago::index::{HydraList, Refused};
    ///
    /// let mut map: HydraList<u64, [u8; 1000]> = HydraList::builder().memory_limit(1 << 20).build();
    /// while map.pin().try_insert(map.len() as u64, [7; 1000]).is_ok() {}
    /// map.clear();
    /// assert_eq!(map.bytes(), 0);
    /// assert!(map.pin().try_extend((0..2_000).map(|n| (n, [7; 1000]))).is_err()); // the limit remains
    /// ```
    ///
    /// # Panics
    /// If the drop of a value panics. The first such panic continues after all values have been dropped.
    pub fn clear(&mut self) {
        *self = self.like();
    }

    /// Moves all entries of `other` into this map. `other` is empty afterwards; other threads may use this map
    /// meanwhile. For a key in both maps, the value of `other` stays. Entries are moved without being cloned or
    /// rebuilt. Each entry is moved at a different moment.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one"), (2, "two")]);
    /// let mut other = HydraList::from([(2, "due"), (3, "tre")]);
    /// map.append(&mut other);
    /// assert!(other.is_empty());
    /// assert_eq!(map.into_iter().collect::<Vec<_>>(), [(1, "one"), (2, "due"), (3, "tre")]);
    /// ```
    pub fn append(&self, other: &mut Self) {
        if other.used().is_none() {
            return;
        }
        // After a panic the remaining entries are leaked, since words must not be in two maps.
        let other = ManuallyDrop::new(core::mem::replace(other, other.like()));
        let from = other.core();
        let mut low = Some(FormOf::<K>::least());
        let mut batch = Batch::default();
        while let Some(start) = low.take() {
            low = collect::<S, K>(from, FormOf::<K>::probe(&start), &mut batch);
            self.take_in(&mut batch);
        }
        ManuallyDrop::into_inner(other).forget_entries();
    }

    /// Stores a batch of words, in ascending order of keys. The words have been taken out of another map, so no map
    /// owns them.
    fn take_in(&self, batch: &mut Batch<FormOf<K>>) {
        let session = self.pin();
        let guard = session.enter_to_store();
        let mut near = Default::default();
        for at in 0..batch.len() {
            let put = session.core.put_near(session.place(), &guard, &mut near, batch.key(at), *batch.word(at));
            if let Put::Replaced(old) = put {
                session.retire_word(&guard, old);
            }
        }
        batch.clear();
    }

    /// Drops the structure without dropping the values in it.
    fn forget_entries(mut self) {
        if let Some(core) = self.core.take()
            // SAFETY: the map is owned, and the structure is dropped here.
            && let Some(payload) = unsafe { core.dismantle(|_| ()) }
        {
            std::panic::resume_unwind(payload);
        }
    }

    /// Divides the map: returns a map with the entries at and above `key`, and keeps the entries below it. Entries are
    /// moved without being cloned or rebuilt. O(entries moved).
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let mut low: HydraList<u64, String> = (0..100).map(|n| (n, n.to_string())).collect();
    /// let mut high = low.split_off(&40);
    /// assert_eq!((low.len(), high.len()), (40, 60));
    /// low.append(&mut high);
    /// assert_eq!((low.len(), high.len()), (100, 0));
    /// ```
    pub fn split_off<Q>(&mut self, key: &Q) -> Self
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let upper = self.like();
        let mut low = Some(key.encode(FormOf::<K>::own));
        let mut batch = Batch::default();
        while let Some(start) = low.take().filter(|_| self.used().is_some()) {
            let session = self.pin();
            low = collect::<S, K>(session.core, FormOf::<K>::probe(&start), &mut batch);
            let guard = session.enter();
            for at in 0..batch.len() {
                let taken = session.core.take(session.place(), &guard, batch.key(at), None);
                debug_assert_eq!(taken, Some(*batch.word(at)), "`&mut self`: no other thread changes the map");
            }
            drop(guard);
            upper.take_in(&mut batch);
        }
        upper
    }

    /// Returns up to `parts - 1` distinct keys, in ascending order, that divide the map into ranges with about equally
    /// many entries. The first range is below the first key, the second range begins with it, and so on. The ranges can
    /// be processed by several threads. O(parts), or O(nodes of the structure's upper part). In a `HydraList` the upper
    /// part has one anchor for each page.
    ///
    /// In an [`Art`](crate::Art), O(parts) nodes do not suffice to divide thousands of keys that are prefixes of one
    /// another (`a`, `aa`, `aaa`, ...). Such keys may all be in one range.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, u64> = (0..10_000).map(|n| (n, n)).collect();
    /// let cuts = map.split_points(4);
    /// assert_eq!(cuts.len(), 3);
    /// assert!(cuts.is_sorted() && cuts[0] > 1_000 && cuts[2] < 9_000);
    /// ```
    pub fn split_points(&self, parts: usize) -> Vec<K> {
        let (mut points, mut last) = (Vec::new(), None::<super::walk::OwnedKey<K>>);
        if let Some(core) = self.used().filter(|_| parts > 1) {
            let guard = core.domain().pin();
            core.split_points(core.place(), &guard, parts - 1, |key| {
                // The structure looked the keys up one after the other. If entries were removed meanwhile, it may have
                // found the same key at several positions.
                if last.as_ref().is_none_or(|last| FormOf::<K>::compare(FormOf::<K>::probe(last), key).is_lt()) {
                    last = Some(FormOf::<K>::own(key));
                    // SAFETY: a structure passes stored keys only, which are encodings of Ks.
                    points.push(unsafe { K::decode(key) });
                }
            });
        }
        points
    }
}

/// Copies up to [`MOVED`] entries from `from` on, in ascending order. If more entries may follow, returns the key at
/// which to continue.
fn collect<S: Kind, K: Key>(
    core: &super::CoreOf<S, K>,
    from: crate::Probe<'_, K>,
    batch: &mut Batch<FormOf<K>>,
) -> Option<super::walk::OwnedKey<K>> {
    let guard = core.domain().pin();
    core.scan(core.place(), &guard, from, MOVED, Words::Shown, |key, word| {
        batch.push(key, word);
        true
    });
    (batch.len() == MOVED).then(|| FormOf::<K>::just_above(batch.key(MOVED - 1)))?
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Drop for Map<S, K, V> {
    fn drop(&mut self) {
        let Some(core) = self.core.get() else { return };
        let mut values = DropAll::default();
        // SAFETY: no other thread uses the map (sessions borrow it), so each word is owned here, and shown once. The
        // structure is dropped with the map.
        let panicked = unsafe { core.dismantle(|word| values.drop_word::<V>(word)) };
        drop(values);
        // A panic in `dismantle` is a bug of this crate, which the panic hook has reported. During another panic it
        // must not end the process.
        if let Some(payload) = panicked.filter(|_| !thread::panicking()) {
            std::panic::resume_unwind(payload);
        }
    }
}

/// An owning iterator over a map's entries, in key order, from both ends. Entries that it has not yielded are dropped
/// with it.
pub struct IntoIter<S: Kind, K: Key, V: Send + Sync + 'static> {
    map: Map<S, K, V>,
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> IntoIter<S, K, V> {
    fn pop(&mut self, end: End) -> Option<(K, V)> {
        let session = self.map.pin();
        let guard = session.enter();
        session.core.take_end(session.place(), &guard, end, |key, word| {
            // SAFETY: the word was taken out just now, and `&mut self` proves that no other thread reads the map.
            let value = unsafe { value::from_word(word) };
            // SAFETY: the key is an encoding of a K.
            (unsafe { K::decode(key) }, value)
        })
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Iterator for IntoIter<S, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.pop(End::First)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.map.len();
        (left, Some(left))
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> DoubleEndedIterator for IntoIter<S, K, V> {
    fn next_back(&mut self) -> Option<(K, V)> {
        self.pop(End::Last)
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> ExactSizeIterator for IntoIter<S, K, V> {}
impl<S: Kind, K: Key, V: Send + Sync + 'static> FusedIterator for IntoIter<S, K, V> {}

impl<S: Kind, K: Key, V: Send + Sync + 'static> fmt::Debug for IntoIter<S, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoIter").field("left", &self.map.len()).finish_non_exhaustive()
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> IntoIterator for Map<S, K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<S, K, V>;

    fn into_iter(self) -> IntoIter<S, K, V> {
        IntoIter { map: self }
    }
}
