//! A critical section that belongs to no thread.
//!
//! An ordinary [`Guard`](super::Guard) writes the record of its thread's slot, so it must end in the thread in which it
//! began. An owned guard has claimed a record of its own. One thread at a time owns the guard, so one thread at a time
//! writes the record, and sending the guard orders the writes of successive owners. The parent module's proof has a
//! reader R that publishes and then reads. Another thread that reads has received the guard, or a reference to it,
//! after the publication and its barrier. So its reads follow B_R in the happens-before order, as R's own reads do.
//!
//! A [`Held`](super::Held) is a value that was read in a section which can pause and continue.

use super::domain::Domain;
use super::held::Held;
use super::records::Claim;

/// A critical section that may be sent to another thread, shared, and ended anywhere. See [`Domain::pin_owned`].
/// [`Domain::synchronize`] waits for it, wherever it is.
///
/// ```
/// use archipelago::sync::rcu::Domain;
///
/// let domain = Domain::new();
/// let guard = domain.pin_owned();
/// std::thread::scope(|s| s.spawn(move || drop(guard)).join().unwrap());
/// assert_eq!(domain.stats().active_readers, 0);
/// ```
pub struct OwnedGuard<'d> {
    /// A section that has been entered.
    section: Section<'d>,
}

impl<'d> OwnedGuard<'d> {
    pub(super) fn new(domain: &'d Domain) -> Self {
        Section { domain, claim: domain.records().claim(true) }.into_guard()
    }

    /// Ends this critical section and begins another. References that were read before must not be used any more.
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
        self.section.leave();
        self.section.enter();
    }

    /// Moves the section, and a value that was read in it, into a first holder. See [`Held`].
    pub fn keep<T>(self, what: T) -> Held<'d, T> {
        let guard = core::mem::ManuallyDrop::new(self);
        // SAFETY: moved once, since the guard is neither used nor dropped any more.
        Held::new(unsafe { core::ptr::read(&raw const guard.section) }, what)
    }
}

impl Drop for OwnedGuard<'_> {
    fn drop(&mut self) {
        // Dropping the field returns the claim after this.
        self.section.leave();
    }
}

/// A claimed record, inside a critical section or not. One thread at a time calls the methods.
pub(super) struct Section<'d> {
    domain: &'d Domain,
    claim: Claim<'d>,
}

impl<'d> Section<'d> {
    /// Begins a new section, and returns its guard. Before the call, the record is inside no section.
    pub(super) fn into_guard(self) -> OwnedGuard<'d> {
        self.enter();
        OwnedGuard { section: self }
    }

    fn enter(&self) {
        self.claim.touch();
        self.claim.record().enter(|| self.domain.entry(), || self.domain.reader_barrier());
    }

    #[inline]
    pub(super) fn leave(&self) {
        self.claim.record().leave();
    }

    /// Enters again and returns true, unless objects that were read before may have been reclaimed. The argument in
    /// `held` requires another load of the epoch, behind the barrier of the new publication.
    #[inline]
    pub(super) fn go_on(&self) -> bool {
        let record = self.claim.record();
        let before = record.last_epoch();
        self.enter();
        let same = self.domain.epoch() == before;
        if !same {
            record.leave();
        }
        same
    }
}
