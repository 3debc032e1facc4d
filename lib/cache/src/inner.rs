//! The cache's core: shards, the bound, insertion and removal.

use core::hash::{BuildHasher, Hash};

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};
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
/// The most bytes of blocks that a thread keeps. If entries own memory in addition to their blocks, a thread keeps
/// fewer ([`Blocks::beside`]). Under Miri no block is kept, since Miri detects a use of freed memory, but not a use of
/// a kept block.
const KEPT: usize = if cfg!(miri) { 0 } else { BAG };
/// In small caches a bag has at most 1/BAGS of the weight that may wait for readers.
const BAGS: usize = 8;
/// How often a change yields the processor to readers while too many removed entries wait. Then an insertion is
/// refused.
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
    /// The weight of removed entries that RCU does not count yet, see [`Untold`].
    untold: AtomicUsize,
    /// Declared after the shards, so that the shards are dropped before the waiting entries are reclaimed.
    domain: Domain,
    /// Declared after the domain, and behind a pointer: the blocks of reclaimed entries are kept here, even while the
    /// cache is being dropped.
    pub blocks: Arc<Blocks<K, V>>,
}

/// The entries that a change has removed, and the entry that it has refused. The change ends its RCU section before it
/// drops or [settles](Self::settle) this value. So a slow listener does not keep other threads' removed entries from
/// being freed.
struct Leaving<'a, K, V, P, S> {
    inner: &'a Inner<K, V, P, S>,
    /// This thread has removed these entries, and will retire them. Until then they are not freed, although the thread
    /// is in no section.
    gone: Gone<K, V>,
    /// The entry whose insertion was refused.
    refused: Option<Unplaced<K, V>>,
    /// The weight of entries of `gone` that is counted as waiting for readers before `gone` is retired.
    untold: Untold<'a>,
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

/// The weight of a call's removed entries that RCU does not count yet: before the call retires them, it removes others
/// or runs the listener. While this value exists, `all` includes `weight`.
struct Untold<'c> {
    all: &'c AtomicUsize,
    weight: usize,
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

impl Untold<'_> {
    /// Raises the counted weight to `weight`, if the counted weight is lower.
    fn reach(&mut self, weight: usize) {
        if weight > self.weight {
            // Relaxed, as all accesses: the number publishes no data.
            self.all.fetch_add(weight - self.weight, Relaxed);
            self.weight = weight;
        }
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if self.weight > 0 {
            self.all.fetch_sub(self.weight, Relaxed);
        }
    }
}

impl<'a, K, V, P, S> Leaving<'a, K, V, P, S> {
    fn new(inner: &'a Inner<K, V, P, S>) -> Self {
        Self { inner, gone: Gone::new(), refused: None, untold: Untold { all: &inner.untold, weight: 0 } }
    }

    /// Counts the entries of `gone` as waiting, except the first `counted`, which are counted already. Returns the
    /// number of entries of `gone`.
    fn count(&mut self, counted: usize) -> usize {
        // SAFETY: the entries are not freed while they are in `self`.
        let weights = self.gone.iter().skip(counted).map(|(entry, _)| unsafe { Resident::new(entry) }.weight());
        let (more, weight) = weights.fold((0, 0), |(count, sum), weight| (count + 1, sum + weight));
        self.untold.reach(self.untold.weight + weight);
        counted + more
    }

    /// # Safety
    /// This thread has removed the entry, and retires it only once.
    unsafe fn retire(&self, guard: &Guard<'_>, entry: Shared<K, V>) {
        let blocks = Arc::as_ptr(&self.inner.blocks).cast_mut().cast();
        // SAFETY: the caller's promise; the blocks live longer than the domain.
        unsafe {
            let weight = Resident::new(entry).weight();
            guard.retire_sized(entry.as_ptr().cast(), weight, blocks, reclaim::<K, V>);
        }
    }

