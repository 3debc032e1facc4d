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
//! 1. A head changes only while it is latched, by the latch's holder.
//! 2. The head's pointer is never null. A new record's head is a version without a row whose `begin` is 0: the
//!    *origin*. In schemes that write nothing into origins, all records of an index have the same one, which is freed
//!    with the index. After the first commit to a record its head is never the origin again.
//! 3. `begin` of an older version is at most `begin` of a newer one.
//! 4. A dead record has been unlinked from its index and stays dead, and no transaction commits anything to it.

use core::marker::PhantomData;

use archipelago_platform::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use archipelago_platform::panics::{drop_quietly, quietly};
use archipelago_platform::touch;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;

use crate::memory::{Memory, Payload};
use crate::scheme::{Conflict, Scheme};

/// The bit of `Record::holds` for the record's repeated callback (see `Typed::due` in `tree.rs`).
const AGAIN: u32 = 1 << 31;

const LATCHED: usize = 1;
const DEAD: usize = 2;

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
    // Users' code computes the rows' bytes and may panic; then the count is no longer exact.
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

/// The header of all records.
#[repr(C)]
pub struct Record<S: Scheme> {
    head: AtomicPtr<Version<S>>,
    /// The number of holds that keep the record in its index, and the bit [`AGAIN`]. Holds belong to transactions that
    /// are to write the record, and to commits whose grace period is not over (removals, and in multi-version schemes
    /// all commits). See `tree.rs`.
    holds: AtomicU32,
    /// In multi-version schemes, the thread whose transaction is to write the record; 0 for none.
    owner: AtomicU32,
    pub(crate) lock: S::Lock,
}

impl<S: Scheme> Record<S> {
    /// Acquire: the version's content was written before the Release of [`Latch::install`] (or of the index, for an
    /// origin).
    pub(crate) fn head(&self) -> Head<S> {
        Head(self.head.load(Ordering::Acquire))
    }

    /// Waits until the head is not latched or is dead, and returns it. The wait is short. A latch is held only while a
    /// commit, pruning or unlinking uses the record. The only users' code that runs while a latch is held is the
    /// encoding of keys. The holder waits only for latches that follow its own in the latch order.
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

    /// Returns the head for a reader. Waits for a latch, except in schemes whose readers check versions themselves.
    pub(crate) fn to_read(&self) -> Head<S> {
        if S::LINKS { self.head() } else { self.settled() }
    }

    /// Gives the thread the sole right to write the record, until [`disown`](Self::disown). Returns `true` if the right
    /// is new, and `false` if the thread had it already. Fails if another thread has it.
    pub(crate) fn own(&self, thread: u32) -> Result<bool, Conflict> {
        // Acquire: the thread sees all writes of the last owner, including its commit's stamp.
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

    /// Keeps the record in its index until [`let_go`](Self::let_go). This has no effect on a dead record, so the caller
    /// checks after the call whether the record is dead.
    pub(crate) fn hold(&self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `Tree::unlink` between the latch and the load of `holds`.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn let_go(&self) {
        // Release: a thread that unlinks the record sees all writes of the holder.
        self.holds.fetch_sub(1, Ordering::Release);
    }

    /// Takes the hold of the record's repeated callback. Returns whether it was free.
    pub(crate) fn hold_again(&self) -> bool {
        self.holds.fetch_or(AGAIN, Ordering::Relaxed) & AGAIN == 0
    }

    /// Ends the hold of the repeated callback.
    pub(crate) fn let_go_again(&self) {
        // Release, as in `let_go`.
        self.holds.fetch_and(!AGAIN, Ordering::Release);
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
            // Acquire: the holder sees all writes of the last holder. (In commits a SeqCst fence follows the latch.)
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
    /// Returns the head's version.
    pub(crate) fn version(&self) -> *mut Version<S> {
        self.version
    }

    pub(crate) fn record(&self) -> &'r Record<S> {
        self.record
    }

    /// Keeps the record in its index until [`let_go`](Record::let_go). It does not need the fence of
    /// [`hold`](Record::hold): a thread that latches the record later, to unlink it, sees all writes that were made
    /// under this latch.
    pub(crate) fn hold(&self) {
        self.record.holds.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes `version` the head, whose older version is the previous head. The head stays latched.
    pub(crate) fn install(&mut self, version: *mut Version<S>) {
        // SAFETY: the version is the caller's, alive and unpublished.
        unsafe { (*version).older.store(self.version, Ordering::Relaxed) };
        self.version = version;
    }

    /// Makes `version` the head, and does not change its `older`. Returns the previous head's version.
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
        // Release: publishes the version, and all earlier writes of its transaction.
        self.record.head.store(self.version, Ordering::Release);
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
