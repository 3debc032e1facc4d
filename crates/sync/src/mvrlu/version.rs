//! Objects and their versions, as they lie in memory.
//!
//! A *master* is a box: its head, then the value. A *copy* is a block of the [pool](super::pool): a header of 32 bytes, then
//! the payload. The chain goes from the master's `newest` through `older` to ever older copies; past the last one comes
//! the master's own value.
//!
//! | word | of | goes from | written by |
//! |---|---|---|---|
//! | `newest` | master | null or a copy to a newer copy; a copy to null | the lock's holder; the collector |
//! | `lock` | master | 0 to an owner's word and back, or to [`GONE`] for ever | its holder |
//! | `stamp` | copy | [`UNSET`] ([`LINKING`], [`LINKED`], [`CHECKING`] in the first of a write set) to a time | the committer, helpers |
//! | `superseded` | copy | [`NEVER`] to the time of the next version | the next version's committer |
//! | `older` | copy | a copy to an older copy or null | the committer before linking; the pruner |
//!
//! The copies of one write set have one stamp, which is decided in the first of them, the *leader*; the others learn it
//! afterwards, before any object of the set is unlocked.

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::clock::Clock;

/// What versioned objects are made of: plain data that may be copied bit by bit and shared between threads: numbers,
/// arrays, [`Link`]s, and structs of these. (A `Copy` type has no interior mutability and no destructor.)
pub trait Versioned: Copy + Send + Sync + 'static {}
impl<T: Copy + Send + Sync + 'static> Versioned for T {}

/// No stamp yet: ask the leader.
pub(super) const UNSET: u64 = u64::MAX;
/// Leader: some copies of the set may not be in their chains yet. The stamp will be drawn later than now.
pub(super) const LINKING: u64 = u64::MAX - 1;
/// Leader: all copies are in their chains; whoever meets this draws the stamp.
pub(super) const LINKED: u64 = u64::MAX - 2;
/// Leader: a stamp is drawn, and holds if what the transaction read is still so. Whoever meets this makes it `LINKING`.
pub(super) const CHECKING: u64 = u64::MAX - 3;
/// Leader: the reads did not hold; never visible.
pub(super) const ABORTED: u64 = u64::MAX - 4;
/// Not superseded.
pub(super) const NEVER: u64 = u64::MAX;
/// The lock of an object that was retired.
pub(super) const GONE: u64 = u64::MAX;

/// The head of an object, whatever its type.
pub(super) struct Head {
    pub(super) newest: AtomicPtr<Copied>,
    /// 0, or the word of who holds it: see [`lock_word`].
    pub(super) lock: AtomicU64,
    /// Which domain the object is of. Never followed.
    pub(super) domain: *const (),
}

/// The lock word of entry `index` in the write set of record `owner`.
#[inline]
pub(super) fn lock_word(owner: u32, index: usize) -> u64 {
    (u64::from(owner) + 1) << 32 | index as u64
}

/// With two versions: the holder's transaction is over, but its change is not written back.
pub(super) const DEFERRED: u64 = 1 << 31;

/// The entry that a lock word names, if a transaction of `owner`'s that is under way holds it.
#[inline]
pub(super) fn own_index(word: u64, owner: u32) -> Option<usize> {
    let is_own = word >> 32 == u64::from(owner) + 1 && word & DEFERRED == 0;
    is_own.then_some((word & 0xFFFF_FFFF) as usize)
}

/// Whom a lock word names, if anybody.
pub(super) fn owner_of(word: u64) -> Option<usize> {
    (word != 0 && word != GONE).then(|| (word >> 32) as usize - 1)
}

#[repr(C)]
pub(super) struct Master<T> {
    pub(super) head: Head,
    pub(super) value: UnsafeCell<T>,
}

/// The header of a copy.
#[repr(C)]
pub(super) struct Copied {
    pub(super) stamp: AtomicU64,
    /// The copy whose stamp counts until this one's own is set. Null in a leader. Written before the copy is linked.
    pub(super) leader: *const Copied,
    pub(super) older: AtomicPtr<Copied>,
    pub(super) superseded: AtomicU64,
}

impl Copied {
    pub(super) fn new(leader: *const Copied) -> Self {
        Self {
            stamp: AtomicU64::new(if leader.is_null() { LINKING } else { UNSET }),
            leader,
            older: AtomicPtr::new(ptr::null_mut()),
            superseded: AtomicU64::new(NEVER),
        }
    }

