//! A shard's hash table: look-ups without a lock, concurrent with one writer at a time.
//!
//! A bucket is a cache line with *places* for seven entries: a word with a tag (eight bits of the hash) for each place,
//! and seven pointers. An entry whose bucket is full is in one of the next buckets. Its *way* is the buckets from its
//! own bucket to the bucket that has it. All of them except the last count the entry, so that a look-up knows whether
//! to continue (as in F14; Bronson and Shi, 2019). A nearly full table is replaced by a larger one.
//!
//! # Invariants
//! 1. A key is in at most one place of an array of buckets, and stays in this place as long as it is in the table and
//!    the array is current.
//! 2. The count of each bucket on an entry's way, except the bucket that has the entry, is above zero while the entry
//!    is in the table.
//! 3. The tag of a place is set before the pointer to its entry is stored, and cleared after the pointer is cleared.
//!
//! # Why look-ups are linearizable
//! A look-up returns the table's content at a moment of the look-up. Its array was current at the look-up's beginning
//! or later, and a replaced array no longer changes. An entry is present while a place has its pointer. *Found*: the
//! loaded pointer was in its place at the moment of the load. (If the pointer were stored before the tag, a look-up
//! could find the new entry by the tag of the place's previous entry, and a later look-up could miss the new entry.)
//! *Not found*: an entry that is present during the whole look-up has one place (1). Its tag and the counts on its way
//! are set during the whole look-up (2, 3). So the entry would have been found. If the key was removed from one place
//! and inserted into another one during the look-up, the look-up passed the second place before the insertion. Then the
//! key was absent just before the insertion.

use core::marker::PhantomData;
use core::ptr::null_mut;

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use archipelago_platform::hint::prefetch_read;
use archipelago_sync::rcu::Guard;

use crate::entry::{Entry, Shared};
use crate::few::Few;

/// The greatest number of entries of a bucket.
const PLACES: usize = 7;
/// The lowest bit of each byte of a word, except of the highest byte, which counts the entries that have passed the
/// bucket.
const ONES: u64 = 0x0001_0101_0101_0101;
const COUNT: u32 = u8::BITS * PLACES as u32;
/// The greatest count. A count that has reached it no longer changes.
const MANY: u64 = u8::MAX as u64;
/// The number of buckets of a new table.
const FEW: usize = 1;

#[repr(align(64))]
struct Bucket<K, V> {
    /// The tags of the places (0 for an empty place), and the count.
    tags: AtomicU64,
    entries: [AtomicPtr<Entry<K, V>>; PLACES],
}

struct Buckets<K, V>(Box<[Bucket<K, V>]>);

/// A shard's table. It owns its entries.
pub(crate) struct Table<K, V> {
    current: AtomicPtr<Buckets<K, V>>,
    owns: PhantomData<Entry<K, V>>,
}

/// The place of an entry.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    bucket: usize,
    place: usize,
}

/// Returns the tag of a hash. The tag depends on bits that do not choose the shard, and do not choose the bucket in
/// tables of less than 2^38 bytes.
fn tag(hash: u64) -> u64 {
    (hash >> 32 & 0xff).max(1)
}

/// Returns the places whose tag is `tag`, in ascending order, and perhaps some other places.
#[inline]
fn matching(tags: u64, tag: u64) -> impl Iterator<Item = usize> {
    let differing = (tags & (ONES * 0xff)) ^ (ONES * tag);
    let mut found = differing.wrapping_sub(ONES) & !differing & (ONES << 7);
    core::iter::from_fn(move || {
        let place = found.trailing_zeros() / u8::BITS;
        found &= found.wrapping_sub(1);
        (place < PLACES as u32).then_some(place as usize)
    })
}

fn count(tags: u64) -> u64 {
    tags >> COUNT
}

impl<K, V> Bucket<K, V> {
    fn new() -> Self {
        Self { tags: AtomicU64::new(0), entries: core::array::from_fn(|_| AtomicPtr::new(null_mut())) }
    }

