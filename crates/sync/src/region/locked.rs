//! Regions with their pages locked: all changes without RTM, and with it what transactions could not do.

use archipelago_platform::atomic::Ordering;
use archipelago_platform::hint::point;
use archipelago_platform::htm::{Quiet, quiet};

use super::scope::{self, Scope};
use super::{Again, Change, Changing, Link, Page, Region, Stale, Traverse, Walk, Word};
use crate::backoff::Backoff;
use crate::version_lock::{Look, Version, VersionLock};

/// A change under locks.
struct Locked {
    /// Whether each page gets a new version when it is unlocked. Otherwise it does if the body says so.
    tells: bool,
}

impl Changing for Locked {
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
        if !self.tells {
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
pub(super) fn update<S: Scope, T: Change>(scope: S, change: T, tells: bool) -> Result<T::Out, Stale> {
    scope::lock(scope)?;
    let mut unlock = Unlock { scope, changed: tells };
    let _quiet = quiet();
    let result = change.run(&mut Locked { tells });
    unlock.changed &= result.is_ok();
    result
}

/// Walks with each page locked while it is read, or validated if its versions tell all: see the argument in the parent module.
struct Holding<'g> {
    at: Option<(&'g VersionLock, Version)>,
    /// Whether the present page is locked.
    holds: bool,
    quiet: Quiet,
}

impl<'g> Walk<'g> for Holding<'g> {
    fn enter<P: Page>(&mut self, page: &'g P) -> Result<&'g P, Again> {
        // No link of the page that is left leads here, so it is not needed any more.
        if self.holds {
            self.leave();
        }
        self.go(page)?;
        self.settle::<P>().map(|()| page)
    }

    fn follow<P: Page>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again> {
        let page = self.pass(link)?;
        if page.is_some() {
            self.settle::<P>()?;
        }
        Ok(page)
    }

    fn pass<P: Page>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again> {
        let to = link.load();
        self.check()?;
        // SAFETY: the link was read from a page that is locked, or as it was at one moment, in the guard that `'g` stands for.
        unsafe { to.as_ref() }.map(|page| self.go(page)).transpose()
    }

    fn stay(&mut self) -> Result<(), Again> {
        let (lock, version) = self.at.expect("a page was entered");
        // With no lock held it waits, for those that share the page, too.
        while !self.holds {
            self.holds = self.quiet.suspended(|| lock.try_lock_at(version));
            if !self.holds && self.quiet.suspended(|| lock.read_unlocked()) != Some(version) {
                return Err(Again);
            }
        }
        Ok(())
    }

    fn get(&self, word: &Word) -> u64 {
        word.0.load(Ordering::Relaxed)
    }

    fn version(&self) -> Version {
        self.at.expect("a page was entered").1
    }

    fn prove(&self) -> Result<(), Again> {
        self.check()
    }
}

impl<'g> Holding<'g> {
    /// Locks the present page, if it must be.
    fn settle<P: Page>(&mut self) -> Result<(), Again> {
        if P::UNDER_LOCK_ONLY { Ok(()) } else { self.stay() }
    }

    /// Goes to a page, at a version, and leaves the present one.
    fn go<P: Page>(&mut self, page: &'g P) -> Result<&'g P, Again> {
        // The version while the page that leads here is locked, or is as it was; its lock when that one is free again.
        let version = match page.lock().look() {
            Look::Free(version) => version,
            _ if self.holds => {
                // The thread that holds it may want the page that was held here: not to come back before that is over.
                self.leave();
                self.quiet.suspended(|| page.lock().read_unlocked());
                return Err(Again);
            }
            _ => self.quiet.suspended(|| page.lock().read_unlocked()).ok_or(Again)?,
        };
        self.check()?;
        self.leave();
        (self.at, self.holds) = (Some((page.lock(), version)), false);
        Ok(page)
    }

    fn leave(&mut self) {
        let held = core::mem::take(&mut self.holds);
        if let Some((lock, _)) = self.at.take().filter(|_| held) {
            lock.unlock_unchanged();
        }
    }

    /// Whether all that was read of the present page belongs together.
    fn check(&self) -> Result<(), Again> {
        if self.holds || self.at.is_none_or(|(lock, version)| lock.validate(version)) { Ok(()) } else { Err(Again) }
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
        let mut walk = Holding { at: None, holds: false, quiet: quiet() };
        if let Ok(found) = body.run(&mut walk)
            && walk.check().is_ok()
        {
            return found;
        }
        drop(walk);
        backoff.wait();
    }
}
