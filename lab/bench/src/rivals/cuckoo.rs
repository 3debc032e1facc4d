//! A hash table like libcuckoo (Li, Andersen, Kaminsky, Freedman: Algorithmic Improvements for Fast Concurrent Cuckoo
//! Hashing, EuroSys 2014, and the library of its authors). It has no scans.
//!
//! As in the library, with its numbers by default:
//!
//! - a key can be in two buckets of four slots. The second bucket's number is made from the first one's and an 8-bit
//!   tag of the key's hash, so that an entry can be moved without its key being hashed anew;
//! - 65,536 test-and-set spin locks, a cache line each, are striped over the buckets. Readers, too, lock both buckets
//!   of their key;
//! - an insertion into two full buckets looks for the shortest path of at most five displacements to a free slot, by
//!   breadth-first search. The search locks one bucket at a time, and so the path can be obsolete when it is found.
//!   (The paper's search locks none.) The displacements are made from the path's end, each under the locks of its two
//!   buckets, and only if both slots still are as the search has found them;
//! - if no path is found, the table is doubled under all locks. It begins with 65,536 buckets, or as many as
//!   are reserved, and never shrinks.
//!
//! Different from the library:
//!
//! - a doubled table is filled at once by the thread that doubles it. The library fills the part of a lock when the
//!   lock is taken next, if the table had 65,536 buckets at least;
//! - tags are compared before integers, too;
//! - an update with a function reads, and then compares and replaces, since the caller's code must not run under a
//!   lock;
//! - there are no counters of entries.
//!
//! (The paper's text has buckets of eight slots.)
//!
//! # Invariants
//! - A key is in one slot at most, in one of its two buckets.
//! - Buckets change only under their locks, and the table under all locks. So the holder of any lock can use the table.
//!
//! # Why an operation is right
//! The buckets of a key depend on the table's size. An operation reads the size, takes the locks in ascending order,
//! and reads the size again: if it is the same, no thread can change it before the locks are released, since the table
//! is doubled under all locks. An operation has both buckets locked, and a displacement, too, locks both of the
//! entry's buckets. So no operation meets a key between its buckets. Locks are taken in ascending order, so there is no
//! deadlock.
//!
//! Complexity: O(1), an insertion amortized.

mod buckets;

use core::cell::UnsafeCell;

use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicU32, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::plain::Plain;
use archipelago_sync::lock::{Mutex, MutexGuard, RawTas};

use super::btree::{LONGEST, TreeKey};
use super::hashed::Hashed;
use crate::contender::BenchIndex;
use buckets::{Buckets, Place, SLOTS};

/// The binary logarithm of the number of locks, and of the first number of buckets.
const FIRST: u32 = if cfg!(test) { 2 } else { 16 };

/// The most buckets of a path of displacements.
const PATH: usize = 5;

/// A lock in a cache line of its own.
#[repr(align(64))]
struct Stripe(Mutex<RawTas, ()>);

type Lock<'t> = MutexGuard<'t, RawTas, ()>;

/// A map from `K` to `u64`. Byte strings have at most [`LONGEST`] bytes.
pub struct Cuckoo<K: TreeKey> {
    stripes: Box<[Stripe]>,
    /// The binary logarithm of the number of buckets.
    power: CachePadded<AtomicU32>,
    table: UnsafeCell<Plain<Buckets<K::InPlace>>>,
}

// SAFETY: the table is used by holders of a lock and replaced by the holder of all locks. The buckets are atomics.
unsafe impl<K: TreeKey> Sync for Cuckoo<K> {}

/// A thread's access to the map.
pub struct Session<'t, K: TreeKey>(&'t Cuckoo<K>);

/// Locks of some buckets.
struct Held<'t, K: TreeKey> {
    map: &'t Cuckoo<K>,
    _locks: [Option<Lock<'t>>; 3],
}

/// A free slot, and the locks of both buckets of which one has the slot.
type Room<'t, K> = (Held<'t, K>, Place);

/// The table has been doubled meanwhile: start again.
#[derive(Debug)]
struct Doubled;

/// A slot of a path, and the hash of its key, if it has one.
#[derive(Clone, Copy)]
struct Step {
    bucket: usize,
    slot: usize,
    hashed: Option<Hashed>,
}

