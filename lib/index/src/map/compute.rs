//! Atomic operations whose effect depends on the current value.
//!
//! All of them except `insert_if_absent` are one loop: load the word of the key, let the caller decide, and store or
//! remove *only if the key still has this word*. So a decision takes effect only while the value on which it is based
//! is still the key's value, and the operation is linearized at this moment. An operation that changes nothing is
//! linearized at its load. A boxed value's address is not reused while the guard is held; so equal words mean the same
//! value. Values that are stored in a word are the same if their words are equal.

use super::{FormOf, Hold, Kind, Ref, Session};
use crate::structure::{Put, Structure, When};
use crate::{Encode, EncodeAs, Key, value};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;
use core::borrow::Borrow;
use core::fmt;

/// The decision of the closure of [`Session::compute`] about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// Leaves the key as it is.
    Keep,
    /// Gives the key this value, whether it has a value or not.
    Put(V),
    /// Removes the key, if it is in the map.
    Remove,
}

/// The values before and after [`Session::compute`]. They are the same if the closure returned [`Change::Keep`].
#[derive(Debug)]
pub struct Computed<'m, V: Send + Sync + 'static> {
    /// The key's value before.
    pub old: Option<Ref<'m, V>>,
    /// The key's value afterwards.
    pub new: Option<Ref<'m, V>>,
}

/// The error of an insertion whose key is already in the map. Nothing was inserted.
pub struct Occupied<'m, V: Send + Sync + 'static> {
    /// The key's value.
    pub current: Ref<'m, V>,
    /// The value that was not inserted.
    pub value: V,
}

/// The error of a comparison: the key did not have the expected value. Nothing was changed.
pub struct CompareExchangeError<'m, V: Send + Sync + 'static> {
    /// The key's value.
    pub current: Option<Ref<'m, V>>,
    /// The value that was not stored; `None` if the key was to be removed.
    pub proposed: Option<V>,
}

impl<V: Send + Sync + 'static> fmt::Debug for Occupied<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Occupied { .. }")
    }
}

impl<V: Send + Sync + 'static> fmt::Display for Occupied<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key is in the map already")
    }
}

impl<V: Send + Sync + 'static> core::error::Error for Occupied<'_, V> {}

impl<V: Send + Sync + 'static> fmt::Debug for CompareExchangeError<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompareExchangeError { .. }")
    }
}

impl<V: Send + Sync + 'static> fmt::Display for CompareExchangeError<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key does not have the value expected")
    }
}

impl<V: Send + Sync + 'static> core::error::Error for CompareExchangeError<'_, V> {}

/// The words before and after a change.
struct Step {
    old: Option<u64>,
    new: Option<u64>,
    /// The old word, if it was removed or replaced. (`old` and `new` do not always show this, since different values of
    /// size zero have the same word.)
    taken: Option<u64>,
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Tries to apply `change` to a key that has the word `old`. Returns the words before and after. If the key has
    /// another word, returns this word and the change, which was not applied.
    ///
    /// The caller retires a removed or replaced word.
    fn change(
        &self,
        guard: &Guard<'m>,
        key: crate::Probe<'_, K>,
        old: Option<u64>,
        change: Change<V>,
    ) -> Result<Step, (Option<u64>, Change<V>)> {
        let step = |new, taken| Ok(Step { old, new, taken });
        match (change, old) {
            (Change::Keep, _) | (Change::Remove, None) => step(old, None),
            (Change::Remove, Some(word)) => match self.core.take(self.place(), guard, key, Some(word)) {
                Some(_) => step(None, old),
                None => Err((self.core.get(self.place(), guard, key), Change::Remove)),
            },
            (Change::Put(value), _) => {
                let new = Self::word_for(key, value);
                match self.store(guard, key, new, old.map_or(When::Absent, When::Holds)) {
                    Put::Inserted | Put::Replaced(_) => step(Some(new), old),
                    // SAFETY: the new word was not stored, so no other code has it.
                    Put::Kept(now) => Err((Some(now), Change::Put(unsafe { value::from_word(new) }))),
                    // SAFETY: as above.
                    Put::Missing => Err((None, Change::Put(unsafe { value::from_word(new) }))),
                }
            }
        }
    }

