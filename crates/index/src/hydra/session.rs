//! A thread's handle on a map: the operations.

use super::core::{Core, Local};
use super::iter::Range;
use super::layer::Layer;
use super::list::{End, Put, When};
use super::map::HydraList;
use super::page::{Page, PageForm, Removed, Seen};
use super::snapshot::SearchForm;
use crate::key::KeyForm;
use crate::points;
use crate::value;
use crate::{Encode, EncodeAs, Key, OrderedSession};
use ::core::borrow::Borrow;
use ::core::fmt;
use ::core::ops::RangeBounds;
use archipelago_platform::hint::point;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::{Guard, Reader};
use archipelago_sync::version_lock::Version;

/// Keys that [`HydraList`] can hold: every [`Key`] (both forms have a page layout).
pub(crate) type FormOf<K> = <K as Encode>::Form;

/// This thread's session on a [`HydraList`]: made by [`HydraList::pin`], cheap, neither `Send` nor `Sync`.
///
/// It is a handful of references: making one costs a few loads, however many are alive, and forgetting one costs nothing.
/// It holds no lock and no guard between calls, so keeping one for long delays nothing. It remembers the NUMA node it
/// was made on; after the thread has moved to another node it stays right, but reads that other node's search layer.
///
/// Closures that are shown a value (in [`get_with`](Self::get_with), [`scan`](Self::scan), [`update`](Self::update),
/// [`retain`](Self::retain)) run inside a guard, as clones of values do: nothing that is removed or replaced meanwhile is
/// freed before they return, so they should be short. [`HydraList::stats`] shows what waits, and
/// [`Builder::backlog_limit`](super::Builder::backlog_limit) bounds it. What makes values (in
/// [`get_or_insert_with`](Self::get_or_insert_with), [`extend`](Self::extend)) runs outside any guard.
///
/// All operations on single keys are linearizable. They cost one search-layer look-up and, nearly always, one page;
/// expected O(log n) comparisons in a few cache lines for words, O(key length) for byte strings.
pub struct Session<'m, K: Key, V: Send + Sync + 'static> {
    pub(super) map: &'m HydraList<K, V>,
    pub(super) core: &'m Core<FormOf<K>>,
    pub(super) reader: Reader<'m>,
    node: usize,
    layer: &'m Layer<FormOf<K>>,
}

/// Look-ups in flight at a time in [`Session::get_many`]: enough to hide a memory access behind the others'.
const BATCH: usize = 32;

