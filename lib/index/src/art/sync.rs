//! What the two write synchronisations of the paper share, and the three questions on which they differ.

use super::node::Node;
use archipelago_sync::version_lock::VersionLock;

/// How writers keep out of each other's and of readers' way. Both are from "The ART of Practical Synchronization"
/// (DaMoN 2016); all operations mean the same under either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteSync {
    /// Optimistic lock coupling: readers check each node's version and start over when it changed.
    OptimisticLockCoupling,
    /// Read-optimised write exclusion: look-ups never check and never start over; writers lock the one or two nodes
    /// that they change.
    #[default]
    Rowex,
}

/// One of the two, at compile time.
pub(super) trait Protocol {
    /// What is remembered of a node between looking and locking.
    type Seen: Copy;

    /// Starts looking at a node; `None` says to start over.
    fn enter(lock: &VersionLock) -> Option<Self::Seen>;

    /// Whether what was read since `enter` may be believed.
    fn still(lock: &VersionLock, seen: Self::Seen) -> bool;

    /// Locks the node; `false` says to start over. The holder looks again at whatever it acts on: under optimistic
    /// lock coupling it will find no change, under ROWEX it may.
    fn lock(lock: &VersionLock, seen: Self::Seen) -> bool;
}

/// The operation met a change and starts over from the root.
#[derive(Debug)]
pub(super) struct Restart;

/// A node and what was seen of it.
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

/// A node that this thread has locked. Dropping it unlocks without telling readers: nothing they would see differently
/// has changed (the value word of a leaf may have).
///
/// Several locks are taken from the root downwards, so waiting for them cannot come round in a circle.
pub(super) struct Locked<'g>(Node<'g>);

impl<'g> Locked<'g> {
    /// A node that this thread has locked just now.
    pub(super) fn held(node: Node<'g>) -> Self {
        Locked(node)
    }

    /// Unlocks after a change.
    pub(super) fn changed(self) {
        self.0.lock().unlock();
        core::mem::forget(self);
    }

    /// Unlocks a node that nothing leads to any more, for ever. The caller retires it, once it holds no lock:
    /// reclamation may run the destructors of users' values, which may use the tree.
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
