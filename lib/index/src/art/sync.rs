//! The common part of the paper's two write synchronisations, and the trait for their differences.

use super::node::Node;
use archipelago_sync::version_lock::VersionLock;

/// The synchronization of writers with each other and with readers. Both variants are from "The ART of Practical
/// Synchronization" (DaMoN 2016), and operations have the same semantics under both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteSync {
    /// Optimistic lock coupling: readers validate each node's version, and restart when it has changed.
    OptimisticLockCoupling,
    /// Read-optimised write exclusion: look-ups never validate and never restart; writers lock the nodes that they
    /// change, at most three.
    #[default]
    Rowex,
}

/// One of the two synchronizations, selected at compile time.
pub(super) trait Protocol {
    /// The data that a thread keeps about a node between reading and locking it.
    type Seen: Copy;

    /// Begins to read a node. Returns `None` if the operation has to restart.
    fn enter(lock: &VersionLock) -> Option<Self::Seen>;

    /// Validates the reads since `enter`.
    fn still(lock: &VersionLock, seen: Self::Seen) -> bool;

    /// Locks the node. Returns `false` if the operation has to restart. After the lock the thread checks its
    /// assumptions again: under optimistic lock coupling they always hold, and under ROWEX they may have changed.
    fn lock(lock: &VersionLock, seen: Self::Seen) -> bool;
}

/// The operation has found a concurrent change, and has to restart from the root.
#[derive(Debug)]
pub(super) struct Restart;

/// A node, and the data of its read.
pub(super) struct Seen<'g, P: Protocol> {
    pub(super) node: Node<'g>,
    seen: P::Seen,
}

impl<P: Protocol> Clone for Seen<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Protocol> Copy for Seen<'_, P> {}

impl<'g, P: Protocol> Seen<'g, P> {
    #[inline(always)]
    pub(super) fn enter(node: Node<'g>) -> Result<Self, Restart> {
        let seen = P::enter(node.lock()).ok_or(Restart)?;
        Ok(Seen { node, seen })
    }

    #[inline(always)]
    pub(super) fn check(self) -> Result<(), Restart> {
        if P::still(self.node.lock(), self.seen) { Ok(()) } else { Err(Restart) }
    }

    pub(super) fn lock(self) -> Result<Locked<'g>, Restart> {
        if P::lock(self.node.lock(), self.seen) { Ok(Locked(self.node)) } else { Err(Restart) }
    }
}

/// A node that this thread has locked. Dropping a `Locked` unlocks the node without a new version: nothing has changed
/// that readers validate. (The value word of a leaf may have changed.)
///
/// Several locks are taken from the root downwards, so threads cannot wait in a circle.
pub(super) struct Locked<'g>(Node<'g>);

impl<'g> Locked<'g> {
    /// Wraps a node that this thread has just locked.
    pub(super) fn held(node: Node<'g>) -> Self {
        Locked(node)
    }

    /// Unlocks after a change.
    pub(super) fn changed(self) {
        self.0.lock().unlock();
        core::mem::forget(self);
    }

    /// Unlocks an unlinked node and marks it obsolete. The caller retires it after it has released all locks,
    /// since reclamation may run destructors of users' values, which may use the tree.
    #[must_use]
    pub(super) fn replaced(self) -> Node<'g> {
        self.0.lock().unlock_obsolete();
        let node = self.0;
        core::mem::forget(self);
        node
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.lock().unlock_unchanged();
    }
}
