//! What finds an object's lock, and the order in which locks are taken.

use core::fmt;

use archipelago_platform::atomic::{AtomicU8, AtomicU32};

use super::Locks;
use super::words::Queue;

/// A lock's parts. Private: what takes a byte or a word is an [`Rcx`], and nothing else.
pub(super) trait Access<'o>: Copy {
    /// The place in the order of global words. Equal for objects with one lock.
    fn key(self) -> usize;

    /// The byte of a node.
    fn local(self, node: usize) -> &'o AtomicU8;

    /// The global word: 0, or one more than the holder's node.
    fn global(self) -> &'o AtomicU32;

    /// What hand-over needs beside the byte, where there is room for it.
    fn queue(self, node: usize) -> Option<&'o Queue>;
}

/// Finds the lock of an object: [`Rcx::handle`](super::Rcx::handle). It borrows the object, which can neither move nor end while it is locked, and the
/// `Rcx`, by which alone it can be locked.
pub struct Handle<'o, L: Locks> {
    locks: &'o L,
    pub(super) lock: L::Lock<'o>,
}

impl<'o, L: Locks> Handle<'o, L> {
    #[inline]
    pub(super) fn new(locks: &'o L, object: &'o L::Object) -> Self {
        Self { locks, lock: locks.lock_of(object) }
    }

    /// Returns whether it is of these locks. They do not move, nor end, while it borrows them: no others have their address.
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

/// Handles in the order of global words, each lock once: [`Rcx::order`](super::Rcx::order), [`InOrder::one`]. No update waits for itself, and none
/// waits for a word with a later one in its hands.
#[derive(Debug)]
pub struct InOrder<'a, 'o, L: Locks + 'o>(pub(super) &'a [Handle<'o, L>]);

impl<'a, 'o, L: Locks> InOrder<'a, 'o, L> {
    /// A single handle.
    #[inline]
    pub fn one(handle: &'a Handle<'o, L>) -> Self {
        Self(core::slice::from_ref(handle))
    }

    /// Refuses others' handles before any is left out: in tables, stripes of different locks have the same numbers.
    ///
    /// # Panics
    /// If a handle is not of these locks.
    #[inline]
    pub(super) fn sort(locks: &L, handles: &'a mut Vec<Handle<'o, L>>) -> Self {
        refuse_foreign(locks, handles);
        handles.sort_unstable_by_key(|handle| handle.lock.key());
        handles.dedup_by_key(|handle| handle.lock.key());
        Self(handles)
    }
}

/// # Panics
/// If a handle is not of these locks.
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
