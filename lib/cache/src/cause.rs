//! The reason for which an entry has left.

/// The reason for which an entry has left a cache, for listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The entry was evicted for another one, or for a smaller capacity.
    Evicted,
    /// The entry had expired.
    Expired,
    /// A new value was inserted for the entry's key.
    Replaced,
    /// The entry was removed or invalidated.
    Removed,
}
