//! What was read in a critical section that pauses and goes on.
//!
//! The section lasts as long as one of those that use what was read: the *holders*. Beside them a *keeper* may keep what was
//! read, and the record, while there is no holder, so that the section can go on cheaply. Between a holder's end and the
//! next one an object that was read may have been reclaimed; whether it may, the epoch tells:
//!
//! *A section that was published at epoch r, ended, and is published again, goes on if the epoch is still r after the barrier.*
//! By (2) of the parent module's proof an object X that was seen in the section was sealed with an e of r-1 at least, so X is
//! reclaimed after the epoch has become e+3, which is r+2 at least. Let A be an attempt to advance from r+1. If B_A came before
//! the barrier of the new publication, the load of the epoch behind that barrier would see r+1 or more. So B_A comes after it,
//! A sees the publication at r, and is refused. So the epoch does not become r+2 before this section ends: X is not reclaimed.
//!
//! # One word
//! One atomic word counts the holders, so that a holder that comes and goes costs two atomic operations, as a clone of an
//! `Arc` does, which it takes the place of. The record is inside the section exactly while there are holders, but for two
//! moments, when the first comes and when the last leaves: [`BUSY`] then keeps all other threads off the word. The thread that
//! set it, or that is the only one to have anything, is the record's owner. Orderings, each named at its place:
//!
//! - *In.* The first holder's store of the word (Release) comes after its publication and barrier, or after its leave if it may
//!   not go on. Later holders are made by holders, or by the keeper with an Acquire of the word: so their reads follow B_R, and
//!   the record is theirs as the thread before has left it.
//! - *Out.* Holders leave with Release, the last one looks with Acquire, then leaves the section (a Release, as the parent's
//!   proof asks): all holders' reads happen before the leave. It puts [`BUSY`] away with Release, for the record's next owner.
//! - *The end.* Whichever of the keeper and the last holder comes second frees the box. The keeper's part in the word is taken
//!   away with Release and Acquire, so what the one did with the box happens before the other frees it. With a keeper there,
//!   the last holder's store is its last access: the keeper may free the box from then on.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use archipelago_platform::atomic::{AtomicUsize, Ordering::*};

use super::owned::{OwnedGuard, Section};
use crate::backoff::Backoff;

/// The first holder comes, or the last one leaves: no other thread changes the word.
const BUSY: usize = 1;
/// There is a keeper.
const KEPT: usize = 2;
/// There is no holder, and never will be: the section could not go on. The record has a later epoch since, which says nothing
/// about what was read.
const OVER: usize = 4;
/// A holder.
const ONE: usize = 8;

struct Inner<'d, T> {
    /// Holders, and the bits above.
    word: AtomicUsize,
    section: Section<'d>,
    what: T,
}

/// A holder of something that was read in a critical section of its own: the section lasts while there is one.
/// [`OwnedGuard::keep`] makes the first. It is `Send` if what it holds is `Send` and `Sync`, and ends anywhere.
///
/// ```
/// use archipelago::sync::rcu::{Domain, Held};
///
/// let domain = Domain::new();
/// let guard = domain.pin_owned();
/// // ... read "something" ...
/// let held = guard.keep("something");
/// let keeper = Held::keeper(&held);
/// drop(held);
/// assert_eq!(domain.stats().active_readers, 0);
/// assert!(keeper.hold().is_some()); // the epoch has not moved: what was read is still there
/// domain.collect();
/// assert!(keeper.hold().is_none());
/// ```
pub struct Held<'d, T> {
    inner: NonNull<Inner<'d, T>>,
    owns: PhantomData<Inner<'d, T>>,
}

/// Keeps what was read in a critical section, and not the section. See [`Held`].
pub struct Keeper<'d, T> {
    inner: NonNull<Inner<'d, T>>,
    owns: PhantomData<Inner<'d, T>>,
}

// SAFETY: as of an `Arc`: several threads may have references to the value, and any may drop it. The section's record is
// written by one thread at a time, ordered by the word; see the module's text.
unsafe impl<T: Send + Sync> Send for Held<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Held<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Keeper<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Keeper<'_, T> {}

impl<'d, T> Held<'d, T> {
    /// Of a section that has been entered.
    pub(super) fn new(section: Section<'d>, what: T) -> Self {
        let inner = Box::new(Inner { word: AtomicUsize::new(ONE), section, what });
        Self { inner: NonNull::from(Box::leak(inner)), owns: PhantomData }
    }

