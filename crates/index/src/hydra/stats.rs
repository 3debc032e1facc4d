//! What a map holds, and storing within a limit to the memory that waits for readers.

use super::map::HydraList;
use super::session::Session;
use crate::Key;
use crate::backlog::{Backlogged, Garbage};

/// What a [`HydraList`] holds at the moment; exact only while no other thread uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// See [`HydraList::len`].
    pub entries: usize,
    /// Pages of the data list, and pages merged away whose memory is not free yet.
    pub pages: usize,
    /// See [`HydraList::bytes`].
    pub bytes: usize,
    /// What waits for readers. Pages among it count as objects, and under [`bytes`](Self::bytes), but not in
    /// [`Garbage::bytes`].
    pub garbage: Garbage,
}

impl<K: Key, V: Send + Sync + 'static> HydraList<K, V> {
    /// What the map holds now. O(threads), with a few locks: for reports, not for hot paths.
    pub fn stats(&self) -> Stats {
        let core = self.core();
        let garbage = Garbage::of(&core.domain);
        Stats { entries: self.len(), pages: core.pages(), bytes: self.bytes(), garbage }
    }
}

/// Operations that refuse instead of waiting, for maps with a [`backlog_limit`](super::Builder::backlog_limit). Before
/// they refuse they free what can be freed.
impl<K: Key, V: Clone + Send + Sync + 'static> Session<'_, K, V> {
    /// As [`insert`](Self::insert).
    ///
    /// # Errors
    /// With the entry, if more memory waits for readers than the map's limit.
    pub fn try_insert(&self, key: K, value: V) -> Result<Option<V>, Backlogged<(K, V)>> {
        match self.room() {
            Ok(()) => Ok(self.without_waiting(|| self.insert(key, value))),
            Err(_) => Err(Backlogged((key, value))),
        }
    }

    /// As [`replace`](Self::replace).
    ///
    /// # Errors
    /// With the value, if more memory waits for readers than the map's limit.
    pub fn try_replace(&self, key: &K, value: V) -> Result<Option<V>, Backlogged<V>> {
        match self.room() {
            Ok(()) => Ok(self.without_waiting(|| self.replace(key, value))),
            Err(_) => Err(Backlogged(value)),
        }
    }

    /// As [`remove`](Self::remove).
    ///
    /// # Errors
    /// If more memory waits for readers than the map's limit.
    pub fn try_remove(&self, key: &K) -> Result<Option<V>, Backlogged> {
        self.room()?;
        Ok(self.without_waiting(|| self.remove(key)))
    }

    fn room(&self) -> Result<(), Backlogged> {
        self.core.config.backlog.room(&self.core.domain)
    }

    /// A thread that is inside a guard is let in at once.
    fn without_waiting<R>(&self, store: impl FnOnce() -> R) -> R {
        let _guard = self.reader.enter();
        store()
    }
}