/// Returns the two buckets of a hash. They can be the same one.
#[inline]
fn buckets_of(hashed: Hashed, power: u32) -> [usize; 2] {
    let first = hashed.low() & ((1 << power) - 1);
    [first, other(power, hashed.tag(), first)]
}

/// Returns the other bucket of an entry with this tag in a bucket. In a doubled table the numbers of both buckets have
/// one bit more on top.
#[inline]
fn other(power: u32, tag: u8, bucket: usize) -> usize {
    let apart = (u64::from(tag) + 1).wrapping_mul(0xC6A4_A793_5BD1_E995);
    (bucket ^ apart as usize) & ((1 << power) - 1)
}

impl<K: TreeKey> Default for Cuckoo<K> {
    fn default() -> Self {
        Self::of(FIRST)
    }
}

impl<K: TreeKey> Cuckoo<K> {
    /// Makes an empty map of 2^`power` buckets.
    fn of(power: u32) -> Self {
        Cuckoo {
            stripes: (0..1 << FIRST).map(|_| Stripe(Mutex::new(()))).collect(),
            power: CachePadded::new(AtomicU32::new(power)),
            table: UnsafeCell::new(Plain::new(Buckets::new(power))),
        }
    }
}

impl<K: TreeKey> Held<'_, K> {
    #[inline]
    fn table(&self) -> &Buckets<K::InPlace> {
        // SAFETY: the table is replaced under all locks, and this value has one at least.
        unsafe { &*self.map.table.get() }
    }

    /// Returns the place of a key whose buckets are locked.
    #[inline]
    fn find(&self, key: &K::InPlace, buckets: [usize; 2], tag: u8) -> Option<Place> {
        buckets.into_iter().find_map(|bucket| Some((bucket, self.table().find(bucket, tag, key)?)))
    }
}

