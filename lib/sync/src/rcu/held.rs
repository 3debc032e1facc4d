//! Values that were read in a critical section which can pause and continue.
//!
//! *Holders* use a value that was read in the section, and the section lasts as long as there is a holder. In addition
//! a *keeper* may keep the value, and the record in which the section is published, while there is no holder. So the
//! section can continue cheaply. While there is no holder, objects to which the value leads may be reclaimed. The epoch
//! tells whether these objects may have been reclaimed:
//!
//! *A section that was published at epoch r, ended, and is published again, continues if the epoch is still r after the
//! barrier.* Let X be an object that was seen in the section. By (2) of the parent module's proof, X was sealed with an
//! e of at least r-1. So X is reclaimed after the epoch has become e+3, which is at least r+2. Let A be an attempt to
//! advance from r+1. If B_A came before the barrier of the new publication, the load of the epoch behind this barrier
//! would see r+1 or more. So B_A comes after the barrier, A sees the publication at r, and its advance fails. So the
//! epoch does not become r+2 before this section ends: X is not reclaimed.
//!
//! # One word
//! One atomic word counts the holders. So a holder costs two atomic operations, one to make it and one to drop it, like
//! a clone of an `Arc`. The record is inside the section exactly while there are holders, except while the first holder
//! enters and while the last one leaves. In both cases, [`BUSY`] excludes all other threads from the word. The record's
//! owner is the thread that set `BUSY`, or the only thread that has a holder or the keeper. Orderings, each named at
//! its place:
//!
//! - *In.* The first holder's store of the word (Release) follows its publication and barrier, or its leave if the
//!   section cannot continue. Later holders are made by holders, or by the keeper with an Acquire of the word. So their
//!   reads follow B_R, and they see the record as the previous owner left it.
//! - *Out.* Holders leave with Release. The last one loads the word with Acquire and then leaves the section (a
//!   Release, as the parent's proof requires). So all holders' reads happen before the leave. It clears [`BUSY`] with
//!   Release, for the record's next owner.
//! - *The end.* Of the keeper and the last holder, the one that ends second frees the box. [`KEPT`] is cleared with
//!   Release and Acquire, so all accesses of the first happen before the second frees the box. While the keeper exists,
//!   the last holder's store is its last access, since the keeper may free the box from then on.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use archipelago_platform::atomic::{AtomicUsize, Ordering::*};

use super::owned::{OwnedGuard, Section};
use crate::backoff::Backoff;

/// The first holder is entering, or the last one is leaving: no other thread may change the word.
const BUSY: usize = 1;
/// The keeper exists.
const KEPT: usize = 2;
/// No holder exists, and none will be made, since the section could not continue. The record now has a later epoch, at
/// which it does not protect the value.
const OVER: usize = 4;
/// A holder.
const ONE: usize = 8;

struct Inner<'d, T> {
    /// The number of holders, and the bits above.
    word: AtomicUsize,
    section: Section<'d>,
    what: T,
}

/// A holder of a value that was read in a critical section of its own. The section lasts as long as a holder exists.
/// [`OwnedGuard::keep`] makes the first. A holder is `Send` if the value is `Send` and `Sync`, and any thread may drop
/// it.
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

/// Keeps a value that was read in a critical section, without the section. See [`Held`].
pub struct Keeper<'d, T> {
    inner: NonNull<Inner<'d, T>>,
    owns: PhantomData<Inner<'d, T>>,
}

// SAFETY: as of an `Arc`: several threads may have references to the value, and any may drop it. The section's record
// is written by one thread at a time, ordered by the word; see the module's text.
unsafe impl<T: Send + Sync> Send for Held<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Held<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Keeper<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Keeper<'_, T> {}

impl<'d, T> Held<'d, T> {
    /// Makes the first holder of a section that has been entered.
    pub(super) fn new(section: Section<'d>, what: T) -> Self {
        let inner = Box::new(Inner { word: AtomicUsize::new(ONE), section, what });
        Self { inner: NonNull::from(Box::leak(inner)), owns: PhantomData }
    }

