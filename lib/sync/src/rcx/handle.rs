//! Handles, by which objects' locks are found, and the order in which locks are taken.

use core::fmt;

use archipelago_platform::atomic::{AtomicU8, AtomicU32};

use super::Locks;
use super::words::Queue;

/// The parts of a lock. Private: only an [`Rcx`] takes a byte or a word.
pub(super) trait Access<'o>: Copy {
    /// The key by which global words are ordered. Equal for objects that share a lock.
    fn key(self) -> usize;

    /// The byte of a node.
    fn local(self, node: usize) -> &'o AtomicU8;

    /// The global word: 0, or the holder's node plus 1.
    fn global(self) -> &'o AtomicU32;

    /// The state that hand-over needs beside the byte, or `None` if the lock has no room for it.
    fn queue(self, node: usize) -> Option<&'o Queue>;
}

/// Identifies the lock of an object; made by [`Rcx::handle`](super::Rcx::handle). It borrows the object, which
/// therefore cannot be moved or dropped while it is locked. It also borrows the `Rcx`, the only one that can lock the
/// object.
pub struct Handle<'o, L: Locks> {
    locks: &'o L,
    pub(super) lock: L::Lock<'o>,
}

impl<'o, L: Locks> Handle<'o, L> {
    #[inline]
    pub(super) fn new(locks: &'o L, object: &'o L::Object) -> Self {
        Self { locks, lock: locks.lock_of(object) }
    }

    /// Returns whether the handle was made by these locks. The handle borrows them, so they are not moved or dropped,
    /// and no other locks have their address.
    #[inline]
    fn is_of(&self, locks: &L) -> bool {
        core::ptr::eq(self.locks, locks)
    }
}

impl<L: Locks> Clone for Handle<'_, L> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Locks> Copy for Handle<'_, L> {}

impl<L: Locks> fmt::Debug for Handle<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.lock.key()).finish()
    }
}

/// Handles in the order of global words, without duplicates; made by [`Rcx::order`](super::Rcx::order) or
/// [`InOrder::one`]. The order prevents two errors: an update that waits for itself, and an update that waits for a
/// word while it holds a later one.
#[derive(Debug)]
pub struct InOrder<'a, 'o, L: Locks + 'o>(pub(super) &'a [Handle<'o, L>]);

impl<'a, 'o, L: Locks> InOrder<'a, 'o, L> {
    /// A single handle.
    #[inline]
    pub fn one(handle: &'a Handle<'o, L>) -> Self {
        Self(core::slice::from_ref(handle))
    }

    /// Sorts the handles and removes duplicates. Handles of other locks are refused first: the stripes of two tables
    /// have the same numbers, so one could be removed as a duplicate of the other.
    ///
    /// # Panics
    /// If a handle does not belong to these locks.
    #[inline]
    pub(super) fn sort(locks: &L, handles: &'a mut Vec<Handle<'o, L>>) -> Self {
        refuse_foreign(locks, handles);
        handles.sort_unstable_by_key(|handle| handle.lock.key());
        handles.dedup_by_key(|handle| handle.lock.key());
        Self(handles)
    }
}

/// # Panics
/// If a handle does not belong to these locks.
#[inline]
pub(super) fn refuse_foreign<L: Locks>(locks: &L, handles: &[Handle<'_, L>]) {
    assert!(handles.iter().all(|handle| handle.is_of(locks)), "a handle of another `Rcx`");
}

impl<L: Locks> Clone for InOrder<'_, '_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Locks> Copy for InOrder<'_, '_, L> {}
