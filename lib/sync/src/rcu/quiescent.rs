//! The `qsbr` flavour of reading: inside a critical section at all times, except where the thread says otherwise.
//!
//! Quiescent-state-based reclamation as liburcu's `qsbr`, on the same domains and beside ordinary guards: a quiescent
//! reader is one long guard that is renewed by hand. A renewal when the epoch has not moved is one load, since no
//! thread waits for it; otherwise it is one store of the new epoch r (Release: an advance that sees it sees that the
//! reads before have ended). That needs no barrier. Until the store is seen, the reader looks active at an older epoch,
//! and no advance succeeds from one, since the epoch was r already when the reader loaded it. So where the parent
//! module's proof says that an advance from e+2 has seen the publication of r <= e+1 or something newer, here it has,
//! or was refused.
//!
//! The borrow checker sees to it that no reference survives a quiescent state: they borrow the reader, and
//! [`quiescent`](QuiescentReader::quiescent) wants it whole.

use super::domain::Domain;
use super::reader::Guard;
use super::record::Entry;
use super::records::Claim;

/// A reader that is always inside a guard and says when it holds no reference. See [`Domain::quiescent_reader`].
///
/// ```
/// use archipelago::sync::rcu::Domain;
///
/// let domain = Domain::new();
/// let mut reader = domain.quiescent_reader();
/// for _ in 0..3 {
///     let _guard = reader.enter(); // costs nothing, protects what is read under it
///     reader.quiescent(); // ends the borrow: `_guard` must not be used after this
/// }
/// reader.offline(|| domain.synchronize());
/// ```
pub struct QuiescentReader<'d> {
    guard: Guard<'d>,
    /// The epoch that the guard published, or an older one.
    published: Entry,
    /// Given back after the guard has ended (field order). The record is the reader's alone: a guard of the thread's
    /// other record must not stop it from renewing, nor be cut short by it.
    _claim: Claim<'d>,
}

impl<'d> QuiescentReader<'d> {
    pub(super) fn new(domain: &'d Domain) -> Self {
        let claim = domain.records().claim(false);
        // An older epoch than the guard's own costs one needless renewal at most.
        let published = domain.entry();
        Self { guard: Guard::begin(domain, claim.record()), published, _claim: claim }
    }

    /// The guard this thread is in: it protects until the next quiescent state. No cost at all.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let reader = domain.quiescent_reader();
    /// assert!(std::ptr::eq(reader.enter().domain(), &domain));
    /// ```
    #[inline]
    pub fn enter(&self) -> &Guard<'d> {
        &self.guard
    }

    /// Says that this thread holds no reference into the structure. To be called often (between operations): as long as
    /// a quiescent reader is silent, nothing is reclaimed in the domain.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let mut reader = domain.quiescent_reader();
    /// let before = domain.stats().epoch;
    /// for _ in 0..4 {
    ///     reader.quiescent();
    ///     domain.collect();
    /// }
    /// assert!(domain.stats().epoch > before);
    /// ```
    #[inline]
    pub fn quiescent(&mut self) {
        if self.guard.domain().entry() != self.published {
            self.renew();
        }
    }

    #[cold]
    fn renew(&mut self) {
        self.published = self.guard.domain().entry();
        self.guard.record().renew(self.published);
    }

    /// Runs `work` outside any guard: for waiting, sleeping, and [`Domain::synchronize`].
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let mut reader = domain.quiescent_reader();
    /// reader.offline(|| domain.synchronize()); // inside, it would wait for itself
    /// ```
    pub fn offline<R>(&mut self, work: impl FnOnce() -> R) -> R {
        /// Enters again, also when `work` panics.
        struct Online<'r, 'd>(&'r Guard<'d>);
        impl Drop for Online<'_, '_> {
            fn drop(&mut self) {
                let domain = self.0.domain();
                self.0.record().enter(|| domain.entry(), || domain.reader_barrier());
            }
        }
        self.guard.record().leave();
        let _online = Online(&self.guard);
        work()
    }
}
