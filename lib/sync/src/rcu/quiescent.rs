//! Reading by quiescent states: always inside a critical section, except at points that the thread announces.
//!
//! This is quiescent-state-based reclamation, as liburcu's `qsbr`. It works on the same domains as ordinary guards: a
//! quiescent reader is one long guard that the thread renews explicitly. If the epoch has not changed, a renewal is one
//! load, since no thread waits for it. Otherwise it is one store of the new epoch r (Release: an advance that sees the
//! store also sees that the earlier reads have ended). The store needs no barrier. Until other threads see it, the
//! reader appears active at an older epoch. No advance from an older epoch can succeed any more, since the epoch was
//! already r when the reader loaded it. The parent module's proof uses that an advance from e+2 has seen the
//! publication of r <= e+1, or something newer. Here, either the advance has seen this, or the advance fails.
//!
//! The borrow checker ensures that no reference survives a quiescent state: references borrow the reader,
//! and [`quiescent`](QuiescentReader::quiescent) borrows it exclusively.

use super::domain::Domain;
use super::reader::Guard;
use super::record::Entry;
use super::records::Claim;

/// A reader that is always inside a guard, and announces when it holds no reference. See [`Domain::quiescent_reader`].
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
    /// The entry that the guard published, or an older one.
    published: Entry,
    /// Returned after the guard has ended (by the order of fields). Only this reader uses the record. Otherwise another
    /// guard of the thread would prevent a renewal, or be ended by a renewal.
    _claim: Claim<'d>,
}

impl<'d> QuiescentReader<'d> {
    pub(super) fn new(domain: &'d Domain) -> Self {
        let claim = domain.records().claim(false);
        // If this epoch is older than the guard's own, it costs at most one unnecessary renewal.
        let published = domain.entry();
        Self { guard: Guard::begin(domain, claim.record()), published, _claim: claim }
    }

    /// Returns the guard that this thread is in. It protects reads until the next quiescent state, and costs nothing.
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

    /// Announces that this thread holds no reference into the structure. Call it often (between operations): nothing
    /// that is retired from now on is reclaimed before the next call.
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

    /// Runs `work` outside the guard, so that it may wait, sleep, or call [`Domain::synchronize`].
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
