//! Walks by optimistic lock coupling: see the argument in the parent module.

use core::ptr;

use archipelago_platform::atomic::Ordering;
use archipelago_platform::hint::point;
use archipelago_platform::htm::{Quiet, quiet};

use super::{Again, Link, Retired, Traverse, Var, Versioned, Walk, locked};
use crate::backoff::Backoff;
use crate::version_lock::{Version, VersionLock};

/// A named point between the read of a link and its validation.
pub(crate) const FOLLOWING: &str = "region: a link was read";

/// The present page's lock, and its version when it was entered.
struct Optimistic<'g> {
    at: Option<(&'g VersionLock, Version)>,
    /// The lock of a retired page that the walk could not enter.
    retired: *const VersionLock,
    _quiet: Quiet,
}

impl<'g> Optimistic<'g> {
    #[inline]
    fn go<P: Versioned>(&mut self, page: &'g P) -> Result<&'g P, Again> {
        // A walk that waited here would repeatedly read the cache line of the lock, which the holder writes. After the
        // wait, the walk would mostly have to be repeated anyway, since a split also changes the pages that lead to the
        // split page.
        let version = page.lock().read().ok_or(Again)?;
        // Validates the page from which the walk comes, if any. This proves that `page` was linked when its version was
        // read.
        self.check()?;
        self.at = Some((page.lock(), version));
        Ok(page)
    }

    /// Checks that all values that were read since the present page was entered are consistent.
    #[inline]
    fn check(&self) -> Result<(), Again> {
        if self.at.is_none_or(|(lock, version)| lock.validate(version)) { Ok(()) } else { Err(Again) }
    }
}

impl<'g> Walk<'g> for Optimistic<'g> {
    #[inline]
    fn enter<P: Versioned>(&mut self, page: &'g P) -> Result<&'g P, Again> {
        let entered = self.go(page);
        if entered.is_err() {
            self.retired = locked::retired(page.lock());
        }
        entered
    }

    #[inline]
    fn follow<P: Versioned>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again> {
        let to = link.load();
        point(FOLLOWING);
        self.check()?;
        // SAFETY: the link was validated, within the guard whose lifetime is `'g`.
        unsafe { to.as_ref() }.map(|page| self.go(page)).transpose()
    }

    #[inline]
    fn get(&self, word: &Var) -> u64 {
        word.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn version(&self) -> Version {
        self.at.expect("a page was entered").1
    }

    #[inline]
    fn prove(&self) -> Result<(), Again> {
        self.check()
    }
}

#[inline]
pub(super) fn traverse<'g, T: Traverse<'g>>(body: T) -> Result<T::Out, Retired> {
    attempt(body).or_else(|met| again(body, met))
}

#[cold]
fn again<'g, T: Traverse<'g>>(body: T, mut met: *const VersionLock) -> Result<T::Out, Retired> {
    let backoff = Backoff::new();
    loop {
        backoff.wait();
        match attempt(body) {
            Ok(found) => return Ok(found),
            Err(retired) => locked::same_again(&mut met, retired)?,
        }
    }
}

/// # Errors
/// Returns the lock of the retired page that the walk could not enter, or null.
#[inline]
fn attempt<'g, T: Traverse<'g>>(body: T) -> Result<T::Out, *const VersionLock> {
    let mut walk = Optimistic { at: None, retired: ptr::null(), _quiet: quiet() };
    match body.run(&mut walk) {
        Ok(found) if walk.check().is_ok() => Ok(found),
        _ => Err(walk.retired),
    }
}
