//! A radix tree whose leaves have slots: the first step of HydraList's factor analysis (thesis §4.5.3), between a radix
//! tree, whose leaves have one entry, and HydraList.
//!
//! As in the thesis: keys in a leaf are sorted, and a search in it is a binary search. What the text does not say:
//!
//! - a leaf has 64 slots, as HydraList's data nodes (§4.3.1);
//! - the tree of the leaves' lower bounds is this library's [`Art`], and a split changes the tree before the split's
//!   operation ends: that the tree is changed later is another step;
//! - leaves are linked, and a scan goes from leaf to leaf;
//! - a look-up reads a leaf at a version, as in HydraList;
//! - keys are in place in the leaves, as in [`BTreeOlc`](super::btree::BTreeOlc);
//! - leaves are never merged. Emptied leaves stay until the map is dropped.
//!
//! A look-up seeks its leaf by `scan_rev`, which makes a key just above a byte string, so it allocates.
//!
//! # Invariants
//! - Leaves are linked from left to right. A leaf's keys are at or above its lower bound, which never changes, and below
//!   the next leaf's. A split moves the upper half to the right.
//! - The tree has the upper bound of every leaf that is not locked, but for the last leaf, which has none.
//!
//! # Why an operation is right
//! The tree leads to the leaf with the greatest lower bound at or below the key. A split after this look-up may have
//! moved the key's place to the right. So a key that is found at a version of the leaf is there; one that is not found
//! is absent if it is below the upper bound that the leaf has at that version. Otherwise the operation starts again: the
//! splitting thread unlocks the leaf after the tree has the new bound, so the tree then leads further right.
//!
//! A thread holds at most one leaf's lock, and the tree waits for no leaf. So there is no deadlock.
//!
//! Complexity: that of the tree, and O(64) steps for an insertion or removal. A split inserts into the tree.

use core::cell::Cell;

use archipelago_index::art::ArtSession;
use archipelago_index::{Art, OrderedIndex, OrderedSession};
use archipelago_platform::atomic::AtomicU64;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::version_lock::Version;

use super::btree::node::{Node, Retry, address, pointer};
use super::btree::{Body, InPlace, LONGEST, TreeKey, until_done};
use crate::contender::BenchIndex;

/// Slots of a leaf; few in tests, so that short histories have splits.
const SLOTS: usize = if cfg!(test) { 8 } else { 64 };

/// Returns the number of words of a leaf whose keys have `words` each: room for one key more than there are slots, the
/// bound, and for two values more, since a node reckons with the values of an inner node.
const fn leaf_words(words: usize) -> usize {
    (SLOTS + 1) * (words + 1) + 1
}

/// A key of the map.
pub trait SlotKey: TreeKey {
    /// The words of a leaf.
    type Words: Body;
}

impl SlotKey for u64 {
    type Words = [AtomicU64; leaf_words(<u64 as InPlace>::WORDS)];
}

impl SlotKey for Vec<u8> {
    type Words = [AtomicU64; leaf_words(<<Vec<u8> as TreeKey>::InPlace as InPlace>::WORDS)];
}

/// A leaf. In the place behind the slots is the upper bound, unless the leaf is the last one.
type Leaf<K> = Node<<K as TreeKey>::InPlace, <K as SlotKey>::Words>;

/// A map from `K` to `u64`. Byte strings have at most [`LONGEST`] bytes.
pub struct SlottedArt<K: SlotKey> {
    /// Leads from a lower bound to the address of its leaf.
    bounds: Art<K, u64>,
    /// The address of the first leaf.
    first: u64,
}

/// A thread's access to the map.
pub struct Session<'t, K: SlotKey> {
    map: &'t SlottedArt<K>,
    bounds: ArtSession<'t, K, u64>,
    /// Memory for the leaf that a scan copies. A scan takes it, and puts it back.
    page: Cell<Vec<(K::InPlace, u64)>>,
}

/// A key's place in a leaf at a version, and whether the key is there.
struct Place<'t, K: SlotKey> {
    leaf: &'t Leaf<K>,
    version: Version,
    at: usize,
    found: bool,
}

impl<K: SlotKey> Place<'_, K> {
    fn validate(&self) -> Result<(), Retry> {
        if self.leaf.lock.validate(self.version) { Ok(()) } else { Err(Retry) }
    }

    /// Locks the leaf, if it still has the version.
    fn lock(&self) -> Result<(), Retry> {
        if self.leaf.lock.try_lock_at(self.version) { Ok(()) } else { Err(Retry) }
    }
}

