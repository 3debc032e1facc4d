//! Regions with their pages locked: all changes without RTM, and with it what transactions could not do.

use archipelago_platform::atomic::Ordering;
use archipelago_platform::hint::point;
use archipelago_platform::htm::{Quiet, quiet};

use super::scope::{self, Scope};
use super::{Again, Change, Changing, Link, Page, Region, Stale, Traverse, Walk, Word};
use crate::backoff::Backoff;
use crate::version_lock::{Look, Version, VersionLock};

/// A change under locks. With `BUMP` each page gets a new version when it is unlocked; without, if the body says so.
struct Locked<const BUMP: bool>;

impl<const BUMP: bool> Changing for Locked<BUMP> {
    #[inline]
    fn get(&self, word: &Word) -> u64 {
        word.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&mut self, word: &Word, value: u64) {
        point(Region::WRITING);
        word.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    fn target<P>(&self, link: &Link<P>) -> *mut P {
        link.0.load(Ordering::Relaxed)
    }

    #[inline]
    unsafe fn set_link<P>(&mut self, link: &Link<P>, to: *mut P) {
        // Release: pairs with the Acquire of `Link::load`, for RCU readers, whom no lock concerns.
        link.0.store(to, Ordering::Release);
    }

    #[inline]
    fn restructure(&mut self, page: &impl Page) {
        if !BUMP {
            page.lock().bump_held();
        }
    }

    #[inline]
    fn retire(&mut self, page: &impl Page) {
        page.lock().unlock_obsolete();
    }
}

/// Unlocks when the body is over, however it ends.
struct Unlock<S: Scope> {
    scope: S,
    changed: bool,
}

impl<S: Scope> Drop for Unlock<S> {
    #[inline]
    fn drop(&mut self) {
        self.scope.unlock(self.changed);
    }
}

#[inline]
pub(super) fn update<S: Scope, T: Change, const BUMP: bool>(scope: S, change: T) -> Result<T::Out, Stale> {
    scope::lock(scope)?;
    let mut unlock = Unlock { scope, changed: BUMP };
    let _quiet = quiet();
    let result = change.run(&mut Locked::<BUMP>);
    unlock.changed &= result.is_ok();
    result
}

/// Walks with each page locked while it is read: see the argument in the parent module.
struct Holding<'g> {
    at: Option<(&'g VersionLock, Version)>,
    quiet: Quiet,
}

impl<'g> Walk<'g> for Holding<'g> {
    fn enter<P: Page>(&mut self, page: &'g P) -> Result<&'g P, Again> {
        // The version while the page that leads here is locked; its lock when that one is free again.
        let look = page.lock().look();
        self.leave();
        let Look::Free(version) = look else {
            // The thread that holds it may want the page that was held here: not to come back before that is over.
            self.quiet.suspended(|| page.lock().read_unlocked());
            return Err(Again);
        };
        // With no lock held it waits for those that share the page.
        if !self.quiet.suspended(|| page.lock().try_lock_at(version)) {
            return Err(Again);
        }
        self.at = Some((page.lock(), version));
        Ok(page)
    }

    fn follow<P: Page>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again> {
        // SAFETY: the link is of a page that is locked, in the guard that `'g` stands for.
        unsafe { link.load().as_ref() }.map(|page| self.enter(page)).transpose()
    }

    fn get(&self, word: &Word) -> u64 {
        word.0.load(Ordering::Relaxed)
    }

    fn version(&self) -> Version {
        self.at.expect("a page was entered").1
    }

    fn prove(&self) -> Result<(), Again> {
        Ok(())
    }
}

impl Holding<'_> {
    fn leave(&mut self) {
        if let Some((lock, _)) = self.at.take() {
            lock.unlock_unchanged();
        }
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cold]
pub(super) fn traverse<'g, T: Traverse<'g>>(body: T) -> T::Out {
    let backoff = Backoff::new();
    loop {
        let found = body.run(&mut Holding { at: None, quiet: quiet() });
        if let Ok(found) = found {
            return found;
        }
        backoff.wait();
    }
}