impl<'m, K: Key, V: Send + Sync + 'static> Session<'m, K, V> {
    pub(super) fn new(map: &'m HydraList<K, V>) -> Self {
        let core = map.core();
        let last = core.layers.len() - 1;
        let node = if last == 0 { 0 } else { core.config.topology.node_of_current().min(last) };
        Self { map, core, reader: core.domain.reader(), node, layer: &core.layers[node] }
    }

    /// The number of entries; see [`HydraList::len`].
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Whether there are no entries, with the consistency of [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The map this is a session of.
    pub fn map(&self) -> &'m HydraList<K, V> {
        self.map
    }

    #[inline]
    pub(super) fn local<'g>(&self, guard: &'g Guard<'m>) -> Local<'g, FormOf<K>>
    where
        'm: 'g,
    {
        Local { guard, node: self.node, layer: self.layer }
    }

    /// Calls `read` with the value of `key`, by reference, without cloning it. Memory reclamation waits while it runs.
    #[inline]
    pub fn get_with<Q, R>(&self, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.reader.enter();
        let local = self.local(&guard);
        let word = key.encode(|key| self.core.get(local.jump(key), key, FormOf::<K>::tag(key)))?;
        // SAFETY: the word was in the map under our guard, so its value is not reclaimed yet.
        Some(unsafe { value::with_ref(word, read) })
    }

    /// Whether `key` is in the map.
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        self.get_with(key, |_| ()).is_some()
    }

    /// Inserts or replaces, with a key or a borrowed form of one and without looking at the old value. True if there was
    /// one.
    #[inline]
    pub fn upsert<Q: EncodeAs<K> + ?Sized>(&self, key: &Q, value: V) -> bool {
        self.put(key, value, |_| ()).is_some()
    }

    /// Removes without looking at the value. True if there was one.
    pub fn delete<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        self.take(key, |_| ()).is_some()
    }

    /// Visits up to `limit` entries with keys `>= from`, ascending; returns how many.
    ///
    /// Holds no lock. Never visits a key twice, never misses a key that was in the map throughout the call; entries
    /// that come and go meanwhile may or may not be seen. Each entry was in the map at some moment during the call.
    /// Memory reclamation waits while `visit` runs.
    pub fn scan<Q>(&self, from: &Q, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> usize
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.reader.enter();
        let local = self.local(&guard);
        from.encode(|from| {
            self.core.scan(&local, from, limit, |key, word| {
                // SAFETY: the key is an encoding of a K; the word was in the map under our guard.
                unsafe { value::with_ref(word, |value| visit(K::decode_ref(key), value)) };
                true
            })
        })
    }

    /// As [`scan`](Self::scan), descending over keys `<= from`.
    pub fn scan_rev<Q>(&self, from: &Q, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> usize
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.reader.enter();
        let local = self.local(&guard);
        let above = from.encode(FormOf::<K>::just_above);
        let bound = above.as_ref().map(FormOf::<K>::probe);
        self.core.scan_back(&local, bound, limit, |key, word| {
            // SAFETY: as in `scan`.
            unsafe { value::with_ref(word, |value| visit(K::decode_ref(key), value)) };
            true
        })
    }

    /// Waits until every search layer knows of everything done to the map before the call, and frees what was removed or
    /// replaced as far as no thread reads. Never needed for right answers; useful before measuring. It does not promise that
    /// memory is reclaimed at once: see [`HydraList::sync`].
    pub fn sync(&self) {
        self.core.tidy(self.node);
    }

    /// Inserts or replaces; `old` sees the value replaced.
    #[inline]
    fn put<Q: EncodeAs<K> + ?Sized, R>(&self, key: &Q, value: V, old: impl FnOnce(&V) -> R) -> Option<R> {
        let guard = self.enter_to_store();
        let put = key.encode(|key| self.store(&guard, key, value::into_word(value), When::Always));
        self.settle(&guard, put, old)
    }

    /// What is left to do after a [`When::Always`]: counting, or retiring the value replaced, which `old` sees.
    #[inline]
    pub(super) fn settle<R>(&self, guard: &Guard<'m>, put: Put, old: impl FnOnce(&V) -> R) -> Option<R> {
        match put {
            Put::Replaced(word) => Some(self.retire_value(guard, word, old)),
            Put::Inserted => {
                self.count(1);
                None
            }
            Put::Kept(_) | Put::Missing => unreachable!("`When::Always` always stores"),
        }
    }

    #[inline]
    fn store(&self, guard: &Guard<'m>, key: crate::Probe<'_, K>, word: u64, when: When) -> Put {
        let local = self.local(guard);
        self.core.put(&local, local.jump(key), key, FormOf::<K>::tag(key), word, when)
    }

    fn take<Q, R>(&self, key: &Q, old: impl FnOnce(&V) -> R) -> Option<R>
    where
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        key.encode(|key| self.take_encoded(&guard, key, None, old))
    }

    pub(super) fn take_encoded<R>(
        &self,
        guard: &Guard<'m>,
        key: crate::Probe<'_, K>,
        expected: Option<u64>,
        old: impl FnOnce(&V) -> R,
    ) -> Option<R> {
        let local = self.local(guard);
        let removed = self.core.take(&local, local.jump(key), key, FormOf::<K>::tag(key), expected)?;
        Some(self.let_go(guard, removed, key, old))
    }

    /// Begins an operation that may remove or replace something: outside of other guards, it waits while too much waits
    /// for readers.
    #[inline]
    pub(super) fn enter_to_store(&self) -> Guard<'m> {
        self.core.config.backlog.admit(&self.core.domain);
        self.reader.enter()
    }

    /// Counts entries that came or went.
    #[inline]
    pub(super) fn count(&self, change: isize) {
        self.core.cell().add(change);
    }

    /// What is left to do after the entry of `key` has been taken out; `old` sees its value, last of all.
    fn let_go<R>(&self, guard: &Guard<'m>, removed: Removed, key: crate::Probe<'_, K>, old: impl FnOnce(&V) -> R) -> R {
        self.count(-1);
        self.retire_key(guard, removed.key, key);
        self.retire_value(guard, removed.value, old)
    }

    /// Retires a value that has been taken out of the map, and shows it to `last` (valid: our guard is older).
    #[inline]
    fn retire_value<R>(&self, guard: &Guard<'m>, word: u64, last: impl FnOnce(&V) -> R) -> R {
        // SAFETY: the word is out of the map and ours alone to retire.
        unsafe { value::retire::<V>(guard, word) };
        if !value::is_inline::<V>() {
            self.core.note_garbage();
        }
        // SAFETY: the guard keeps the value until `last` has run.
        unsafe { value::with_ref(word, last) }
    }

    /// Retires the box that `probe` lies in, if it lies in one.
    pub(super) fn retire_key(&self, guard: &Guard<'m>, key: *mut (), probe: crate::Probe<'_, K>) {
        unsafe fn reclaim<F: KeyForm>(key: *mut (), _: *mut ()) {
            // SAFETY: RCU calls this once, when no reader is left.
            unsafe { F::Page::reclaim_key(key) }
        }
        if key.is_null() {
            return;
        }
        let bytes = FormOf::<K>::with_bytes(probe, <[u8]>::len);
        // SAFETY: the key is out of the map and ours alone to retire.
        unsafe { guard.retire_sized(key, bytes, ::core::ptr::null_mut(), reclaim::<FormOf<K>>) }
        self.core.note_garbage();
    }

    /// Shows up to `limit` entries in `from..bound` to `visit`, ascending. For iterators.
    pub(super) fn scan_range(
        &self,
        from: &<FormOf<K> as PageForm>::Owned,
        bound: Option<&<FormOf<K> as PageForm>::Owned>,
        limit: usize,
        mut visit: impl FnMut(crate::Probe<'_, K>, u64),
    ) {
        let guard = self.reader.enter();
        let bound = bound.map(FormOf::<K>::probe);
        self.core.scan(&self.local(&guard), FormOf::<K>::probe(from), limit, |key, word| {
            let inside = bound.is_none_or(|bound| FormOf::<K>::compare(key, bound).is_lt());
            if inside {
                visit(key, word);
            }
            inside
        });
    }

    /// Shows up to `limit` entries in `from..bound` to `visit`, descending. For iterators.
    pub(super) fn scan_range_back(
        &self,
        from: &<FormOf<K> as PageForm>::Owned,
        bound: Option<&<FormOf<K> as PageForm>::Owned>,
        limit: usize,
        mut visit: impl FnMut(crate::Probe<'_, K>, u64),
    ) {
        let guard = self.reader.enter();
        let (from, bound) = (FormOf::<K>::probe(from), bound.map(FormOf::<K>::probe));
        self.core.scan_back(&self.local(&guard), bound, limit, |key, word| {
            let inside = FormOf::<K>::compare(key, from).is_ge();
            if inside {
                visit(key, word);
            }
            inside
        });
    }
}

impl<'m, K: Key, V: Clone + Send + Sync + 'static> Session<'m, K, V> {
    /// The value of `key`.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        self.get_with(key, V::clone)
    }

    /// The values of several keys, in order. Faster than one by one: the memory accesses of up to 32 look-ups are
    /// started before the first is waited for. Each look-up is linearizable on its own.
    pub fn get_many<Q>(&self, keys: &[Q]) -> Vec<Option<V>>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>>,
    {
        let mut found = Vec::with_capacity(keys.len());
        self.get_many_into(keys, &mut found);
        found
    }

    fn get_many_into<Q>(&self, keys: &[Q], found: &mut Vec<Option<V>>)
    where
        Q: Encode<Form = FormOf<K>>,
    {
        let guard = self.reader.enter();
        let local = self.local(&guard);
        for keys in keys.chunks(BATCH) {
            for key in keys {
                key.encode(|key| self.layer.prefetch(key));
            }
            let mut stops = [None; BATCH];
            for (key, stop) in keys.iter().zip(&mut stops) {
                let page = key.encode(|key| local.jump(key));
                <FormOf<K> as PageForm>::Page::prefetch(page);
                *stop = Some(Stop { page, version: None, candidates: 0 });
            }
            for (key, stop) in keys.iter().zip(stops.iter_mut().flatten()) {
                key.encode(|key| self.approach(stop, key));
            }
            found.extend(keys.iter().zip(stops.iter().flatten()).map(|(key, stop)| {
                let word = key.encode(|key| self.arrive(stop, key))?;
                // SAFETY: the word was in the map under our guard.
                Some(unsafe { value::clone_of(word) })
            }));
        }
    }

    /// Goes on from a jump node that has been prefetched to the target's entry, and starts fetching that.
    #[inline]
    fn approach(&self, stop: &mut Stop<'_, FormOf<K>>, key: crate::Probe<'_, K>) {
        let (page, version) = self.core.target(stop.page, key);
        let candidates = page.candidates(FormOf::<K>::tag(key));
        *stop = Stop { page, version: Some(version), candidates };
        if candidates != 0 {
            page.prefetch_slot(candidates.trailing_zeros() as usize);
        }
    }

    /// Ends what `approach` began; starts over if the page has changed in between.
    #[inline]
    fn arrive(&self, stop: &Stop<'_, FormOf<K>>, key: crate::Probe<'_, K>) -> Option<u64> {
        point(points::CANDIDATES);
        let version = stop.version.expect("approached");
        if let Ok(slot) = stop.page.find_among(stop.candidates, key, Seen::At(version)) {
            let found = slot.map(|slot| stop.page.value(slot));
            if stop.page.lock().validate(version) {
                return found;
            }
        }
        self.core.get(stop.page, key, FormOf::<K>::tag(key))
    }

    /// Inserts or replaces; returns the value replaced.
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        self.put(&key, value, V::clone)
    }

    /// The value of `key`, inserting `make()` first if there is none. `make` runs outside any lock and any guard; of two
    /// threads that race, both may run it and one result is dropped.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> V {
        if let Some(value) = self.get(&key) {
            return value;
        }
        let value = make();
        let word = value::into_word(value.clone());
        let guard = self.enter_to_store();
        match key.encode(|key| self.store(&guard, key, word, When::Absent)) {
            Put::Inserted => {
                self.count(1);
                value
            }
            Put::Kept(existing) => {
                // SAFETY: our word was not stored, so it is still ours alone; the existing one is under our guard.
                unsafe {
                    value::drop_word::<V>(word);
                    value::clone_of(existing)
                }
            }
            Put::Replaced(_) | Put::Missing => unreachable!("`When::Absent` inserts or keeps"),
        }
    }

    /// Replaces the value of a key that is there; returns the old value. Threads that replace the value of one key at
    /// the same time don't wait for each other.
    #[inline]
    pub fn replace<Q>(&self, key: &Q, value: V) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        let word = value::into_word(value);
        match key.encode(|key| self.store(&guard, key, word, When::Present)) {
            Put::Replaced(old) => Some(self.retire_value(&guard, old, V::clone)),
            // SAFETY: the new word was not stored, so it is still ours alone.
            _ => unsafe {
                value::drop_word::<V>(word);
                None
            },
        }
    }

    /// Replaces the value of a key that is there by `f(&old)`, atomically; returns the old value. `f` runs outside
    /// any lock, and again if another thread changed the value meanwhile. [`replace`](Self::replace) is cheaper where
    /// the old value doesn't matter.
    pub fn update<Q>(&self, key: &Q, mut f: impl FnMut(&V) -> V) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        let local = self.local(&guard);
        key.encode(|key| {
            let tag = FormOf::<K>::tag(key);
            let page = local.jump(key);
            let backoff = Backoff::new();
            let mut old = self.core.get(page, key, tag)?;
            loop {
                // SAFETY: the word was in the map under our guard, which also keeps its address from being reused.
                let new = value::into_word(unsafe { value::with_ref(old, &mut f) });
                match self.core.put(&local, page, key, tag, new, When::Holds(old)) {
                    Put::Replaced(old) => return Some(self.retire_value(&guard, old, V::clone)),
                    Put::Kept(now) => {
                        // SAFETY: the new word was not stored, so it is still ours alone.
                        unsafe { value::drop_word::<V>(new) };
                        old = now;
                    }
                    _ => {
                        // SAFETY: as above.
                        unsafe { value::drop_word::<V>(new) };
                        return None;
                    }
                }
                backoff.wait();
            }
        })
    }

    /// Removes; returns the value removed.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        self.take(key, V::clone)
    }

    /// The entry with the least key, as a [`scan`](Self::scan) of one entry.
    pub fn first_key_value(&self) -> Option<(K, V)> {
        self.range::<K, _>(..).next()
    }

    /// The entry with the greatest key, as a [`scan_rev`](Self::scan_rev) of one entry.
    pub fn last_key_value(&self) -> Option<(K, V)> {
        self.range::<K, _>(..).next_back()
    }

    /// Removes the entry with the least key and returns it. Linearizable: it was the least when it was removed.
    pub fn pop_first(&self) -> Option<(K, V)> {
        self.pop(End::First)
    }

    /// Removes the entry with the greatest key and returns it. Linearizable: it was the greatest when it was removed.
    pub fn pop_last(&self) -> Option<(K, V)> {
        self.pop(End::Last)
    }

    fn pop(&self, end: End) -> Option<(K, V)> {
        let guard = self.enter_to_store();
        self.core.take_end(&self.local(&guard), end, |key, removed| {
            // First what the map needs: the rest is the user's code, which may panic.
            let value = self.let_go(&guard, removed, key, V::clone);
            // SAFETY: the key is an encoding of a K.
            (unsafe { K::decode(key) }, value)
        })
    }

    /// An iterator over the entries whose keys lie in `range`, ascending; `.rev()` descends. A range whose start is
    /// after its end is empty.
    ///
    /// Holds no lock and, between calls, no guard. Ordered; never yields a key twice; never misses a key that was in
    /// the map throughout. It fetches a few entries ahead, so what it yields may have changed since.
    pub fn range<Q, R>(&self, range: R) -> Range<'m, K, V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
        R: RangeBounds<Q>,
    {
        Range::new(Self::new(self.map), range)
    }

    /// An iterator over all entries, ascending; see [`range`](Self::range).
    pub fn iter(&self) -> Range<'m, K, V> {
        self.range::<K, _>(..)
    }
}