    /// If the cache has a listener, calls it with each entry, in the order in which the entries left the cache.
    fn tell(&mut self, panics: &mut FirstPanic) {
        let Some(listener) = &self.inner.config.listener else { return };
        // SAFETY: the entries are not freed while they are in `self`.
        let weight = |entry| unsafe { Resident::new(entry) }.weight();
        // Not the first entry: most changes have only one, and should not write a common cache line.
        self.untold.reach(self.gone.iter().skip(1).map(|(entry, _)| weight(entry)).sum());
        let refused = self.refused.iter().map(|entry| (entry.0, Cause::Evicted));
        for (entry, cause) in self.gone.iter().chain(refused) {
            // SAFETY: as above.
            let entry = unsafe { entry.as_ref() };
            // If the listener panics, the other entries are reported nevertheless.
            panics.call(|| listener(entry.key(), entry.value(), cause));
        }
    }

    /// Calls the listener, and retires the entries that have left. `come` is the number of blocks that the change has
    /// taken for new entries, inserted or not. If more than `come` entries have left, the thread frees one of its kept
    /// blocks for each of the others. So its open bag and its kept blocks together are at most a bag.
    ///
    /// # Panics
    /// With the first panic of the listener or of a destructor, after all has been done.
    fn settle(mut self, come: usize) {
        let mut panics = FirstPanic::default();
        self.tell(&mut panics);
        let refused = self.refused.take();
        panics.call(|| drop(refused));
        let mut left = 0_usize;
        if !self.gone.is_empty() {
            let guard = self.inner.domain.pin();
            while let Some((entry, _)) = self.gone.pop() {
                // The destructor of an entry that was retired earlier may run here, and panic. At this point the
                // present entry has been handed over to the domain.
                // SAFETY: this thread removed the entry under a lock, and it is retired once.
                panics.call(|| unsafe { self.retire(&guard, entry) });
                left += 1;
            }
        }
        self.inner.blocks.free(left.saturating_sub(come));
        panics.resume();
    }
}

impl<K, V, P, S> Drop for Leaving<'_, K, V, P, S> {
    fn drop(&mut self) {
        // Entries are left here only after a panic.
        if self.gone.is_empty() {
            return;
        }
        let mut panics = FirstPanic::default();
        self.tell(&mut panics);
        let guard = self.inner.domain.pin();
        while let Some((entry, _)) = self.gone.pop() {
            // A destructor must not panic here, so reclamation is held back.
            // SAFETY: as in `settle`.
            guard.hold_back(|| unsafe { self.retire(&guard, entry) });
        }
        panics.resume();
    }
}

/// An entry that is not in the table yet. It is freed if it is dropped, for example because a comparison panics.
struct Unplaced<K, V>(Shared<K, V>);

/// What an insertion does if the cache already has the key.
enum Present<F> {
    /// Replaces the entry.
    Replace,
    /// Leaves the entry, and returns the function's result for the entry's value.
    Leave(F),
}

/// A key and a value to be inserted, and what users' code has computed of them.
pub(crate) struct New<K, V> {
    key: K,
    value: V,
    hash: u64,
    weight: usize,
    /// The entry's own time to live.
    live: Option<core::time::Duration>,
}

