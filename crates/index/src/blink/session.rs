//! A thread's handle on a [`BLinkTree`], and the operations.

use super::cursor::Cursor;
use super::iter::Range;
use super::page::Page;
use super::policy::Policy;
use super::run::Run as _;
use super::slots::SlotForm;
use super::{BLinkTree, Standard, TooLong};
use crate::hydra::{Put, When};
use crate::value::{clone_of, drop_word, into_word, retire, with_ref};
use crate::{Encode, EncodeAs, Key, OrderedSession, Probe};
use archipelago_sync::rcu::{Guard, Reader};
use core::borrow::Borrow;
use core::fmt;
use core::ops::{Bound, RangeBounds, RangeFull};

/// How many entries of a leaf a scan copies at a time.
const AT_ONCE: usize = 64;

/// A thread's handle on a [`BLinkTree`]; see [`BLinkTree::pin`].
///
/// Each operation enters a read-side critical section of its own. All single-key operations are linearizable. Closures that
/// are shown a value run inside that section, as clones of values do, and outside any latch: nothing that is removed or
/// replaced meanwhile is freed before they return, so they should be short.
pub struct BLinkSession<'a, K: Key, V: Clone + Send + Sync + 'static, P: Policy = Standard> {
    pub(super) map: &'a BLinkTree<K, V, P>,
    pub(super) reader: Reader<'a>,
}

