//! The cache's core: shards, the bound, insertion and removal.

use core::hash::{BuildHasher, Hash};

use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sync::rcu::{Domain, Guard};

use crate::blocks::Blocks;
use crate::budget::{Budget, possible};
use crate::cause::Cause;
use crate::clock::{Clock, NEVER};
use crate::config::Config;
use crate::entry::{Entry, Extension, HASH, Resident, Shared, Times, is_long};
use crate::hits::Hits;
use crate::makers::Makers;
use crate::policy::Policy;
use crate::shard::{Gone, Outcome, Seen, Shard};
use crate::table::Table;
use archipelago_platform::panics::FirstPanic;

/// The size in bytes of a thread's bag, its list of removed entries. When the bag is full, the thread checks which
/// entries can be freed, and this check interrupts the other threads. A bag must fit into the 64 KiB that each thread
/// may use in addition to the bound, and into a core's caches, since the freed memory is used again.
const BAG: usize = 48 << 10;
/// The size in bytes of the blocks that a thread keeps. Under Miri no block is kept, since Miri detects a use of freed
/// memory, but not a use of a kept block.
const KEPT: usize = if cfg!(miri) { 0 } else { BAG };
/// In small caches a bag has at most 1/BAGS of the weight that may wait for readers.
const BAGS: usize = 8;
/// The weight of removed entries that may wait for readers in addition to the capacity is 1/WAITING_PART of the
/// capacity, plus [`Config::waiting`].
const WAITING_PART: usize = 100;
/// How often an insertion yields the processor to readers before it is refused.
const PATIENCE: usize = 16;
/// How often an insertion takes room from all other shards, before it is refused.
const ROUNDS: usize = 4;

pub(crate) struct Inner<K, V, P, S> {
    hasher: S,
    shards: Box<[CachePadded<Shard<K, V, P>>]>,
    budget: Budget,
    pub config: Config<K, V>,
    pub clock: Clock,
    pub makers: Makers,
    pub hits: PerThread<CachePadded<Hits>>,
    /// Declared after the shards, so that the shards are dropped before the waiting entries are reclaimed.
    domain: Domain,
    /// Declared after the domain, and behind a pointer: the blocks of reclaimed entries are kept here, even while the cache is being dropped.
    pub blocks: Arc<Blocks<K, V>>,
}

/// Entries that have left the cache. They are retired, and reported to the listener, after the lock is released. If a
/// panic drops this value, the entries are retired but not reported.
struct Leaving<'a, K, V, P, S> {
    inner: &'a Inner<K, V, P, S>,
    guard: &'a Guard<'a>,
    gone: Gone<K, V>,
}

/// Drops an entry, and keeps its block.
///
/// # Safety
/// `object` is a [`Shared`] entry that no other thread frees or uses; `context` is the `Blocks` of the entry's cache.
unsafe fn reclaim<K, V>(object: *mut (), context: *mut ()) {
    // SAFETY: the caller's promise. The block is freed if a destructor panics.
    unsafe {
        let entry = Shared::new_unchecked(object.cast::<Entry<K, V>>());
        (*context.cast::<Blocks<K, V>>()).keep(Entry::emptied(entry));
    }
}

/// Returns the extension, with the times, of an entry that was found under the guard; `None` if the entry does not
/// expire.
#[inline]
pub(crate) fn timed<'g, K, V>(_: &'g Guard<'_>, entry: Shared<K, V>) -> Option<&'g Extension> {
    // SAFETY: found under the guard.
    unsafe { Resident::new(entry) }.timed()
}

/// Returns the most entries of a bag.
fn bag_entries<K, V>() -> usize {
    (BAG / size_of::<Entry<K, V>>()).clamp(8, 256)
}

/// Returns the most weight of a bag, where `most_waiting` is the weight that may wait for readers.
fn bag_weight(most_waiting: usize) -> usize {
    (most_waiting / BAGS).min(BAG)
}