    /// Runs the loop that the module's documentation describes. `decide` receives the key's current value.
    fn decide(
        &self,
        guard: &Guard<'m>,
        key: crate::Probe<'_, K>,
        mut decide: impl FnMut(Option<&V>) -> Change<V>,
    ) -> Step {
        let backoff = Backoff::new();
        let mut old = self.core.get(self.place(), guard, key);
        loop {
            // SAFETY: the word was in the map under our guard.
            let change = decide(old.as_ref().map(|word| unsafe { value::as_ref(word) }));
            match self.change(guard, key, old, change) {
                Ok(step) => return step,
                Err((now, _)) => old = now,
            }
            backoff.wait();
        }
    }

    /// Retires the word that a step has removed from the map.
    fn retire_taken(&self, guard: &Guard<'m>, step: &Step) {
        if let Some(taken) = step.taken {
            self.retire_word(guard, taken);
        }
    }

    /// Changes a key depending on its value, atomically. `f` receives the current value, and its decision is applied at
    /// a moment at which the key still has this value. `f` runs outside any lock. If another thread has changed the key
    /// meanwhile, the decision is dropped and `f` runs again. If `f` panics, nothing has been changed.
    ///
    /// ```
    /// use archipelago::index::{Change, HydraList};
    ///
    /// let stock = HydraList::from([("apple".to_string(), 2_u64)]);
    /// let stock = stock.pin();
    /// let sell = |name: &str| {
    ///     stock.compute(name, |left| match left {
    ///         None => Change::Keep,
    ///         Some(1) => Change::Remove,
    ///         Some(left) => Change::Put(left - 1),
    ///     })
    /// };
    /// assert_eq!(sell("apple").new.as_deref(), Some(&1));
    /// assert!(sell("apple").new.is_none() && sell("apple").old.is_none());
    /// ```
    pub fn compute<Q: EncodeAs<K> + ?Sized>(&self, key: &Q, f: impl FnMut(Option<&V>) -> Change<V>) -> Computed<'m, V> {
        let guard = self.enter_to_store();
        let step = key.encode(|key| self.decide(&guard, key, f));
        self.retire_taken(&guard, &step);
        let again = self.enter();
        // SAFETY: the words were in the map under `guard`, which is older than the retirement. The second guard
        // overlaps the first one in this thread, so both are one critical section.
        let refer = |word: Option<u64>, guard| word.map(|word| unsafe { Ref::new(word, guard) });
        Computed { old: refer(step.old, guard), new: refer(step.new, again) }
    }

    /// Inserts an entry if its key is not in the map. Returns a reference to the inserted value. (In `std` this method
    /// is called `try_insert`; here `try_insert` is an insertion that a map with a limit may refuse.)
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, String> = HydraList::new();
    /// let map = map.pin();
    /// assert_eq!(*map.insert_if_absent(1, "one".into()).unwrap(), "one");
    /// let error = map.insert_if_absent(1, "uno".into()).unwrap_err();
    /// assert_eq!((&*error.current, error.value), (&"one".into(), "uno".into()));
    /// ```
    ///
    /// # Errors
    /// [`Occupied`] if the key is in the map, with a reference to its value, and the value that was not inserted.
    pub fn insert_if_absent(&self, key: K, value: V) -> Result<Ref<'m, V>, Occupied<'m, V>> {
        let guard = self.enter_to_store();
        let (word, kept) = self.insert_word(&guard, &key, value, |value| value);
        // SAFETY: in the map under the guard.
        let current = unsafe { Ref::new(word, guard) };
        match kept {
            None => Ok(current),
            Some(value) => Err(Occupied { current, value }),
        }
    }

    /// Inserts `make()`, or replaces the current value by `update(&current)`, atomically. Returns whether there was a
    /// value. Both closures run outside any lock, and run again if another thread has changed the key meanwhile.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let counts: HydraList<String, u64> = HydraList::new();
    /// for word in "to be or not to be".split(' ') {
    ///     counts.pin().upsert_with(word, || 1, |count| count + 1);
    /// }
    /// let counts: Vec<_> = counts.into_iter().collect();
    /// assert_eq!(counts, [("be".into(), 2), ("not".into(), 1), ("or".into(), 1), ("to".into(), 2)]);
    /// ```
    pub fn upsert_with<Q: EncodeAs<K> + ?Sized>(
        &self,
        key: &Q,
        mut make: impl FnMut() -> V,
        mut update: impl FnMut(&V) -> V,
    ) -> bool {
        let guard = self.enter_to_store();
        let put = |old: Option<&V>| Change::Put(old.map_or_else(&mut make, &mut update));
        let step = key.encode(|key| self.decide(&guard, key, put));
        self.retire_taken(&guard, &step);
        step.old.is_some()
    }

    /// Removes a key if `condition` is true for its value, atomically. Returns a reference to the removed value.
    /// `condition` runs outside any lock, and runs again if another thread has changed the value meanwhile.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let leases = HydraList::from([(1, 10), (2, 30)]); // by client, with the time at which a lease ends
    /// let leases = leases.pin();
    /// assert_eq!(leases.remove_if(&1, |&end| end < 20).as_deref(), Some(&10));
    /// assert!(leases.remove_if(&2, |&end| end < 20).is_none());
    /// assert_eq!(leases.get(&2), Some(30));
    /// ```
    pub fn remove_if<Q>(&self, key: &Q, mut condition: impl FnMut(&V) -> bool) -> Option<Ref<'m, V>>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
    {
        let guard = self.enter_to_store();
        let unwanted = |old: Option<&V>| if old.is_some_and(&mut condition) { Change::Remove } else { Change::Keep };
        let step = key.encode(|key| self.decide(&guard, key, unwanted));
        Some(self.retire_to_ref(guard, step.taken?))
    }

    /// Gives a key the value `new` if its value is `current`, atomically. For both arguments, `None` means that the key
    /// is not in the map. Returns a reference to the replaced or removed value.
    ///
    /// ```
    /// use archipelago::Art;
    ///
    /// let map = Art::from([(1_u64, "one")]);
    /// let map = map.pin();
    /// assert!(map.compare_exchange(&1, Some(&"one"), Some("uno")).is_ok());
    /// assert!(map.compare_exchange(&2, None, Some("two")).is_ok());
    /// assert!(map.compare_exchange(&2, Some(&"two"), None).is_ok());
    /// let error = map.compare_exchange(&1, Some(&"one"), None).unwrap_err();
    /// assert_eq!(error.current.as_deref(), Some(&"uno"));
    /// ```
    ///
    /// # Errors
    /// [`CompareExchangeError`] if the key's value is not `current`. The error contains a reference to the key's value,
    /// and `new`.
    pub fn compare_exchange<Q: EncodeAs<K> + ?Sized>(
        &self,
        key: &Q,
        current: Option<&V>,
        new: Option<V>,
    ) -> Result<Option<Ref<'m, V>>, CompareExchangeError<'m, V>>
    where
        V: PartialEq,
    {
        let guard = self.enter_to_store();
        let backoff = Backoff::new();
        let mut change = new.map_or(Change::Remove, Change::Put);
        let outcome = key.encode(|key| {
            let mut old = self.core.get(self.place(), &guard, key);
            loop {
                // SAFETY: the word was in the map under our guard.
                let found = old.as_ref().map(|word| unsafe { value::as_ref::<V>(word) });
                if found != current {
                    return Err((old, change));
                }
                match self.change(&guard, key, old, change) {
                    Ok(step) => return Ok(step),
                    Err((now, again)) => (old, change) = (now, again),
                }
                backoff.wait();
            }
        });
        match outcome {
            Ok(step) => Ok(step.taken.map(|taken| self.retire_to_ref(guard, taken))),
            Err((current, change)) => Err(CompareExchangeError {
                // SAFETY: in the map under the guard.
                current: current.map(|word| unsafe { Ref::new(word, guard) }),
                proposed: if let Change::Put(value) = change { Some(value) } else { None },
            }),
        }
    }
}
