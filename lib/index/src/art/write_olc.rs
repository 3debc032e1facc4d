//! Optimistic lock coupling (Leis et al., DaMoN 2016, section 3): look, check that nothing changed, then act.
//!
//! Readers take a node's version before they read a slot and check it after; a change means starting over. Writers
//! look in the same way and then lock a node *at the version they saw*, so what they saw still holds.

use super::sync::Protocol;
use archipelago_sync::version_lock::{Version, VersionLock};

/// See the module's documentation.
pub(super) enum OptimisticLockCoupling {}

impl Protocol for OptimisticLockCoupling {
    type Seen = Version;

    #[inline(always)]
    fn enter(lock: &VersionLock) -> Option<Version> {
        lock.read_unlocked()
    }

    #[inline(always)]
    fn still(lock: &VersionLock, seen: Version) -> bool {
        lock.validate(seen)
    }

    #[inline(always)]
    fn lock(lock: &VersionLock, seen: Version) -> bool {
        lock.try_lock_at(seen)
    }
}