    fn inner(&self) -> &Inner<'d, T> {
        // SAFETY: it is freed by the last holder, or later.
        unsafe { self.inner.as_ref() }
    }

    /// The keeper of what this holds.
    ///
    /// # Panics
    /// If it has one already.
    pub fn keeper(this: &Self) -> Keeper<'d, T> {
        // Relaxed: whatever thread gets the keeper has it from this one.
        let before = this.inner().word.fetch_or(KEPT, Relaxed);
        assert!(before & KEPT == 0, "what is held has one keeper");
        Keeper { inner: this.inner, owns: PhantomData }
    }

    /// A holder leaves.
    ///
    /// # Safety
    /// Called once for each holder, of an `inner` that is not freed.
    #[inline]
    unsafe fn let_go(inner: NonNull<Inner<'d, T>>) {
        // SAFETY: it lives as long as this holder is counted: neither is used behind the last change of the word.
        let (word, section) = unsafe { (&(*inner.as_ptr()).word, &(*inner.as_ptr()).section) };
        let mut seen = word.load(Acquire);
        loop {
            // A holder keeps others from making the word busy.
            debug_assert!(seen >= ONE && seen & BUSY == 0);
            if seen == ONE {
                // No other thread has anything. Acquire (above): what the others did happens before.
                section.leave();
                // SAFETY: from a box; nothing else leads there.
                return drop(unsafe { Box::from_raw(inner.as_ptr()) });
            }
            let (next, is_last) = if seen == ONE | KEPT { (KEPT | BUSY, true) } else { (seen - ONE, false) };
            // Release and Acquire: *Out* in the module's text.
            match word.compare_exchange_weak(seen, next, AcqRel, Acquire) {
                Err(now) => seen = now,
                Ok(_) if is_last => {
                    section.leave();
                    return word.store(KEPT, Release);
                }
                Ok(_) => return,
            }
        }
    }
}

impl<'d, T> Keeper<'d, T> {
    fn inner(&self) -> &Inner<'d, T> {
        // SAFETY: it is not freed while it is kept.
        unsafe { self.inner.as_ref() }
    }

    /// What is kept. What it leads to may have been reclaimed, unless there is a holder.
    pub fn what(&self) -> &T {
        &self.inner().what
    }

    /// A holder; `None`, then and for ever, if there was none and what was read may have been reclaimed since. Never waits for readers. O(1).
    #[inline]
    pub fn hold(&self) -> Option<Held<'d, T>> {
        let Inner { word, section, .. } = self.inner();
        let held = || Some(Held { inner: self.inner, owns: PhantomData });
        let mut seen = Self::settled(word);
        loop {
            if seen & OVER != 0 {
                return None;
            }
            let is_first = seen == KEPT;
            let next = if is_first { KEPT | BUSY } else { seen + ONE };
            // Acquire: the record is ours behind who had it before, or our reads follow the first holder's barrier (*In*).
            match word.compare_exchange_weak(seen, next, Acquire, Relaxed) {
                Err(now) if now & BUSY == 0 => seen = now,
                Err(_) => seen = Self::settled(word),
                Ok(_) if is_first => {
                    let same = section.go_on();
                    word.store(if same { KEPT | ONE } else { KEPT | OVER }, Release);
                    return if same { held() } else { None };
                }
                Ok(_) => return held(),
            }
        }
    }

    /// A guard of a new section, and what was kept; `None`, and this keeper is gone, if there are holders.
    pub fn into_parts(self) -> Option<(OwnedGuard<'d>, T)> {
        let inner = core::mem::ManuallyDrop::new(self).inner;
        // SAFETY: once, for this keeper.
        let inner = unsafe { Self::end(inner) }?;
        let Inner { section, what, .. } = *inner;
        Some((section.into_guard(), what))
    }

    /// The word when no thread is busy with it.
    #[inline]
    fn settled(word: &AtomicUsize) -> usize {
        let backoff = Backoff::new();
        loop {
            // Relaxed: what changes the word next acquires.
            let seen = word.load(Relaxed);
            if seen & BUSY == 0 {
                return seen;
            }
            backoff.wait();
        }
    }

    /// The keeper goes: the box if there is no holder, which else frees it.
    ///
    /// # Safety
    /// Called once for the keeper.
    unsafe fn end(inner: NonNull<Inner<'d, T>>) -> Option<Box<Inner<'d, T>>> {
        // SAFETY: kept until the word says otherwise.
        let word = unsafe { &(*inner.as_ptr()).word };
        loop {
            let seen = Self::settled(word);
            // Release and Acquire: *The end* in the module's text.
            if word.compare_exchange_weak(seen, seen - KEPT, AcqRel, Relaxed).is_ok() {
                // SAFETY: from a box; nothing else leads there.
                return (seen & !OVER == KEPT).then(|| unsafe { Box::from_raw(inner.as_ptr()) });
            }
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner().what
    }
}

impl<T> Clone for Held<'_, T> {
    fn clone(&self) -> Self {
        // Relaxed: whatever thread gets the clone has it from this one, which is inside.
        let before = self.inner().word.fetch_add(ONE, Relaxed);
        if before > isize::MAX as usize {
            // As an `Arc` does: so many can only have been forgotten.
            std::process::abort();
        }
        Self { inner: self.inner, owns: PhantomData }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: once, for this holder.
        unsafe { Self::let_go(self.inner) }
    }
}

impl<T> Drop for Keeper<'_, T> {
    fn drop(&mut self) {
        // SAFETY: once, for this keeper. No holder is left: the section has ended.
        drop(unsafe { Self::end(self.inner) });
    }
}

impl<T> fmt::Debug for Held<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Keeper<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}
