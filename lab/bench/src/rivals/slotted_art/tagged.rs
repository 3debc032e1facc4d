//! A leaf whose keys are in no order: the second step of the thesis's factor analysis, fingerprints without vector
//! instructions.
//!
//! As in the thesis: a *tag* (fingerprint) of one byte of each key's hash is compared with the sought key's, one tag
//! after the other, and a key is compared only if its tag is equal and a bitmap says that its slot is occupied
//! (§4.3.2); a scan sorts the entries that it has copied. The text gives the permutation array, which spares a scan the sorting,
//! to HydraList's data nodes (§4.3.1), but not to this step, which "adds overhead of sorting array before scanning".
//!
//! # Invariant
//! The tag of an occupied slot is that of its key. A slot that is not occupied has any tag, key and value.

use core::array;

use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};
use archipelago_sync::version_lock::VersionLock;

use super::leaf::{Leaf, SLOTS, SlotKey};
use crate::rivals::btree::node::address;
use crate::rivals::btree::{Body, InPlace};
use crate::rivals::hashed::Hashed;

/// Tags of a word.
const TAGS: usize = 8;
/// The bitmap of a full leaf.
const FULL: u64 = u64::MAX >> (64 - SLOTS);

/// An unsorted leaf. The lock, the link and the bitmap are in its first line, and the tags in one line or two.
#[repr(C, align(64))]
pub struct Tagged<K: SlotKey> {
    lock: VersionLock,
    next: AtomicU64,
    /// A bit for each slot that is occupied.
    occupied: AtomicU64,
    tags: [AtomicU64; SLOTS / TAGS],
    /// The keys' words and the bound's, then the values.
    words: K::Words,
}

/// Returns the numbers of the bits that are set.
#[inline]
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let at = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        at
    })
}

impl<K: SlotKey> Tagged<K> {
    #[inline]
    fn occupied(&self) -> u64 {
        self.occupied.load(Relaxed)
    }

    #[inline]
    fn words_of_key(&self, slot: usize) -> &[AtomicU64] {
        &self.words.as_ref()[slot * K::InPlace::WORDS..][..K::InPlace::WORDS]
    }

    #[inline]
    fn word_of_value(&self, slot: usize) -> &AtomicU64 {
        &self.words.as_ref()[(SLOTS + 1) * K::InPlace::WORDS + slot]
    }

    #[inline]
    fn entry(&self, slot: usize) -> (K::InPlace, u64) {
        (K::InPlace::load(self.words_of_key(slot)), self.value(slot))
    }

    /// Returns the occupied slots that have the tag.
    #[inline]
    fn matching(&self, tag: u8) -> u64 {
        let equal = |word: u64, at: usize| u64::from((word >> (8 * at)) as u8 == tag) << at;
        let of_word = |word: u64| (0..TAGS).fold(0, |mask, at| mask | equal(word, at));
        let tags = self.tags.iter().enumerate();
        tags.fold(0, |mask, (at, word)| mask | of_word(word.load(Relaxed)) << (at * TAGS)) & self.occupied()
    }

    fn set_tag(&self, slot: usize, tag: u8) {
        let (word, shift) = (&self.tags[slot / TAGS], slot % TAGS * 8);
        word.store(word.load(Relaxed) & !(0xff << shift) | u64::from(tag) << shift, Relaxed);
    }
}

impl<K: SlotKey> Leaf for Tagged<K> {
    type Key = K::InPlace;

    fn new() -> Box<Self> {
        Box::new(Tagged {
            lock: VersionLock::new(),
            next: AtomicU64::new(0),
            occupied: AtomicU64::new(0),
            tags: array::from_fn(|_| AtomicU64::new(0)),
            words: K::Words::zero(),
        })
    }

    #[inline]
    fn lock(&self) -> &VersionLock {
        &self.lock
    }

    #[inline]
    fn next(&self) -> u64 {
        self.next.load(Relaxed)
    }

    #[inline]
    fn bound(&self) -> K::InPlace {
        K::InPlace::load(self.words_of_key(SLOTS))
    }

    fn set_bound(&self, bound: K::InPlace) {
        bound.store(self.words_of_key(SLOTS));
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.occupied() == FULL
    }

    #[inline]
    fn find(&self, key: &K::InPlace) -> (usize, bool) {
        let found =
            bits(self.matching(Hashed::of(key).tag())).find(|slot| key.compare(self.words_of_key(*slot)).is_eq());
        found.map_or_else(|| (self.occupied().trailing_ones() as usize, false), |slot| (slot, true))
    }

    #[inline]
    fn value(&self, slot: usize) -> u64 {
        self.word_of_value(slot).load(Relaxed)
    }

    #[inline]
    fn set_value(&self, slot: usize, value: u64) {
        self.word_of_value(slot).store(value, Relaxed);
    }

    fn insert(&self, slot: usize, key: K::InPlace, value: u64) {
        key.store(self.words_of_key(slot));
        self.set_value(slot, value);
        self.set_tag(slot, Hashed::of(&key).tag());
        self.occupied.store(self.occupied() | 1 << slot, Relaxed);
    }

    fn remove(&self, slot: usize) -> u64 {
        self.occupied.store(self.occupied() & !(1 << slot), Relaxed);
        self.value(slot)
    }

    fn split(&self) -> (Box<Self>, K::InPlace) {
        let mut slots: Vec<_> = bits(self.occupied()).collect();
        slots.sort_unstable_by_key(|slot| self.entry(*slot).0);
        let upper = &slots[slots.len() / 2..];
        let right = Self::new();
        for (to, from) in upper.iter().enumerate() {
            let (key, value) = self.entry(*from);
            right.insert(to, key, value);
        }
        self.occupied.store(upper.iter().fold(self.occupied(), |mask, slot| mask & !(1 << slot)), Relaxed);
        right.next.store(self.next(), Relaxed);
        self.next.store(address(&*right), Relaxed);
        (right, self.entry(upper[0]).0)
    }

    #[inline]
    fn copy(&self, from: Option<&K::InPlace>, limit: usize, page: &mut Vec<(K::InPlace, u64)>) {
        let entries = bits(self.occupied()).map(|slot| self.entry(slot));
        page.extend(entries.filter(|(key, _)| from.is_none_or(|from| key >= from)));
        page.sort_unstable_by_key(|(key, _)| *key);
        page.truncate(limit);
    }
}
