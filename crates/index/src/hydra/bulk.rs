//! Operations on many entries: loading, filtering, taking a map apart.

use super::list::{End, When};
use super::map::HydraList;
use super::page::PageForm;
use super::session::{FormOf, Session};
use crate::{Key, value};
use ::core::fmt;
use ::core::iter::FusedIterator;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Entries that [`Session::extend`] and [`Session::retain`] handle in one critical section.
const BULK: usize = 64;

impl<K: Key, V: Send + Sync + 'static> Session<'_, K, V> {
    /// Inserts or replaces every entry. O(1) per entry for entries in ascending order of keys: each search starts where
    /// the last one ended, and new pages are filled to the brim.
    ///
    /// `entries` is advanced outside any critical section, a few entries ahead of those inserted. If that panics, the
    /// entries it gave before are in the map when the panic goes on.
    pub fn extend(&self, entries: impl IntoIterator<Item = (K, V)>) {
        let mut entries = entries.into_iter();
        let mut batch = Vec::new();
        loop {
            // Nothing of ours is left half done by a panic here: a vector that is being extended holds what it was given.
            let taken = catch_unwind(AssertUnwindSafe(|| batch.extend(entries.by_ref().take(BULK))));
            let over = batch.len() < BULK;
            self.put_all(batch.drain(..));
            match taken {
                Err(panic) => resume_unwind(panic),
                Ok(()) if over => return,
                Ok(()) => {}
            }
        }
    }

    fn put_all(&self, entries: impl Iterator<Item = (K, V)>) {
        let guard = self.enter_to_store();
        let local = self.local(&guard);
        let mut near = None;
        for (key, value) in entries {
            let put = key.encode(|key| {
                let page = self.core.jump_from(near, &local, key);
                near = Some(page);
                self.core.put(&local, page, key, FormOf::<K>::tag(key), value::into_word(value), When::Always)
            });
            self.settle(&guard, put, |_| ());
        }
    }

    /// Keeps the entries for which `keep` is true and removes the others, in ascending order of keys.
    ///
    /// Each entry is removed only if it still has the value that `keep` saw. Entries that others insert or change
    /// meanwhile may or may not be seen.
    pub fn retain(&self, mut keep: impl FnMut(K::Ref<'_>, &V) -> bool) {
        let mut from = Some(FormOf::<K>::least());
        while let Some(low) = from.take() {
            let guard = self.enter_to_store();
            let (mut seen, mut unwanted) = (0, Vec::new());
            self.scan_range(&low, None, BULK, |key, word| {
                seen += 1;
                if seen == BULK {
                    from = FormOf::<K>::just_above(key);
                }
                // SAFETY: the key is an encoding of a K; the word was in the map under our guard.
                if !unsafe { value::with_ref(word, |value| keep(K::decode_ref(key), value)) } {
                    unwanted.push((FormOf::<K>::own(key), word));
                }
            });
            for (key, word) in unwanted {
                let key = FormOf::<K>::probe(&key);
                // The same word is the same value: our guard keeps its address from being used again.
                self.take_encoded(&guard, key, Some(word), |_| ());
            }
        }
    }
}

impl<K: Key, V: Send + Sync + 'static> Extend<(K, V)> for Session<'_, K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        Session::extend(self, entries);
    }
}

/// An owning iterator over a map's entries, in key order, from both ends. What it has not yielded is dropped with it.
pub struct IntoIter<K: Key, V: Send + Sync + 'static> {
    map: HydraList<K, V>,
}

impl<K: Key, V: Send + Sync + 'static> IntoIter<K, V> {
    fn pop(&mut self, end: End) -> Option<(K, V)> {
        let session = self.map.pin();
        let guard = session.reader.enter();
        session.core.take_end(&session.local(&guard), end, |key, removed| {
            session.count(-1);
            session.retire_key(&guard, removed.key, key);
            // SAFETY: taken out just now, and `&mut self` says that nobody else reads the map.
            let value = unsafe { value::from_word(removed.value) };
            // SAFETY: the key is an encoding of a K, and what it lies in is not freed under our guard.
            (unsafe { K::decode(key) }, value)
        })
    }
}

impl<K: Key, V: Send + Sync + 'static> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.pop(End::First)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.map.len();
        (left, Some(left))
    }
}

impl<K: Key, V: Send + Sync + 'static> DoubleEndedIterator for IntoIter<K, V> {
    fn next_back(&mut self) -> Option<(K, V)> {
        self.pop(End::Last)
    }
}

impl<K: Key, V: Send + Sync + 'static> ExactSizeIterator for IntoIter<K, V> {}
impl<K: Key, V: Send + Sync + 'static> FusedIterator for IntoIter<K, V> {}

impl<K: Key, V: Send + Sync + 'static> fmt::Debug for IntoIter<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoIter").field("left", &self.map.len()).finish_non_exhaustive()
    }
}

impl<K: Key, V: Send + Sync + 'static> IntoIterator for HydraList<K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(self) -> IntoIter<K, V> {
        IntoIter { map: self }
    }
}