    fn free_place(&self) -> Option<usize> {
        let tags = self.tags.load(Relaxed);
        (0..PLACES).find(|place| tags >> (u8::BITS * *place as u32) & 0xff == 0)
    }

    /// Stores an entry in an empty place. Only the writer may call it.
    fn fill(&self, place: usize, entry: Shared<K, V>) {
        // SAFETY: the caller's entry.
        let tag = tag(unsafe { entry.as_ref() }.header().hash());
        // Release, in both stores: they pair with the Acquire loads in `find`. A look-up that reaches the entry finds
        // it initialized, and each later look-up loads its tag.
        self.tags.store(self.tags.load(Relaxed) | tag << (u8::BITS * place as u32), Release);
        self.entries[place].store(entry.as_ptr(), Release);
    }

    /// Clears a place. Only the writer may call it.
    fn clear(&self, place: usize) {
        self.entries[place].store(null_mut(), Release);
        self.tags.store(self.tags.load(Relaxed) & !(0xff << (u8::BITS * place as u32)), Release);
    }

    /// For the writer: increases (`more`) or decreases the count of entries that have passed the bucket by one.
    fn pass(&self, more: bool) {
        let tags = self.tags.load(Relaxed);
        let changed = match (count(tags), more) {
            (MANY, _) => tags,
            (_, true) => tags + (1 << COUNT),
            (_, false) => tags - (1 << COUNT),
        };
        // Release: an entry's place is cleared before the counts on its way, so a look-up that loads the lower count
        // also sees the place cleared.
        self.tags.store(changed, Release);
    }
}

impl<K, V> Buckets<K, V> {
    fn new(count: usize) -> *mut Self {
        Box::into_raw(Box::new(Self((0..count).map(|_| Bucket::new()).collect())))
    }

    fn mask(&self) -> usize {
        self.0.len() - 1
    }

    /// Returns all buckets in the order of a hash's way, beginning with its own.
    fn way(&self, hash: u64) -> impl Iterator<Item = usize> {
        let (mask, own) = (self.mask(), hash as usize);
        (0..self.0.len()).map(move |step| own.wrapping_add(step) & mask)
    }

    /// Inserts an entry. The array must have an empty place. Only the writer may call it.
    fn insert(&self, entry: Shared<K, V>) {
        // SAFETY: the caller's entry.
        let hash = unsafe { entry.as_ref() }.header().hash();
        for bucket in self.way(hash) {
            let bucket = &self.0[bucket];
            match bucket.free_place() {
                Some(place) => return bucket.fill(place, entry),
                None => bucket.pass(true),
            }
        }
        unreachable!("the table is grown before it is full")
    }

    fn entries(&self) -> impl Iterator<Item = Shared<K, V>> {
        // Acquire as in `find`.
        let entries = self.0.iter().flat_map(|bucket| &bucket.entries);
        entries.filter_map(|entry| Shared::new(entry.load(Acquire)))
    }
}

impl<K, V> Table<K, V> {
    pub fn new() -> Self {
        Self { current: AtomicPtr::new(Buckets::new(FEW)), owns: PhantomData }
    }

