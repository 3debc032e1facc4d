//! Pages that a thread has locked explicitly, to restructure them.

use archipelago_sync::backoff::Backoff;
use archipelago_sync::region::Versioned;
use archipelago_sync::version_lock::Version;
use core::ops::Deref;

/// A page that this thread has locked. Dropping the guard unlocks the page, with a new version if the page was changed.
///
/// No thread waits for a chunk's lock while it holds another chunk's. Inner nodes of the B+tree are locked from the
/// root downwards, and the towers of the skip list from right to left. A lock that does not fit this order is only
/// tried, never waited for. So threads do not deadlock.
pub(super) struct Held<'g, P: Versioned> {
    page: &'g P,
    changed: bool,
}

impl<'g, P: Versioned> Held<'g, P> {
    /// Locks the page if it still has this version.
    pub(super) fn at(page: &'g P, version: Version) -> Option<Self> {
        page.lock().try_lock_at(version).then(|| Self { page, changed: false })
    }

    /// Locks the page. Returns `None` if the page gets another version first. The method waits for threads that hold
    /// the lock without changing the page. Such a thread is, for example, in a walk whose transaction could not commit,
    /// and therefore reads the page under its lock.
    pub(super) fn wait_at(page: &'g P, version: Version) -> Option<Self> {
        let backoff = Backoff::new();
        while page.lock().read_unlocked() == Some(version) {
            let held = Self::at(page, version);
            if held.is_some() {
                return held;
            }
            backoff.wait();
        }
        None
    }

    /// Locks the page if its lock is free.
    pub(super) fn try_now(page: &'g P) -> Option<Self> {
        page.lock().try_lock().then(|| Self { page, changed: false })
    }

    /// Waits for the lock. Returns `None` if the page is removed from the structure. If the page is a tower, the caller
    /// may hold locks of chunks; otherwise it holds no lock.
    pub(super) fn wait(page: &'g P) -> Option<Self> {
        page.lock().lock().then(|| Self { page, changed: false })
    }

    /// Returns the page, which lives as long as the guard.
    pub(super) fn page(&self) -> &'g P {
        self.page
    }

    /// Notes that the page was changed.
    pub(super) fn change(&mut self) {
        self.changed = true;
    }

    /// Unlocks a page that was removed from the structure, and makes it obsolete.
    pub(super) fn gone(self) {
        self.page.lock().unlock_obsolete();
        core::mem::forget(self);
    }
}

impl<P: Versioned> Deref for Held<'_, P> {
    type Target = P;

    fn deref(&self) -> &P {
        self.page
    }
}

impl<P: Versioned> Drop for Held<'_, P> {
    fn drop(&mut self) {
        if self.changed { self.page.lock().unlock() } else { self.page.lock().unlock_unchanged() }
    }
}
