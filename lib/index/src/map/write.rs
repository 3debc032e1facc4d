//! Operations that write by key: inserting, replacing, removing.

use super::{FormOf, Hold, Kind, Map, Ref, Session};
use crate::structure::{End, Put, Structure, When};
use crate::{Encode, EncodeAs, Key, value};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;
use core::borrow::Borrow;

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Turns a value into the word to store under `key`. All methods that may insert call this function.
    ///
    /// # Panics
    /// If the key is too long. Nothing has been changed then.
    #[inline(always)]
    pub(super) fn word_for(key: crate::Probe<'_, K>, value: V) -> u64 {
        assert!(!Map::<S, K, V>::is_too_long(key), "the key is longer than the map's longest");
        value::into_word(value)
    }

    #[inline(always)]
    pub(super) fn store(&self, guard: &Guard<'m>, key: crate::Probe<'_, K>, word: u64, when: When) -> Put {
        self.core.put(self.place(), guard, key, word, when)
    }

    /// Retires a value that was removed from the map, and calls `last` with it. The value is valid during the call,
    /// since the guard is older than the retirement.
    #[inline]
    pub(super) fn retire<R>(&self, guard: &Guard<'m>, word: u64, last: impl FnOnce(&V) -> R) -> R {
        self.retire_word(guard, word);
        // SAFETY: the guard keeps the value until `last` has run.
        unsafe { value::with_ref(word, last) }
    }

    #[inline]
    pub(super) fn retire_word(&self, guard: &Guard<'m>, word: u64) {
        // SAFETY: the word is out of the map, and only this operation retires it.
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

    /// Inserts or replaces. Returns the replaced word, which the caller must retire.
    #[inline]
    fn put_word<Q: EncodeAs<K> + ?Sized>(&self, guard: &Guard<'m>, key: &Q, value: V) -> Option<u64> {
        match key.encode(|key| self.store(guard, key, Self::word_for(key, value), When::Always)) {
            Put::Replaced(word) => Some(word),
            Put::Inserted => None,
            Put::Kept(_) | Put::Missing => unreachable!("`When::Always` always stores"),
        }
    }

    /// Inserts or replaces without reading the old value; the key may be a borrowed form. Returns whether there was an
    /// old value.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<String, u64> = HydraList::new();
    /// let map = map.pin();
    /// assert!(!map.upsert("one", 1)); // the caller makes no `String`
    /// assert!(map.upsert("one", 11)); // replaced
    /// assert_eq!(map.get("one"), Some(11));
    /// ```
    ///
    /// # Panics
    /// If the key is longer than [`LONGEST_KEY`](Map::LONGEST_KEY). All methods that may insert panic under this
    /// condition, except the `try_` methods, which refuse the key.
    #[inline]
    pub fn upsert<Q: EncodeAs<K> + ?Sized>(&self, key: &Q, value: V) -> bool {
        let guard = self.enter_to_store();
        self.put_word(&guard, key, value).map(|old| self.retire_word(&guard, old)).is_some()
    }

    /// Inserts or replaces. Returns a reference to the replaced value.
    ///
    /// ```
    /// use archipelago::HydraList;
    /// use std::sync::Mutex;
    ///
    /// let map: HydraList<u64, Mutex<&str>> = HydraList::new(); // its values are not `Clone`
    /// let map = map.pin();
    /// assert!(map.insert_ref(1, Mutex::new("one")).is_none());
    /// let old = map.insert_ref(1, Mutex::new("uno")).unwrap();
    /// assert_eq!(*old.lock().unwrap(), "one"); // out of the map, but not dropped while `old` lives
    /// ```
    pub fn insert_ref(&self, key: K, value: V) -> Option<Ref<'m, V>> {
        let guard = self.enter_to_store();
        let old = self.put_word(&guard, &key, value)?;
        Some(self.retire_to_ref(guard, old))
    }

    /// Replaces a value. Returns the replaced word, which the caller must retire.
    fn replace_word<Q>(&self, guard: &Guard<'m>, key: &Q, value: V) -> Option<u64>
    where
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        key.encode(|key| {
            let word = value::into_word(value);
            match self.store(guard, key, word, When::Present) {
                Put::Replaced(old) => Some(old),
                // SAFETY: the new word was not stored, so no other code has it.
                _ => unsafe {
                    value::drop_word::<V>(word);
                    None
                },
            }
        })
    }

    /// Inserts if the key is not in the map. Otherwise calls `kept` with the value. Returns the word that the key has
    /// now, and the result of `kept` if it was called.
    ///
    /// The value becomes a word only when the key is encoded. Encoding is users' code, and if it panics, the value is
    /// still dropped.
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
                // SAFETY: the new word was not stored, so no other code has it.
                Put::Kept(existing) => (existing, Some(kept(unsafe { value::from_word(word) }))),
                Put::Replaced(_) | Put::Missing => unreachable!("`When::Absent` inserts or keeps"),
            }
        })
    }

    /// Replaces the value of a key that is in the map. Returns a reference to the old value.
    ///
    /// ```
    /// use archipelago::HydraList;
    /// use std::sync::Mutex;
    ///
    /// let map = HydraList::from([(1, Mutex::new("one"))]);
    /// let map = map.pin();
    /// assert_eq!(*map.replace_ref(&1, Mutex::new("uno")).unwrap().lock().unwrap(), "one");
    /// assert!(map.replace_ref(&2, Mutex::new("due")).is_none() && !map.contains_key(&2));
    /// ```
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

    /// Removes a key. Returns a reference to the removed value.
    ///
    /// ```
    /// use archipelago::HydraList;
    /// use std::sync::Mutex;
    ///
    /// let map = HydraList::from([(1, Mutex::new("one"))]);
    /// let map = map.pin();
    /// let removed = map.remove_ref(&1).unwrap();
    /// assert!(map.is_empty());
    /// assert_eq!(*removed.lock().unwrap(), "one");
    /// ```
    pub fn remove_ref<Q>(&self, key: &Q) -> Option<Ref<'m, V>>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        let word = self.take_word(&guard, key)?;
        Some(self.retire_to_ref(guard, word))
    }

    /// Removes a key without reading its value. Returns whether the key was in the map.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([("one".to_string(), 1)]);
    /// let map = map.pin();
    /// assert!(map.delete("one"));
    /// assert!(!map.delete("one")); // not in the map any more
    /// ```
    pub fn delete<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        self.take_word(&guard, key).map(|word| self.retire_word(&guard, word)).is_some()
    }

    /// Returns a reference to the value of `key`. If there is none, inserts `make()` first. `make` runs outside any
    /// lock and any guard. If two threads race, both may run it, and one result is dropped.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one".to_string())]);
    /// let map = map.pin();
    /// assert_eq!(*map.get_or_insert_with(1, || unreachable!("the key is in the map")), "one");
    /// assert_eq!(*map.get_or_insert_with(2, || "two".into()), "two");
    /// ```
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Ref<'m, V> {
        if let Some(value) = self.get_ref::<K>(&key) {
            return value;
        }
        let value = make();
        let guard = self.enter_to_store();
        let (word, _) = self.insert_word(&guard, &key, value, drop);
        // SAFETY: the word was in the map under the guard.
        unsafe { Ref::new(word, guard) }
    }

    /// Removes the entry with the least key and returns it with its value by reference. This is linearizable, as
    /// [`pop_first`](Self::pop_first) is.
    ///
    /// ```
    /// use archipelago::EunoSkipList;
    /// use std::sync::Mutex;
    ///
    /// let queue = EunoSkipList::from([(7, Mutex::new("late")), (3, Mutex::new("early"))]);
    /// let (time, task) = queue.pin().pop_first_ref().unwrap();
    /// assert_eq!((time, *task.lock().unwrap()), (3, "early"));
    /// assert_eq!(queue.len(), 1);
    /// ```
    pub fn pop_first_ref(&self) -> Option<(K, Ref<'m, V>)> {
        self.pop_ref(End::First)
    }

    /// Removes the entry with the greatest key and returns it with its value by reference. This is linearizable, as
    /// [`pop_last`](Self::pop_last) is.
    ///
    /// ```
    /// use archipelago::EunoSkipList;
    /// use std::sync::Mutex;
    ///
    /// let queue = EunoSkipList::from([(7, Mutex::new("urgent")), (3, Mutex::new("idle"))]);
    /// let (priority, task) = queue.pin().pop_last_ref().unwrap();
    /// assert_eq!((priority, *task.lock().unwrap()), (7, "urgent"));
    /// ```
    pub fn pop_last_ref(&self) -> Option<(K, Ref<'m, V>)> {
        self.pop_ref(End::Last)
    }

    fn pop_ref(&self, end: End) -> Option<(K, Ref<'m, V>)> {
        let guard = self.enter_to_store();
        let (key, word) = self.core.take_end(self.place(), &guard, end, |key, word| {
            // First the map's own work: decoding the key is the user's code, which may panic.
            self.retire_word(&guard, word);
            // SAFETY: the key is an encoding of a K.
            (unsafe { K::decode(key) }, word)
        })?;
        // SAFETY: the guard is older than the retirement.
        Some((key, unsafe { Ref::new(word, guard) }))
    }
}

