//! Buckets of four slots. A user has the bucket's lock, or owns the buckets; so the words need no ordering of their
//! own.
//!
//! A bucket consists of the keys with their values, and a word of the slots' tags (8 bits each, from the lowest on) and
//! of four bits that say which slots are in use. So a bucket has 72 bytes, or 200 if the keys are byte strings, as in
//! libcuckoo.

use core::marker::PhantomData;

use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};

use crate::rivals::btree::InPlace;

pub const SLOTS: usize = 4;

/// The bit of the first slot that says whether the slot is in use.
const USED: u32 = 32;

/// A bucket's number, and a slot.
pub type Place = (usize, usize);

pub struct Buckets<K> {
    words: Box<[AtomicU64]>,
    _keys: PhantomData<K>,
}

impl<K: InPlace> Buckets<K> {
    /// Words of a key and its value.
    const ENTRY: usize = K::WORDS + 1;
    /// Words of a bucket.
    const BUCKET: usize = SLOTS * Self::ENTRY + 1;

    /// Bytes of a bucket.
    #[cfg(test)]
    pub const SIZE: usize = 8 * Self::BUCKET;

    /// Makes 2 to the power of `power` empty buckets.
    pub fn new(power: u32) -> Self {
        let words = (0..Self::BUCKET << power).map(|_| AtomicU64::new(0)).collect();
        Buckets { words, _keys: PhantomData }
    }

    #[inline]
    fn marks(&self, bucket: usize) -> &AtomicU64 {
        &self.words[(bucket + 1) * Self::BUCKET - 1]
    }

    #[inline]
    fn entry(&self, (bucket, slot): Place) -> (&[AtomicU64], &AtomicU64) {
        let from = bucket * Self::BUCKET + slot * Self::ENTRY;
        (&self.words[from..from + K::WORDS], &self.words[from + K::WORDS])
    }

    #[inline]
    fn is_used(marks: u64, slot: usize) -> bool {
        marks >> USED >> slot & 1 != 0
    }

    #[inline]
    fn tag_in(marks: u64, slot: usize) -> u8 {
        (marks >> (8 * slot)) as u8
    }

    /// Returns the tag of a slot in use.
    pub fn tag(&self, (bucket, slot): Place) -> u8 {
        Self::tag_in(self.marks(bucket).load(Relaxed), slot)
    }

    pub fn is_free(&self, (bucket, slot): Place) -> bool {
        !Self::is_used(self.marks(bucket).load(Relaxed), slot)
    }

    /// Returns a free slot of a bucket.
    pub fn free(&self, bucket: usize) -> Option<usize> {
        let marks = self.marks(bucket).load(Relaxed);
        (0..SLOTS).find(|slot| !Self::is_used(marks, *slot))
    }

    /// Returns a key's slot in a bucket.
    #[inline]
    pub fn find(&self, bucket: usize, tag: u8, key: &K) -> Option<usize> {
        let marks = self.marks(bucket).load(Relaxed);
        let fits = |slot: &usize| Self::is_used(marks, *slot) && Self::tag_in(marks, *slot) == tag;
        (0..SLOTS).filter(fits).find(|slot| key.compare(self.entry((bucket, *slot)).0).is_eq())
    }

    pub fn key(&self, place: Place) -> K {
        K::load(self.entry(place).0)
    }

    #[inline]
    pub fn value(&self, place: Place) -> u64 {
        self.entry(place).1.load(Relaxed)
    }

    /// Replaces a value. Returns the old one.
    pub fn replace(&self, place: Place, value: u64) -> u64 {
        let old = self.value(place);
        self.entry(place).1.store(value, Relaxed);
        old
    }

    /// Fills a free slot.
    pub fn put(&self, place @ (bucket, slot): Place, tag: u8, key: K, value: u64) {
        debug_assert!(self.is_free(place));
        let (key_words, value_word) = self.entry(place);
        key.store(key_words);
        value_word.store(value, Relaxed);
        let marks = self.marks(bucket).load(Relaxed) & !(0xff << (8 * slot));
        self.marks(bucket).store(marks | u64::from(tag) << (8 * slot) | 1 << USED << slot, Relaxed);
    }

    /// Frees a slot. Returns its value.
    pub fn remove(&self, place @ (bucket, slot): Place) -> u64 {
        let marks = self.marks(bucket).load(Relaxed);
        self.marks(bucket).store(marks & !(1 << USED << slot), Relaxed);
        self.value(place)
    }

    /// Moves an entry to a free slot.
    pub fn displace(&self, from: Place, to: Place) {
        self.put(to, self.tag(from), self.key(from), self.value(from));
        self.remove(from);
    }

    /// Returns all slots in use.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let all = (0..self.words.len() / Self::BUCKET).flat_map(|bucket| (0..SLOTS).map(move |slot| (bucket, slot)));
        all.filter(|place| !self.is_free(*place))
    }
}