impl<K, V, P, S> Inner<K, V, P, S> {
    /// Calls the listener, if the cache has one.
    fn tell(&self, entry: &Entry<K, V>, cause: Cause) {
        if let Some(listener) = &self.config.listener {
            listener(entry.key(), entry.value(), cause);
        }
    }
}

impl<K, V, P, S> Leaving<'_, K, V, P, S> {
    /// # Safety
    /// This thread has removed the entry, and retires it only once.
    unsafe fn retire(&self, entry: Shared<K, V>) {
        let blocks = Arc::as_ptr(&self.inner.blocks).cast_mut().cast();
        // SAFETY: the caller's promise; the blocks live longer than the domain.
        unsafe {
            let weight = Resident::new(entry).weight();
            self.guard.retire_sized(entry.as_ptr().cast(), weight, blocks, reclaim::<K, V>);
        }
    }

    /// Retires the entries that have left, and calls the listener. `come` is the number of entries that were inserted in exchange. For each further
    /// entry that has left, the thread frees one of its kept blocks, so that the waiting entries and the kept blocks of the thread together are at
    /// most a bag.
    fn settle(&mut self, come: usize) {
        let mut left = 0_usize;
        while let Some((entry, cause)) = self.gone.pop() {
            // SAFETY: this thread removed the entry under a lock, so it is retired once, and under the guard, which
            // outlives the reference.
            let entry = unsafe {
                // The destructor of an entry that was retired earlier may run here, and panic. At this point the
                // present entry has been handed over to the domain.
                self.retire(entry);
                entry.as_ref()
            };
            left += 1;
            self.inner.tell(entry, cause);
        }
        self.inner.blocks.free(left.saturating_sub(come));
    }
}

impl<K, V, P, S> Drop for Leaving<'_, K, V, P, S> {
    fn drop(&mut self) {
        // Entries are left here only after a panic. Then this method must run no users' code, so reclamation is held
        // back.
        while let Some((entry, _)) = self.gone.pop() {
            // SAFETY: as in `settle`.
            self.guard.hold_back(|| unsafe { self.retire(entry) });
        }
    }
}

/// An entry that is not in the table yet. It is freed if it is dropped, for example because a comparison panics.
struct Unplaced<K, V>(Shared<K, V>);

/// The result of an insertion.
enum Placed<K, V> {
    Kept,
    /// The entry was dropped, and the previous entry of its key was removed, unless only a new key was to be inserted.
    Refused,
    /// The entry was dropped, since the cache already has this entry with the same key.
    Present(Shared<K, V>),
}

impl<K, V> Drop for Unplaced<K, V> {
    fn drop(&mut self) {
        // SAFETY: this thread has made the entry, and no other thread has seen it.
        drop(unsafe { Entry::emptied(self.0) });
    }
}

impl<K, V, P, S> Inner<K, V, P, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    P: Policy,
{
    pub fn new(config: Config<K, V>, shards: usize, hasher: S) -> Self {
        let capacity = possible(config.capacity);
        let bag = bag_weight(capacity / WAITING_PART + config.waiting);
        // If the cache has a time to live or to idle, all its entries are long (have an extension, see `entry.rs`).
        let long = config.live.is_some() || config.idle.is_some();
        Self {
            hasher,
            shards: (0..shards).map(|_| CachePadded::new(Shard::new())).collect(),
            budget: Budget::new(capacity, shards),
            config,
            clock: Clock::new(),
            makers: Makers::new(shards),
            hits: PerThread::new(),
            domain: Domain::new().with_bag_limit(bag_entries::<K, V>()).with_bag_bytes(bag),
            blocks: Arc::new(Blocks::beside(KEPT, long)),
        }
    }

    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    pub fn shards(&self) -> &[CachePadded<Shard<K, V, P>>] {
        &self.shards
    }

    /// Returns the part of a key's hash that entries store. All bits of the hash contribute to it.
    #[inline]
    pub fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64
    where
        S: BuildHasher,
    {
        let hash = self.hasher.hash_one(key);
        (hash ^ hash >> 16) & HASH
    }

