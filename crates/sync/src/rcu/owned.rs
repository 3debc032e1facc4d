//! A critical section that belongs to no thread.
//!
//! An ordinary [`Guard`](super::Guard) writes the record of its thread's slot, so it must end where it began. This one has
//! a record to itself, by claim: one thread at a time has the value, so one thread at a time writes the record, and handing
//! the value over orders their writes. The parent module's proof speaks of a reader R that publishes and then reads. Who
//! reads in another thread has been given the guard, or a reference to it, after the publication and its barrier: those
//! reads follow B_R in the happens-before order just as R's own do.

//!
//! # Holders
//! Those that use what was read under the guard are counted. The section ends with the last of them, and the guard keeps its
//! record, so that the section can go on cheaply. Between that end and a later holder an object that was read may have been
//! reclaimed; whether it may, the epoch tells:
//!
//! *A section that was published at epoch r, ended, and is published again, goes on if the epoch is still r after the barrier.*
//! By (2) of the parent module's proof an object X that was seen in the section was sealed with an e of r-1 at least, so X is
//! reclaimed after the epoch has become e+3, which is r+2 at least. Let A be an attempt to advance from r+1. If B_A came before
//! the barrier of the new publication, the load of the epoch behind that barrier would see r+1 or more. So B_A comes after it,
//! A sees the publication at r, and is refused. So the epoch does not become r+2 before this section ends: X is not reclaimed.

use archipelago_platform::sync::{Mutex, MutexGuard};

use super::domain::Domain;
use super::records::Claim;

/// A critical section that may be sent to another thread, shared, and ended anywhere. See [`Domain::pin_owned`].
///
/// ```
/// use archipelago::sync::rcu::Domain;
///
/// let domain = Domain::new();
/// let guard = domain.pin_owned();
/// std::thread::scope(|s| s.spawn(move || drop(guard)).join().unwrap());
/// assert_eq!(domain.stats().active_readers, 0);
/// ```
///
/// It begins with one *holder*. The section ends with the last holder or with the guard, whichever ends first; with
/// [`hold`](Self::hold) it goes on.
///
/// # Invariants
/// The record is inside a section exactly while `holders` is more than 0, and is written under that lock only.
pub struct OwnedGuard<'d> {
    domain: &'d Domain,
    claim: Claim<'d>,
    holders: Mutex<usize>,
}

impl<'d> OwnedGuard<'d> {
    pub(super) fn new(domain: &'d Domain) -> Self {
        let guard = Self { domain, claim: domain.records().claim(true), holders: Mutex::new(1) };
        guard.enter();
        guard
    }

    fn enter(&self) {
        self.claim.record().enter(|| self.domain.entry(), || self.domain.reader_barrier());
    }

    fn holders(&self) -> MutexGuard<'_, usize> {
        // A poisoned lock would mean a `let_go` without a holder, which changes nothing.
        self.holders.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds a holder and returns true; returns false, and adds none, if there was none and what was read under this guard may
    /// have been reclaimed since. Then [`renew`](Self::renew) begins a new section. Never waits for readers. O(1).
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let guard = domain.pin_owned();
    /// // ... read ...
    /// guard.let_go();
    /// assert_eq!(domain.stats().active_readers, 0);
    /// assert!(guard.hold()); // the epoch has not moved: what was read is still there
    /// guard.let_go();
    /// domain.collect();
    /// assert!(!guard.hold());
    /// ```
    pub fn hold(&self) -> bool {
        let mut holders = self.holders();
        if *holders == 0 && !self.go_on() {
            return false;
        }
        *holders += 1;
        true
    }

    /// Enters again, unless what was read before may have been reclaimed. For the module's argument the epoch is loaded once
    /// more, behind the barrier of the new publication.
    fn go_on(&self) -> bool {
        let record = self.claim.record();
        let before = record.last_epoch();
        self.claim.touch();
        self.enter();
        let same = self.domain.epoch() == before;
        if !same {
            record.leave();
        }
        same
    }

    /// Takes a holder away; the last one ends the critical section.
    ///
    /// # Panics
    /// If there is no holder.
    pub fn let_go(&self) {
        let mut holders = self.holders();
        assert!(*holders > 0, "`let_go` without a holder");
        *holders -= 1;
        if *holders == 0 {
            self.claim.record().leave();
        }
    }

    /// Ends this critical section and begins another with one holder: what was read before must not be used any more.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let mut guard = domain.pin_owned();
    /// for _batch in 0..3 {
    ///     // Read; then let the domain reclaim what was retired meanwhile.
    ///     guard.renew();
    /// }
    /// ```
    pub fn renew(&mut self) {
        let before = core::mem::replace(&mut *self.holders(), 1);
        if before > 0 {
            self.claim.record().leave();
        }
        self.claim.touch();
        self.enter();
    }
}

impl Drop for OwnedGuard<'_> {
    fn drop(&mut self) {
        // The claim is given back after this.
        if *self.holders() > 0 {
            self.claim.record().leave();
        }
    }
}
