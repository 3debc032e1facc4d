//! The read side: a thread's way into a domain, the critical section, and retiring from inside it.

use core::marker::PhantomData;

use archipelago_platform::thread;

use super::domain::Domain;
use super::garbage::Retired;
use super::record::{Reclaiming, Record};

/// The calling thread's way into a [`Domain`]: finds the thread's record once, so that [`enter`](Self::enter) need not.
///
/// A plain copyable reference; it keeps nothing from being reclaimed.
#[derive(Clone, Copy)]
pub struct Reader<'d> {
    domain: &'d Domain,
    record: &'d Record,
    /// The record belongs to this thread.
    not_send: PhantomData<*mut ()>,
}

impl<'d> Reader<'d> {
    #[inline]
    pub(super) fn new(domain: &'d Domain) -> Self {
        Self { domain, record: domain.record(thread::slot().index), not_send: PhantomData }
    }

    #[inline]
    pub(super) fn record(&self) -> &'d Record {
        self.record
    }

    /// Whether this thread still has the slot whose record this is: not so in thread-local destructors that run after
    /// the slot was given back.
    #[inline]
    fn owns_record(&self) -> bool {
        thread::slot().index == self.record.slot
    }

    /// The reader of the slot that this thread has now. Out of line, so that entering stays a few instructions.
    #[cold]
    fn renewed(&self) -> Self {
        self.domain.reader()
    }

    /// Until the result is dropped, this thread runs no reclaim functions of this domain: what it retires waits for its
    /// turns after that. For code that retires while it holds locks which a reclaim function (the destructor of a
    /// user's value, perhaps) might ask for, or which its panic would poison.
    pub fn hold_back(&self) -> HeldBack<'d> {
        HeldBack { _reclaiming: self.record.begin_reclaiming(), not_send: PhantomData }
    }

    /// Begins a critical section: nothing retired from now on is reclaimed while the guard lives. Guards nest; inner
    /// ones are as good as the outermost. Never waits.
    ///
    /// # Panics
    /// If this thread has 65,535 guards of this domain already.
    #[inline]
    pub fn enter(&self) -> Guard<'d> {
        Guard::begin(if self.owns_record() { *self } else { self.renewed() })
    }
}

/// See [`Reader::hold_back`].
#[must_use]
pub struct HeldBack<'d> {
    /// `None` if reclamation was being held back, or was running, already.
    _reclaiming: Option<Reclaiming<'d>>,
    not_send: PhantomData<*mut ()>,
}

/// A critical section of one thread on one [`Domain`]: what was reachable since it began is not reclaimed before it ends.
///
/// A forgotten guard (`mem::forget`), or one that is dropped by a thread-local destructor after the thread gave its slot
/// back, holds up the domain's reclamation for good, and does no other harm.
pub struct Guard<'d> {
    reader: Reader<'d>,
}

impl<'d> Guard<'d> {
    /// Enters by `reader`, whose record this thread owns at the moment.
    #[inline]
    pub(super) fn begin(reader: Reader<'d>) -> Self {
        reader.record.enter(|| reader.domain.epoch(), || reader.domain.reader_barrier());
        Self { reader }
    }

    /// The domain this guard is on.
    #[inline]
    pub fn domain(&self) -> &'d Domain {
        self.reader.domain
    }

    /// The reader this guard came from.
    #[inline]
    pub fn reader(&self) -> Reader<'d> {
        self.reader
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
        if !self.reader.owns_record() {
            // SAFETY: the same promise. (A late thread-local destructor: another record, in a guard of its own.)
            return unsafe { self.reader.enter().retire(object, context, reclaim) };
        }
        let held = self.reader.record.garbage().push(Retired { object, context, reclaim });
        if held >= self.reader.domain.bag_limit() {
            self.reader.domain.seal_and_reclaim(self);
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

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Without the slot the record is another thread's to write, so the guard stays counted.
        if self.reader.owns_record() {
            self.reader.record.leave();
        }
    }
}
