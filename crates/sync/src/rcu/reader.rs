//! The read side: a thread's way into a domain, the critical section, and retiring from inside it.

use core::marker::PhantomData;

use super::domain::Domain;
use super::garbage::Retired;
use super::record::{Reclaiming, Record};
use super::records::Claim;

/// A way into a [`Domain`] that has a record of its own, so that [`enter`](Self::enter) costs a store.
///
/// It keeps nothing from being reclaimed; its guards may outlive it. Making one costs one compare-and-exchange, once the
/// thread's slot has had as many readers at a time before; its memory stays with the domain.
pub struct Reader<'d> {
    domain: &'d Domain,
    /// Of the domain's, and this thread's, so this is not `Send`.
    claim: Claim,
}

impl<'d> Reader<'d> {
    #[inline]
    pub(super) fn new(domain: &'d Domain) -> Self {
        Self { domain, claim: domain.records().claim() }
    }

    /// Begins a critical section: nothing retired from now on is reclaimed while the guard lives. Guards nest; inner
    /// ones are as good as the outermost. Never waits. About a nanosecond with its end ([`Flavour::Membarrier`]).
    ///
    /// [`Flavour::Membarrier`]: super::Flavour::Membarrier
    ///
    /// # Panics
    /// If this reader has 65,535 guards already.
    #[inline]
    pub fn enter(&self) -> Guard<'d> {
        // SAFETY: claimed from this domain.
        Guard::begin(self.domain, unsafe { self.claim.record_in(self.domain.records()) })
    }
}

/// A critical section of one thread on one [`Domain`]: what was reachable since it began is not reclaimed before it ends.
///
/// A forgotten guard (`mem::forget`), or one from [`Domain::pin`] that is dropped by a thread-local destructor after the
/// thread gave its slot back, holds up the domain's reclamation for good, and does no other harm.
pub struct Guard<'d> {
    domain: &'d Domain,
    record: &'d Record,
    /// The record belongs to this thread.
    not_send: PhantomData<*mut ()>,
}

impl<'d> Guard<'d> {
    /// Enters by `record`, which is this thread's.
    #[inline]
    pub(super) fn begin(domain: &'d Domain, record: &'d Record) -> Self {
        record.enter(|| domain.entry(), || domain.reader_barrier());
        Self { domain, record, not_send: PhantomData }
    }

    /// The domain this guard is on.
    #[inline]
    pub fn domain(&self) -> &'d Domain {
        self.domain
    }

    #[inline]
    pub(super) fn record(&self) -> &'d Record {
        self.record
    }

    /// Until the result is dropped, retiring under this guard (and others of its [`Reader`]) runs no reclaim functions:
    /// what is retired waits for a turn after that. For code that retires while it holds locks which a reclaim function
    /// (the destructor of a user's value, perhaps) might ask for, or which its panic would poison.
    pub fn hold_back(&self) -> HeldBack<'d> {
        HeldBack { _reclaiming: self.record.begin_reclaiming(), not_send: PhantomData }
    }

    /// Hands `object` over: `reclaim(object, context)` runs once, in any thread, after every guard that may have seen
    /// the object has ended; at the latest when the domain is dropped. Allocates only as bags grow, which ends soon.
    /// Every time a bag fills up, ripe objects of this thread are reclaimed here, with no lock held.
    ///
    /// # Panics
    /// With what a reclaim function panicked with. The others of its batch have run by then; none is lost.
    ///
    /// # Safety
    /// - Guards entered from now on cannot reach the object through the structure: it is unlinked, and the unlink
    ///   happens before this call.
    /// - It is retired once, and nobody else frees it.
    /// - `reclaim(object, context)` is sound in any thread at any later time until the domain has been dropped. It may
    ///   retire and enter again, but not when it is run by [`Domain::drain_all`] or by the domain's drop.
    #[inline]
    pub unsafe fn retire(&self, object: *mut (), context: *mut (), reclaim: unsafe fn(*mut (), *mut ())) {
        if !self.record.is_mine() {
            // SAFETY: the same promise. (A late thread-local destructor: another record, in a guard of its own.)
            return unsafe { self.domain.pin().retire(object, context, reclaim) };
        }
        let held = self.record.garbage().push(Retired { object, context, reclaim });
        if held >= self.domain.bag_limit() {
            self.domain.seal_and_reclaim(self);
        }
    }

    /// Retires a box: it is dropped once every guard that may have seen it has ended. See [`retire`](Self::retire).
    ///
    /// # Panics
    /// As [`retire`](Self::retire).
    ///
    /// # Safety
    /// As for [`retire`](Self::retire): `object` came from [`Box::into_raw`], is unlinked and retired once; and `T` may
    /// be dropped in any thread, until the domain has been dropped.
    #[inline]
    pub unsafe fn retire_box<T>(&self, object: *mut T) {
        /// # Safety
        /// `object` came from a `Box<T>` that nobody else frees or uses.
        unsafe fn drop_box<T>(object: *mut (), _: *mut ()) {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(object.cast::<T>()) });
        }
        // SAFETY: the caller's promise; `drop_box` needs no context.
        unsafe { self.retire(object.cast(), core::ptr::null_mut(), drop_box::<T>) }
    }
}

/// See [`Guard::hold_back`].
#[must_use]
pub struct HeldBack<'d> {
    /// `None` if reclamation was being held back, or was running, already.
    _reclaiming: Option<Reclaiming<'d>>,
    not_send: PhantomData<*mut ()>,
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Without the slot the record is another thread's to write, so the guard stays counted.
        if self.record.is_mine() {
            self.record.leave();
        }
    }
}
