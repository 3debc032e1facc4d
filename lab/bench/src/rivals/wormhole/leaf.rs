//! A leaf: up to [`WIDTH`] entries, their lock, and the links to the leaves beside it.
//!
//! An entry is a block with the value and the key's bytes. A leaf has the blocks' addresses twice: in `hashed`, each with
//! a tag and ordered by the tags, for look-ups; and in `ordered`, of which the first `sorted` ascend by key.
//!
//! Entries are read by holders of the lock and changed by holders of the lock for writing. So their words need no
//! ordering of their own.

use core::ptr;

use archipelago_platform::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use archipelago_platform::{touch, touch_mut};
use archipelago_sync::backoff::Backoff;

use crate::rivals::bytes::{bytes, free, stored};

/// Entries of a leaf; few in tests, so that short histories have splits.
pub const WIDTH: usize = if cfg!(test) { 8 } else { 128 };
/// Bits of an address. The bits above are a tag.
const ADDRESS: u32 = 48;
/// Bytes of the value, which precedes the key in an entry's block.
const VALUE: usize = 8;

/// Returns the hash of a key's bytes, continued from the hash of the bytes before.
#[inline]
pub fn hash(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The hash of no bytes.
pub const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// Returns a number in which every bit of a hash counts. Its highest 16 bits are a tag, its lowest bits a place.
#[inline]
pub fn mixed(hash: u64) -> u64 {
    let mixed = (hash ^ hash >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

/// Returns a word of a tag and an address.
pub fn tagged(mixed: u64, address: u64) -> u64 {
    assert!(address >> ADDRESS == 0, "addresses have 48 bits");
    mixed >> ADDRESS << ADDRESS | address
}

/// Returns the tag and the address of a word.
#[inline]
pub fn parts(word: u64) -> (u64, u64) {
    (word >> ADDRESS, word & ((1 << ADDRESS) - 1))
}

/// A readers-writer lock in one word: the number of readers, and a bit that a writer sets before it waits for them.
#[derive(Default)]
pub struct PageLock(AtomicU32);

const WRITER: u32 = 1 << 31;

impl PageLock {
    pub fn lock_shared(&self) {
        let backoff = Backoff::new();
        while self.0.fetch_add(1, Acquire) & WRITER != 0 {
            self.0.fetch_sub(1, Relaxed);
            while self.0.load(Relaxed) & WRITER != 0 {
                backoff.wait();
            }
        }
    }

    pub fn unlock_shared(&self) {
        self.0.fetch_sub(1, Release);
    }

    pub fn lock_exclusive(&self) {
        let backoff = Backoff::new();
        while self.0.load(Relaxed) & WRITER != 0 || self.0.fetch_or(WRITER, Acquire) & WRITER != 0 {
            backoff.wait();
        }
        // Acquire pairs with the Release of the readers that leave.
        while self.0.load(Acquire) != WRITER {
            backoff.wait();
        }
    }

    pub fn unlock_exclusive(&self) {
        self.0.fetch_and(!WRITER, Release);
    }
}

/// An entry of a leaf. Its user holds the leaf's lock, for writing if the entry is changed.
#[derive(Clone, Copy)]
pub struct Entry(u64);

impl Entry {
    fn new(key: &[u8], value: u64) -> Entry {
        Entry(stored(&[&value.to_ne_bytes(), key].concat()))
    }

    fn key<'a>(self) -> &'a [u8] {
        // SAFETY: the block is in a leaf whose lock the caller holds, and is freed under the lock.
        unsafe { &bytes(self.0)[VALUE..] }
    }

    fn place(self) -> *mut u64 {
        // The value is the first that the block has after its length.
        ptr::with_exposed_provenance_mut::<u64>(self.0 as usize).wrapping_add(1)
    }

    #[inline]
    pub fn value(self) -> u64 {
        touch(self.place(), VALUE);
        // SAFETY: the block is in a leaf whose lock the caller holds.
        unsafe { self.place().read() }
    }

    /// Replaces the value. Returns the old value. The caller holds the lock for writing.
    pub fn replace(self, value: u64) -> u64 {
        let old = self.value();
        touch_mut(self.place(), VALUE);
        // SAFETY: as above, and no other thread reads the value.
        unsafe { self.place().write(value) };
        old
    }
}

/// A leaf; see the module.
#[repr(C, align(64))]
pub struct Leaf {
    pub lock: PageLock,
    len: AtomicU32,
    sorted: AtomicU32,
    /// The version of the table since which the leaf has the range that it has.
    version: AtomicU64,
    next: AtomicPtr<Leaf>,
    previous: AtomicPtr<Leaf>,
    /// The lower bound, which never changes.
    pub anchor: Box<[u8]>,
    hashed: [AtomicU64; WIDTH],
    ordered: [AtomicU64; WIDTH],
}

fn words() -> [AtomicU64; WIDTH] {
    core::array::from_fn(|_| AtomicU64::new(0))
}

impl Leaf {
    pub fn new(anchor: Box<[u8]>) -> Box<Leaf> {
        Box::new(Leaf {
            lock: PageLock::default(),
            len: AtomicU32::new(0),
            sorted: AtomicU32::new(0),
            version: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            previous: AtomicPtr::new(ptr::null_mut()),
            anchor,
            hashed: words(),
            ordered: words(),
        })
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    pub fn is_sorted(&self) -> bool {
        self.sorted.load(Relaxed) as usize == self.len()
    }

    /// Returns whether the leaf has had its range since a version. The caller holds the lock.
    #[inline]
    pub fn is_as_at(&self, version: u64) -> bool {
        self.version.load(Relaxed) <= version
    }

    /// Returns the next leaf. The caller holds the lock, or `changes`.
    pub fn next(&self) -> Option<&Leaf> {
        // SAFETY: leaves live as long as the map.
        unsafe { self.next_box().as_ref() }
    }

    /// Returns the address of the next leaf, which is a box of its own; null if there is none.
    pub fn next_box(&self) -> *mut Leaf {
        self.next.load(Acquire)
    }

    /// Returns the leaf before this one. Acquire pairs with the Release of a split, so the leaf's content is seen.
    ///
    /// # Panics
    /// If the leaf is the first one.
    #[inline]
    pub fn previous(&self) -> &Leaf {
        // SAFETY: leaves live as long as the map.
        unsafe { self.previous.load(Acquire).as_ref() }.expect("only the first leaf has none before it")
    }

    fn hashed(&self, at: usize) -> (u64, Entry) {
        let (tag, address) = parts(self.hashed[at].load(Relaxed));
        (tag, Entry(address))
    }

    fn entry(&self, at: usize) -> Entry {
        Entry(self.ordered[at].load(Relaxed))
    }

    /// Returns the first place in `hashed` whose tag is not less.
    fn place(&self, tag: u64) -> usize {
        let len = self.len();
        // Tags are spread evenly, so the search begins close to its end.
        let mut at = (tag as usize * len) >> 16;
        while at > 0 && self.hashed(at - 1).0 >= tag {
            at -= 1;
        }
        while at < len && self.hashed(at).0 < tag {
            at += 1;
        }
        at
    }

    /// Returns a key's place in `hashed`, and its entry.
    fn seek(&self, key: &[u8]) -> Option<(usize, Entry)> {
        let tag = mixed(hash(EMPTY, key)) >> ADDRESS;
        let same = (self.place(tag)..self.len()).map(|at| (at, self.hashed(at))).take_while(|(_, it)| it.0 == tag);
        same.map(|(at, (_, entry))| (at, entry)).find(|(_, entry)| entry.key() == key)
    }

    /// Returns a key's entry.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<Entry> {
        self.seek(key).map(|(_, entry)| entry)
    }

    /// Inserts a key that is absent. The leaf is not full.
    pub fn insert(&self, key: &[u8], value: u64) {
        self.append(Entry::new(key, value), mixed(hash(EMPTY, key)));
    }

    fn append(&self, entry: Entry, mixed: u64) {
        let (len, place) = (self.len(), self.place(mixed >> ADDRESS));
        (place..len).rev().for_each(|at| self.hashed[at + 1].store(self.hashed[at].load(Relaxed), Relaxed));
        self.hashed[place].store(tagged(mixed, entry.0), Relaxed);
        self.ordered[len].store(entry.0, Relaxed);
        if self.is_sorted() && (len == 0 || self.entry(len - 1).key() < entry.key()) {
            self.sorted.store(len as u32 + 1, Relaxed);
        }
        self.len.store(len as u32 + 1, Relaxed);
    }

    /// Removes a key. Returns its value.
    pub fn remove(&self, key: &[u8]) -> Option<u64> {
        let (place, entry) = self.seek(key)?;
        let (value, len) = (entry.value(), self.len());
        let among = (0..len).find(|at| self.entry(*at).0 == entry.0).expect("both arrays have all entries");
        (place + 1..len).for_each(|at| self.hashed[at - 1].store(self.hashed[at].load(Relaxed), Relaxed));
        (among + 1..len).for_each(|at| self.ordered[at - 1].store(self.ordered[at].load(Relaxed), Relaxed));
        let sorted = self.sorted.load(Relaxed);
        self.sorted.store(sorted - u32::from(among < sorted as usize), Relaxed);
        self.len.store(len as u32 - 1, Relaxed);
        // SAFETY: the entry has left the leaf, and the caller holds the lock for writing.
        unsafe { free(entry.0) };
        Some(value)
    }

    /// Sorts `ordered` by key.
    pub fn sort(&self) {
        if self.is_sorted() {
            return;
        }
        let mut entries: Vec<Entry> = (0..self.len()).map(|at| self.entry(at)).collect();
        entries.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        entries.iter().zip(&self.ordered).for_each(|(entry, place)| place.store(entry.0, Relaxed));
        self.sorted.store(self.len() as u32, Relaxed);
    }

    /// Returns the entries from a key on, of a leaf that is sorted.
    pub fn from(&self, key: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = (from + to) / 2;
            if self.entry(middle).key() < key {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        (from..self.len()).map(|at| (self.entry(at).key(), self.entry(at).value()))
    }

    /// Moves the upper half to a new leaf, and links it. Both halves get the version. The caller holds `changes`, and
    /// the lock for writing. Returns the new leaf.
    pub fn split(&self, version: u64) -> &Leaf {
        self.sort();
        let half = self.len() / 2;
        let (last, first) = (self.entry(half - 1).key(), self.entry(half).key());
        let common = last.iter().zip(first).take_while(|(last, first)| last == first).count();
        let address = Box::into_raw(Leaf::new(first[..=common].into()));
        // SAFETY: leaves live as long as the map.
        let right = unsafe { &*address };
        for at in half..self.len() {
            let entry = self.entry(at);
            right.append(entry, mixed(hash(EMPTY, entry.key())));
        }
        // What stays is put anew.
        let kept: Vec<Entry> = (0..half).map(|at| self.entry(at)).collect();
        self.len.store(0, Relaxed);
        self.sorted.store(0, Relaxed);
        kept.into_iter().for_each(|entry| self.append(entry, mixed(hash(EMPTY, entry.key()))));
        self.version.store(version, Relaxed);
        right.version.store(version, Relaxed);
        right.next.store(self.next.load(Relaxed), Relaxed);
        right.previous.store(ptr::from_ref(self).cast_mut(), Relaxed);
        if let Some(next) = self.next() {
            next.previous.store(address, Release);
        }
        self.next.store(address, Release);
        right
    }

    /// Checks a leaf that no thread uses. Returns how many keys it has.
    pub fn check(&self, bound: Option<&[u8]>) -> usize {
        assert_eq!(self.lock.0.load(Relaxed), 0, "no thread holds the lock");
        let (len, sorted) = (self.len(), self.sorted.load(Relaxed) as usize);
        assert!(sorted <= len && len <= WIDTH);
        let keys: Vec<&[u8]> = (0..len).map(|at| self.entry(at).key()).collect();
        assert!(keys[..sorted].is_sorted_by(|a, b| a < b), "the first keys ascend");
        for key in &keys {
            assert!(*key >= &*self.anchor && bound.is_none_or(|bound| *key < bound), "keys lie within the bounds");
            assert!(self.find(key).is_some(), "every key is found by its hash");
        }
        assert!((0..len).map(|at| self.hashed(at).0).is_sorted(), "tags ascend");
        len
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // SAFETY: no thread uses the leaf, and each entry is in one leaf.
        (0..self.len()).for_each(|at| unsafe { free(self.entry(at).0) });
    }
}