    fn inner(&self) -> &Inner<'d, T> {
        // SAFETY: the box is freed by the last holder, or later.
        unsafe { self.inner.as_ref() }
    }

    /// Makes the keeper of this holder's value.
    ///
    /// # Panics
    /// If the value already has a keeper.
    pub fn keeper(this: &Self) -> Keeper<'d, T> {
        // Relaxed: any thread that gets the keeper gets it from this thread.
        let before = this.inner().word.fetch_or(KEPT, Relaxed);
        assert!(before & KEPT == 0, "what is held has one keeper");
        Keeper { inner: this.inner, owns: PhantomData }
    }

    /// Ends a holder.
    ///
    /// # Safety
    /// Called once for each holder, of an `inner` that is not freed.
    #[inline]
    unsafe fn let_go(inner: NonNull<Inner<'d, T>>) {
        // SAFETY: the box lives as long as this holder is counted: word and section are not used after the last change
        // of the word.
        let (word, section) = unsafe { (&(*inner.as_ptr()).word, &(*inner.as_ptr()).section) };
        let mut seen = word.load(Acquire);
        loop {
            // While a holder exists, no other thread sets `BUSY`.
            debug_assert!(seen >= ONE && seen & BUSY == 0);
            if seen == ONE {
                // No other thread has a holder or the keeper. Acquire (above): all that former holders did happens
                // before.
                section.leave();
                // SAFETY: the pointer is from a box, and no other pointer to the box is used any more.
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
        // SAFETY: the box is not freed while its keeper exists.
        unsafe { self.inner.as_ref() }
    }

    /// Returns the value. Objects to which it leads may have been reclaimed, unless a holder exists.
    pub fn what(&self) -> &T {
        &self.inner().what
    }

    /// Makes a holder. Returns `None` if no holder existed and the objects may have been reclaimed since; all later
    /// calls return `None`, too. Never waits for readers. O(1).
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
            // Acquire: either this thread becomes the record's owner after the previous one, or its reads follow the
            // first holder's barrier (*In*).
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

    /// Returns a guard of a new section and the value; `None` if holders exist. In either case the keeper ends.
    pub fn into_parts(self) -> Option<(OwnedGuard<'d>, T)> {
        let inner = core::mem::ManuallyDrop::new(self).inner;
        // SAFETY: called once for this keeper.
        let inner = unsafe { Self::end(inner) }?;
        let Inner { section, what, .. } = *inner;
        Some((section.into_guard(), what))
    }

    /// Waits until the word is not `BUSY`, and returns it.
    #[inline]
    fn settled(word: &AtomicUsize) -> usize {
        let backoff = Backoff::new();
        loop {
            // Relaxed: the following change of the word is an Acquire.
            let seen = word.load(Relaxed);
            if seen & BUSY == 0 {
                return seen;
            }
            backoff.wait();
        }
    }

    /// Ends the keeper. Returns the box if no holder exists; otherwise the last holder frees the box.
    ///
    /// # Safety
    /// Called once for the keeper.
    unsafe fn end(inner: NonNull<Inner<'d, T>>) -> Option<Box<Inner<'d, T>>> {
        // SAFETY: the box is not freed while `KEPT` is set.
        let word = unsafe { &(*inner.as_ptr()).word };
        loop {
            let seen = Self::settled(word);
            // Release and Acquire: *The end* in the module's text.
            if word.compare_exchange_weak(seen, seen - KEPT, AcqRel, Relaxed).is_ok() {
                // SAFETY: the pointer is from a box, and no other pointer to the box is used any more.
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
        // Relaxed: any thread that gets the clone gets it from this thread, which is inside the section.
        let before = self.inner().word.fetch_add(ONE, Relaxed);
        if before > isize::MAX as usize {
            // As in `Arc`: so many holders exist only if most of them were forgotten.
            std::process::abort();
        }
        Self { inner: self.inner, owns: PhantomData }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: called once for this holder.
        unsafe { Self::let_go(self.inner) }
    }
}

impl<T> Drop for Keeper<'_, T> {
    fn drop(&mut self) {
        // SAFETY: called once for this keeper. If `end` returns the box, no holder is left, so the section has ended.
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
