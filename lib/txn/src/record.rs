//! Records and their versions, without the types of rows: what the protocols of commits work on.
//!
//! A record stands for a key of one index. Its *head* leads to the newest committed version; a version is a row (or what an
//! index entry leads to), or says that there is none. A version never changes once it is the head, and no two versions that a
//! transaction can see have one address: the transaction is in an RCU section all the time. So a head is also the
//! version number by which reads are validated.
//!
//! ```text
//! index: key → record { head, lock } → version { begin, older, row } → version → …
//! ```
//!
//! # Invariants
//! 1. A head changes only while it is latched, by the latch's holder.
//! 2. The head's pointer is never null. A new record begins with a version without a row whose `begin` is 0: the *origin*. In schemes
//!    that write nothing into origins all records of an index have the same one, which is freed with the index; no record comes
//!    back to its origin once something has been committed to it.
//! 3. `begin` does not rise from a version to the older one.
//! 4. A dead record has been taken out of its index, stays dead, and no transaction commits anything to it.

use core::marker::PhantomData;
use core::panic::AssertUnwindSafe;

use archipelago_platform::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;

use crate::memory::{Memory, Payload};
use crate::scheme::{Conflict, Scheme};

const LATCHED: usize = 1;
const DEAD: usize = 2;

/// What all versions begin with.
#[repr(C, align(8))]
pub struct Version<S: Scheme> {
    /// The epoch of the commit; 0 for an origin, and for what is not committed yet.
    pub(crate) begin: AtomicU64,
    /// The version that it replaced, while a snapshot needs that.
    pub(crate) older: AtomicPtr<Version<S>>,
    /// The snapshot in whose list the record is because of this version. Written under the latch.
    pub(crate) keeper: AtomicU64,
    /// In a table that is logged: see `codec.rs`. Written before the version is published.
    pub(crate) serial: AtomicU64,
    pub(crate) stamps: S::Stamps,
    kind: &'static Kind<S>,
}

/// What all versions of a type have in common.
struct Kind<S: Scheme> {
    absent: bool,
    /// It is not the record's, but its index's.
    shared: bool,
    /// Frees a whole version.
    free: unsafe fn(*mut Version<S>),
    bytes: usize,
    /// Bytes that the payload of a version owns elsewhere.
    heap_bytes: unsafe fn(*mut Version<S>) -> usize,
}

/// A whole version.
#[repr(C)]
pub(crate) struct Full<P, S: Scheme> {
    version: Version<S>,
    payload: Option<P>,
}

impl<P: Payload, S: Scheme> Full<P, S> {
    const PRESENT: &'static Kind<S> = &Self::kind(false, false);
    const ABSENT: &'static Kind<S> = &Self::kind(true, false);
    const SHARED: &'static Kind<S> = &Self::kind(true, true);

    const fn kind(absent: bool, shared: bool) -> Kind<S> {
        Kind { absent, shared, free: Self::free, bytes: size_of::<Self>(), heap_bytes: Self::heap_bytes }
    }

    unsafe fn heap_bytes(version: *mut Version<S>) -> usize {
        // SAFETY: `boxed` made it of this type; the caller's promise is that it is alive.
        unsafe { Self::payload(version) }.map_or(0, Payload::heap_bytes)
    }

    unsafe fn free(version: *mut Version<S>) {
        // SAFETY: `boxed` made it of this type; the caller gives it up.
        drop(unsafe { Box::from_raw(version.cast::<Self>()) });
    }

    /// A version on the heap, the caller's until it is published.
    pub(crate) fn boxed(payload: Option<P>, memory: &Memory) -> *mut Version<S> {
        memory.add(|| size_of::<Self>() + payload.as_ref().map_or(0, Payload::heap_bytes));
        let kind = if payload.is_none() { Self::ABSENT } else { Self::PRESENT };
        Self::of(payload, kind)
    }

    fn of(payload: Option<P>, kind: &'static Kind<S>) -> *mut Version<S> {
        let version = Version {
            begin: AtomicU64::new(0),
            older: AtomicPtr::default(),
            keeper: AtomicU64::new(0),
            serial: AtomicU64::new(0),
            stamps: S::Stamps::default(),
            kind,
        };
        Box::into_raw(Box::new(Self { version, payload })).cast()
    }

    /// The payload of a version.
    ///
    /// # Safety
    /// `version` was made by `boxed` of this type, and lives for `'a`.
    pub(crate) unsafe fn payload<'a>(version: *mut Version<S>) -> Option<&'a P> {
        // SAFETY: the caller's promise; payloads do not change.
        unsafe { (*version.cast::<Self>()).payload.as_ref() }
    }
}

impl<S: Scheme> Version<S> {
    pub(crate) fn is_absent(&self) -> bool {
        self.kind.absent
    }

