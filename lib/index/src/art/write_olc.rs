//! Optimistic lock coupling (Leis et al., DaMoN 2016, section 3): read, check that nothing has changed, then act.
//!
//! Readers read a node's version before they read a slot, and check the version afterwards. If it has changed they
//! start over. Writers read in the same way, and then lock a node *at the version that they have read*. So what they
//! have read still holds.

use super::sync::Protocol;
use archipelago_sync::version_lock::{Version, VersionLock};

/// The protocol that the module's documentation describes.
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