    fn current<'g>(&'g self, _: &'g Guard<'_>) -> &'g Buckets<K, V> {
        // SAFETY: an array is retired after it is replaced, and the caller's guard keeps it alive. The Acquire pairs
        // with the Release of the thread that stored the pointer.
        unsafe { &*self.current.load(Acquire) }
    }

    /// Calls `visit` with the entries of this hash, in the order of their places, until `visit` returns `Some`.
    #[inline]
    fn search<'g, R>(
        &'g self,
        guard: &'g Guard<'_>,
        hash: u64,
        mut visit: impl FnMut(Place, Shared<K, V>) -> Option<R>,
    ) -> Option<R> {
        let array = self.current(guard);
        for bucket in array.way(hash) {
            let at = &array.0[bucket];
            let tags = at.tags.load(Acquire);
            for place in matching(tags, tag(hash)) {
                // Acquire: see `fill`.
                let Some(entry) = Shared::new(at.entries[place].load(Acquire)) else { continue };
                // SAFETY: an entry that is found under a guard is not freed before the guard ends.
                if unsafe { entry.as_ref() }.header().hash() == hash
                    && let Some(found) = visit(Place { bucket, place }, entry)
                {
                    return Some(found);
                }
            }
            if count(tags) == 0 {
                break;
            }
        }
        None
    }

    /// Returns the entry whose key satisfies `is_it`. Runs the caller's code. The entry is not freed before the guard
    /// ends.
    #[inline]
    pub fn find(&self, guard: &Guard<'_>, hash: u64, is_it: impl Fn(&K) -> bool) -> Option<Shared<K, V>> {
        self.search(guard, hash, |_, entry| {
            // SAFETY: found under the guard.
            is_it(unsafe { entry.as_ref() }.key()).then_some(entry)
        })
    }

    /// Prefetches the bucket of a hash.
    pub fn prefetch(&self, guard: &Guard<'_>, hash: u64) {
        let array = self.current(guard);
        prefetch_read(&raw const array.0[hash as usize & array.mask()]);
    }

    /// Prefetches the first lines of the entries in the hash's own bucket that have its tag.
    #[inline]
    pub fn foresee(&self, guard: &Guard<'_>, hash: u64, lines: usize) {
        let array = self.current(guard);
        let bucket = &array.0[hash as usize & array.mask()];
        // Relaxed: the prefetch of a wrong address costs only time.
        let entry = |place: usize| bucket.entries[place].load(Relaxed);
        matching(bucket.tags.load(Relaxed), tag(hash)).for_each(|place| Entry::prefetch(entry(place), 0..lines));
    }

    /// For the writer: returns the place of an entry, if the table has it.
    pub fn place_of(&self, guard: &Guard<'_>, entry: Shared<K, V>) -> Option<Place> {
        // SAFETY: the caller's entry.
        let hash = unsafe { entry.as_ref() }.header().hash();
        self.search(guard, hash, |at, found| (found == entry).then_some(at))
    }

    /// Returns the entries that have this hash. There is rarely more than one.
    pub fn alike(&self, guard: &Guard<'_>, hash: u64) -> Few<Shared<K, V>> {
        let mut alike = Few::new();
        self.search(guard, hash, |_, entry| {
            alike.push(entry);
            None::<()>
        });
        alike
    }

    /// For the writer, which must not compare keys (users' code): returns whether the entries that have this hash are
    /// still exactly `seen`.
    pub fn has_only(&self, guard: &Guard<'_>, hash: u64, mut seen: impl Iterator<Item = Shared<K, V>>) -> bool {
        let other = self.search(guard, hash, |_, entry| (seen.next() != Some(entry)).then_some(()));
        other.is_none() && seen.next().is_none()
    }

    /// For the writer: adds an entry whose key the table does not have. `len` is the table's number of entries before.
    pub fn insert(&self, guard: &Guard<'_>, entry: Shared<K, V>, len: usize) {
        let array = self.current(guard);
        // If more than six of seven places are used, ways become long.
        if len >= array.0.len() * (PLACES - 1) {
            self.rebuild(guard, array.0.len() * 2);
        }
        self.current(guard).insert(entry);
    }

    /// For the writer: replaces an entry by a new one with the same key.
    pub fn replace(&self, guard: &Guard<'_>, at: Place, entry: Shared<K, V>) {
        // Release as in `fill`.
        self.current(guard).0[at.bucket].entries[at.place].store(entry.as_ptr(), Release);
    }

    /// For the writer: removes an entry. The caller retires it.
    pub fn remove(&self, guard: &Guard<'_>, entry: Shared<K, V>) {
        let array = self.current(guard);
        let at = self.place_of(guard, entry).expect("in the table");
        array.0[at.bucket].clear(at.place);
        // SAFETY: the caller's entry.
        let hash = unsafe { entry.as_ref() }.header().hash();
        array.way(hash).take_while(|bucket| *bucket != at.bucket).for_each(|bucket| array.0[bucket].pass(false));
    }

    /// For the writer: replaces the array by one of another size.
    fn rebuild(&self, guard: &Guard<'_>, count: usize) {
        let old = self.current.load(Relaxed);
        // SAFETY: the current array.
        let (next, entries) = (Buckets::new(count), unsafe { &*old }.entries());
        // SAFETY: made just now.
        entries.for_each(|entry| unsafe { &*next }.insert(entry));
        // Release: see `current`.
        self.current.store(next, Release);
        // The array weighs nothing, since the weight of an entry includes its place in the table.
        // SAFETY: unlinked by the store above, by the only writer.
        guard.hold_back(|| unsafe { guard.retire_box_sized(old, 0) });
    }

    /// For the writer: replaces the array by a smaller one, if a quarter of it suffices.
    pub fn shrink(&self, guard: &Guard<'_>, len: usize) {
        let wanted = (len / (PLACES - 2) + 1).next_power_of_two();
        if wanted * 4 <= self.current(guard).0.len() {
            self.rebuild(guard, wanted);
        }
    }

    /// Returns the entries that are in the table during the whole iteration, and perhaps some that are inserted or
    /// removed during it.
    pub fn entries<'g>(&'g self, guard: &'g Guard<'_>) -> impl Iterator<Item = Shared<K, V>> + 'g {
        self.current(guard).entries()
    }

    /// Returns the bytes of the array.
    pub fn bytes(&self, guard: &Guard<'_>) -> usize {
        self.current(guard).0.len() * size_of::<Bucket<K, V>>()
    }
}