impl<'m, S: Kind, K: Key, V: Clone + Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Inserts or replaces. Returns a clone of the replaced value.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, &str> = HydraList::new();
    /// let map = map.pin();
    /// assert_eq!(map.insert(1, "one"), None);
    /// assert_eq!(map.insert(1, "uno"), Some("one"));
    /// assert_eq!(map.get(&1), Some("uno"));
    /// ```
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        self.insert_as(&key, value)
    }

    #[inline]
    pub(super) fn insert_as<Q: EncodeAs<K> + ?Sized>(&self, key: &Q, value: V) -> Option<V> {
        let guard = self.enter_to_store();
        self.put_word(&guard, key, value).map(|old| self.retire(&guard, old, V::clone))
    }

    /// Replaces the value of a key that is in the map. Returns a clone of the old value. In a `HydraList`, threads that
    /// replace the value of one key at the same time don't wait for each other.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one")]);
    /// let map = map.pin();
    /// assert_eq!(map.replace(&1, "uno"), Some("one"));
    /// assert_eq!(map.replace(&2, "due"), None);
    /// assert!(!map.contains_key(&2)); // a missing key is not inserted
    /// ```
    #[inline]
    pub fn replace<Q>(&self, key: &Q, value: V) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        self.replace_word(&guard, key, value).map(|old| self.retire(&guard, old, V::clone))
    }

    /// Replaces the value of a key that is in the map by `f(&old)`, atomically. Returns a clone of the old value. `f`
    /// runs outside any lock, and runs again if another thread has changed the value meanwhile.
    /// [`replace`](Self::replace) is cheaper where the new value does not depend on the old one;
    /// [`compute`](Self::compute) may also insert and remove.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([("hits".to_string(), 41_u64)]);
    /// let map = map.pin();
    /// assert_eq!(map.update("hits", |count| count + 1), Some(41)); // the value before
    /// assert_eq!(map.get("hits"), Some(42));
    /// assert_eq!(map.update("misses", |count| count + 1), None); // a missing key is not inserted
    /// ```
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
                        // SAFETY: the new word was not stored, so no other code has it.
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

    /// Removes a key. Returns a clone of the removed value.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([("one".to_string(), 1)]);
    /// let map = map.pin();
    /// assert_eq!(map.remove("one"), Some(1));
    /// assert_eq!(map.remove("one"), None);
    /// ```
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        self.take_word(&guard, key).map(|word| self.retire(&guard, word, V::clone))
    }

    /// Removes the entry with the least key and returns a clone of it. This is linearizable: the key was the least one
    /// when it was removed.
    ///
    /// ```
    /// use archipelago::EunoSkipList;
    ///
    /// let queue = EunoSkipList::from([(7, "late"), (3, "early")]);
    /// let queue = queue.pin();
    /// assert_eq!(queue.pop_first(), Some((3, "early")));
    /// assert_eq!(queue.pop_first(), Some((7, "late")));
    /// assert_eq!(queue.pop_first(), None);
    /// ```
    pub fn pop_first(&self) -> Option<(K, V)> {
        self.pop(End::First)
    }

    /// Removes the entry with the greatest key and returns a clone of it. This is linearizable: the key was the
    /// greatest one when it was removed.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, char> = (1..).zip("abc".chars()).collect();
    /// assert_eq!(map.pin().pop_last(), Some((3, 'c')));
    /// assert_eq!(map.pin().last_key_value(), Some((2, 'b')));
    /// ```
    pub fn pop_last(&self) -> Option<(K, V)> {
        self.pop(End::Last)
    }

    fn pop(&self, end: End) -> Option<(K, V)> {
        let guard = self.enter_to_store();
        self.core.take_end(self.place(), &guard, end, |key, word| {
            // First the map's own work: cloning and decoding are the user's code, which may panic.
            let value = self.retire(&guard, word, V::clone);
            // SAFETY: the key is an encoding of a K.
            (unsafe { K::decode(key) }, value)
        })
    }
}
