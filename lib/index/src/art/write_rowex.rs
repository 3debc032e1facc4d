//! Read-optimised write exclusion, ROWEX (Leis et al., DaMoN 2016, section 4): readers take no notice of writers.
//!
//! A reader loads slots and never checks a version. That works because a node always stands for the same string and
//! because every store a writer makes is, by itself, a step from one right state to another (see `node.rs`). A reader
//! in a node that was replaced meanwhile reads it as it was when it was replaced, which was during the reader's call.
//!
//! Writers wait for the lock; only an obsolete node makes them start over. What they saw before they had the lock may
//! have changed: as with the other protocol, they look again.

use super::sync::Protocol;
use archipelago_sync::version_lock::VersionLock;

/// See the module's documentation.
pub(super) enum Rowex {}

impl Protocol for Rowex {
    type Seen = ();

    #[inline(always)]
    fn enter(_: &VersionLock) -> Option<()> {
        Some(())
    }

    #[inline(always)]
    fn still(_: &VersionLock, (): ()) -> bool {
        true
    }

    #[inline(always)]
    fn lock(lock: &VersionLock, (): ()) -> bool {
        lock.lock()
    }
}
