//! Iterators that remove the entries that they yield.

use super::fetched::{Fetched, Kept, Side};
use super::reference::Entry;
use super::walk::{Batches, Walk};
use super::{FormOf, Hold, Kind, Session};
use crate::structure::{End, Structure};
use crate::{Encode, Key};
use core::borrow::Borrow;
use core::fmt;
use core::ops::RangeBounds;

/// An iterator that removes entries and yields them by reference, in ascending order. See [`Session::extract_if`].
///
/// The iterator is `Send` if its condition is. It removes an entry just before it yields the entry; entries that it has
/// not yielded when it is dropped stay in the map. A paused or leaked iterator delays no reclamation between two steps,
/// but its entries do, see [`Entry`].
pub struct ExtractIf<'m, S: Kind, K: Key, V: Send + Sync + 'static, F> {
    walk: Walk<'m, S, K, V>,
    batches: Batches,
    condition: F,
    seen: Option<Side<'m, K>>,
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, F> ExtractIf<'m, S, K, V, F>
where
    F: FnMut(K::Ref<'_>, &V) -> bool,
{
    fn fetch(&mut self) -> Option<Side<'m, K>> {
        let used = self.seen.take();
        if self.walk.is_drained() {
            return None;
        }
        let mut fetched = used.and_then(Side::again).unwrap_or_else(|| Fetched::new(self.walk.map()));
        let push = |key: crate::Probe<'_, K>, word| fetched.batch.push(key, word);
        self.walk.fetch_front(self.batches.next(), self.walk.map().words(), push);
        Some(Side::new(fetched))
    }

    /// Returns the next fetched entry, with the holder that keeps its value.
    fn look(&mut self) -> Option<(Kept<'m, K>, usize)> {
        loop {
            if self.seen.as_ref().is_none_or(|seen| seen.left.is_empty()) {
                self.seen = Some(self.fetch()?);
            }
            let seen = self.seen.as_mut()?;
            if let Some(kept) = seen.keep() {
                return Some((kept, seen.left.next()?));
            }
            // No holder has kept the values of the remaining entries, so some of them may have been freed.
            self.batches = Batches::FROM_SOME;
            self.seen.take()?.give_back(&mut self.walk, End::First);
        }
    }

    /// Removes a fetched entry and returns it, if the condition is true for it.
    fn extract(&mut self, kept: Kept<'m, K>, at: usize) -> Result<Entry<'m, K, V>, Kept<'m, K>> {
        let map = self.walk.map();
        let session = map.pin();
        let mut changed: Option<Entry<'m, K, V>> = None;
        loop {
            let (held, at) = changed.as_ref().map_or((&kept, at), Entry::place);
            let (key, word) = (held.batch().key(at), *held.batch().word(at));
            // SAFETY: the entry is an encoding of a K and a word of a V, both read under the guard that is stored with
            // the batch.
            let (key_ref, value) = unsafe { held.show(at) };
            if !(self.condition)(key_ref, value) {
                return Err(kept);
            }
            let guard = session.enter();
            if session.core.take(session.place(), &guard, key, Some(word)).is_some() {
                session.retire_word(&guard, word);
                // SAFETY: the guard that is stored with the batch is older than the retirement.
                return Ok(changed.unwrap_or_else(|| unsafe { Entry::new(kept, at) }));
            }
            // The value has changed since it was fetched, so the condition is called again with the current value.
            let now = Entry::alone(map, |found| {
                let word = session.core.get(session.place(), &guard, key);
                word.map(|word| found.push(key, word)).is_some()
            });
            match now {
                Some(now) => changed = Some(now),
                None => return Err(kept),
            }
        }
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, F> Iterator for ExtractIf<'m, S, K, V, F>
where
    F: FnMut(K::Ref<'_>, &V) -> bool,
{
    type Item = Entry<'m, K, V>;

    fn next(&mut self) -> Option<Entry<'m, K, V>> {
        // The thread waits at the backlog limit here, and not in `extract`: in `extract` the thread has a holder of the
        // fetched values, so it would wait for itself.
        let core = self.walk.map().core();
        core.limits().backlog.admit(core.domain());
        loop {
            let (kept, at) = self.look()?;
            match self.extract(kept, at) {
                Ok(entry) => return Some(entry),
                // The next entry is nearly always in the same batch.
                Err(kept) => self.seen.as_mut()?.lent = Some(kept),
            }
        }
    }
}

impl<S: Kind, K: Key, V: Send + Sync + 'static, F> fmt::Debug for ExtractIf<'_, S, K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtractIf").finish_non_exhaustive()
    }
}

impl<'m, S: Kind, K: Key, V: Send + Sync + 'static, H: Hold<'m, S, K>> Session<'m, S, K, V, H> {
    /// Removes the entries in `range` for which `condition` is true, and yields them by reference in ascending order.
    /// Each step of the iterator removes one entry, by one atomic operation, together with a value for which
    /// `condition` was true. If the value has changed meanwhile, the condition is called again. While a yielded entry
    /// lives, memory reclamation waits; an iterator between two steps does not delay it.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, u64> = (0..100).map(|n| (n, n * n)).collect();
    /// let session = map.pin();
    /// let odd = session.extract_if(..10, |_, square| square % 2 == 1);
    /// assert_eq!(odd.map(|entry| entry.key()).collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
    /// assert_eq!(map.len(), 95);
    /// ```
    pub fn extract_if<Q, R, F>(&self, range: R, condition: F) -> ExtractIf<'m, S, K, V, F>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
        R: RangeBounds<Q>,
        F: FnMut(K::Ref<'_>, &V) -> bool,
    {
        ExtractIf { walk: self.walk(&range), batches: Batches::FROM_SOME, condition, seen: None }
    }

    /// Removes and yields all entries in `range`, as [`extract_if`](Self::extract_if) does.
    /// ([`remove_range`](Self::remove_range) removes entries without yielding them.)
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, String> = (0..10).map(|n| (n, n.to_string())).collect();
    /// let session = map.pin();
    /// let texts: Vec<String> = session.drain_range(..3).map(|entry| entry.value().clone()).collect();
    /// assert_eq!((texts.join("+"), map.len()), ("0+1+2".into(), 7));
    /// session.drain_range(..).next(); // removes one entry; the others stay, since they are not taken
    /// assert_eq!(map.len(), 6);
    /// ```
    pub fn drain_range<Q, R>(
        &self,
        range: R,
    ) -> ExtractIf<'m, S, K, V, impl FnMut(K::Ref<'_>, &V) -> bool + use<'m, S, K, V, H, Q, R>>
    where
        K: Borrow<Q>,
        Q: Encode<Form = FormOf<K>> + ?Sized,
        R: RangeBounds<Q>,
    {
        self.extract_if(range, |_, _| true)
    }
}
