//! A thread's handle on an [`Art`], and the operations.

use super::cursor::{Batch, Cursor};
use super::form::{self, with_bytes};
use super::iter::Range;
use super::raw::RawArt;
use super::{Art, leaf::Leaf};
use crate::value::{clone_of, drop_word, into_word, retire, with_ref};
use crate::{Encode, EncodeAs, Key, OrderedSession};
use archipelago_sync::rcu::{Guard, Reader};
use core::borrow::Borrow;
use core::fmt;
use core::ops::{Bound, RangeBounds, RangeFull};

/// A thread's handle on an [`Art`]; see [`Art::pin`].
///
/// It is two references: making one costs a few loads, however many are alive, and forgetting one costs nothing.
///
/// Each operation enters a read-side critical section of its own. All single-key operations are linearizable. Closures
/// that are shown a value run inside that section, as clones of values do: nothing that is removed or replaced meanwhile
/// is freed before they return, so they should be short. [`Art::stats`] shows what waits, and
/// [`Builder::backlog_limit`](super::Builder::backlog_limit) bounds it.
pub struct ArtSession<'a, K: Key, V: Clone + Send + Sync + 'static> {
    pub(super) art: &'a Art<K, V>,
    pub(super) reader: Reader<'a>,
}

impl<'a, K: Key, V: Clone + Send + Sync + 'static> ArtSession<'a, K, V> {
    pub(super) fn new(art: &'a Art<K, V>) -> Self {
        ArtSession { art, reader: art.domain.reader() }
    }

    fn tree(&self) -> &RawArt<K::Form> {
        &self.art.tree
    }

    /// Begins an operation that may remove or replace something: outside of other guards, it waits while too much waits
    /// for readers.
    #[inline]
    fn enter_to_store(&self) -> Guard<'a> {
        self.art.backlog.admit(&self.art.domain);
        self.reader.enter()
    }

    /// The value of `key`.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        self.get_with(key, V::clone)
    }

    /// Calls `f` with the value of `key`, by reference.
    ///
    /// Nothing that is removed while `f` runs is freed before it returns, so it should be short.
    #[inline]
    pub fn get_with<Q, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        let guard = self.reader.enter();
        let leaf = with_bytes(key, |bytes| self.tree().get(bytes, &guard))?;
        // SAFETY: a word of this map, read under `guard`.
        Some(unsafe { with_ref::<V, R>(leaf.word(), f) })
    }

    /// Whether `key` is there.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        let guard = self.reader.enter();
        with_bytes(key, |bytes| self.tree().get(bytes, &guard)).is_some()
    }

    /// Inserts or replaces; returns the value replaced.
    ///
    /// # Panics
    /// If the key has 4 GiB or more.
    pub fn insert<Q: EncodeAs<K> + ?Sized>(&self, key: &Q, value: V) -> Option<V> {
        let guard = self.enter_to_store();
        let old = with_bytes(key, |bytes| self.tree().insert(bytes, into_word(value), &guard));
        if old.is_none() {
            self.art.count.add(1);
        }
        old.map(|word| retire_and_clone(word, &guard))
    }

    /// The value of `key`, after inserting `f()` if it was not there. `f` may run in vain: when another thread inserts
    /// the key meanwhile, that value is returned and `f`'s is dropped. It runs outside any lock and any guard.
    ///
    /// # Panics
    /// If the key has 4 GiB or more.
    pub fn get_or_insert_with<Q: EncodeAs<K> + ?Sized>(&self, key: &Q, f: impl FnOnce() -> V) -> V {
        let guard = self.reader.enter();
        if let Some(leaf) = with_bytes(key, |bytes| self.tree().get(bytes, &guard)) {
            // SAFETY: a word of this map, read under `guard`.
            return unsafe { clone_of(leaf.word()) };
        }
        drop(guard);
        let word = into_word(f());
        let guard = self.enter_to_store();
        match with_bytes(key, |bytes| self.tree().insert_if_absent(bytes, word, &guard)) {
            // SAFETY: a word of this map, read under `guard`; ours was never published.
            Some(existing) => unsafe {
                drop_word::<V>(word);
                clone_of(existing)
            },
            None => {
                self.art.count.add(1);
                // SAFETY: published under `guard`, so not reclaimed before it is dropped.
                unsafe { clone_of(word) }
            }
        }
    }

    /// Replaces the value of a key that is there; returns the old value.
    pub fn replace<Q>(&self, key: &Q, value: V) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        let guard = self.enter_to_store();
        let word = into_word(value);
        let Some(old) = with_bytes(key, |bytes| self.tree().exchange(bytes, word, &guard)) else {
            // SAFETY: never published.
            unsafe { drop_word::<V>(word) };
            return None;
        };
        Some(retire_and_clone(old, &guard))
    }

    /// Replaces the value of a key that is there by `f(old)`, atomically; returns the old value. `f` runs again when
    /// another thread changed the value meanwhile.
    pub fn update<Q>(&self, key: &Q, mut f: impl FnMut(&V) -> V) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        let guard = self.enter_to_store();
        with_bytes(key, |bytes| {
            loop {
                let old = self.tree().get(bytes, &guard)?.word();
                // SAFETY: a word of this map, read under `guard`.
                let new = into_word(unsafe { with_ref::<V, V>(old, &mut f) });
                // A boxed value's address is not used again while `guard` is held: the same word is the same value.
                if self.tree().replace(bytes, old, new, &guard) {
                    return Some(retire_and_clone(old, &guard));
                }
                // SAFETY: never published.
                unsafe { drop_word::<V>(new) };
            }
        })
    }

    /// Removes; returns the value removed.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        let guard = self.enter_to_store();
        let word = with_bytes(key, |bytes| self.tree().remove(bytes, &guard))?;
        self.art.count.add(-1);
        Some(retire_and_clone(word, &guard))
    }

    /// The entry with the smallest key.
    pub fn first_key_value(&self) -> Option<(K, V)> {
        let guard = self.reader.enter();
        // SAFETY: a leaf of this map, found under `guard`.
        Cursor::<_, false>::new(self.tree(), &guard).next(Bound::Unbounded).map(|leaf| unsafe { entry(leaf) })
    }

    /// The entry with the largest key.
    pub fn last_key_value(&self) -> Option<(K, V)> {
        let guard = self.reader.enter();
        // SAFETY: a leaf of this map, found under `guard`.
        Cursor::<_, true>::new(self.tree(), &guard).next(Bound::Unbounded).map(|leaf| unsafe { entry(leaf) })
    }

    /// Removes the entry with the smallest key. A smaller key that another thread inserts during the call may be passed
    /// over.
    pub fn pop_first(&self) -> Option<(K, V)> {
        self.pop(|guard| Cursor::<_, false>::new(self.tree(), guard).next(Bound::Unbounded))
    }

    /// Removes the entry with the largest key. A larger key that another thread inserts during the call may be passed
    /// over.
    pub fn pop_last(&self) -> Option<(K, V)> {
        self.pop(|guard| Cursor::<_, true>::new(self.tree(), guard).next(Bound::Unbounded))
    }

    fn pop(&self, find: impl for<'g> Fn(&'g Guard<'_>) -> Option<Leaf<'g, K::Form>>) -> Option<(K, V)> {
        let guard = self.enter_to_store();
        loop {
            let leaf = find(&guard)?;
            let word = leaf.word();
            if self.tree().remove_if(leaf.key(), word, &guard) {
                self.art.count.add(-1);
                // First what the map needs: the key's decoder is the user's code, and may panic.
                let value = retire_and_clone(word, &guard);
                // SAFETY: a leaf of this map, found under `guard`.
                return Some((unsafe { form::key(leaf.key()) }, value));
            }
        }
    }

    /// The entries with keys in `range`, in order, from both ends. See [`Range`].
    pub fn range<Q, R>(&self, range: R) -> Range<'a, K, V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
        R: RangeBounds<Q>,
    {
        Range::new(&self.art.tree, self.reader.enter(), range)
    }

    /// All entries, in order, from both ends. See [`Range`].
    pub fn iter(&self) -> Range<'a, K, V> {
        self.range::<K, RangeFull>(..)
    }

    /// Visits up to `limit` entries with keys `>= from` in ascending order; returns how many.
    ///
    /// Never visits a key twice, never misses a key that was there throughout the call; entries that come and go
    /// meanwhile may or may not be seen. Nothing that is removed meanwhile is freed before the call returns.
    pub fn scan<Q>(&self, from: &Q, limit: usize, visit: impl FnMut(K::Ref<'_>, &V)) -> usize
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        with_bytes(from, |bytes| self.walk::<false>(bytes, limit, visit))
    }

    /// As [`scan`](Self::scan), descending over keys `<= from`.
    pub fn scan_rev<Q>(&self, from: &Q, limit: usize, visit: impl FnMut(K::Ref<'_>, &V)) -> usize
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        with_bytes(from, |bytes| self.walk::<true>(bytes, limit, visit))
    }

    fn walk<const DOWN: bool>(&self, from: &[u8], limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> usize {
        let guard = self.reader.enter();
        let mut cursor = Cursor::<_, DOWN>::new(self.tree(), &guard);
        // One is shown while the leaves of the next are on their way.
        let (mut shown, mut coming) = (Batch::new(), Batch::new());
        let mut found = cursor.fill(Bound::Included(from), &mut shown, limit);
        let mut visited = 0;
        while visited < found {
            found += cursor.fill(Bound::Included(from), &mut coming, limit - found);
            while let Some(leaf) = shown.take() {
                // SAFETY: a leaf of this map, found under `guard`.
                unsafe { with_ref::<V, _>(leaf.word(), |value| visit(form::key_ref::<K>(leaf.key()), value)) };
                visited += 1;
            }
            core::mem::swap(&mut shown, &mut coming);
        }
        visited
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static> fmt::Debug for ArtSession<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtSession").finish_non_exhaustive()
    }
}

/// Retires the value behind `word`, which the caller has taken out of the map, and returns a clone of it.
fn retire_and_clone<V: Clone + Send + Sync + 'static>(word: u64, guard: &Guard<'_>) -> V {
    // SAFETY: this thread took the word out of the map, so it owns it; `V` is `Send`, so any thread may drop it.
    unsafe { retire::<V>(guard, word) };
    // SAFETY: retired under `guard`, so not reclaimed before it is dropped.
    unsafe { clone_of(word) }
}

/// A leaf's entry.
///
/// # Safety
/// It is a leaf of an `Art<K, V>`, found under a guard that is still held.
pub(super) unsafe fn entry<K: Key, V: Clone + 'static>(leaf: Leaf<'_, K::Form>) -> (K, V) {
    // SAFETY: by the contract, the leaf's bytes stand for a `K` and its word for a live `V`.
    unsafe { (form::key(leaf.key()), clone_of(leaf.word())) }
}

impl<K: Key, V: Clone + Send + Sync + 'static> OrderedSession<K, V> for ArtSession<'_, K, V> {
    fn get(&self, key: &K) -> Option<V> {
        self.get(key)
    }

    fn insert(&self, key: &K, value: V) -> Option<V> {
        self.insert(key, value)
    }

    fn replace(&self, key: &K, value: V) -> Option<V> {
        self.replace(key, value)
    }

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
}