    /// Whether a snapshot at `local` sees this copy. Decides the stamp if it is undecided and might matter.
    ///
    /// # Safety
    /// The caller is inside a section at `local` and read the copy from its chain there.
    #[inline]
    pub(super) unsafe fn is_visible(&self, local: u64, clock: &Clock) -> bool {
        // Acquire: pairs with the Release that set the stamp, so that the payload and the set's other links are seen.
        let stamp = self.stamp.load(Ordering::Acquire);
        if stamp < ABORTED {
            return stamp <= local;
        }
        // SAFETY: the stamp is set before the set's objects are unlocked, so before the leader can be superseded, and
        // whoever was to collect the leader after that would have to wait for the caller's section; see `super`.
        let leader = unsafe { self.leader.as_ref() }.unwrap_or(self);
        leader.decide(clock) <= local
    }

    /// The leader's stamp, or something above all times if the set cannot be visible to a snapshot begun before now.
    #[cold]
    fn decide(&self, clock: &Clock) -> u64 {
        let mut state = self.stamp.load(Ordering::Acquire);
        loop {
            let next = match state {
                // The stamp is yet to be drawn, so it will be above the caller's time. And it is not drawn yet for
                // the copies that the caller has missed.
                LINKING | ABORTED => return state,
                CHECKING => LINKING,
                LINKED => clock.stamp(),
                time => return time,
            };
            match self.stamp.compare_exchange(state, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return next,
                Err(now) => state = now,
            }
        }
    }
}

/// What the collector must know of an object's type.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Of the value.
    pub(super) size: u32,
    /// Where the value lies in the master.
    pub(super) in_master: u32,
    /// Where the payload lies in the copy.
    pub(super) in_copy: u32,
    /// The layout of a copy.
    pub(super) copy: Layout,
    pub(super) free_master: unsafe fn(NonNull<Head>),
}

/// Copies begin on a cache line of their own.
const LINE: usize = 64;

impl Shape {
    pub(super) const fn of<T>() -> Self {
        /// # Safety
        /// `master` came from a box of `Master<T>`, and nobody uses it any more.
        unsafe fn free<T>(master: NonNull<Head>) {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(master.cast::<Master<T>>().as_ptr()) });
        }
        const { assert!(size_of::<T>() <= u32::MAX as usize / 2, "an object of 2 GiB or more") };
        let align = if align_of::<T>() > LINE { align_of::<T>() } else { LINE };
        let in_copy = size_of::<Copied>().next_multiple_of(align_of::<T>());
        let bytes = (in_copy + size_of::<T>()).next_multiple_of(LINE);
        let Ok(copy) = Layout::from_size_align(bytes, align) else { panic!("an object of 2 GiB or more") };
        Self {
            size: size_of::<T>() as u32,
            in_master: core::mem::offset_of!(Master<T>, value) as u32,
            in_copy: in_copy as u32,
            copy,
            free_master: free::<T>,
        }
    }

    /// The same without room for a payload: for versions that nobody reads.
    pub(super) const fn without_payload(self) -> Self {
        let Ok(copy) = Layout::from_size_align(LINE, LINE) else { unreachable!() };
        Self { size: 0, copy, ..self }
    }
}

/// A reference to an object of a [`Domain`](super::Domain): copyable, storable in other objects, never dangling by safe
/// means. What it refers to depends on the snapshot that follows it.
pub struct Link<T> {
    master: NonNull<Master<T>>,
    owns: PhantomData<T>,
}

// SAFETY: a link by itself gives access to nothing; snapshots and transactions give `&T` and copies of `T` by it, to
// whatever thread they are in.
unsafe impl<T: Send + Sync> Send for Link<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Link<T> {}

impl<T> Clone for Link<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Link<T> {}

impl<T> PartialEq for Link<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.master == other.master
    }
}

impl<T> Eq for Link<T> {}

impl<T> core::fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Link({:p})", self.master)
    }
}

impl<T: Versioned> Link<T> {
    /// A new object that nobody else knows.
    pub(super) fn new(value: T, domain: *const ()) -> Self {
        let head = Head { newest: AtomicPtr::new(ptr::null_mut()), lock: AtomicU64::new(0), domain };
        let master = Box::into_raw(Box::new(Master { head, value: UnsafeCell::new(value) }));
        // SAFETY: a box is not null.
        Self { master: unsafe { NonNull::new_unchecked(master) }, owns: PhantomData }
    }

    #[inline]
    pub(super) fn head(self) -> NonNull<Head> {
        self.master.cast()
    }

    /// # Safety
    /// The object is not freed yet.
    #[inline]
    pub(super) unsafe fn master<'a>(self) -> &'a Master<T> {
        // SAFETY: the caller's promise; all that changes in a master is in cells.
        unsafe { self.master.as_ref() }
    }
}

/// The payload of a copy of a `T`.
#[inline]
pub(super) fn payload<T>(copy: NonNull<Copied>) -> NonNull<T> {
    // SAFETY: copies of a `T` are blocks of `Shape::of::<T>().copy`, in which `in_copy` is in bounds.
    unsafe { copy.byte_add(const { Shape::of::<T>().in_copy as usize }).cast() }
}