impl<K: TreeKey> Cuckoo<K> {
    /// Locks buckets of the table with this size, at least one and at most three.
    ///
    /// # Errors
    /// If the table has another size by now.
    #[inline]
    fn lock<const N: usize>(&self, power: u32, buckets: [usize; N]) -> Result<Held<'_, K>, Doubled> {
        let mut stripes = buckets.map(|bucket| bucket & (self.stripes.len() - 1));
        stripes.sort_unstable();
        let mut locks = [None, None, None];
        for at in 0..N {
            if at == 0 || stripes[at] != stripes[at - 1] {
                locks[at] = Some(self.stripes[stripes[at]].0.lock());
            }
            // Relaxed: the size was changed before the changing thread released the lock, if it had it before us; and
            // otherwise it has to wait for the lock.
            if at == 0 && self.power.load(Ordering::Relaxed) != power {
                return Err(Doubled);
            }
        }
        Ok(Held { map: self, _locks: locks })
    }

    /// Runs `f` with both buckets of a key locked.
    #[inline]
    fn locked<R>(&self, key: &K::InPlace, f: impl Fn(&Held<'_, K>, [usize; 2], u8) -> R) -> R {
        let hashed = Hashed::of(key);
        loop {
            // Relaxed: the size is compared under the locks.
            let power = self.power.load(Ordering::Relaxed);
            let buckets = buckets_of(hashed, power);
            if let Ok(held) = self.lock(power, buckets) {
                return f(&held, buckets, hashed.tag());
            }
        }
    }

    fn insert(&self, key: &K::InPlace, value: u64) -> Option<u64> {
        let hashed = Hashed::of(key);
        loop {
            let power = self.power.load(Ordering::Relaxed);
            match self.try_insert(key, hashed, value, power) {
                Ok(Some(old)) => return old,
                Ok(None) => self.double(power),
                Err(Doubled) => {}
            }
        }
    }

    /// Returns the old value, or `None` if there is no room.
    fn try_insert(
        &self,
        key: &K::InPlace,
        hashed: Hashed,
        value: u64,
        power: u32,
    ) -> Result<Option<Option<u64>>, Doubled> {
        let (buckets, tag) = (buckets_of(hashed, power), hashed.tag());
        let held = self.lock(power, buckets)?;
        if let Some(place) = held.find(key, buckets, tag) {
            return Ok(Some(Some(held.table().replace(place, value))));
        }
        let free = buckets.into_iter().find_map(|bucket| Some((bucket, held.table().free(bucket)?)));
        if let Some(place) = free {
            held.table().put(place, tag, *key, value);
            return Ok(Some(None));
        }
        drop(held);
        let Some((held, free)) = self.make_room(power, buckets)? else { return Ok(None) };
        // While the locks were released, another thread may have inserted the key.
        Ok(Some(match held.find(key, buckets, tag) {
            Some(place) => Some(held.table().replace(place, value)),
            None => {
                held.table().put(free, tag, *key, value);
                None
            }
        }))
    }

    /// Frees a slot of one of two buckets, if a path to a free slot is found. Returns the slot, with both buckets
    /// locked.
    fn make_room(&self, power: u32, buckets: [usize; 2]) -> Result<Option<Room<'_, K>>, Doubled> {
        while let Some(path) = self.search(power, buckets)? {
            if let Some(held) = self.displace(power, buckets, &path)? {
                return Ok(Some((held, (path[0].bucket, path[0].slot))));
            }
        }
        Ok(None)
    }

    /// Searches for a path from one of two buckets to a free slot. It may be obsolete when it is returned.
    fn search(&self, power: u32, buckets: [usize; 2]) -> Result<Option<Vec<Step>>, Doubled> {
        /// A bucket at the end of a path, and the place in the queue, with the slot, from which the path comes.
        struct End {
            bucket: usize,
            depth: usize,
            from: Option<(usize, usize)>,
        }
        let mut queue: Vec<End> = buckets.map(|bucket| End { bucket, depth: 0, from: None }).into();
        let mut at = 0;
        while at < queue.len() {
            let End { bucket, depth, .. } = queue[at];
            let held = self.lock(power, [bucket])?;
            if let Some(slot) = held.table().free(bucket) {
                drop(held);
                let (mut slots, mut end) = (vec![slot], &queue[at]);
                while let Some((before, slot)) = end.from {
                    slots.push(slot);
                    end = &queue[before];
                }
                slots.reverse();
                return self.trace(power, end.bucket, &slots).map(Some);
            }
            for slot in (0..SLOTS).filter(|_| depth + 1 < PATH) {
                let next = other(power, held.table().tag((bucket, slot)), bucket);
                queue.push(End { bucket: next, depth: depth + 1, from: Some((at, slot)) });
            }
            at += 1;
        }
        Ok(None)
    }

    /// Reads the hashes along a path of slots, which begins in a bucket. The path ends earlier if a slot is free by
    /// now.
    fn trace(&self, power: u32, mut bucket: usize, slots: &[usize]) -> Result<Vec<Step>, Doubled> {
        let mut path = Vec::with_capacity(slots.len());
        for &slot in slots {
            let held = self.lock(power, [bucket])?;
            let place = (bucket, slot);
            let hashed = (!held.table().is_free(place)).then(|| Hashed::of(&held.table().key(place)));
            path.push(Step { bucket, slot, hashed });
            let Some(hashed) = hashed else { break };
            bucket = other(power, hashed.tag(), bucket);
        }
        Ok(path)
    }

    /// Makes the displacements of a path, from its end. Returns `None` if the path is obsolete, and otherwise the locks
    /// of two buckets, in one of which the path begins.
    fn displace(&self, power: u32, buckets: [usize; 2], path: &[Step]) -> Result<Option<Held<'_, K>>, Doubled> {
        let [first, second] = buckets;
        let mut to = path[path.len() - 1];
        let is_free = |held: &Held<'_, K>, step: Step| held.table().is_free((step.bucket, step.slot));
        if path.len() == 1 {
            let held = self.lock(power, buckets)?;
            return Ok(is_free(&held, to).then_some(held));
        }
        for (at, from) in path.iter().enumerate().rev().skip(1) {
            let held = match at {
                0 => self.lock(power, [first, second, to.bucket])?,
                _ => self.lock(power, [from.bucket, to.bucket])?,
            };
            let place = (from.bucket, from.slot);
            if !is_free(&held, to) || is_free(&held, *from) {
                return Ok(None);
            }
            // Another key with the same hash could be moved as well.
            if Some(Hashed::of(&held.table().key(place))) != from.hashed {
                return Ok(None);
            }
            held.table().displace(place, (to.bucket, to.slot));
            if at == 0 {
                return Ok(Some(held));
            }
            to = *from;
        }
        unreachable!("the last displacement is from the path's first slot")
    }

    /// Doubles a table of this size.
    fn double(&self, power: u32) {
        let locks: Vec<Lock<'_>> = self.stripes.iter().map(|stripe| stripe.0.lock()).collect();
        if self.power.load(Ordering::Relaxed) != power {
            return;
        }
        // SAFETY: this thread has all locks, so no other thread uses the table.
        let table = unsafe { &mut *self.table.get() };
        let doubled = Buckets::new(power + 1);
        for place @ (bucket, slot) in table.places() {
            let key = table.key(place);
            let hashed = Hashed::of(&key);
            let which = usize::from(buckets_of(hashed, power)[0] != bucket);
            // The new bucket has the old one's number, or this and the old size. So only one old bucket fills it, and
            // the slot is free.
            doubled.put((buckets_of(hashed, power + 1)[which], slot), hashed.tag(), key, table.value(place));
        }
        **table = doubled;
        // Relaxed: other threads read the size under a lock, and this thread releases all locks afterwards.
        self.power.store(power + 1, Ordering::Relaxed);
        drop(locks);
    }

    /// Checks the whole map. Returns the number of keys. No thread may use the map meanwhile.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&mut self) -> usize {
        assert!(self.stripes.iter().all(|stripe| stripe.0.try_lock().is_some()), "no thread has a lock");
        let (power, table) = (self.power.load(Ordering::Relaxed), self.table.get_mut());
        let mut keys: Vec<_> = table.places().map(|place| table.key(place)).collect();
        for place in table.places() {
            let hashed = Hashed::of(&table.key(place));
            assert!(buckets_of(hashed, power).contains(&place.0), "a key is in one of its buckets");
            assert_eq!(table.find(place.0, hashed.tag(), &table.key(place)), Some(place.1), "a key is found");
        }
        keys.sort_unstable();
        assert!(keys.is_sorted_by(|a, b| a < b), "a key is in one slot");
        keys.len()
    }
}

