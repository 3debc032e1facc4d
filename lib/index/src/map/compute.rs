//! Atomic operations whose effect depends on the present value.
//!
//! All of them are one loop: load the word of the key, let the caller decide, and store or remove *only if the key
//! still has this word*. So the decision takes effect at a moment at which its basis is true, and the operation is
//! linearized at this moment. An operation that changes nothing is linearized at its load. A boxed value's address is
//! not reused while the guard is held, so the same word is the same value; values that are stored in a word are equal
//! if their words are.

use super::{FormOf, Hold, Kind, Ref, Session};
use crate::structure::{Put, Structure, When};
use crate::{Encode, EncodeAs, Key, value};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;
use core::borrow::Borrow;
use core::fmt;

/// What [`Session::compute`] does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// Leave it as it is.
    Keep,
    /// Give it this value, whether it has one or not.
    Put(V),
    /// Remove it, if it is there.
    Remove,
}

/// The values before and after [`Session::compute`], which are the same if it kept the value.
#[derive(Debug)]
pub struct Computed<'m, V: Send + Sync + 'static> {
    /// What the key had before.
    pub old: Option<Ref<'m, V>>,
    /// What the key has since.
    pub new: Option<Ref<'m, V>>,
}

/// The key is present, so nothing was inserted.
pub struct Occupied<'m, V: Send + Sync + 'static> {
    /// The value that it has.
    pub current: Ref<'m, V>,
    /// The value that was not inserted.
    pub value: V,
}

/// The key did not have the value expected: nothing was changed.
pub struct CompareExchangeError<'m, V: Send + Sync + 'static> {
    /// The key's value.
    pub current: Option<Ref<'m, V>>,
    /// The value that was not stored.
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

/// Words before and after.
struct Step {
    old: Option<u64>,
    new: Option<u64>,
    /// The old word, if it was removed. (It does not follow from the two words, since successive values of size zero
    /// have the same word.)
    taken: Option<u64>,
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Tries to apply `change` to a key that has the word `old`. Returns the words before and after, or the key's other
    /// word and the value that was not stored.
    ///
    /// The caller retires a removed word.
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
                    // SAFETY: the new word was not stored, so it is still ours alone.
                    Put::Kept(now) => Err((Some(now), Change::Put(unsafe { value::from_word(new) }))),
                    // SAFETY: as above.
                    Put::Missing => Err((None, Change::Put(unsafe { value::from_word(new) }))),
                }
            }
        }
    }

    /// The loop of the module's text. `decide` sees the value that the key has.
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

    /// Retires what a step has taken out of the map.
    fn retire_taken(&self, guard: &Guard<'m>, step: &Step) {
        if let Some(taken) = step.taken {
            self.retire_word(guard, taken);
        }
    }

    /// Changes a key depending on its value, atomically: `f` sees the present value, and its decision is applied at a
    /// moment at which the key still has this value. `f` runs outside any lock, and runs again if another thread has
    /// changed the key meanwhile; its previous decision is dropped then. If it panics, nothing has been changed.
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
        // SAFETY: in the map under our guard, which is older than the retirement; and so is any that overlaps it in this
        // thread, since both are one critical section.
        let refer = |word: Option<u64>, guard| word.map(|word| unsafe { Ref::new(word, guard) });
        Computed { old: refer(step.old, guard), new: refer(step.new, again) }
    }

    /// Inserts if the key is not there; returns the value that it has now, by reference. (In `std` this is `try_insert`, which
    /// here is what a map with a limit may refuse.)
    ///
    /// # Errors
    /// [`Occupied`], with the value that is there, by reference, and the one that was not inserted.
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

    /// Inserts `make()`, or replaces what is there by `update(&it)`, atomically; true if there was something. Both run outside
    /// any lock, and again if another thread was faster.
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

    /// Removes a key if `condition` holds for its value, atomically; returns the value removed, by reference. `condition` runs
    /// outside any lock, and again if another thread changed the value meanwhile.
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

    /// Gives a key the value `new` if it has the value `current`, atomically; `None` stands for "not there" on both sides.
    /// Returns the value replaced or removed, by reference.
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
    /// With the value that is there, by reference, and `new`.
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