impl<K: SlotKey> Default for SlottedArt<K> {
    fn default() -> Self {
        SlottedArt { bounds: Art::new(), first: address(Box::into_raw(Leaf::<K>::new(0))) }
    }
}

impl<K: SlotKey> SlottedArt<K> {
    /// Returns the leaf at an address of the map; `None` for 0.
    fn at(&self, word: u64) -> Option<&Leaf<K>> {
        // SAFETY: leaves live as long as the map.
        unsafe { pointer::<Leaf<K>>(word).as_ref() }
    }

    /// Checks the whole map. Returns the number of leaves. No thread may use the map meanwhile.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&mut self) -> usize {
        self.bounds.check_invariants();
        let bounds = self.bounds.pin();
        let (mut leaves, mut low, mut next) = (0, None, self.first);
        while let Some(leaf) = self.at(next) {
            assert!(leaf.lock.read_unlocked().is_some(), "no leaf is locked");
            let keys: Vec<K::InPlace> = (0..leaf.count()).map(|at| leaf.key(at)).collect();
            assert!(keys.len() <= SLOTS && keys.is_sorted_by(|a, b| a < b), "keys ascend");
            assert!(keys.iter().all(|key| low.is_none_or(|low| low <= *key)), "no key is below the lower bound");
            assert!(keys.iter().all(|key| !is_beyond::<K>(leaf, key)), "no key is at or above the upper bound");
            if let Some(low) = low {
                let led = K::show(low, |low| bounds.get(&K::from_shown(low)));
                assert_eq!(led, Some(next), "the tree has every lower bound");
            }
            (leaves, low, next) = (leaves + 1, Some(leaf.key(SLOTS)), leaf.next());
        }
        assert_eq!(bounds.len(), leaves - 1, "the tree has no other bounds");
        leaves
    }
}

/// Returns whether a key is at or above a leaf's upper bound. The caller holds the lock, or validates the version.
#[inline]
fn is_beyond<K: SlotKey>(leaf: &Leaf<K>, key: &K::InPlace) -> bool {
    leaf.next() != 0 && *key >= leaf.key(SLOTS)
}

impl<'t, K: SlotKey> Session<'t, K> {
    /// Returns the leaf with the greatest lower bound at or below the key.
    #[inline]
    fn leaf(&self, key: &K) -> &'t Leaf<K> {
        let mut word = self.map.first;
        self.bounds.scan_rev(key, 1, |_, leaf| word = *leaf);
        self.map.at(word).expect("0 is no leaf's address")
    }

    /// Returns the key's place. The caller locks the leaf at the place's version, or validates the version.
    #[inline]
    fn place(&self, key: &K, in_place: &K::InPlace) -> Result<Place<'t, K>, Retry> {
        let leaf = self.leaf(key);
        let version = leaf.lock.read_unlocked().ok_or(Retry)?;
        let (at, found) = leaf.find(in_place);
        if !found && is_beyond::<K>(leaf, in_place) {
            return Err(Retry);
        }
        Ok(Place { leaf, version, at, found })
    }

    fn try_get(&self, key: &K, in_place: &K::InPlace) -> Result<Option<u64>, Retry> {
        let place = self.place(key, in_place)?;
        let value = place.found.then(|| place.leaf.value(place.at));
        place.validate()?;
        Ok(value)
    }

    fn try_insert(&self, key: &K, in_place: &K::InPlace, value: u64) -> Result<Option<u64>, Retry> {
        let place = self.place(key, in_place)?;
        place.lock()?;
        let Place { leaf, at, found, .. } = place;
        if !found && leaf.count() == SLOTS {
            self.split(leaf);
            leaf.lock.unlock();
            return Err(Retry);
        }
        let old = found.then(|| leaf.value(at));
        match found {
            true => leaf.set_value(at, value),
            false => leaf.insert(at, *in_place, at, value),
        }
        leaf.lock.unlock();
        Ok(old)
    }

    fn try_update(
        &self,
        key: &K,
        in_place: &K::InPlace,
        f: &mut impl FnMut(&u64) -> u64,
    ) -> Result<Option<u64>, Retry> {
        let place = self.place(key, in_place)?;
        let old = place.found.then(|| place.leaf.value(place.at));
        // The version is validated before the caller's code runs, so that `old` is the value at that version. The
        // caller's code must not run under a lock, so the lock is tried afterwards, at the same version.
        place.validate()?;
        let Some(old) = old else { return Ok(None) };
        let new = f(&old);
        place.lock()?;
        place.leaf.set_value(place.at, new);
        place.leaf.lock.unlock();
        Ok(Some(old))
    }

    fn try_remove(&self, key: &K, in_place: &K::InPlace) -> Result<Option<u64>, Retry> {
        let place = self.place(key, in_place)?;
        if !place.found {
            place.validate()?;
            return Ok(None);
        }
        place.lock()?;
        let (_, value) = place.leaf.remove(place.at, place.at);
        place.leaf.lock.unlock();
        Ok(Some(value))
    }

    /// Splits a full leaf, whose lock the caller holds, and adds the right half to the tree.
    fn split(&self, leaf: &Leaf<K>) {
        let (right, separator) = leaf.split();
        right.set_key(SLOTS, leaf.key(SLOTS));
        leaf.set_key(SLOTS, separator);
        let right = address(Box::into_raw(right));
        K::show(separator, |low| self.bounds.insert(K::from_shown(low), right));
    }
}

