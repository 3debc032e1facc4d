//! The scope of a change: one page at a version, a part of a page, or several pages.

use super::{Stale, Versioned};
use crate::backoff::Backoff;
use crate::version_lock::{Look, Version, VersionLock};

/// The result of an attempt to lock a scope.
pub(super) enum Tried {
    Locked,
    /// Another thread holds a lock.
    Busy,
}

/// Pages, by their locks.
pub(super) trait Scope: Copy {
    /// Calls `each` with every lock that is held while the scope is locked.
    fn each_held(self, each: impl FnMut(&VersionLock));

    /// Returns whether an address is in one of the pages that no other thread changes while the scope is locked.
    fn has(self, address: usize) -> bool;

    /// Returns whether all locks are free, at the requested version.
    fn is_free(self) -> bool;

    /// Waits while a lock is held.
    ///
    /// # Errors
    /// If a page is retired or has another version.
    fn wait_free(self) -> Result<(), Stale>;

    /// Locks all pages, or none. Waits for no holder of a lock, but for threads that share a lock.
    ///
    /// # Errors
    /// As [`wait_free`](Self::wait_free).
    fn try_lock(self) -> Result<Tried, Stale>;

    /// Unlocks all pages, with new versions or the old ones. Retired pages are obsolete from then on.
    fn unlock(self, changed: bool);

    /// In a transaction: gives new versions to the pages that would be locked.
    fn bump_in_transaction(self);
}

/// Returns whether an address is in a page.
fn is_in<P>(page: &P, address: usize) -> bool {
    address.wrapping_sub(core::ptr::from_ref(page).addr()) < size_of::<P>()
}

/// Returns whether a scope holds this lock.
pub(super) fn holds(scope: impl Scope, lock: &VersionLock) -> bool {
    let mut holds = false;
    scope.each_held(|held| holds |= core::ptr::eq(held, lock));
    holds
}

/// A page at a version.
pub(super) struct At<'p, P> {
    page: &'p P,
    lock: &'p VersionLock,
    version: Version,
}

impl<'p, P: Versioned> At<'p, P> {
    #[inline(always)]
    pub(super) fn new(page: &'p P, version: Version) -> Self {
        Self { page, lock: page.lock(), version }
    }
}

impl<P> Clone for At<'_, P> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for At<'_, P> {}

impl<P: Versioned> Scope for At<'_, P> {
    fn each_held(self, mut each: impl FnMut(&VersionLock)) {
        each(self.lock);
    }

    #[inline]
    fn has(self, address: usize) -> bool {
        is_in(self.page, address)
    }

    #[inline(always)]
    fn is_free(self) -> bool {
        // A thread that locks waits until no thread shares the lock; a transaction requires that no thread shares it.
        self.lock.is_at(self.version) && !self.lock.is_shared()
    }

    fn wait_free(self) -> Result<(), Stale> {
        still(self.lock, self.version)
    }

    #[inline]
    fn try_lock(self) -> Result<Tried, Stale> {
        if self.lock.try_lock_at(self.version) { Ok(Tried::Locked) } else { busy(self.lock, self.version) }
    }

    #[inline]
    fn unlock(self, changed: bool) {
        unlock(self.lock, changed);
    }

    #[inline(always)]
    fn bump_in_transaction(self) {
        self.lock.bump_in_transaction();
    }
}

/// A part of a page, while the page stays at a version. The page's lock is shared.
pub(super) struct Part<'p, Q> {
    page: &'p VersionLock,
    version: Version,
    part: &'p VersionLock,
    whole: &'p Q,
}

impl<'p, Q: Versioned> Part<'p, Q> {
    #[inline(always)]
    pub(super) fn new(page: &'p impl Versioned, version: Version, part: &'p Q) -> Self {
        Self { page: page.lock(), version, part: part.lock(), whole: part }
    }
}

impl<Q> Clone for Part<'_, Q> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q> Copy for Part<'_, Q> {}