impl<K: TreeKey> BenchIndex<K> for Cuckoo<K> {
    const SCANS: bool = false;

    fn empty() -> Self {
        Self::default()
    }

    /// As the library's `reserve`, which HydraList's authors call for 100 million keys.
    fn reserve(&mut self, keys: usize) {
        *self = Self::of(keys.div_ceil(SLOTS).next_power_of_two().trailing_zeros().max(FIRST));
    }
}

impl<K: TreeKey> OrderedIndex<K, u64> for Cuckoo<K> {
    type Session<'a> = Session<'a, K>;

    fn pin(&self) -> Session<'_, K> {
        Session(self)
    }
}

impl<K: TreeKey> Session<'_, K> {
    /// Replaces the value of a key that is present, if `when` permits for the old value. Returns the old value.
    fn swap(&self, key: &K, value: u64, when: impl Fn(u64) -> bool) -> Option<u64> {
        let key = key.in_place();
        self.0.locked(&key, |held, buckets, tag| {
            let place = held.find(&key, buckets, tag)?;
            let old = held.table().value(place);
            if when(old) {
                held.table().replace(place, value);
            }
            Some(old)
        })
    }
}

impl<K: TreeKey> OrderedSession<K, u64> for Session<'_, K> {
    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        let key = key.in_place();
        self.0.locked(&key, |held, buckets, tag| held.find(&key, buckets, tag).map(|place| held.table().value(place)))
    }

    /// # Panics
    /// If the key has more than [`LONGEST`] bytes.
    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        assert!(key.with_raw(<[u8]>::len) <= LONGEST, "a key of the table has at most {LONGEST} bytes");
        self.0.insert(&key.in_place(), value)
    }

    fn replace(&self, key: &K, value: u64) -> Option<u64> {
        self.swap(key, value, |_| true)
    }

    fn update(&self, key: &K, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let mut expected = self.get(key)?;
        loop {
            // The caller's code must not run under a lock.
            let new = f(&expected);
            let found = self.swap(key, new, |old| old == expected)?;
            if found == expected {
                return Some(found);
            }
            expected = found;
        }
    }

    fn remove(&self, key: &K) -> Option<u64> {
        let key = key.in_place();
        self.0.locked(&key, |held, buckets, tag| held.find(&key, buckets, tag).map(|place| held.table().remove(place)))
    }

    /// # Panics
    /// Always: a hash table has no order.
    fn scan(&self, _: &K, _: usize, _: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        panic!("cuckoo-like has no scans")
    }
}

#[cfg(test)]
mod tests;