impl<K: SlotKey> BenchIndex<K> for SlottedArt<K> {
    fn empty() -> Self {
        Self::default()
    }
}

impl<K: SlotKey> OrderedIndex<K, u64> for SlottedArt<K> {
    type Session<'a> = Session<'a, K>;

    fn pin(&self) -> Session<'_, K> {
        Session { map: self, bounds: self.bounds.pin(), page: Cell::default() }
    }

    fn quiesce(&self) {
        self.bounds.quiesce();
    }
}

impl<K: SlotKey> OrderedSession<K, u64> for Session<'_, K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        let in_place = key.in_place();
        until_done(|| self.try_get(key, &in_place))
    }

    /// # Panics
    /// If the key has more than [`LONGEST`] bytes.
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        assert!(key.with_raw(<[u8]>::len) <= LONGEST, "a key of the map has at most {LONGEST} bytes");
        let in_place = key.in_place();
        until_done(|| self.try_insert(key, &in_place, value))
    }

    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let in_place = key.in_place();
        until_done(|| self.try_update(key, &in_place, &mut f))
    }

    fn remove(&self, key: &K) -> Option<u64> {
        let in_place = key.in_place();
        until_done(|| self.try_remove(key, &in_place))
    }

    fn scan(&self, from: &K, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        let (mut page, mut seen) = (self.page.take(), 0);
        // The first leaf may have lost the key's place to a leaf further right. So the key is sought in each leaf until
        // one has an entry from the key on.
        let (mut next, mut from) = (Some(self.leaf(from)), Some(from.in_place()));
        let backoff = Backoff::new();
        while let Some(leaf) = next.filter(|_| seen < limit) {
            let Some(following) = copy::<K>(leaf, from.as_ref(), limit - seen, &mut page) else {
                backoff.wait();
                continue;
            };
            page.iter().for_each(|(key, value)| K::show(*key, |shown| visit(shown, value)));
            seen += page.len();
            (next, from) = (self.map.at(following), from.filter(|_| page.is_empty()));
        }
        self.page.set(page);
        seen
    }
}

/// Copies a leaf's entries from `from` on, at most `limit` of them. Returns the address of the next leaf; `None` if the
/// leaf has changed meanwhile.
fn copy<K: SlotKey>(
    leaf: &Leaf<K>,
    from: Option<&K::InPlace>,
    limit: usize,
    page: &mut Vec<(K::InPlace, u64)>,
) -> Option<u64> {
    let version = leaf.lock.read_unlocked()?;
    let start = from.map_or(0, |key| leaf.find(key).0);
    page.clear();
    page.extend((start..leaf.count()).take(limit).map(|at| (leaf.key(at), leaf.value(at))));
    let next = leaf.next();
    leaf.lock.validate(version).then_some(next)
}

impl<K: SlotKey> Drop for SlottedArt<K> {
    fn drop(&mut self) {
        let mut next = self.first;
        while next != 0 {
            // SAFETY: no thread uses the map; every leaf is a box, and is reached once.
            let leaf = unsafe { Box::from_raw(pointer::<Leaf<K>>(next)) };
            next = leaf.next();
        }
    }
}

#[cfg(test)]
mod tests;