impl<'a, K: Key, V: Clone + Send + Sync + 'static, P: Policy> BLinkSession<'a, K, V, P> {
    pub(super) fn new(map: &'a BLinkTree<K, V, P>) -> Self {
        BLinkSession { map, reader: map.domain.reader() }
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
    #[inline]
    pub fn get_with<Q, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        let guard = self.reader.enter();
        let word = key.encode(|key| self.map.trees.local().get(key, &guard))?;
        // SAFETY: a word of this map, read under `guard`.
        Some(unsafe { with_ref::<V, R>(word, f) })
    }

    /// Whether `key` is there.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        let guard = self.reader.enter();
        key.encode(|key| self.map.trees.local().get(key, &guard)).is_some()
    }

    /// Inserts or replaces; returns the value replaced.
    ///
    /// # Panics
    /// If the key is longer than [`BLinkTree::LONGEST_KEY`].
    pub fn insert<Q: EncodeAs<K> + ?Sized>(&self, key: &Q, value: V) -> Option<V> {
        self.try_insert(key, value).expect("a key is at most a quarter of a page long")
    }

    /// Inserts or replaces; returns the value replaced.
    ///
    /// # Errors
    /// With the value, if the key is longer than [`BLinkTree::LONGEST_KEY`]. Nothing has changed then.
    pub fn try_insert<Q: EncodeAs<K> + ?Sized>(&self, key: &Q, value: V) -> Result<Option<V>, TooLong<V>> {
        let guard = self.reader.enter();
        let put = key.encode(|key| self.put(key, value, When::Always, &guard))?;
        Ok(match put {
            Put::Replaced(old) => Some(retire_and_clone(old, &guard)),
            _ => None,
        })
    }

    /// The value of `key`, after inserting `f()` if it was not there. `f` may run in vain: when another thread inserts
    /// the key meanwhile, that value is returned and `f`'s is dropped. It runs outside any latch and any guard.
    ///
    /// # Panics
    /// If the key is longer than [`BLinkTree::LONGEST_KEY`].
    pub fn get_or_insert_with<Q: EncodeAs<K> + ?Sized>(&self, key: &Q, f: impl FnOnce() -> V) -> V {
        let guard = self.reader.enter();
        if let Some(word) = key.encode(|key| self.map.trees.local().get(key, &guard)) {
            // SAFETY: a word of this map, read under `guard`.
            return unsafe { clone_of(word) };
        }
        drop(guard);
        let value = f();
        let kept = value.clone();
        let guard = self.reader.enter();
        let put = key.encode(|key| self.put(key, value, When::Absent, &guard));
        match put.expect("a key is at most a quarter of a page long") {
            // SAFETY: a word of this map, read under `guard`.
            Put::Kept(there) => unsafe { clone_of(there) },
            _ => kept,
        }
    }

    /// Replaces the value of a key that is there; returns the old value.
    pub fn replace<Q>(&self, key: &Q, value: V) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        let guard = self.reader.enter();
        match key.encode(|key| self.put(key, value, When::Present, &guard)) {
            Ok(Put::Replaced(old)) => Some(retire_and_clone(old, &guard)),
            _ => None,
        }
    }

    /// Stores a value, and drops it if it was not stored.
    fn put(&self, key: Probe<'_, K>, value: V, when: When, guard: &Guard<'_>) -> Result<Put, TooLong<V>> {
        if Page::<K::Form, P>::is_too_long(key) {
            return Err(TooLong(value));
        }
        let word = into_word(value);
        let put = self.map.trees.put(key, word, when, guard);
        match put {
            Put::Inserted => self.map.count.add(1),
            // SAFETY: never published.
            Put::Kept(_) | Put::Missing => unsafe { drop_word::<V>(word) },
            Put::Replaced(_) => {}
        }
        Ok(put)
    }

    /// Replaces the value of a key that is there by `f(old)`, atomically; returns the old value. `f` runs again when
    /// another thread changed the value meanwhile.
    pub fn update<Q>(&self, key: &Q, mut f: impl FnMut(&V) -> V) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        let guard = self.reader.enter();
        key.encode(|key| {
            let mut old = self.map.trees.local().get(key, &guard)?;
            loop {
                // SAFETY: a word of this map, read under `guard`.
                let new = unsafe { with_ref::<V, V>(old, &mut f) };
                // A boxed value's address is not used again while `guard` is held: the same word is the same value.
                match self.put(key, new, When::Holds(old), &guard) {
                    Ok(Put::Replaced(old)) => return Some(retire_and_clone(old, &guard)),
                    Ok(Put::Kept(now)) => old = now,
                    _ => return None,
                }
            }
        })
    }

    /// Removes; returns the value removed.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        let guard = self.reader.enter();
        let removed = key.encode(|key| self.map.trees.remove(key, None, &guard));
        let word = removed.unwrap_or_else(|_| unreachable!("any value is as good"))?;
        self.map.count.add(-1);
        Some(retire_and_clone(word, &guard))
    }

    /// The entry with the smallest key.
    pub fn first_key_value(&self) -> Option<(K, V)> {
        self.end_entry::<false>()
    }

    /// The entry with the largest key.
    pub fn last_key_value(&self) -> Option<(K, V)> {
        self.end_entry::<true>()
    }

    fn end_entry<const DOWN: bool>(&self) -> Option<(K, V)> {
        let guard = self.reader.enter();
        let mut run = <Run<K>>::default();
        self.map.trees.local().end::<DOWN>(&mut run, &guard);
        // SAFETY: an entry of this map, read under `guard`.
        (run.len() > 0).then(|| unsafe { entry(&run, 0) })
    }

    /// Removes the entry with the smallest key: there was no smaller one when it was removed.
    pub fn pop_first(&self) -> Option<(K, V)> {
        self.pop::<false>()
    }

    /// Removes the entry with the largest key: there was no larger one when it was removed.
    pub fn pop_last(&self) -> Option<(K, V)> {
        self.pop::<true>()
    }

    fn pop<const DOWN: bool>(&self) -> Option<(K, V)> {
        let guard = self.reader.enter();
        let mut run = <Run<K>>::default();
        self.map.trees.pop::<DOWN>(&mut run, &guard);
        if run.len() == 0 {
            return None;
        }
        self.map.count.add(-1);
        // First what the map needs: the key's decoder is the user's code, and may panic.
        let value = retire_and_clone(run.value(0), &guard);
        // SAFETY: a key of this map.
        Some((unsafe { K::decode(run.key(0)) }, value))
    }

    /// The entries with keys in `range`, in order, from both ends. See [`Range`].
    pub fn range<Q, R>(&self, range: R) -> Range<'a, K, V, P>
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
        R: RangeBounds<Q>,
    {
        Range::new(self.map, self.reader.enter(), range.start_bound(), range.end_bound())
    }

    /// All entries, in order, from both ends. See [`Range`].
    pub fn iter(&self) -> Range<'a, K, V, P> {
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
        from.encode(|from| self.walk::<false>(from, limit, visit))
    }

    /// As [`scan`](Self::scan), descending over keys `<= from`.
    pub fn scan_rev<Q>(&self, from: &Q, limit: usize, visit: impl FnMut(K::Ref<'_>, &V)) -> usize
    where
        K: Borrow<Q>,
        Q: Encode<Form = K::Form> + ?Sized,
    {
        from.encode(|from| self.walk::<true>(from, limit, visit))
    }

    fn walk<const DOWN: bool>(&self, from: Probe<'_, K>, limit: usize, mut visit: impl FnMut(K::Ref<'_>, &V)) -> usize {
        let (guard, tree) = (self.reader.enter(), self.map.trees.local());
        let mut cursor = Cursor::<K::Form, P, DOWN>::new(Bound::Included(from));
        let mut run = <Run<K>>::default();
        let mut visited = 0;
        while visited < limit {
            cursor.fill(tree, AT_ONCE.min(limit - visited), &mut run, &guard);
            let len = run.len();
            if len == 0 {
                break;
            }
            for step in 0..len {
                let at = if DOWN { len - 1 - step } else { step };
                // SAFETY: a key of this map, and a word read under `guard`.
                unsafe { with_ref::<V, _>(run.value(at), |value| visit(K::decode_ref(run.key(at)), value)) };
            }
            visited += len;
        }
        visited
    }
}

/// Entries of a map, copied.
pub(super) type Run<K> = <<K as Encode>::Form as SlotForm>::Run;

/// An entry of a run.
///
/// # Safety
/// The run is of a map with keys of type `K` and values of type `V`, filled under a guard that is still held.
pub(super) unsafe fn entry<K: Key, V: Clone + 'static>(run: &Run<K>, at: usize) -> (K, V) {
    // SAFETY: by the contract.
    unsafe { (K::decode(run.key(at)), clone_of(run.value(at))) }
}

/// Retires the value behind `word`, which the caller has taken out of the map, and returns a clone of it.
fn retire_and_clone<V: Clone + Send + Sync + 'static>(word: u64, guard: &Guard<'_>) -> V {
    // SAFETY: this thread took the word out of the map, so it owns it; `V` is `Send`, so any thread may drop it.
    unsafe { retire::<V>(guard, word) };
    // SAFETY: retired under `guard`, so not reclaimed before it is dropped.
    unsafe { clone_of(word) }
}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> fmt::Debug for BLinkSession<'_, K, V, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BLinkSession").finish_non_exhaustive()
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> OrderedSession<K, V> for BLinkSession<'_, K, V, P> {
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
