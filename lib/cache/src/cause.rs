//! The reason for which an entry has left the cache.

/// The reason for which an entry has left a cache, as reported to listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The entry was evicted to make room for another one or because the capacity was reduced, or its insertion was
    /// refused.
    Evicted,
    /// The entry had expired when it was evicted, replaced or removed, or when [`sync`](crate::Cache::sync) found it.
    Expired,
    /// A new value was inserted for the entry's key, or such an insertion was refused.
    Replaced,
    /// The entry was removed or invalidated.
    Removed,
}
