//! Writing by key: inserting, replacing, removing.

use super::{FormOf, Hold, Kind, Map, Ref, Session};
use crate::structure::{End, Put, Structure, When};
use crate::{Encode, EncodeAs, Key, value};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;
use core::borrow::Borrow;

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Turns a value into the word to store under `key`: all methods that may insert call this.
    ///
    /// # Panics
    /// If the key is too long, with nothing changed.
    #[inline(always)]
    pub(super) fn word_for(key: crate::Probe<'_, K>, value: V) -> u64 {
        assert!(!Map::<S, K, V>::is_too_long(key), "the key is longer than the map's longest");
        value::into_word(value)
    }

    #[inline(always)]
    pub(super) fn store(&self, guard: &Guard<'m>, key: crate::Probe<'_, K>, word: u64, when: When) -> Put {
        self.core.put(self.place(), guard, key, word, when)
    }

    /// Retires a value that was removed from the map, and calls `last` with it (valid, since the guard is older).
    #[inline]
    pub(super) fn retire<R>(&self, guard: &Guard<'m>, word: u64, last: impl FnOnce(&V) -> R) -> R {
        self.retire_word(guard, word);
        // SAFETY: the guard keeps the value until `last` has run.
        unsafe { value::with_ref(word, last) }
    }

    #[inline]
    pub(super) fn retire_word(&self, guard: &Guard<'m>, word: u64) {
        // SAFETY: the word is out of the map and ours alone to retire.
        unsafe { value::retire::<V>(guard, word) };
        if !value::is_inline::<V>() {
            self.core.note_garbage();
        }
    }

    /// Retires a value that has been taken out of the map under `guard`, which the reference keeps.
    #[inline]
    pub(super) fn retire_to_ref(&self, guard: Guard<'m>, word: u64) -> Ref<'m, V> {
        self.retire_word(&guard, word);
        // SAFETY: the guard is older than the retirement.
        unsafe { Ref::new(word, guard) }
    }

    /// Inserts or replaces; the word replaced, to be retired.
    #[inline]
    fn put_word<Q: EncodeAs<K> + ?Sized>(&self, guard: &Guard<'m>, key: &Q, value: V) -> Option<u64> {
        match key.encode(|key| self.store(guard, key, Self::word_for(key, value), When::Always)) {
            Put::Replaced(word) => Some(word),
            Put::Inserted => None,
            Put::Kept(_) | Put::Missing => unreachable!("`When::Always` always stores"),
        }
    }

    /// Inserts or replaces, with a key or a borrowed form of one and without looking at the old value. True if there was
    /// one.
    ///
    /// # Panics
    /// As all that stores, in an [`Art`](crate::Art): if the key has 4 GiB or more; in a [`BLinkTree`](crate::BLinkTree): if
    /// it is longer than [`LONGEST_KEY`](Map::LONGEST_KEY).
    #[inline]
    pub fn upsert<Q: EncodeAs<K> + ?Sized>(&self, key: &Q, value: V) -> bool {
        let guard = self.enter_to_store();
        self.put_word(&guard, key, value).map(|old| self.retire_word(&guard, old)).is_some()
    }

    /// Inserts or replaces; returns the value replaced, by reference.
    pub fn insert_ref(&self, key: K, value: V) -> Option<Ref<'m, V>> {
        let guard = self.enter_to_store();
        let old = self.put_word(&guard, &key, value)?;
        Some(self.retire_to_ref(guard, old))
    }

    /// The word replaced by `value`, to be retired.
    fn replace_word<Q>(&self, guard: &Guard<'m>, key: &Q, value: V) -> Option<u64>
    where
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        key.encode(|key| {
            let word = value::into_word(value);
            match self.store(guard, key, word, When::Present) {
                Put::Replaced(old) => Some(old),
                // SAFETY: the new word was not stored, so it is still ours alone.
                _ => unsafe {
                    value::drop_word::<V>(word);
                    None
                },
            }
        })
    }

    /// Inserts if the key is not there: the word that it has now. What was not inserted is shown to `kept`.
    ///
    /// The value becomes a word when the key is encoded, since encoding is the user's code, which may panic.
    pub(super) fn insert_word<R>(
        &self,
        guard: &Guard<'m>,
        key: &K,
        value: V,
        kept: impl FnOnce(V) -> R,
    ) -> (u64, Option<R>) {
        key.encode(|key| {
            let word = Self::word_for(key, value);
            match self.store(guard, key, word, When::Absent) {
                Put::Inserted => (word, None),
                // SAFETY: ours was not stored, so it is still ours alone.
                Put::Kept(existing) => (existing, Some(kept(unsafe { value::from_word(word) }))),
                Put::Replaced(_) | Put::Missing => unreachable!("`When::Absent` inserts or keeps"),
            }
        })
    }

    /// Replaces the value of a key that is there; returns the old value, by reference.
    pub fn replace_ref<Q>(&self, key: &Q, value: V) -> Option<Ref<'m, V>>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        let old = self.replace_word(&guard, key, value)?;
        Some(self.retire_to_ref(guard, old))
    }

    #[inline]
    fn take_word<Q>(&self, guard: &Guard<'m>, key: &Q) -> Option<u64>
    where
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        key.encode(|key| self.core.take(self.place(), guard, key, None))
    }

    /// Removes; returns the value removed, by reference.
    pub fn remove_ref<Q>(&self, key: &Q) -> Option<Ref<'m, V>>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        let word = self.take_word(&guard, key)?;
        Some(self.retire_to_ref(guard, word))
    }

    /// Removes without looking at the value. True if there was one.
    pub fn delete<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        self.take_word(&guard, key).map(|word| self.retire_word(&guard, word)).is_some()
    }

    /// The value of `key`, by reference, inserting `make()` first if there is none. `make` runs outside any lock and any
    /// guard; of two threads that race, both may run it and one result is dropped.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Ref<'m, V> {
        if let Some(value) = self.get_ref::<K>(&key) {
            return value;
        }
        let value = make();
        let guard = self.enter_to_store();
        let (word, _) = self.insert_word(&guard, &key, value, drop);
        // SAFETY: in the map under the guard.
        unsafe { Ref::new(word, guard) }
    }

    /// Removes the entry with the least key and returns it with its value by reference. Linearizable, as
    /// [`pop_first`](Self::pop_first).
    pub fn pop_first_ref(&self) -> Option<(K, Ref<'m, V>)> {
        self.pop_ref(End::First)
    }

    /// Removes the entry with the greatest key and returns it with its value by reference. Linearizable, as
    /// [`pop_last`](Self::pop_last).
    pub fn pop_last_ref(&self) -> Option<(K, Ref<'m, V>)> {
        self.pop_ref(End::Last)
    }

    fn pop_ref(&self, end: End) -> Option<(K, Ref<'m, V>)> {
        let guard = self.enter_to_store();
        let (key, word) = self.core.take_end(self.place(), &guard, end, |key, word| {
            // First what the map needs: the rest is the user's code, which may panic.
            self.retire_word(&guard, word);
            // SAFETY: the key is an encoding of a K.
            (unsafe { K::decode(key) }, word)
        })?;
        // SAFETY: the guard is older than the retirement.
        Some((key, unsafe { Ref::new(word, guard) }))
    }
}