/// The result of an insertion.
enum Placed<T> {
    Kept,
    /// The previous entry of the key was removed, unless only a new key was to be inserted.
    Refused,
    /// The cache already has an entry with the same key.
    Present(T),
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
        let bag = bag_weight(config.most_waiting(capacity));
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
            untold: AtomicUsize::new(0),
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
    /// bucket in tables of less than 2^46 bytes.
    pub fn shard_index(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    #[inline]
    pub fn shard(&self, hash: u64) -> &Shard<K, V, P> {
        &self.shards[self.shard_index(hash)]
    }

    /// Returns the live entry whose key satisfies `is_it`, marks it as hit, and counts the look-up.
    #[inline]
    pub fn look_up<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        hash: u64,
        is_it: impl Fn(&K) -> bool,
    ) -> Option<&'g Entry<K, V>> {
        let found = self.find(guard, hash, is_it);
        self.count(found.is_some());
        found
    }

    /// Works as [`look_up`](Self::look_up) does, but does not count the look-up.
    #[inline]
    pub fn find<'g>(&'g self, guard: &'g Guard<'_>, hash: u64, is_it: impl Fn(&K) -> bool) -> Option<&'g Entry<K, V>> {
        let shard = self.shard(hash);
        let found = shard.table().find(guard, hash, is_it).filter(|entry| self.is_live(guard, *entry));
        // SAFETY: found under the guard.
        let found = found.map(|entry| unsafe { entry.as_ref() });
        if let Some(entry) = found {
            shard.hit(entry);
        }
        found
    }

    /// Counts a request for a key, if the cache records hits.
    #[inline]
    pub fn count(&self, hit: bool) {
        if self.config.record_hits {
            let slot = thread::slot().index;
            self.hits.get_or(slot, || CachePadded::new(Hits::default())).count(hit);
        }
    }

    /// Returns whether an entry that was found under the guard has not expired. If the entry has not expired and the
    /// cache has a time to idle, this time begins anew.
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

    /// Prepares an insertion. Runs the user's hash function and weigher, so the caller must be in no section. If `own`
    /// is given, it replaces the cache's time to live.
    pub fn prepare(&self, key: K, value: V, own: Option<core::time::Duration>) -> New<K, V>
    where
        K: Hash,
        S: BuildHasher,
    {
        let hash = self.hash(&key);
        let weight = (self.config.weigher)(&key, &value);
        New { key, value, hash, weight, live: own }
    }

    /// Makes an entry.
    fn entry(&self, guard: &Guard<'_>, new: New<K, V>) -> Unplaced<K, V> {
        let New { key, value, hash, weight, live } = new;
        // The times begin here and not in `prepare`, since the thread may have waited before its section began.
        let times = self.times(live);
        // The bucket, and the entry that will be replaced, are mostly in no processor's cache. They are loaded while
        // the new entry is written.
        self.shard(hash).table().foresee(guard, hash, 1);
        let long = is_long(weight, times);
        let weight = if long { weight.saturating_add(self.config.extension) } else { weight };
        Unplaced(Entry::within(self.blocks.take(long), key, value, hash, weight, times))
    }

    /// Returns the times of an entry that is inserted now. If `own` is given, it replaces the cache's time to live.
    fn times(&self, own: Option<core::time::Duration>) -> Times {
        let last = self.clock.after(own.or(self.config.live));
        let deadline = self.config.idle.map_or(NEVER, |idle| idle.deadline(self.clock.now()));
        Times { last, deadline }
    }

    /// Begins a change. Returns the change's guard, and whether more removed entries may wait for readers. The call
    /// first waits in two cases. If threads outnumber processors and many of the entries that this thread has removed
    /// cannot be freed yet, it waits a little. If no more removed entries may wait, it yields the processor up to
    /// [`PATIENCE`] times.
    pub fn begin(&self) -> (Guard<'_>, bool) {
        let reader = self.domain.reader();
        reader.give_way();
        let has_room = self.has_room_for_waiting();
        (reader.enter(), has_room)
    }

    /// Inserts an entry. Returns whether the entry is kept. If not, the entry is dropped, and the previous entry of its
    /// key is removed.
    pub fn insert(&self, new: New<K, V>) -> bool
    where
        K: Eq,
    {
        matches!(self.put(new, Present::<fn(&V)>::Replace), Placed::Kept)
    }

    /// Inserts as [`insert`](Self::insert) does, if the cache does not have the key. Otherwise returns the result of
    /// `present` for the key's value.
    pub fn insert_new<T>(&self, new: New<K, V>, present: impl FnOnce(&V) -> T) -> Option<T>
    where
        K: Eq,
    {
        match self.put(new, Present::Leave(present)) {
            Placed::Present(result) => Some(result),
            Placed::Kept | Placed::Refused => None,
        }
    }

    fn put<T>(&self, new: New<K, V>, present: Present<impl FnOnce(&V) -> T>) -> Placed<T>
    where
        K: Eq,
    {
        let mut leaving = Leaving::new(self);
        // Declared before the guard: if a comparison panics, the entry is dropped after the section.
        let entry;
        let placed = {
            let (guard, has_room) = self.begin();
            entry = self.entry(&guard, new);
            self.put_within(&guard, has_room, &entry, present, &mut leaving.gone)
        };
        match placed {
            Placed::Kept => core::mem::forget(entry),
            Placed::Present(_) => drop(entry),
            Placed::Refused => leaving.refused = Some(entry),
        }
        leaving.settle(1);
        self.blocks.foresee();
        placed
    }

    /// The part of [`put`](Self::put) that is in a section. `has_room` is whether more removed entries may wait for
    /// readers.
    fn put_within<T>(
        &self,
        guard: &Guard<'_>,
        has_room: bool,
        entry: &Unplaced<K, V>,
        present: Present<impl FnOnce(&V) -> T>,
        gone: &mut Gone<K, V>,
    ) -> Placed<T>
    where
        K: Eq,
    {
        // SAFETY: not in the table yet.
        let new = unsafe { Resident::new(entry.0) };
        let (hash, fits) = (new.header().hash(), has_room && new.weight() <= self.budget.capacity());
        let only_new = matches!(present, Present::Leave(_));
        let mut placed = match fits {
            true => self.place(guard, hash, entry, only_new, gone),
            false => Placed::Refused,
        };
        // `insert_new` follows a look-up that found no entry. So an entry that the cache has now was inserted while the
        // refused value was made: the entry is newer.
        if only_new && let Placed::Refused = placed {
            let newer = entry.seen(self.shard(hash).table(), guard, hash).same_key;
            placed = newer.filter(|newer| self.is_live(guard, *newer)).map_or(Placed::Refused, Placed::Present);
        }
        match (placed, present) {
            (Placed::Present(found), Present::Leave(result)) => {
                // SAFETY: found under the guard.
                let found = unsafe { found.as_ref() };
                Placed::Present(result(found.value()))
            }
            (Placed::Kept, _) => Placed::Kept,
            (_, present) => {
                if let Present::Replace = present {
                    self.drop_out_of_date(guard, hash, entry, gone);
                }
                self.shard(hash).lock().count_refusal();
                Placed::Refused
            }
        }
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
    ) -> Placed<Shared<K, V>>
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
            let outcome = shard.lock().insert(guard, &self.budget, &self.clock, entry.0, &seen, gone);
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
            && shard.lock().remove(guard, &self.budget, &self.clock, old, Cause::Replaced, gone).is_none()
        {}
    }

    /// Makes room in the pool: the other shards give up parts of their leases until the pool has `need`. There are up
    /// to three rounds over the other shards. Each round begins with the shard after this one.
    /// 1. If a shard's lease exceeds an equal share, the shard gives up the excess, but at most a quarter of a share.
    ///    Without this round, if large entries were inserted and removed again and again, chance would make some shards
    ///    ever larger.
    /// 2. Each shard gives up a part in proportion to its lease, or a piece if a piece is larger. Without this round, a
    ///    large entry would leave some shards without any room.
    /// 3. Shards give up all that they have.
    fn gather(&self, guard: &Guard<'_>, hash: u64, need: usize, gone: &mut Gone<K, V>) {
        let (own, count, share) = (self.shard_index(hash), self.shards.len(), self.budget.share());
        let mut lacking = need.saturating_sub(self.budget.pool());
        // The sum of the other shards' leases after the first round, and what is lacking then.
        let (mut leases, mut rest) = (0, lacking as u128);
        for (round, step) in (0..3).flat_map(|round| (1..count).map(move |step| (round, step))) {
            if lacking == 0 {
                break;
            }
            if (round, step) == (1, 1) {
                rest = lacking as u128;
            }
            let mut shard = self.shards[(own + step) % count].lock();
            let most = match round {
                0 => shard.lease().saturating_sub(share).min(share / 4),
                1 => ((shard.lease() as u128 * rest).div_ceil(leases.max(1)) as usize).max(self.budget.piece()),
                _ => lacking,
            };
            let given = shard.yield_room(guard, &self.budget, &self.clock, most.min(lacking), gone);
            if round == 0 {
                leases += shard.lease() as u128;
            }
            drop(shard);
            self.budget.give(given);
            lacking = lacking.saturating_sub(given);
        }
    }

    /// Returns whether more removed entries may wait for readers. If not, insertions are refused: if a reader never
    /// ends, memory would otherwise grow without bound. Waiting entries may also use the room of the pool. While the
    /// result would be `false`, the call collects garbage and yields, up to [`PATIENCE`] times.
    fn has_room_for_waiting(&self) -> bool {
        let has_room = || {
            let most = self.config.most_waiting(self.budget.capacity()) + self.budget.pool();
            self.domain.sealed_bytes() + self.untold.load(Relaxed) <= most
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

    /// Removes the entry whose key satisfies `is_it`. Returns `true` if the cache had such an entry and the entry had
    /// not expired.
    pub fn remove(&self, hash: u64, is_it: impl Fn(&K) -> bool) -> bool {
        let mut leaving = Leaving::new(self);
        let removed = {
            let ((guard, _), shard) = (self.begin(), self.shard(hash));
            loop {
                let Some(found) = shard.table().find(&guard, hash, &is_it) else { break None };
                let gone = &mut leaving.gone;
                let cause = shard.lock().remove(&guard, &self.budget, &self.clock, found, Cause::Removed, gone);
                // If the entry was replaced before it could be removed, the new entry is looked up.
                if cause.is_some() {
                    break cause;
                }
            }
        };
        leaving.settle(0);
        removed == Some(Cause::Removed)
    }

    /// Removes the entries for which `which` returns `true`, and returns how many of them were reported with `cause`.
    /// If a listener or a destructor panics, the call continues, and panics at its end.
    pub fn remove_all(&self, cause: Cause, mut which: impl FnMut(&Guard<'_>, Shared<K, V>) -> bool) -> usize {
        let (mut removed, mut panics) = (0, FirstPanic::default());
        for shard in &self.shards {
            let mut leaving = Leaving::new(self);
            {
                // Each shard has a guard of its own, so that a guard delays the freeing of removed entries as little as
                // possible.
                let (guard, _) = self.begin();
                let mut counted = 0;
                for entry in shard.table().entries(&guard).filter(|entry| which(&guard, *entry)) {
                    let gone = &mut leaving.gone;
                    let reported = shard.lock().remove(&guard, &self.budget, &self.clock, entry, cause, gone);
                    removed += usize::from(reported == Some(cause));
                    // The entry's weight is counted now: the entry's room may be used again at once, but the entry is
                    // retired only after the sweep, which may take long.
                    counted = leaving.count(counted);
                }
            }
            panics.call(|| leaving.settle(0));
        }
        panics.resume();
        removed
    }

    /// Frees spare room of the tables, removed entries that no reader can still use, and the blocks that this thread
    /// keeps. Returns unused leases to the pool. Evicts nothing.
    pub fn shrink(&self) {
        for shard in &self.shards {
            let guard = self.domain.pin();
            let mut shard = shard.lock();
            shard.shrink(&guard);
            shard.return_unused(&self.budget);
        }
        self.domain.collect();
        self.blocks.free(usize::MAX);
    }

    /// Sets the capacity, and evicts until no room remains to be taken back. Meanwhile other threads, and listeners
    /// that this call runs, may change the capacity again.
    pub fn resize(&self, capacity: usize) {
        let capacity = possible(capacity);
        self.domain.reader().give_way();
        self.budget.set_capacity(capacity);
        // First each shard gives up its proportional part. Since these parts are rounded, any shards then give up the
        // rest.
        let debt = self.budget.debt();
        let mut parts = (debt, (capacity + debt).max(1));
        // If a listener or a destructor panics, the eviction continues, so that the bound is reached.
        let mut panics = FirstPanic::default();
        while self.budget.debt() > 0 {
            for shard in &self.shards {
                let mut leaving = Leaving::new(self);
                {
                    let guard = self.domain.pin();
                    let mut shard = shard.lock();
                    let part = shard.lease() as u128 * parts.0 as u128 / parts.1 as u128;
                    let most = self.budget.debt().min(part as usize);
                    let taken = shard.yield_room(&guard, &self.budget, &self.clock, most, &mut leaving.gone);
                    self.budget.pay(taken);
                    shard.shrink(&guard);
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
