//! A radix tree whose leaves have slots: the first two steps of HydraList's factor analysis (thesis §4.5.3), between a
//! radix tree, whose leaves have one entry, and HydraList. In the first step a leaf's keys are sorted ([`Sorted`]). In
//! the second they are in no order, and have tags ([`Tagged`]).
//!
//! What the text does not say:
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

mod leaf;
mod sorted;
mod tagged;

use core::cell::Cell;
use core::marker::PhantomData;

use archipelago_index::art::ArtSession;
use archipelago_index::{Art, OrderedIndex, OrderedSession};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::version_lock::Version;

use super::btree::node::{Retry, address, pointer};
use super::btree::{LONGEST, until_done};
use crate::contender::BenchIndex;
pub use leaf::SlotKey;
use leaf::{Leaf, SLOTS};
pub use sorted::Sorted;
pub use tagged::Tagged;

/// A map from `K` to `u64` with leaves `L`. Byte strings have at most [`LONGEST`] bytes.
pub struct SlottedArt<K: SlotKey, L: Leaf> {
    /// Leads from a lower bound to the address of its leaf.
    bounds: Art<K, u64>,
    /// The address of the first leaf.
    first: u64,
    _leaves: PhantomData<Box<L>>,
}

/// A thread's access to the map.
pub struct Session<'t, K: SlotKey, L: Leaf> {
    map: &'t SlottedArt<K, L>,
    bounds: ArtSession<'t, K, u64>,
    /// Memory for the leaf that a scan copies. A scan takes it, and puts it back.
    page: Cell<Vec<(K::InPlace, u64)>>,
}

/// A key's slot in a leaf at a version, and whether the key is there.
struct Place<'t, L> {
    leaf: &'t L,
    version: Version,
    slot: usize,
    found: bool,
}

impl<L: Leaf> Place<'_, L> {
    fn validate(&self) -> Result<(), Retry> {
        if self.leaf.lock().validate(self.version) { Ok(()) } else { Err(Retry) }
    }

    /// Locks the leaf, if it still has the version.
    fn lock(&self) -> Result<(), Retry> {
        if self.leaf.lock().try_lock_at(self.version) { Ok(()) } else { Err(Retry) }
    }
}

impl<K: SlotKey, L: Leaf> Default for SlottedArt<K, L> {
    fn default() -> Self {
        SlottedArt { bounds: Art::new(), first: address(Box::into_raw(L::new())), _leaves: PhantomData }
    }
}

impl<K: SlotKey, L: Leaf<Key = K::InPlace>> SlottedArt<K, L> {
    /// Returns the leaf at an address of the map; `None` for 0.
    fn at(&self, word: u64) -> Option<&L> {
        // SAFETY: leaves live as long as the map.
        unsafe { pointer::<L>(word).as_ref() }
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
            assert!(leaf.lock().read_unlocked().is_some(), "no leaf is locked");
            let mut entries = Vec::new();
            leaf.copy(None, usize::MAX, &mut entries);
            let keys: Vec<_> = entries.into_iter().map(|(key, _)| key).collect();
            assert!(keys.len() <= SLOTS && keys.is_sorted_by(|a, b| a < b), "keys ascend");
            assert!(keys.iter().all(|key| leaf.find(key).1), "every key is found");
            assert!(keys.iter().all(|key| low.is_none_or(|low| low <= *key)), "no key is below the lower bound");
            assert!(keys.iter().all(|key| !is_beyond(leaf, key)), "no key is at or above the upper bound");
            if let Some(low) = low {
                let led = K::show(low, |low| bounds.get(&K::from_shown(low)));
                assert_eq!(led, Some(next), "the tree has every lower bound");
            }
            (leaves, low, next) = (leaves + 1, Some(leaf.bound()), leaf.next());
        }
        assert_eq!(bounds.len(), leaves - 1, "the tree has no other bounds");
        leaves
    }
}

/// Returns whether a key is at or above a leaf's upper bound. The caller holds the lock, or validates the version.
#[inline]
fn is_beyond<L: Leaf>(leaf: &L, key: &L::Key) -> bool {
    leaf.next() != 0 && *key >= leaf.bound()
}