impl<'m, S: Kind, K: Key, V: Clone + Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Inserts or replaces; returns the value replaced.
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        self.insert_as(&key, value)
    }

    #[inline]
    pub(super) fn insert_as<Q: EncodeAs<K> + ?Sized>(&self, key: &Q, value: V) -> Option<V> {
        let guard = self.enter_to_store();
        self.put_word(&guard, key, value).map(|old| self.retire(&guard, old, V::clone))
    }

    /// Replaces the value of a key that is there; returns the old value. In a `HydraList`, threads that replace the value of
    /// one key at the same time don't wait for each other.
    #[inline]
    pub fn replace<Q>(&self, key: &Q, value: V) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        self.replace_word(&guard, key, value).map(|old| self.retire(&guard, old, V::clone))
    }

    /// Replaces the value of a key that is there by `f(&old)`, atomically; returns the old value. `f` runs outside
    /// any lock, and again if another thread changed the value meanwhile. [`replace`](Self::replace) is cheaper where
    /// the old value doesn't matter; [`compute`](Self::compute) may also insert and remove.
    pub fn update<Q>(&self, key: &Q, mut f: impl FnMut(&V) -> V) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        let place = self.place();
        key.encode(|key| {
            let backoff = Backoff::new();
            let mut old = self.core.get(place, &guard, key)?;
            loop {
                // SAFETY: the word was in the map under our guard, which also keeps its address from being reused.
                let new = value::into_word(unsafe { value::with_ref(old, &mut f) });
                match self.core.put(place, &guard, key, new, When::Holds(old)) {
                    Put::Replaced(old) => return Some(self.retire(&guard, old, V::clone)),
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
        let guard = self.enter_to_store();
        self.take_word(&guard, key).map(|word| self.retire(&guard, word, V::clone))
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
        self.core.take_end(self.place(), &guard, end, |key, word| {
            // First what the map needs: the rest is the user's code, which may panic.
            let value = self.retire(&guard, word, V::clone);
            // SAFETY: the key is an encoding of a K.
            (unsafe { K::decode(key) }, value)
        })
    }
}
