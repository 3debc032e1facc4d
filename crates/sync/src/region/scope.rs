//! The pages that a change is about: one at a version, or several.

use super::{Page, Stale};
use crate::backoff::Backoff;
use crate::version_lock::{Look, Version, VersionLock};

/// How trying to lock a scope ended.
pub(super) enum Tried {
    Locked,
    /// Another thread holds a lock.
    Busy,
}

/// Pages, by their locks.
pub(super) trait Scope: Copy {
    /// Whether all locks are free, at the version asked for.
    fn is_free(self) -> bool;

    /// Waits while a lock is held.
    ///
    /// # Errors
    /// If a page is gone or has another version.
    fn wait_free(self) -> Result<(), Stale>;

    /// Locks all of them, or none. Does not wait.
    ///
    /// # Errors
    /// As [`wait_free`](Self::wait_free).
    fn try_lock(self) -> Result<Tried, Stale>;

    /// Unlocks all that are not gone, with new versions or the old ones.
    fn unlock(self, changed: bool);
}

/// A page at a version.
#[derive(Clone, Copy)]
pub(super) struct At<'p> {
    pub(super) lock: &'p VersionLock,
    pub(super) version: Version,
}

impl Scope for At<'_> {
    #[inline(always)]
    fn is_free(self) -> bool {
        self.lock.is_at(self.version)
    }

    fn wait_free(self) -> Result<(), Stale> {
        if self.lock.read_unlocked() == Some(self.version) { Ok(()) } else { Err(Stale) }
    }

    #[inline]
    fn try_lock(self) -> Result<Tried, Stale> {
        if self.lock.try_lock_at(self.version) {
            return Ok(Tried::Locked);
        }
        match self.lock.look() {
            Look::Locked => Ok(Tried::Busy),
            Look::Free(version) if version == self.version => Ok(Tried::Busy),
            Look::Free(_) | Look::Obsolete => Err(Stale),
        }
    }

    #[inline]
    fn unlock(self, changed: bool) {
        unlock(self.lock, changed);
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

impl<P: Page> Scope for All<'_, P> {
    #[inline(always)]
    fn is_free(self) -> bool {
        self.0.iter().all(|page| page.lock().read().is_some())
    }

    fn wait_free(self) -> Result<(), Stale> {
        let free = |page: &&P| page.lock().read_unlocked().is_some();
        if self.0.iter().all(free) { Ok(()) } else { Err(Stale) }
    }

    fn try_lock(self) -> Result<Tried, Stale> {
        for (taken, page) in self.0.iter().enumerate() {
            if !page.lock().try_lock() {
                self.0[..taken].iter().for_each(|page| page.lock().unlock_unchanged());
                return if page.lock().look() == Look::Obsolete { Err(Stale) } else { Ok(Tried::Busy) };
            }
        }
        Ok(Tried::Locked)
    }

    fn unlock(self, changed: bool) {
        self.0.iter().for_each(|page| unlock(page.lock(), changed));
    }
}

/// A page that was retired in the change is not locked any more.
#[inline]
fn unlock(lock: &VersionLock, changed: bool) {
    match lock.look() {
        Look::Obsolete => {}
        _ if changed => lock.unlock(),
        _ => lock.unlock_unchanged(),
    }
}

/// Locks, however long it takes.
///
/// # Errors
/// As [`Scope::try_lock`].
#[inline]
pub(super) fn lock(scope: impl Scope) -> Result<(), Stale> {
    let backoff = Backoff::new();
    while let Tried::Busy = scope.try_lock()? {
        backoff.wait();
    }
    Ok(())
}
