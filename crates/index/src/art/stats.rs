//! Building a tree with settings, what it holds, and storing within a limit to the memory that waits for readers.

use super::{Art, ArtSession, WriteSync};
use crate::Key;
use crate::backlog::{Backlogged, Garbage, Limit, OnBacklog};
use core::fmt;
use core::marker::PhantomData;

/// Configures an [`Art`]; every setting has a default that needs no thought.
#[must_use]
pub struct Builder<K, V> {
    pub(super) sync: WriteSync,
    pub(super) backlog: Limit,
    map: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Clone + Send + Sync + 'static> Builder<K, V> {
    /// How writers keep out of each other's way. Default: the faster one.
    pub fn write_sync(mut self, sync: WriteSync) -> Self {
        self.sync = sync;
        self
    }

    /// A limit to the memory that waits for readers, in bytes as in [`Garbage::bytes`], and what operations that change
    /// the map do when it is reached. Default: none. See
    /// [`hydra::Builder::backlog_limit`](crate::hydra::Builder::backlog_limit).
    pub fn backlog_limit(mut self, bytes: usize, then: OnBacklog) -> Self {
        self.backlog = Limit::new(bytes, then);
        self
    }

    /// Builds the map.
    pub fn build(self) -> Art<K, V> {
        Art::with(self.sync, self.backlog)
    }
}

impl<K, V> Default for Builder<K, V> {
    fn default() -> Self {
        Self { sync: WriteSync::default(), backlog: Limit::NONE, map: PhantomData }
    }
}

impl<K, V> fmt::Debug for Builder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("sync", &self.sync).field("backlog", &self.backlog).finish()
    }
}

/// What an [`Art`] holds at the moment; exact only while no other thread uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// See [`Art::len`].
    pub entries: usize,
    /// What waits for readers.
    pub garbage: Garbage,
}

impl<K: Key, V: Clone + Send + Sync + 'static> Art<K, V> {
    /// What the map holds now. O(threads), with a few locks: for reports, not for hot paths.
    pub fn stats(&self) -> Stats {
        Stats { entries: self.len(), garbage: Garbage::of(&self.domain) }
    }
}

/// Operations that refuse instead of waiting, for maps with a [`backlog_limit`](Builder::backlog_limit). Before they refuse
/// they free what can be freed.
impl<K: Key, V: Clone + Send + Sync + 'static> ArtSession<'_, K, V> {
    /// As [`insert`](Self::insert).
    ///
    /// # Errors
    /// With the value, if more memory waits for readers than the map's limit.
    pub fn try_insert(&self, key: &K, value: V) -> Result<Option<V>, Backlogged<V>> {
        match self.room() {
            Ok(()) => Ok(self.without_waiting(|| self.insert(key, value))),
            Err(_) => Err(Backlogged(value)),
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
        self.art.backlog.room(&self.art.domain)
    }

    /// A thread that is inside a guard is let in at once.
    fn without_waiting<R>(&self, store: impl FnOnce() -> R) -> R {
        let _guard = self.reader.enter();
        store()
    }
}