impl<K: Key, V: Send + Sync + 'static> fmt::Debug for Session<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("node", &self.node).finish_non_exhaustive()
    }
}

/// How far a look-up of a batch has come.
struct Stop<'g, F: KeyForm> {
    page: &'g F::Page,
    /// At this version, once the target is known.
    version: Option<Version>,
    /// The target's slots that may hold the key.
    candidates: u64,
}

impl<F: KeyForm> Clone for Stop<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: KeyForm> Copy for Stop<'_, F> {}

impl<K: Key, V: Clone + Send + Sync + 'static> OrderedSession<K, V> for Session<'_, K, V> {
    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.get(key)
    }

    #[inline]
    fn insert(&self, key: &K, value: V) -> Option<V> {
        self.put(key, value, V::clone)
    }

    #[inline]
    fn replace(&self, key: &K, value: V) -> Option<V> {
        self.replace(key, value)
    }

    #[inline]
    fn update(&self, key: &K, f: impl FnMut(&V) -> V) -> Option<V> {
        self.update(key, f)
    }

    fn remove(&self, key: &K) -> Option<V> {
        self.remove(key)
    }

    fn scan(&self, from: &K, limit: usize, visit: impl FnMut(K::Ref<'_>, &V)) -> usize {
        self.scan(from, limit, visit)
    }

    fn scan_rev(&self, from: &K, limit: usize, visit: impl FnMut(K::Ref<'_>, &V)) -> Option<usize> {
        Some(self.scan_rev(from, limit, visit))
    }

    fn get_many(&self, keys: &[K], found: &mut Vec<Option<V>>) {
        found.clear();
        self.get_many_into(keys, found);
    }
}
