//! The reasons for which a transaction ends without a commit.

/// The reason why a transaction was not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Abort {
    /// Another transaction holds an object, or has changed it since this transaction's snapshot. A retry may succeed.
    Conflict,
    /// The domain's memory cap does not allow another version.
    Full,
}

impl core::fmt::Display for Abort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Abort::Conflict => "another transaction holds an object or has changed it: try again",
            Abort::Full => "versions take all the memory the domain may have: end long snapshots, or raise memory_cap",
        })
    }
}

impl core::error::Error for Abort {}

/// The domain's memory cap left no room for a transaction, even after repeated collections of old versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        Abort::Full.fmt(f)
    }
}

impl core::error::Error for Full {}
