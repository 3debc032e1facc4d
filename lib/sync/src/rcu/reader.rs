//! The read side: readers, guards of critical sections, and retiring inside them.

use core::marker::PhantomData;

use super::domain::Domain;
use super::garbage::Retired;
use super::record::Record;

/// A thread's access to a [`Domain`]. It has a reference to the record of the thread's slot, so that
/// [`enter`](Self::enter) costs a store.
///
/// A reader does not delay reclamation, owns nothing, and may be forgotten. Its guards may outlive it, and it may stay
/// in scope longer than its domain.
pub struct Reader<'d> {
    domain: &'d Domain,
    /// The record of the slot that the thread had when this reader was made, or of an earlier slot.
    record: &'d Record,
    /// The record belongs to this thread.
    not_send: PhantomData<*mut ()>,
}

impl<'d> Reader<'d> {
    #[inline]
    pub(super) fn new(domain: &'d Domain) -> Self {
        Self { domain, record: domain.records().recent(), not_send: PhantomData }
    }

    /// Begins a critical section: no object that is retired from now on is reclaimed while the guard lives. Guards
    /// nest; inner guards protect as the outermost does. Never waits. Beginning and ending a section take about a
    /// nanosecond together ([`Flavour::Membarrier`]).
    ///
    /// All guards of one thread in one domain form one critical section, which lasts as long as any of them lives. So
    /// if a thread's guards overlap without end, nothing that is retired meanwhile is reclaimed.
    ///
    /// [`Flavour::Membarrier`]: super::Flavour::Membarrier
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// for _ in 0..3 {
    ///     let _guard = reader.enter();
    ///     // ... follow pointers ...
    /// }
    /// ```
    #[inline]
    pub fn enter(&self) -> Guard<'d> {
        if self.is_mine() { Guard::begin(self.domain, self.record) } else { Self::enter_late(self.domain) }
    }

    /// Returns whether the calling thread has the slot of this reader's record. Code that runs very late in a thread's
    /// end may find that the thread has returned this slot; then another thread may own the slot's state.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// assert!(Domain::new().reader().is_mine());
    /// ```
    #[inline(always)]
    pub fn is_mine(&self) -> bool {
        self.record.is_mine()
    }

    #[cfg(not(loom))]
    #[inline]
    pub(super) fn domain(&self) -> &'d Domain {
        self.domain
    }

    #[cfg(not(loom))]
    #[inline]
    pub(super) fn record(&self) -> &'d Record {
        self.record
    }

    /// Under loom all threads run, so this does nothing.
    #[cfg(loom)]
    pub fn give_way(&self) {}

    /// Not a method: a method would take the address of the reader, which then could not be kept in registers.
    #[cold]
    fn enter_late(domain: &'d Domain) -> Guard<'d> {
        domain.pin()
    }
}

/// A critical section of one thread on one [`Domain`]: objects that were reachable when the section began, or later,
/// are not reclaimed before it ends.
///
/// A forgotten guard (`mem::forget`) stops the domain's reclamation forever, and does no other harm.
/// [`Stats`](super::Stats) show it. The same holds for a guard that is dropped after its thread has returned its slot.
/// On Unix no destructor of a thread-local runs that late. On other systems the destructor of a thread-local may run so
/// late, if the thread first used this thread-local before it first used a domain.
pub struct Guard<'d> {
    domain: &'d Domain,
    record: &'d Record,
    /// The record belongs to this thread.
    not_send: PhantomData<*mut ()>,
}

impl<'d> Guard<'d> {
    /// Enters by `record`, which this thread owns.
    #[inline]
    pub(super) fn begin(domain: &'d Domain, record: &'d Record) -> Self {
        archipelago_platform::htm::refuse_in_regions("entering an RCU section");
        record.enter(|| domain.entry(), || domain.reader_barrier());
        Self { domain, record, not_send: PhantomData }
    }

