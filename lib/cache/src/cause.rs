//! Why an entry has left.

/// Why an entry has left a cache, for listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// It has given way to another one, or to a smaller capacity.
    Evicted,
    /// Its time was over.
    Expired,
    /// A new value has come for its key.
    Replaced,
    /// It was removed, or invalidated.
    Removed,
}