    /// Returns whether it has never been committed: what the key had before its first commit.
    pub(crate) fn is_origin(&self) -> bool {
        self.kind.absent && self.begin.load(Ordering::Relaxed) == 0
    }
}

/// Runs users' code where a panic must not come out: the panic hook has reported it. Returns whether there was none.
pub(crate) fn quietly(work: impl FnOnce()) -> bool {
    // A payload's destructor might panic again.
    std::panic::catch_unwind(AssertUnwindSafe(work)).map_err(core::mem::forget).is_ok()
}

/// Frees a version.
///
/// # Safety
/// It is the caller's: no other thread sees it, and nothing that was lent from it is left.
pub(crate) unsafe fn free<S: Scheme>(version: *mut Version<S>, memory: &Memory) {
    // SAFETY: the caller's promise.
    let kind = unsafe { (*version).kind };
    if kind.shared {
        return;
    }
    // Told by the user's code, which may panic: then what rows own is no longer exact.
    let mut bytes = kind.bytes;
    memory.subtract(|| {
        // SAFETY: as above.
        quietly(|| bytes += unsafe { (kind.heap_bytes)(version) });
        bytes
    });
    // SAFETY: as above.
    quietly(|| unsafe { (kind.free)(version) });
}

/// Frees a version once no transaction sees it.
///
/// # Safety
/// It is no longer reachable from its record for those that enter the domain from now on; it is retired once. The memory is
/// that of the domain's database.
pub(crate) unsafe fn retire<S: Scheme>(guard: &Guard<'_>, version: *mut Version<S>, memory: &Memory) {
    unsafe fn reclaim<S: Scheme>(version: *mut (), memory: *mut ()) {
        // SAFETY: RCU calls this once, after all that saw it; the database's memory outlives what the domain has retired.
        unsafe { free(version.cast::<Version<S>>(), &*memory.cast::<Memory>()) };
    }
    let memory = core::ptr::from_ref(memory).cast_mut().cast();
    // SAFETY: the version is alive.
    if unsafe { (*version).kind.shared } {
        return;
    }
    // SAFETY: the version is alive; the rest is the caller's promise.
    unsafe { guard.retire_sized(version.cast(), (*version).kind.bytes, memory, reclaim::<S>) };
}

/// A head as it was at some moment.
pub struct Head<S: Scheme>(*mut Version<S>);

impl<S: Scheme> Clone for Head<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Scheme> Copy for Head<S> {}

impl<S: Scheme> Head<S> {
    pub(crate) fn is_latched(self) -> bool {
        self.0.addr() & LATCHED != 0
    }

    pub(crate) fn is_dead(self) -> bool {
        self.0.addr() & DEAD != 0
    }

    pub(crate) fn version(self) -> *mut Version<S> {
        self.0.map_addr(|address| address & !(LATCHED | DEAD))
    }
}

/// What all records begin with.
#[repr(C)]
pub struct Record<S: Scheme> {
    head: AtomicPtr<Version<S>>,
    /// What keeps it in its index: transactions that are to write it, and removals whose grace period is not over. See
    /// `tree.rs`.
    holds: AtomicU32,
    /// In schemes of many versions, the thread whose transaction is to write the record; 0 if there is none.
    owner: AtomicU32,
    pub(crate) lock: S::Lock,
}

impl<S: Scheme> Record<S> {
    /// Acquire: what the version holds was written before the Release of [`Latch::install`] (or of the index, for an origin).
    pub(crate) fn head(&self) -> Head<S> {
        Head(self.head.load(Ordering::Acquire))
    }

    /// The head when it is not latched, or that it is dead. Latches are held for the time of a commit, without users' code but
    /// for the encoding of keys, and their holders wait for nothing but latches that are ordered behind theirs.
    pub(crate) fn settled(&self) -> Head<S> {
        let backoff = Backoff::new();
        loop {
            let head = self.head();
            if head.is_dead() || !head.is_latched() {
                return head;
            }
            backoff.wait();
        }
    }

    /// The head for a reader: schemes whose readers judge versions themselves do not wait for latches.
    pub(crate) fn to_read(&self) -> Head<S> {
        if S::LINKS { self.head() } else { self.settled() }
    }

    /// Makes the record the thread's to write, until [`disown`](Self::disown); returns whether it was not before.
    pub(crate) fn own(&self, thread: u32) -> Result<bool, Conflict> {
        // Acquire: what the last owner did is seen, its commit's stamp included.
        match self.owner.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(true),
            Err(owner) if owner == thread => Ok(false),
            Err(_) => Err(Conflict),
        }
    }

    pub(crate) fn is_owned(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn disown(&self) {
        self.owner.store(0, Ordering::Release);
    }

    /// Keeps the record in its index until [`let_go`](Self::let_go), if it is not dead: to be looked at after the call.
    pub(crate) fn hold(&self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
        // With the one in `Tree::unlink`, which comes between its latch and its look at `holds`.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn let_go(&self) {
        // Release: the unlinker sees what the holder did.
        self.holds.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Acquire) > 0
    }

    /// Latches the record; `None` if it is dead.
    pub(crate) fn latch(&self) -> Option<Latch<'_, S>> {
        loop {
            let head = self.settled();
            if head.is_dead() {
                return None;
            }
            let latched = head.0.map_addr(|address| address | LATCHED);
            // Acquire: the next holder sees what the last one did. (What follows a latch in commits is behind a SeqCst fence.)
            if self.head.compare_exchange(head.0, latched, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                archipelago_platform::hint::point("txn::latched");
                return Some(Latch { record: self, version: head.version() });
            }
        }
    }
}