    /// Returns the guard's domain.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// assert!(std::ptr::eq(domain.pin().domain(), &domain));
    /// ```
    #[inline]
    pub fn domain(&self) -> &'d Domain {
        self.domain
    }

    #[inline]
    pub(super) fn record(&self) -> &'d Record {
        self.record
    }

    /// Runs `work`. Until it returns, retiring in this thread runs no reclaim functions of this domain; retired objects
    /// wait until later. This is for code that retires while it holds locks. A reclaim function (perhaps the destructor
    /// of a user's value) might take such a lock, or its panic might poison the lock.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let guard = domain.pin();
    /// let sum = guard.hold_back(|| {
    ///     // No destructor of a retired object runs here, so locks that it might ask for may be held.
    ///     1 + 2
    /// });
    /// assert_eq!(sum, 3);
    /// ```
    pub fn hold_back<R>(&self, work: impl FnOnce() -> R) -> R {
        if !self.record.is_mine() {
            return self.domain.pin().hold_back(work);
        }
        // `None` if reclamation is already held back or running.
        let _reclaiming = self.record.begin_reclaiming();
        work()
    }

    /// Retires `object`: `reclaim(object, context)` runs once, in any thread, after every guard that may have seen the
    /// object has ended, at the latest when the domain is dropped. Allocates only while bags grow to their size. If the
    /// call fills a bag, it reclaims ripe objects of this thread, and from time to time those of idle threads, with no
    /// lock of the domain held.
    ///
    /// # Panics
    /// With the panic of a reclaim function. The other functions of its batch have run by then.
    ///
    /// # Safety
    /// - Guards entered from now on cannot reach the object through the structure: it is unlinked, and the unlink
    ///   happens before this call.
    /// - It is retired once, and no other thread frees it.
    /// - `reclaim(object, context)` is sound in any thread at any later time until the domain has been dropped. It may
    ///   retire and enter again, but not when it is run by [`Domain::drain_all`] or by the domain's drop.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// unsafe fn free(object: *mut (), _: *mut ()) {
    ///     // SAFETY: it is the box that was retired, and RCU calls this once.
    ///     drop(unsafe { Box::from_raw(object.cast::<u64>()) });
    /// }
    /// let object: *mut u64 = Box::into_raw(Box::new(7));
    /// // SAFETY: nothing else refers to the object.
    /// unsafe { domain.pin().retire(object.cast(), std::ptr::null_mut(), free) };
    /// domain.collect();
    /// ```
    #[inline]
    pub unsafe fn retire(&self, object: *mut (), context: *mut (), reclaim: unsafe fn(*mut (), *mut ())) {
        // SAFETY: passed on.
        unsafe { self.retire_sized(object, 0, context, reclaim) }
    }

    /// As [`retire`](Self::retire), for an object that takes `bytes` of memory: the bytes count in
    /// [`Stats::pending_bytes`](super::Stats::pending_bytes), and large objects fill a bag earlier.
    ///
    /// # Panics
    /// As [`retire`](Self::retire).
    ///
    /// # Safety
    /// As for [`retire`](Self::retire). `bytes` may be wrong.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// unsafe fn free(text: *mut (), _: *mut ()) {
    ///     // SAFETY: it is the box that was retired, and RCU calls this once.
    ///     drop(unsafe { Box::from_raw(text.cast::<String>()) });
    /// }
    /// let text = Box::into_raw(Box::new("x".repeat(1000)));
    /// // SAFETY: nothing else refers to the text.
    /// unsafe { domain.pin().retire_sized(text.cast(), 1024, std::ptr::null_mut(), free) };
    /// assert_eq!(domain.stats().pending_bytes, 1024);
    /// ```
    #[inline]
    pub unsafe fn retire_sized(
        &self,
        object: *mut (),
        bytes: usize,
        context: *mut (),
        reclaim: unsafe fn(*mut (), *mut ()),
    ) {
        if !self.record.is_mine() {
            // SAFETY: the same promise. (Late in the thread's end, `pin` uses another record.)
            return unsafe { self.domain.pin().retire_sized(object, bytes, context, reclaim) };
        }
        let held = self.record.garbage().push(Retired { object, context, reclaim }, bytes);
        if held.objects == 1 {
            self.domain.note_garbage();
        }
        if held.reaches(self.domain.bag_limit()) {
            self.domain.seal_and_reclaim(self);
        }
    }

    /// Retires a box, which is dropped after every guard that may have seen it has ended. See
    /// [`retire`](Self::retire). It counts as `size_of::<T>()` bytes.
    ///
    /// # Panics
    /// As [`retire`](Self::retire).
    ///
    /// # Safety
    /// As for [`retire`](Self::retire): `object` came from [`Box::into_raw`], is unlinked and retired once; and `T` may
    /// be dropped in any thread, until the domain has been dropped.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let guard = domain.pin();
    /// let object = Box::into_raw(Box::new(String::from("still here")));
    /// // SAFETY: nothing else refers to the object.
    /// unsafe { guard.retire_box(object) };
    /// // SAFETY: the guard is older than the retirement.
    /// assert_eq!(unsafe { (*object).as_str() }, "still here");
    /// ```
    #[inline]
    pub unsafe fn retire_box<T>(&self, object: *mut T) {
        // SAFETY: passed on.
        unsafe { self.retire_box_sized(object, size_of::<T>()) }
    }

    /// As [`retire_box`](Self::retire_box), for a box that takes `bytes` of memory, including the memory that it owns.
    ///
    /// # Panics
    /// As [`retire`](Self::retire).
    ///
    /// # Safety
    /// As for [`retire_box`](Self::retire_box). `bytes` may be wrong.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let text = Box::new(vec![0_u8; 1_000]);
    /// let bytes = size_of::<Vec<u8>>() + text.capacity();
    /// // SAFETY: nothing else refers to the object.
    /// unsafe { domain.pin().retire_box_sized(Box::into_raw(text), bytes) };
    /// assert_eq!(domain.stats().pending_bytes, bytes);
    /// ```
    #[inline]
    pub unsafe fn retire_box_sized<T>(&self, object: *mut T, bytes: usize) {
        /// # Safety
        /// `object` came from a `Box<T>` that no other thread frees or uses.
        unsafe fn drop_box<T>(object: *mut (), _: *mut ()) {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(object.cast::<T>()) });
        }
        // SAFETY: the caller's promise; `drop_box` needs no context.
        unsafe { self.retire_sized(object.cast(), bytes, core::ptr::null_mut(), drop_box::<T>) }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        // After the thread has returned the slot, another thread may own the record, so the guard stays counted.
        if self.record.is_mine() {
            self.record.leave();
        }
    }
}