impl<K, V> Drop for Table<K, V> {
    fn drop(&mut self) {
        // SAFETY: `&mut self`: no other thread uses the table; the array and its entries are its own.
        unsafe {
            let array = Box::from_raw(self.current.load(Relaxed));
            array.entries().for_each(|entry| drop(Entry::emptied(entry)));
        }
    }
}

#[cfg(all(test, loom))]
mod model;

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::*;
    use crate::entry::HASH;
    use archipelago_sync::rcu::Domain;

    /// After insertions and removals, each bucket counts exactly the present entries that have passed it.
    #[test]
    fn ways_are_short_when_entries_have_left() {
        const MOST: u64 = if cfg!(miri) { 700 } else { 5_000 };
        let (domain, table) = (Domain::new(), Table::new());
        let guard = domain.pin();
        let hash = |key: u64| {
            (key.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ key.wrapping_mul(0xD6E8_FEB8_6659_FD93)) & HASH
        };
        let entry = |key: u64| Entry::boxed(key, (), hash(key), 1);
        let mut there: Vec<_> = (0..500).map(entry).collect();
        for (len, entry) in there.iter().enumerate() {
            table.insert(&guard, *entry, len);
        }
        for key in 500..MOST {
            let gone = there.swap_remove(key as usize * 7 % there.len());
            table.remove(&guard, gone);
            // SAFETY: taken out, and found by no other thread.
            drop(unsafe { Entry::emptied(gone) });
            there.push(entry(key));
            table.insert(&guard, *there.last().unwrap(), 499);
        }
        there.drain(100..).for_each(|gone| {
            table.remove(&guard, gone);
            // SAFETY: as above.
            drop(unsafe { Entry::emptied(gone) });
        });
        let array = table.current(&guard);
        let passed: u64 = array.0.iter().map(|bucket| count(bucket.tags.load(Relaxed))).sum();
        let way = |entry: &Shared<u64, ()>| {
            // SAFETY: in the table.
            let hash = unsafe { entry.as_ref() }.header().hash();
            let at = table.place_of(&guard, *entry).unwrap();
            array.way(hash).take_while(|bucket| *bucket != at.bucket).count() as u64
        };
        assert_eq!(passed, there.iter().map(way).sum(), "each bucket counts those that have passed by and are here");
    }
}
