//! Read-optimised write exclusion, ROWEX (Leis et al., DaMoN 2016, section 4): readers ignore writers.
//!
//! A reader loads slots and never validates a version. This is correct because a node's string never changes, and
//! because every single store of a writer leads from one consistent state to another (see `node.rs`). A reader in a
//! node that was replaced meanwhile sees the node's state at the replacement, which was during the reader's call.
//!
//! Writers wait for the lock, and restart if the node is obsolete. Their reads before the lock may be outdated. So they
//! check their assumptions again, as with the other protocol, and restart if one does not hold.

use super::sync::Protocol;
use archipelago_sync::version_lock::VersionLock;

/// The protocol that the module's documentation describes.
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
