//! Regions as transactions: see the argument in the parent module.
//!
//! An abort because a lock was held does not count against the budget of attempts: a change waits until its pages'
//! locks are free, a walk pauses. Otherwise one thread that has fallen back to locks would make others fall back, too.
//! After [`PATIENCE`] such waits the thread itself falls back to locks.

use archipelago_platform::atomic::Ordering;
use archipelago_platform::htm::{Abort, HELD, Htm, Inside, Retry, Site, quiet};

use super::scope::{self, Scope};
use super::{
    Again, Change, Changing, Link, NOT_LISTED, RETIRED_TWICE, Retired, Stale, Traverse, Var, Versioned, Walk, locked,
};
use crate::backoff::Backoff;
use crate::version_lock::{Look, Version};

/// The site that counts walks.
pub static WALKS: Site = Site::new("region: walk");
/// The site that counts changes.
pub static CHANGES: Site = Site::new("region: change");

/// The abort code of a body that has to be repeated.
const AGAIN: u8 = 0xfd;
/// The abort code of a body that found its pages different from what it expected.
const STALE: u8 = 0xfc;
/// The abort code of a walk that would enter a retired page.
const GONE: u8 = 0xfb;

/// How often a region that finds locks held is repeated before it locks its pages.
const PATIENCE: u32 = 64;

/// A walk in a transaction.
struct Walking {
    inside: Inside,
    version: Option<Version>,
}

impl<'g> Walk<'g> for Walking {
    #[inline(always)]
    fn enter<P: Versioned>(&mut self, page: &'g P) -> Result<&'g P, Again> {
        // The subscription: from here on, a change of a lock that was read aborts this transaction.
        match page.lock().look() {
            Look::Free(version) => self.version = Some(version),
            Look::Locked => self.inside.abort::<HELD>(),
            Look::Obsolete => self.inside.abort::<GONE>(),
        }
        Ok(page)
    }

    #[inline(always)]
    fn follow<P: Versioned>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again> {
        // SAFETY: the link belongs to a page whose lock this transaction has read as free, and the transaction
        // continues only while no thread has changed lock or link; within the guard whose lifetime is `'g`.
        let Some(page) = (unsafe { link.load().as_ref() }) else { return Ok(None) };
        // The subscription: from here on, a change of a lock that was read aborts this transaction.
        let Look::Free(version) = page.lock().look() else { self.inside.abort::<HELD>() };
        self.version = Some(version);
        Ok(Some(page))
    }

    #[inline(always)]
    fn get(&self, word: &Var) -> u64 {
        word.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn version(&self) -> Version {
        self.version.expect("a page was entered")
    }

    #[inline(always)]
    fn prove(&self) -> Result<(), Again> {
        Ok(())
    }
}

/// A change of these pages in a transaction.
struct Writing<S>(S);

impl<S: Scope> Changing for Writing<S> {
    #[inline(always)]
    fn get(&self, word: &Var) -> u64 {
        word.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(&mut self, word: &Var, value: u64) {
        word.0.store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn target<P>(&self, link: &Link<P>) -> *mut P {
        link.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    unsafe fn set_link<P>(&mut self, link: &Link<P>, to: *mut P) {
        // Release, for the compiler: the target was written before the transaction.
        link.0.store(to, Ordering::Release);
    }

    #[inline(always)]
    fn restructure(&mut self, page: &impl Versioned) {
        page.lock().bump_in_transaction();
    }

    #[inline(always)]
    fn retire(&mut self, page: &impl Versioned) {
        // A panic aborts the transaction. Then the body runs under locks, and panics there or is refused as stale.
        assert!(scope::holds(self.0, page.lock()), "{NOT_LISTED}");
        assert!(page.lock().retire_in_transaction(), "{RETIRED_TWICE}");
    }
}

#[inline]
pub(super) fn traverse<'g, T: Traverse<'g>>(htm: Htm, body: T) -> Result<T::Out, Retired> {
    attempt_walk(htm, body).or_else(|why| traverse_again(htm, body, why))
}

#[inline(always)]
fn attempt_walk<'g, T: Traverse<'g>>(htm: Htm, body: T) -> Result<T::Out, Abort> {
    htm.transaction(
        #[inline(always)]
        |inside| {
            let _quiet = quiet();
            match body.run(&mut Walking { inside, version: None }) {
                Ok(found) => found,
                Err(Again) => inside.abort::<AGAIN>(),
            }
        },
    )
}

#[cold]
fn traverse_again<'g, T: Traverse<'g>>(htm: Htm, body: T, mut why: Abort) -> Result<T::Out, Retired> {
    let (mut retry, mut waits, backoff) = (Retry::default(), 0, Backoff::new());
    loop {
        let again = match why.code() {
            // The run under locks determines which page was retired.
            Some(GONE) => {
                WALKS.note_abort(why);
                false
            }
            // The aborted transaction cannot say which lock was held.
            Some(_) if waits < PATIENCE => {
                WALKS.note_abort(why);
                waits += 1;
                backoff.wait();
                true
            }
            _ => retry.spend_at(&WALKS, why),
        };
        if !again {
            return locked::traverse(body);
        }
        match attempt_walk(htm, body) {
            Ok(found) => return Ok(found),
            Err(another) => why = another,
        }
    }
}

/// With `tells` the pages get new versions: see [`Region::walking_by_versions`](super::Region::walking_by_versions).
#[inline]
pub(super) fn update<S: Scope, T: Change>(htm: Htm, scope: S, change: T, tells: bool) -> Result<T::Out, Stale> {
    match attempt(htm, scope, change, tells) {
        Ok(out) => Ok(out),
        Err(why) => update_again(htm, scope, change, tells, why),
    }
}

#[inline(always)]
fn attempt<S: Scope, T: Change>(htm: Htm, scope: S, change: T, tells: bool) -> Result<T::Out, Abort> {
    htm.transaction(
        #[inline(always)]
        |inside| {
            // The subscription: from here on, a change of a lock that was read aborts this transaction.
            if !scope.is_free() {
                inside.abort::<HELD>();
            }
            let _quiet = quiet();
            match change.run(&mut Writing(scope)) {
                Ok(out) => {
                    if tells {
                        scope.bump_in_transaction();
                    }
                    out
                }
                Err(Stale) => inside.abort::<STALE>(),
            }
        },
    )
}

#[cold]
fn update_again<S: Scope, T: Change>(
    htm: Htm,
    scope: S,
    change: T,
    tells: bool,
    mut why: Abort,
) -> Result<T::Out, Stale> {
    let (mut retry, mut waits) = (Retry::default(), 0);
    loop {
        if why.is_conflict() {
            change.aborted();
        }
        let again = match why.code() {
            Some(STALE) => {
                CHANGES.note_abort(why);
                return Err(Stale);
            }
            Some(_) if waits < PATIENCE => {
                CHANGES.note_abort(why);
                waits += 1;
                true
            }
            _ => retry.spend_at(&CHANGES, why),
        };
        scope.wait_free()?;
        if !again {
            return locked::update(scope, change, tells);
        }
        match attempt(htm, scope, change, tells) {
            Ok(out) => return Ok(out),
            Err(another) => why = another,
        }
    }
}