impl<'t, K: SlotKey, L: Leaf<Key = K::InPlace>> Session<'t, K, L> {
    /// Returns the leaf with the greatest lower bound at or below the key.
    #[inline]
    fn leaf(&self, key: &K) -> &'t L {
        let mut word = self.map.first;
        self.bounds.scan_rev(key, 1, |_, leaf| word = *leaf);
        self.map.at(word).expect("0 is no leaf's address")
    }

    /// Returns the key's place. The caller locks the leaf at the place's version, or validates the version.
    #[inline]
    fn place(&self, key: &K, in_place: &K::InPlace) -> Result<Place<'t, L>, Retry> {
        let leaf = self.leaf(key);
        let version = leaf.lock().read_unlocked().ok_or(Retry)?;
        let (slot, found) = leaf.find(in_place);
        if !found && is_beyond(leaf, in_place) {
            return Err(Retry);
        }
        Ok(Place { leaf, version, slot, found })
    }

    fn try_get(&self, key: &K, in_place: &K::InPlace) -> Result<Option<u64>, Retry> {
        let place = self.place(key, in_place)?;
        let value = place.found.then(|| place.leaf.value(place.slot));
        place.validate()?;
        Ok(value)
    }

    fn try_insert(&self, key: &K, in_place: &K::InPlace, value: u64) -> Result<Option<u64>, Retry> {
        let place = self.place(key, in_place)?;
        place.lock()?;
        let Place { leaf, slot, found, .. } = place;
        if !found && leaf.is_full() {
            self.split(leaf);
            leaf.lock().unlock();
            return Err(Retry);
        }
        let old = found.then(|| leaf.value(slot));
        match found {
            true => leaf.set_value(slot, value),
            false => leaf.insert(slot, *in_place, value),
        }
        leaf.lock().unlock();
        Ok(old)
    }

    fn try_update(
        &self,
        key: &K,
        in_place: &K::InPlace,
        f: &mut impl FnMut(&u64) -> u64,
    ) -> Result<Option<u64>, Retry> {
        let place = self.place(key, in_place)?;
        let old = place.found.then(|| place.leaf.value(place.slot));
        // The version is validated before the caller's code runs, so that `old` is the value at that version. The
        // caller's code must not run under a lock, so the lock is tried afterwards, at the same version.
        place.validate()?;
        let Some(old) = old else { return Ok(None) };
        let new = f(&old);
        place.lock()?;
        place.leaf.set_value(place.slot, new);
        place.leaf.lock().unlock();
        Ok(Some(old))
    }

    fn try_remove(&self, key: &K, in_place: &K::InPlace) -> Result<Option<u64>, Retry> {
        let place = self.place(key, in_place)?;
        if !place.found {
            place.validate()?;
            return Ok(None);
        }
        place.lock()?;
        let value = place.leaf.remove(place.slot);
        place.leaf.lock().unlock();
        Ok(Some(value))
    }

    /// Splits a full leaf, whose lock the caller holds, and adds the right half to the tree.
    fn split(&self, leaf: &L) {
        let (right, separator) = leaf.split();
        right.set_bound(leaf.bound());
        leaf.set_bound(separator);
        let right = address(Box::into_raw(right));
        K::show(separator, |low| self.bounds.insert(K::from_shown(low), right));
    }
}

impl<K: SlotKey, L: Leaf<Key = K::InPlace>> BenchIndex<K> for SlottedArt<K, L> {
    fn empty() -> Self {
        Self::default()
    }
}

impl<K: SlotKey, L: Leaf<Key = K::InPlace>> OrderedIndex<K, u64> for SlottedArt<K, L> {
    type Session<'a> = Session<'a, K, L>;

    fn pin(&self) -> Session<'_, K, L> {
        Session { map: self, bounds: self.bounds.pin(), page: Cell::default() }
    }

    fn quiesce(&self) {
        self.bounds.quiesce();
    }
}

impl<K: SlotKey, L: Leaf<Key = K::InPlace>> OrderedSession<K, u64> for Session<'_, K, L> {
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
            let Some(following) = copy(leaf, from.as_ref(), limit - seen, &mut page) else {
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
fn copy<L: Leaf>(leaf: &L, from: Option<&L::Key>, limit: usize, page: &mut Vec<(L::Key, u64)>) -> Option<u64> {
    let version = leaf.lock().read_unlocked()?;
    page.clear();
    leaf.copy(from, limit, page);
    let next = leaf.next();
    leaf.lock().validate(version).then_some(next)
}

impl<K: SlotKey, L: Leaf> Drop for SlottedArt<K, L> {
    fn drop(&mut self) {
        let mut next = self.first;
        while next != 0 {
            // SAFETY: no thread uses the map; every leaf is a box, and is reached once.
            let leaf = unsafe { Box::from_raw(pointer::<L>(next)) };
            next = leaf.next();
        }
    }
}

#[cfg(test)]
mod tests;