impl<Q: Versioned> Scope for Part<'_, Q> {
    fn each_held(self, mut each: impl FnMut(&VersionLock)) {
        each(self.part);
    }

    #[inline]
    fn has(self, address: usize) -> bool {
        is_in(self.whole, address)
    }

    #[inline(always)]
    fn is_free(self) -> bool {
        // Threads that share the page's lock change other parts, or hold this part's lock.
        self.page.is_at(self.version) && self.part.read().is_some()
    }

    fn wait_free(self) -> Result<(), Stale> {
        still(self.page, self.version)?;
        if self.part.read_unlocked().is_some() { Ok(()) } else { Err(Stale) }
    }

    #[inline]
    fn try_lock(self) -> Result<Tried, Stale> {
        if !self.page.try_share_at(self.version) {
            return busy(self.page, self.version);
        }
        if self.part.try_lock() {
            return Ok(Tried::Locked);
        }
        // A thread must not wait while it shares the page's lock.
        self.page.unshare();
        if self.part.look() == Look::Obsolete { Err(Stale) } else { Ok(Tried::Busy) }
    }

    #[inline]
    fn unlock(self, changed: bool) {
        unlock(self.part, changed);
        // Release: the thread that locks the page next sees the part's words.
        self.page.unshare();
    }

    #[inline(always)]
    fn bump_in_transaction(self) {
        self.part.bump_in_transaction();
    }
}

/// Waits while the lock is held.
fn still(lock: &VersionLock, version: Version) -> Result<(), Stale> {
    if lock.read_unlocked() == Some(version) { Ok(()) } else { Err(Stale) }
}

/// Returns the reason why a lock could not be taken at a version: `Busy` if another try may succeed, otherwise
/// [`Stale`].
fn busy(lock: &VersionLock, version: Version) -> Result<Tried, Stale> {
    match lock.look() {
        Look::Locked => Ok(Tried::Busy),
        Look::Free(seen) if seen == version => Ok(Tried::Busy),
        Look::Free(_) | Look::Obsolete => Err(Stale),
    }
}

/// Several pages.
pub(super) struct All<'p, P>(pub(super) &'p [&'p P]);

impl<P> Clone for All<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for All<'_, P> {}

impl<P: Versioned> Scope for All<'_, P> {
    fn each_held(self, mut each: impl FnMut(&VersionLock)) {
        self.0.iter().for_each(|page| each(page.lock()));
    }

    #[inline]
    fn has(self, address: usize) -> bool {
        self.0.iter().any(|page| is_in(*page, address))
    }

    #[inline(always)]
    fn is_free(self) -> bool {
        self.0.iter().all(|page| page.lock().read().is_some() && !page.lock().is_shared())
    }

    fn wait_free(self) -> Result<(), Stale> {
        let free = |page: &&P| page.lock().read_unlocked().is_some();
        if self.0.iter().all(free) { Ok(()) } else { Err(Stale) }
    }

    fn try_lock(self) -> Result<Tried, Stale> {
        for (taken, page) in self.0.iter().enumerate() {
            if !page.lock().try_lock() {
                let held = &self.0[..taken];
                held.iter().for_each(|page| page.lock().unlock_unchanged());
                // The change would wait for itself forever.
                let twice = held.iter().any(|held| core::ptr::eq(held.lock(), page.lock()));
                assert!(!twice, "a page is listed twice in a change");
                return if page.lock().look() == Look::Obsolete { Err(Stale) } else { Ok(Tried::Busy) };
            }
        }
        Ok(Tried::Locked)
    }

    fn unlock(self, changed: bool) {
        self.0.iter().for_each(|page| unlock(page.lock(), changed));
    }

    #[inline(always)]
    fn bump_in_transaction(self) {
        self.0.iter().for_each(|page| page.lock().bump_in_transaction());
    }
}

#[inline]
fn unlock(lock: &VersionLock, changed: bool) {
    if changed { lock.unlock() } else { lock.unlock_unchanged() }
}

/// Waits for the lock, and takes it.
///
/// Between two tries the thread only loads the lock word. A thread that wants to share the lock first increments the
/// number of sharers, and then sees that the lock is held. Enough of such tries would make the holder wait for sharers
/// forever.
///
/// # Errors
/// As [`Scope::try_lock`].
#[inline]
pub(super) fn lock(scope: impl Scope) -> Result<(), Stale> {
    let backoff = Backoff::new();
    while let Tried::Busy = scope.try_lock()? {
        backoff.wait();
        scope.wait_free()?;
    }
    Ok(())
}
