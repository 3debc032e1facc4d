//! Records and their versions, without the types of rows, for the commit protocols.
//!
//! A record belongs to a key of one index. Its *head* points to the newest committed version (in `mvrlu.rs`, perhaps to
//! a newer one whose commit is not decided yet). A version contains a row (or an index entry's link), or states that
//! the key is absent. A version's content never changes once the version is the head. A transaction is in an RCU
//! section from its begin to its end, so no two versions that it can see have the same address. Reads are therefore
//! validated by comparing heads.
//!
//! ```text
//! index: key → record { head, lock } → version { begin, older, row } → version → …
//! ```
//!
//! # Invariants
//! 1. A head changes only while it is latched, by the latch's holder (`words/head.rs`).
//! 2. The head's pointer is never null. A new record's head is a version without a row whose `begin` is 0: the
//!    *origin*. In schemes that write nothing into origins, all records of an index have the same one, which is freed
//!    with the index. After the first commit to a record its head is never the origin again.
//! 3. `begin` of an older version is at most `begin` of a newer one.
//! 4. A dead record has been unlinked from its index and stays dead, and no transaction commits anything to it.

use core::marker::PhantomData;
use core::ops::Deref;

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};
use archipelago_platform::panics::{drop_quietly, quietly};
use archipelago_platform::touch;
use archipelago_sync::rcu::Guard;

use crate::memory::{Memory, Payload};
use crate::scheme::Scheme;
use crate::words::head::{self, Words};

/// Set in the `serial` of a version that a transaction without a log record has written. The tables of such versions
/// are not logged, so the versions need no serials.
const UNLOGGED: u64 = 1 << 63;

/// The header of all versions.
#[repr(C, align(8))]
pub struct Version<S: Scheme> {
    /// The epoch (or stamp) of the commit; 0 for an origin and for a version that is not committed yet. In `mvrlu.rs`
    /// it may also point to the word with the stamp.
    pub(crate) begin: AtomicU64,
    /// The version that this one replaced, while a snapshot or a running transaction may need it.
    pub(crate) older: AtomicPtr<Version<S>>,
    /// The snapshot whose list contains the record because of this version. Written under the latch.
    pub(crate) keeper: AtomicU64,
    /// The version's serial, in a logged table: see `codec.rs`. With [`UNLOGGED`], the epoch on which an unlogged
    /// transaction depended. Written before the version is published.
    pub(crate) serial: AtomicU64,
    pub(crate) stamps: S::Stamps,
    kind: &'static Vtable<S>,
}

/// The properties that all versions with one type of content have in common.
struct Vtable<S: Scheme> {
    absent: bool,
    /// Whether the version belongs to the index, not to a single record.
    shared: bool,
    /// Frees a version with its content.
    free: unsafe fn(*mut Version<S>),
    bytes: usize,
    /// Returns how many bytes the payload of a version owns on the heap.
    heap_bytes: unsafe fn(*mut Version<S>) -> usize,
}

/// A version with its content.
#[repr(C)]
pub(crate) struct Full<P, S: Scheme> {
    version: Version<S>,
    payload: Option<P>,
}

impl<P: Payload, S: Scheme> Full<P, S> {
    const PRESENT: &'static Vtable<S> = &Self::kind(false, false);
    const ABSENT: &'static Vtable<S> = &Self::kind(true, false);
    const SHARED: &'static Vtable<S> = &Self::kind(true, true);

    const fn kind(absent: bool, shared: bool) -> Vtable<S> {
        Vtable { absent, shared, free: Self::free, bytes: size_of::<Self>(), heap_bytes: Self::heap_bytes }
    }

    unsafe fn heap_bytes(version: *mut Version<S>) -> usize {
        // SAFETY: `boxed` made the version of this type; the caller promises that the version is alive.
        unsafe { Self::payload(version) }.map_or(0, Payload::heap_bytes)
    }

    unsafe fn free(version: *mut Version<S>) {
        // SAFETY: `boxed` made the version of this type; the caller passes its ownership.
        drop(unsafe { Box::from_raw(version.cast::<Self>()) });
    }

    /// Makes a version on the heap. The caller owns it until it is published.
    pub(crate) fn boxed(payload: Option<P>, memory: &Memory) -> *mut Version<S> {
        memory.add(|| size_of::<Self>() + payload.as_ref().map_or(0, Payload::heap_bytes));
        let kind = if payload.is_none() { Self::ABSENT } else { Self::PRESENT };
        Self::of(payload, kind)
    }

    fn of(payload: Option<P>, kind: &'static Vtable<S>) -> *mut Version<S> {
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

    /// Returns the payload of a version.
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
        // This may be the thread's first access to a header that another thread has made.
        touch(&raw const self.kind, size_of::<usize>());
        self.kind.absent
    }

    /// Returns whether the version is an origin. If so, no earlier commit to the key is in this record.
    pub(crate) fn is_origin(&self) -> bool {
        // In this order: for most versions the first comparison decides.
        self.begin.load(Ordering::Relaxed) == 0 && self.kind.absent
    }

    /// Notes the epoch on which the unlogged transaction that has written the version depended.
    pub(crate) fn depend(&self, epoch: u64) {
        self.serial.store(UNLOGGED | epoch, Ordering::Relaxed);
    }

    /// Returns the epoch that has to be durable before a transaction that has read the version is acknowledged.
    pub(crate) fn needs(&self) -> u64 {
        let serial = self.serial.load(Ordering::Relaxed);
        if serial & UNLOGGED == 0 { self.begin.load(Ordering::Relaxed) } else { serial & !UNLOGGED }
    }
}