/// A latched record; unlatched by drop.
pub(crate) struct Latch<'r, S: Scheme> {
    record: &'r Record<S>,
    version: *mut Version<S>,
}

impl<'r, S: Scheme> Latch<'r, S> {
    /// The head's version.
    pub(crate) fn version(&self) -> *mut Version<S> {
        self.version
    }

    pub(crate) fn record(&self) -> &'r Record<S> {
        self.record
    }

    /// Keeps the record in its index until [`let_go`](Record::let_go). Without [`hold`](Record::hold)'s fence: an unlinker that
    /// latches the record later sees what was done under this latch.
    pub(crate) fn hold(&self) {
        self.record.holds.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes `version` the head, still latched, before the version that was.
    pub(crate) fn install(&mut self, version: *mut Version<S>) {
        // SAFETY: the version is the caller's, alive and unpublished.
        unsafe { (*version).older.store(self.version, Ordering::Relaxed) };
        self.version = version;
    }

    /// Makes `version` the head, and forgets the one that was: returns it.
    pub(crate) fn replace(&mut self, version: *mut Version<S>) -> *mut Version<S> {
        core::mem::replace(&mut self.version, version)
    }

    /// Marks the record dead.
    pub(crate) fn kill(self) {
        // Release, as in `drop`.
        self.record.head.store(self.version.map_addr(|address| address | DEAD), Ordering::Release);
        core::mem::forget(self);
    }
}

impl<S: Scheme> Drop for Latch<'_, S> {
    fn drop(&mut self) {
        // Release: publishes the version, and all that its transaction did before.
        self.record.head.store(self.version, Ordering::Release);
    }
}

/// The origin of all records of an index, in schemes that write nothing into it; null in others, whose records have their own.
pub(crate) struct Origin<S: Scheme>(*mut Version<S>, unsafe fn(*mut Version<S>));

impl<S: Scheme> Origin<S> {
    /// Of an index that leads to `P`.
    pub(crate) fn new<P: Payload>() -> Self {
        let own = S::MARKS_ORIGINS;
        let version = if own { core::ptr::null_mut() } else { Full::<P, S>::of(None, Full::<P, S>::SHARED) };
        Self(version, Full::<P, S>::free)
    }
}

impl<S: Scheme> Drop for Origin<S> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by `new` of this type; the index goes, and all its records have gone.
            unsafe { (self.1)(self.0) };
        }
    }
}

/// A record of an index with keys `K` that lead to `P`.
#[repr(C)]
pub struct Keyed<K, P, S: Scheme> {
    record: Record<S>,
    key: K,
    payload: PhantomData<fn() -> P>,
}

impl<K, P, S: Scheme> Keyed<K, P, S> {
    /// A record whose key has not been committed to, held by its maker: nothing takes it out before that has written it.
    pub(crate) fn boxed(key: K, origin: &Origin<S>, memory: &Memory) -> *mut Self
    where
        P: Payload,
    {
        memory.add(size_of::<Self>);
        let origin = if origin.0.is_null() { Full::<P, S>::boxed(None, memory) } else { origin.0 };
        let record = Record {
            head: AtomicPtr::new(origin),
            holds: AtomicU32::new(1),
            owner: AtomicU32::new(0),
            lock: S::Lock::default(),
        };
        Box::into_raw(Box::new(Self { record, key, payload: PhantomData }))
    }

    pub(crate) fn record(&self) -> &Record<S> {
        &self.record
    }

    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// Frees a record and all its versions.
    ///
    /// # Safety
    /// It came from `boxed`, and no thread uses it or anything lent from it.
    pub(crate) unsafe fn free(this: *mut Self, memory: &Memory) {
        memory.subtract(size_of::<Self>);
        // SAFETY: the caller's promise.
        let this = unsafe { Box::from_raw(this) };
        let mut version = this.record.head().version();
        while !version.is_null() {
            // SAFETY: versions of a record that no thread uses are the record's.
            let older = unsafe { (*version).older.load(Ordering::Relaxed) };
            // SAFETY: as above; the next one has been read.
            unsafe { free(version, memory) };
            version = older;
        }
        quietly(|| drop(this));
    }
}