    /// Returns the index of a hash's shard. The index depends on bits that do not choose the tag, and do not choose the
    /// bucket in tables of less than 2^40 bytes.
    pub fn shard_index(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    #[inline]
    pub fn shard(&self, hash: u64) -> &Shard<K, V, P> {
        &self.shards[self.shard_index(hash)]
    }

    /// Returns the live entry whose key satisfies `is_it`, and counts the hit.
    #[inline]
    pub fn look_up<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        hash: u64,
        is_it: impl Fn(&K) -> bool,
    ) -> Option<&'g Entry<K, V>> {
        let shard = self.shard(hash);
        let found = shard.table().find(guard, hash, is_it).filter(|entry| self.is_live(guard, *entry));
        // SAFETY: found under the guard.
        let found = found.map(|entry| unsafe { entry.as_ref() });
        if let Some(entry) = found {
            shard.hit(entry);
        }
        if self.config.record_hits {
            let slot = thread::slot().index;
            self.hits.get_or(slot, || CachePadded::new(Hits::default())).count(found.is_some());
        }
        found
    }

    /// Returns whether an entry that was found under the guard has not expired. If so, postpones the entry's expiry by
    /// the cache's time to idle.
    #[inline]
    pub fn is_live(&self, guard: &Guard<'_>, entry: Shared<K, V>) -> bool {
        let Some(timed) = timed(guard, entry) else { return true };
        let now = self.clock.now();
        let live = !timed.is_expired(now);
        if live && let Some(idle) = self.config.idle {
            timed.live_on(now, idle);
        }
        live
    }

    /// Returns whether an entry that was found under the guard has expired.
    pub fn is_expired(&self, guard: &Guard<'_>, entry: Shared<K, V>) -> bool {
        timed(guard, entry).is_some_and(|timed| timed.is_expired(self.clock.now()))
    }

    /// Makes an entry. Runs the user's hash function and weigher. If `own` is given, it replaces the cache's time to
    /// live.
    pub fn entry(&self, guard: &Guard<'_>, key: K, value: V, own: Option<core::time::Duration>) -> Shared<K, V>
    where
        K: Hash,
        S: BuildHasher,
    {
        let (hash, times) = (self.hash(&key), self.times(own));
        // The bucket, and the entry that will be replaced, are mostly in no processor's cache. They are loaded while the new entry is written.
        self.shard(hash).table().foresee(guard, hash, 1);
        let weight = (self.config.weigher)(&key, &value);
        let long = is_long(weight, times);
        let weight = if long { weight.saturating_add(self.config.extension) } else { weight };
        Entry::within(self.blocks.take(long), key, value, hash, weight, times)
    }

    /// Returns the times of an entry that is inserted now. If `own` is given, it replaces the cache's time to live.
    fn times(&self, own: Option<core::time::Duration>) -> Times {
        let last = self.clock.after(own.or(self.config.live));
        let deadline = self.config.idle.map_or(NEVER, |idle| self.clock.now().saturating_add(idle));
        Times { last, deadline }
    }

    /// Begins a change. Returns the change's guard, and whether more removed entries may wait for readers. If threads
    /// outnumber processors and many of the entries that this thread has removed cannot be freed yet, the call first
    /// waits a little.
    pub fn begin(&self) -> (Guard<'_>, bool) {
        let reader = self.domain.reader();
        reader.give_way();
        let has_room = self.has_room_for_waiting();
        (reader.enter(), has_room)
    }

    /// Inserts `entry`, if `has_room` (removed entries may still wait for readers). Returns whether the entry is kept.
    /// If not, the entry is dropped, and the previous entry of its key is removed.
    pub fn insert(&self, guard: &Guard<'_>, has_room: bool, entry: Shared<K, V>) -> bool
    where
        K: Eq,
    {
        matches!(self.put(guard, has_room, Unplaced(entry), false), Placed::Kept)
    }

    /// Inserts as [`insert`](Self::insert) does, if the cache does not have the key. Otherwise returns the key's entry.
    pub fn insert_new<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        has_room: bool,
        entry: Shared<K, V>,
    ) -> Option<&'g Entry<K, V>>
    where
        K: Eq,
    {
        match self.put(guard, has_room, Unplaced(entry), true) {
            // SAFETY: found under the guard.
            Placed::Present(present) => Some(unsafe { present.as_ref() }),
            Placed::Kept | Placed::Refused => None,
        }
    }

    fn put(&self, guard: &Guard<'_>, has_room: bool, entry: Unplaced<K, V>, only_new: bool) -> Placed<K, V>
    where
        K: Eq,
    {
        // SAFETY: not in the table yet.
        let new = unsafe { Resident::new(entry.0) };
        let (hash, fits) = (new.header().hash(), has_room && new.weight() <= self.budget.capacity());
        let mut leaving = Leaving { inner: self, guard, gone: Gone::new() };
        let mut placed = match fits {
            true => self.place(guard, hash, &entry, only_new, &mut leaving.gone),
            false => Placed::Refused,
        };
        // What the cache has now was inserted while the refused value was made, and is newer.
        if only_new && let Placed::Refused = placed {
            let newer = entry.seen(self.shard(hash).table(), guard, hash).same_key;
            placed = newer.filter(|newer| self.is_live(guard, *newer)).map_or(Placed::Refused, Placed::Present);
        }
        match placed {
            Placed::Present(_) => drop(entry),
            Placed::Kept => core::mem::forget(entry),
            Placed::Refused => {
                if !only_new {
                    self.drop_out_of_date(guard, hash, &entry, &mut leaving.gone);
                }
                self.shard(hash).lock().counts_mut().refusals += 1;
                // SAFETY: no other thread has seen the entry, and it is freed at the end of this block.
                self.tell(unsafe { entry.0.as_ref() }, Cause::Evicted);
                drop(entry);
            }
        }
        leaving.settle(1);
        self.blocks.foresee();
        placed
    }

    /// Adds `entry` to the table and the policy, if the bound has room for it or room can be made. With `only_new`,
    /// adds it only if the cache does not have the key.
    fn place(
        &self,
        guard: &Guard<'_>,
        hash: u64,
        entry: &Unplaced<K, V>,
        only_new: bool,
        gone: &mut Gone<K, V>,
    ) -> Placed<K, V>
    where
        K: Eq,
    {
        let shard = self.shard(hash);
        let mut rounds = 0;
        loop {
            let seen = entry.seen(shard.table(), guard, hash);
            if only_new && let Some(present) = seen.same_key.filter(|present| self.is_live(guard, *present)) {
                return Placed::Present(present);
            }
            let outcome = shard.lock().insert(guard, &self.budget, entry.0, &seen, gone);
            match outcome {
                Outcome::Kept => return Placed::Kept,
                Outcome::Changed => {}
                Outcome::Lacking(_) if rounds == ROUNDS => return Placed::Refused,
                Outcome::Lacking(need) => {
                    self.gather(guard, hash, need, gone);
                    rounds += 1;
                }
            }
        }
    }

    /// Removes the previous entry of the key of `entry`, whose insertion is refused.
    fn drop_out_of_date(&self, guard: &Guard<'_>, hash: u64, entry: &Unplaced<K, V>, gone: &mut Gone<K, V>)
    where
        K: Eq,
    {
        let shard = self.shard(hash);
        while let Some(old) = entry.seen(shard.table(), guard, hash).same_key
            && !shard.lock().remove(guard, old, Cause::Replaced, gone)
        {}
    }

    /// Makes room in the pool: the other shards give up their leases until the pool has `need`. Begins with the next
    /// shard.
    fn gather(&self, guard: &Guard<'_>, hash: u64, need: usize, gone: &mut Gone<K, V>) {
        let (own, count) = (self.shard_index(hash), self.shards.len());
        let mut lacking = need.saturating_sub(self.budget.pool());
        for step in 1..count {
            if lacking == 0 {
                break;
            }
            let given = self.shards[(own + step) % count].lock().yield_room(guard, lacking, gone);
            self.budget.give(given);
            lacking -= given;
        }
    }

    /// Returns whether more removed entries may wait for readers. If a reader never ends, memory would otherwise grow
    /// without bound, so insertions are refused. Waiting entries may also use the room of the pool.
    fn has_room_for_waiting(&self) -> bool {
        let has_room = || {
            let most = self.budget.capacity() / WAITING_PART + self.config.waiting + self.budget.pool();
            self.domain.sealed_bytes() <= most
        };
        has_room() || {
            (0..PATIENCE).any(|_| {
                self.domain.collect();
                has_room() || {
                    thread::yield_now();
                    false
                }
            })
        }
    }

    /// Removes `entry`, which was found under the guard. Returns whether this call removed it.
    pub fn remove(&self, guard: &Guard<'_>, entry: Shared<K, V>, cause: Cause) -> bool {
        // SAFETY: found under the guard.
        let hash = unsafe { entry.as_ref() }.header().hash();
        let mut leaving = Leaving { inner: self, guard, gone: Gone::new() };
        let removed = {
            let mut shard = self.shard(hash).lock();
            let removed = shard.remove(guard, entry, cause, &mut leaving.gone);
            shard.counts_mut().expirations += u64::from(removed && cause == Cause::Expired);
            removed
        };
        leaving.settle(0);
        removed
    }

    /// Sets the capacity, and evicts until no room remains to be taken back. Meanwhile other threads, and listeners
    /// that this call runs, may change the capacity again.
    pub fn resize(&self, guard: &Guard<'_>, capacity: usize) {
        let capacity = possible(capacity);
        self.budget.set_capacity(capacity);
        // First each shard gives up its proportional part. Since these parts are rounded, any shards then give up the
        // rest.
        let debt = self.budget.debt();
        let mut parts = (debt, (capacity + debt).max(1));
        // If a listener or a destructor panics, the eviction continues, so that the bound is reached.
        let mut panics = FirstPanic::default();
        while self.budget.debt() > 0 {
            for shard in &self.shards {
                let mut leaving = Leaving { inner: self, guard, gone: Gone::new() };
                {
                    let mut shard = shard.lock();
                    let part = shard.lease() as u128 * parts.0 as u128 / parts.1 as u128;
                    let taken = shard.yield_room(guard, self.budget.debt().min(part as usize), &mut leaving.gone);
                    self.budget.pay(taken);
                    shard.shrink(guard);
                }
                panics.call(move || leaving.settle(0));
            }
            self.budget.pay_from_pool();
            parts = (1, 1);
        }
        panics.resume();
    }

    pub fn capacity(&self) -> usize {
        self.budget.capacity()
    }

    /// Checks the invariants of all shards and of the bound. No other thread may use the cache during the call.
    pub fn check_invariants(&self) {
        let guard = self.domain.pin();
        let leased: usize = self.shards.iter().map(|shard| shard.lock().check(&guard)).sum();
        assert_eq!(leased + self.budget.pool(), self.budget.capacity(), "leases and pool are the capacity");
        assert_eq!(self.budget.debt(), 0, "resizes have taken back what they owe");
    }
}

impl<K: Eq, V> Unplaced<K, V> {
    /// Returns the entries that have this hash, and the one of them that has this entry's key. Runs the user's `Eq`.
    fn seen(&self, table: &Table<K, V>, guard: &Guard<'_>, hash: u64) -> Seen<K, V> {
        let same_hash = table.alike(guard, hash);
        // SAFETY: `old` was found under the guard, and `self` is not in the table yet, so no other thread frees it.
        let same_key = same_hash.iter().find(|old| unsafe { old.as_ref().key() == self.0.as_ref().key() });
        Seen { same_hash, same_key }
    }
}