/// Returns the bytes of a version with those that its row owns on the heap. Users' code counts the latter; if it panics,
/// they are left out, and the count of the database's memory is no longer exact.
///
/// # Safety
/// The version is alive.
pub(crate) unsafe fn weight<S: Scheme>(version: *mut Version<S>) -> usize {
    // SAFETY: the caller's promise.
    let kind = unsafe { (*version).kind };
    // SAFETY: as above.
    let owned = quietly(|| unsafe { (kind.heap_bytes)(version) });
    kind.bytes.saturating_add(owned.unwrap_or(0))
}

/// Frees a version.
///
/// # Safety
/// The caller owns the version: no other thread sees it, and no reference into it is left.
pub(crate) unsafe fn free<S: Scheme>(version: *mut Version<S>, memory: &Memory) {
    // SAFETY: the caller's promise.
    let kind = unsafe { (*version).kind };
    if kind.shared {
        return;
    }
    // SAFETY: as above.
    memory.subtract(|| unsafe { weight(version) });
    // SAFETY: as above.
    quietly(|| unsafe { (kind.free)(version) });
}

/// Frees a version once no transaction sees it.
///
/// # Safety
/// Readers that enter the domain after this call cannot reach the version from its record. The version is retired once.
/// `memory` belongs to the domain's database.
pub(crate) unsafe fn retire<S: Scheme>(guard: &Guard<'_>, version: *mut Version<S>, memory: &Memory) {
    unsafe fn reclaim<S: Scheme>(version: *mut (), memory: *mut ()) {
        // SAFETY: RCU calls this once, after all readers that saw the version; the database's memory outlives
        // everything that the domain has retired.
        unsafe { free(version.cast::<Version<S>>(), &*memory.cast::<Memory>()) };
    }
    let memory = core::ptr::from_ref(memory).cast_mut().cast();
    // SAFETY: the version is alive.
    let kind = unsafe { (*version).kind };
    if kind.shared {
        return;
    }
    // SAFETY: the version is alive; the rest is the caller's promise.
    unsafe { guard.retire_sized(version.cast(), weight(version), memory, reclaim::<S>) };
}

/// A head as it was at some moment.
pub type Head<S> = head::Head<Version<S>>;

/// The header of all records. It dereferences to its words: the head, the holds and the owner.
#[repr(C)]
pub struct Record<S: Scheme> {
    words: Words<Version<S>>,
    pub(crate) lock: S::Lock,
}

impl<S: Scheme> Deref for Record<S> {
    type Target = Words<Version<S>>;

    fn deref(&self) -> &Self::Target {
        &self.words
    }
}

impl<S: Scheme> Record<S> {
    /// Returns the head for a reader. Waits for a latch, except in schemes whose readers check versions themselves.
    pub(crate) fn to_read(&self) -> Head<S> {
        if S::LINKS { self.head() } else { self.settled() }
    }

    /// Returns the version below the head, or null. The caller is inside the domain.
    pub(crate) fn replaced(&self) -> *mut Version<S> {
        // SAFETY: the head's version is alive inside the domain.
        unsafe { (*self.head().version()).older.load(Ordering::Acquire) }
    }

    /// Latches the record; `None` if it is dead.
    pub(crate) fn latch(&self) -> Option<Latch<'_, S>> {
        Latch::of(self)
    }
}

/// A latched record; unlatched by drop.
pub(crate) type Latch<'r, S> = head::Latch<'r, Record<S>, Version<S>>;

impl<S: Scheme> Latch<'_, S> {
    /// Makes `version` the head, whose older version is the previous head. The head stays latched.
    pub(crate) fn install(&mut self, version: *mut Version<S>) {
        let before = self.replace(version);
        // SAFETY: the version is the caller's, alive and unpublished.
        unsafe { (*version).older.store(before, Ordering::Relaxed) };
    }
}

/// The common origin of an index's records, in schemes that never write origins. It is null in the other schemes, where
/// each record has its own origin.
pub(crate) struct Origin<S: Scheme>(*mut Version<S>, unsafe fn(*mut Version<S>));

impl<S: Scheme> Origin<S> {
    /// Makes the origin of an index with the content `P`.
    pub(crate) fn new<P: Payload>() -> Self {
        let own = S::MARKS_ORIGINS;
        let version = if own { core::ptr::null_mut() } else { Full::<P, S>::of(None, Full::<P, S>::SHARED) };
        Self(version, Full::<P, S>::free)
    }
}

impl<S: Scheme> Drop for Origin<S> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by `new` of this type; the index is being dropped, and all its records have been freed.
            unsafe { (self.1)(self.0) };
        }
    }
}

/// A record of an index with the keys `K` and the content `P`.
#[repr(C)]
pub struct Keyed<K, P, S: Scheme> {
    record: Record<S>,
    key: K,
    payload: PhantomData<fn() -> P>,
}

impl<K, P, S: Scheme> Keyed<K, P, S> {
    /// Makes a record to which nothing has been committed. The caller has a hold on it, so no thread unlinks it before
    /// the caller has written it.
    pub(crate) fn boxed(key: K, origin: &Origin<S>, memory: &Memory) -> *mut Self
    where
        P: Payload,
    {
        memory.add(size_of::<Self>);
        let origin = if origin.0.is_null() { Full::<P, S>::boxed(None, memory) } else { origin.0 };
        let record = Record { words: Words::held(origin), lock: S::Lock::default() };
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
    /// The record was made by `boxed`, and no thread uses it or a reference into it.
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
        drop_quietly(this);
    }
}
