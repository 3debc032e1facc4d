//! A critical section that belongs to no thread.
//!
//! An ordinary [`Guard`](super::Guard) writes the record of its thread's slot, so it must end where it began. This one has
//! a record to itself, by claim: one thread at a time has the value, so one thread at a time writes the record, and handing
//! the value over orders their writes. The parent module's proof speaks of a reader R that publishes and then reads. Who
//! reads in another thread has been given the guard, or a reference to it, after the publication and its barrier: those
//! reads follow B_R in the happens-before order just as R's own do.

use super::domain::Domain;
use super::records::Claim;

/// A critical section that may be sent to another thread, shared, and ended anywhere. See [`Domain::pin_owned`].
///
/// ```
/// use archipelago_sync::rcu::Domain;
///
/// let domain = Domain::new();
/// let guard = domain.pin_owned();
/// std::thread::scope(|s| s.spawn(move || drop(guard)).join().unwrap());
/// assert_eq!(domain.stats().active_readers, 0);
/// ```
pub struct OwnedGuard<'d> {
    domain: &'d Domain,
    claim: Claim<'d>,
}

impl<'d> OwnedGuard<'d> {
    pub(super) fn new(domain: &'d Domain) -> Self {
        let claim = domain.records().claim(true);
        claim.record().enter(|| domain.entry(), || domain.reader_barrier());
        Self { domain, claim }
    }

    /// Ends this critical section and begins another: what was read before must not be used any more.
    ///
    /// ```
    /// use archipelago_sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let mut guard = domain.pin_owned();
    /// for _batch in 0..3 {
    ///     // Read; then let the domain reclaim what was retired meanwhile.
    ///     guard.renew();
    /// }
    /// ```
    pub fn renew(&mut self) {
        let record = self.claim.record();
        record.leave();
        self.claim.touch();
        record.enter(|| self.domain.entry(), || self.domain.reader_barrier());
    }
}

impl Drop for OwnedGuard<'_> {
    fn drop(&mut self) {
        // The claim is given back after this.
        self.claim.record().leave();
    }
}
