//! Regions with their pages locked: without RTM all changes except exchanges of a word, and with RTM the changes and
//! walks whose transactions did not commit.

use core::ptr;

use archipelago_platform::atomic::Ordering;
use archipelago_platform::hint::point;
use archipelago_platform::htm::{Quiet, quiet};

use super::scope::{self, Scope};
use super::undo::Undo;
use super::{
    Again, Change, Changing, Link, NOT_LISTED, RETIRED_TWICE, Region, Retired, Stale, Traverse, Var, Versioned, Walk,
};
use crate::backoff::Backoff;
use crate::version_lock::{Look, Version, VersionLock};

/// A change under locks. Dropping it unlocks, also if the body fails or panics.
///
/// Invariant: `undo` has exactly those places (words and links) in the scope's pages that the body has written. These
/// places outlive the change, since the scope borrows the pages. Words of the body itself may be dropped earlier. Pages
/// outside the scope that the body writes are known to no other thread.
struct Locked<S: Scope> {
    scope: S,
    /// Whether each page gets a new version when it is unlocked. Otherwise a page gets a new version only if the body
    /// asks for it, or fails after it wrote.
    tells: bool,
    undo: Undo,
    done: bool,
}

impl<S: Scope> Changing for Locked<S> {
    #[inline]
    fn get(&self, word: &Var) -> u64 {
        word.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&mut self, word: &Var, value: u64) {
        point(Region::WRITING);
        if self.scope.has(ptr::from_ref(word).addr()) {
            self.undo.word(word);
        }
        word.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    fn target<P>(&self, link: &Link<P>) -> *mut P {
        link.0.load(Ordering::Relaxed)
    }

    #[inline]
    unsafe fn set_link<P>(&mut self, link: &Link<P>, to: *mut P) {
        if self.scope.has(ptr::from_ref(link).addr()) {
            self.undo.link(link);
        }
        // Release: pairs with the Acquire of `Link::load`, for RCU readers, which do not use the lock.
        link.0.store(to, Ordering::Release);
    }

    #[inline]
    fn restructure(&mut self, page: &impl Versioned) {
        if !self.tells {
            page.lock().bump_held();
        }
    }

    #[inline]
    fn retire(&mut self, page: &impl Versioned) {
        assert!(scope::holds(self.scope, page.lock()), "{NOT_LISTED}");
        assert!(page.lock().retire_held(), "{RETIRED_TWICE}");
    }
}

impl<S: Scope> Drop for Locked<S> {
    #[inline]
    fn drop(&mut self) {
        let changed = if self.done { self.tells } else { self.undo() };
        self.scope.unlock(changed);
    }
}

impl<S: Scope> Locked<S> {
    /// Undoes the body's writes. Returns whether the body had written: optimistic walks may have seen the writes, so
    /// the pages need new versions.
    #[cold]
    fn undo(&mut self) -> bool {
        self.scope.each_held(VersionLock::keep_held);
        // SAFETY: the places are in pages that are locked (the invariant) and borrowed as long as the scope lives;
        // words and links in a page keep their type (`Versioned`).
        unsafe { self.undo.put_back() }
    }
}

#[inline]
pub(super) fn update<S: Scope, T: Change>(scope: S, change: T, tells: bool) -> Result<T::Out, Stale> {
    scope::lock(scope)?;
    let mut locked = Locked { scope, tells, undo: Undo::new(), done: false };
    let _quiet = quiet();
    let result = change.run(&mut locked);
    locked.done = result.is_ok();
    result
}

/// A walk that locks each page while it reads it, or validates it if its version changes with every change: see the
/// argument in the parent module.
struct Holding<'g> {
    at: Option<(&'g VersionLock, Version)>,
    /// Whether the present page is locked.
    holds: bool,
    /// The lock of a retired page that the walk could not enter.
    retired: *const VersionLock,
    quiet: Quiet,
}

impl<'g> Walk<'g> for Holding<'g> {
    fn enter<P: Versioned>(&mut self, page: &'g P) -> Result<&'g P, Again> {
        // No link of the previous page leads to this page, so the previous page's lock is not needed any more.
        if self.holds {
            self.leave();
        }
        if self.go(page).is_err() {
            self.retired = retired(page.lock());
            return Err(Again);
        }
        self.settle::<P>().map(|()| page)
    }

    fn follow<P: Versioned>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again> {
        let page = self.pass(link)?;
        if page.is_some() {
            self.settle::<P>()?;
        }
        Ok(page)
    }

    fn pass<P: Versioned>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again> {
        let to = link.load();
        self.check()?;
        // SAFETY: the link was read from a locked page, or was validated, within the guard whose lifetime is `'g`.
        unsafe { to.as_ref() }.map(|page| self.go(page)).transpose()
    }

    fn stay(&mut self) -> Result<(), Again> {
        let (lock, version) = self.at.expect("a page was entered");
        // Waits, while it holds no other lock, also until no thread shares the page's lock.
        while !self.holds {
            self.holds = self.quiet.suspended(|| lock.try_lock_at(version));
            if !self.holds && self.quiet.suspended(|| lock.read_unlocked()) != Some(version) {
                return Err(Again);
            }
        }
        Ok(())
    }

    fn get(&self, word: &Var) -> u64 {
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
    /// Locks the present page, if the walk requires it.
    fn settle<P: Versioned>(&mut self) -> Result<(), Again> {
        if P::UNDER_LOCK_ONLY { Ok(()) } else { self.stay() }
    }

    /// Moves to a page at a version, and leaves the present page.
    fn go<P: Versioned>(&mut self, page: &'g P) -> Result<&'g P, Again> {
        // The version is loaded while the previous page is locked or validated. This page's lock is taken after the
        // previous page is unlocked.
        let version = match page.lock().look() {
            Look::Free(version) => version,
            _ if self.holds => {
                // The lock's holder may wait for the page that this walk holds, so the walk releases it and repeats
                // only after the holder has unlocked.
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

    /// Checks that the values read from the present page are consistent.
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
pub(super) fn traverse<'g, T: Traverse<'g>>(body: T) -> Result<T::Out, Retired> {
    let (backoff, mut met) = (Backoff::new(), ptr::null());
    loop {
        let mut walk = Holding { at: None, holds: false, retired: ptr::null(), quiet: quiet() };
        if let Ok(found) = body.run(&mut walk)
            && walk.check().is_ok()
        {
            return Ok(found);
        }
        same_again(&mut met, walk.retired)?;
        drop(walk);
        backoff.wait();
    }
}

/// Returns the lock, if its page is retired; null otherwise.
pub(super) fn retired(lock: &VersionLock) -> *const VersionLock {
    if lock.look() == Look::Obsolete { lock } else { ptr::null() }
}

/// Compares a failed run with the previous one. Each pointer is the lock of a retired page that the run could not
/// enter, or null.
///
/// # Errors
/// [`Retired`], if both runs met the same page: then the body will enter the same page again.
pub(super) fn same_again(before: &mut *const VersionLock, met: *const VersionLock) -> Result<(), Retired> {
    let before = core::mem::replace(before, met);
    if met.is_null() || met != before { Ok(()) } else { Err(Retired) }
}
