//! Objects and their versions, as they lie in memory.
//!
//! A *master* is a box: one word, its head, then the value. A *copy* is a block of the [pool](super::pool): a header of 32
//! bytes, then the payload. The chain goes from the master's `newest` through `older` to ever older copies; past the last
//! one comes the master's own value: a chain, and a master without one, ends in a word that is no pointer and says since
//! when, at the latest, there has been nothing to see of the object before: its [`birth`].
//!
//! There is no lock word: an object is locked by linking a copy that has no stamp yet, and says in `superseded` who holds
//! it. So an object costs its reader one word, odd unless there are versions, and its writer one exchange.
//!
//! | word | of | goes from | written by |
//! |---|---|---|---|
//! | `newest` | master | an [`end`] or a copy to a newer copy, held | the thread that locks |
//! | | | a held copy to the one below | its holder, aborting |
//! | | | a copy to an [`end`] | the collector |
//! | `stamp` | copy | [`UNSET`] ([`LINKING`], [`LINKED`], [`CHECKING`], [`ABORTED`] in the first of a write set) to a time | the committer, helpers |
//! | `superseded` | copy | a [lock word](lock_word) to [`NEVER`], or to [`GONE`] for ever | its holder |
//! | | | [`NEVER`] to the time of the next version | the next version's committer |
//! | | | that to [`PRUNED`] | the pruner |
//! | `older` | copy | a copy to an older copy or an [`end`] | the holder before linking; the pruner |
//!
//! The copies of one write set have one stamp, which is decided in the first of them, the *leader*; the others learn it
//! afterwards, before any object of the set is unlocked.

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::clock::Clock;
use crate::watch::Watch;

/// What versioned objects are made of: plain data that may be copied bit by bit and shared between threads: numbers,
/// arrays, [`Link`]s, and structs of these. (A `Copy` type has no interior mutability and no destructor.) A `String` or a `Vec` is
/// none of it: keep such things in a table of your own, in which nothing moves, and have the object hold a number of it or a `Link`.
///
/// ```compile_fail,E0277
/// let domain = archipelago::sync::mvrlu::Domain::new();
/// domain.alloc(String::from("not `Copy`"));
/// ```
// All in the message: of the bound behind this one, `Copy`, the compiler shows its own label and notes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a versioned object: these are `Copy + Send + Sync + 'static`; keep strings and vectors in a table and link to them"
)]
pub trait Versioned: Copy + Send + Sync + 'static {}
impl<T: Copy + Send + Sync + 'static> Versioned for T {}

/// No stamp yet: ask the leader.
pub(super) const UNSET: u64 = u64::MAX;
/// Leader: some copies of the set may not be in their chains yet. The stamp will be drawn later than now.
pub(super) const LINKING: u64 = u64::MAX - 1;
/// Leader: all copies are in their chains; the thread that meets this draws the stamp.
pub(super) const LINKED: u64 = u64::MAX - 2;
/// Leader: the reads did not hold; never visible.
pub(super) const ABORTED: u64 = u64::MAX - 3;
/// Leader, together with a stamp: that is drawn, and holds if what the transaction read is still so. A thread that
/// meets this, and would see the set then, makes it [`LINKING`]. Without a stamp, 0: it is being drawn.
pub(super) const CHECKING: u64 = 1 << 63;
/// Not superseded, and not held.
pub(super) const NEVER: u64 = u64::MAX;
/// The mark of an object that was retired: held for ever.
pub(super) const GONE: u64 = u64::MAX - 1;
/// Superseded, and taken out of its chain.
pub(super) const PRUNED: u64 = u64::MAX - 2;
/// In every word of `superseded` that is not a time.
pub(super) const HELD: u64 = 1 << 63;

/// The end of a chain: no section below `birth` has a link to the object, or looks for an older version of it.
#[inline]
pub(super) fn end(birth: u64) -> *mut Copied {
    // Where addresses are shorter than times, all objects have always been there.
    let birth = if usize::BITS < u64::BITS { 0 } else { birth };
    ptr::without_provenance_mut((birth << 1 | 1) as usize)
}

/// Whether a word of `newest` or `older` is no copy.
#[inline]
pub(super) fn is_end(word: *mut Copied) -> bool {
    word.addr() & 1 == 1
}

/// What an end says.
pub(super) fn birth(end: *mut Copied) -> u64 {
    end.addr() as u64 >> 1
}

/// The copy that a word of `newest` or `older` is a pointer to.
///
/// # Safety
/// It is not freed as long as the caller uses it.
#[inline]
pub(super) unsafe fn follow<'a>(word: *mut Copied) -> Option<&'a Copied> {
    // SAFETY: not an end, so a copy; the caller's promise.
    let copy = (!is_end(word)).then(|| unsafe { &*word })?;
    copy.header.read();
    Some(copy)
}

/// The head of an object, whatever its type.
pub(super) struct Head {
    pub(super) newest: AtomicPtr<Copied>,
    /// Of the master's value.
    pub(super) watch: Watch,
}

/// The lock word of entry `index` in the write set of record `owner`.
#[inline]
pub(super) fn lock_word(owner: u32, index: usize) -> u64 {
    debug_assert!(owner < 1 << 30 && (index as u64) < DEFERRED);
    HELD | u64::from(owner) << 32 | index as u64
}

/// With two versions: the holder's transaction is over, but its change is not written back.
pub(super) const DEFERRED: u64 = 1 << 31;

/// The entry that a lock word names, if a transaction of `owner`'s that is under way holds it.
#[inline]
pub(super) fn own_index(word: u64, owner: u32) -> Option<usize> {
    let index = word ^ lock_word(owner, 0);
    (index < DEFERRED).then_some(index as usize)
}

/// Whom a lock word names, if it is one.
pub(super) fn owner_of(word: u64) -> Option<usize> {
    (word & HELD != 0 && word < PRUNED).then_some((word >> 32 & 0x3FFF_FFFF) as usize)
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
    /// The copy whose stamp counts until this one's own is set. Null in a leader, and in what only locks, which is a
    /// leader that never gets a stamp. Written before the copy is linked.
    pub(super) leader: *const Copied,
    pub(super) older: AtomicPtr<Copied>,
    pub(super) superseded: AtomicU64,
    /// Of the payload.
    pub(super) watch: Watch,
    /// Of the header: read where a chain is followed, gone when the copy is freed.
    pub(super) header: Watch,
}

impl Copied {
    /// A copy above `older`, held by whom `word` names.
    #[inline]
    pub(super) fn new(leader: *const Copied, older: *mut Copied, word: u64) -> Self {
        Self {
            stamp: AtomicU64::new(if leader.is_null() { LINKING } else { UNSET }),
            leader,
            older: AtomicPtr::new(older),
            superseded: AtomicU64::new(word),
            watch: Watch::new(),
            header: Watch::new(),
        }
    }

    /// Whether a snapshot at `local` sees this copy. Decides the stamp if it is undecided and might matter.
    ///
    /// # Safety
    /// The caller is inside a section at `local` and read the copy from its chain there.
    #[inline]
    pub(super) unsafe fn is_visible(&self, local: u64, clock: &Clock) -> bool {
        // Acquire: pairs with the Release that set the stamp, so that the payload and the set's other links are seen.
        let mut stamp = self.stamp.load(Ordering::Acquire);
        if stamp >= CHECKING {
            // SAFETY: the stamp is set before the set's objects are unlocked, so before the leader can be superseded, and
            // the thread that was to collect the leader after that would have to wait for the caller's section; see
            // `super`.
            stamp = unsafe { self.leader.as_ref() }.unwrap_or(self).decide(local, clock);
        }
        let is_visible = stamp <= local;
        if is_visible {
            clock.observe(stamp, local);
        }
        is_visible
    }

    /// The leader's stamp, or something above all times if the set is not to be visible to a snapshot at `local`.
    #[cold]
    fn decide(&self, local: u64, clock: &Clock) -> u64 {
        let mut state = self.stamp.load(Ordering::Acquire);
        loop {
            let next = match state {
                // The stamp is yet to be drawn, so it will be above the caller's time. And it is not drawn yet for
                // the copies that the caller has missed.
                LINKING | ABORTED => return state,
                LINKED => clock.stamp(),
                time if time < CHECKING => return time,
                // It holds, or a later one does.
                checked if checked - CHECKING > local => return checked,
                _ => LINKING,
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
}

/// How to free an object; answers with its bytes.
///
/// # Safety
/// To be called with the object it was given for, when no thread uses that any more.
pub(super) type Free = unsafe fn(NonNull<Head>) -> usize;

/// Copies begin on a cache line of their own.
const LINE: usize = 64;

impl Shape {
    pub(super) const fn of<T>() -> Self {
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
        }
    }

    /// The payload of a copy, and the value of its master.
    pub(super) fn values(self, copy: NonNull<Copied>, master: NonNull<Head>) -> (*const u8, *mut u8) {
        let from = copy.as_ptr().wrapping_byte_add(self.in_copy as usize);
        let to = master.as_ptr().wrapping_byte_add(self.in_master as usize);
        (from.cast(), to.cast())
    }

    /// The same without room for a payload: for versions that no thread reads.
    pub(super) const fn without_payload(self) -> Self {
        let Ok(copy) = Layout::from_size_align(size_of::<Copied>().next_multiple_of(LINE), LINE) else {
            unreachable!()
        };
        Self { size: 0, copy, ..self }
    }
}

/// A [`Link`] without its domain, for structures whose objects are all of one domain: the object has no word for it, and
/// no step checks it. In return, following one is `unsafe`.
#[derive(Debug)]
pub struct Raw<T>(NonNull<Master<T>>);

impl<T> Clone for Raw<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Raw<T> {}

impl<T> PartialEq for Raw<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Raw<T> {}

// SAFETY: as for `Link`.
unsafe impl<T: Send + Sync> Send for Raw<T> {}
// SAFETY: as for `Link`.
unsafe impl<T: Send + Sync> Sync for Raw<T> {}

impl<T: Versioned> Raw<T> {
    /// Bytes of an object.
    pub(super) const BYTES: usize = size_of::<Master<T>>();

    /// A new object that no other thread knows, and that no section below `birth` will see.
    pub(super) fn new(value: T, birth: u64) -> Self {
        let master = Box::new(Master::new(value, birth));
        Self(NonNull::from(Box::leak(master)))
    }

    /// Of objects from [`new`](Self::new).
    pub(super) const FREE: Free = {
        /// # Safety
        /// As [`Free`].
        unsafe fn free<T>(head: NonNull<Head>) -> usize {
            // SAFETY: from `Raw::new`; the caller's promise.
            drop(unsafe { Box::from_raw(head.cast::<Master<T>>().as_ptr()) });
            size_of::<Master<T>>()
        }
        free::<T>
    };

    #[inline]
    pub(super) fn head(self) -> NonNull<Head> {
        self.0.cast()
    }

    /// # Safety
    /// The object is not freed yet.
    #[inline]
    pub(super) unsafe fn master<'a>(self) -> &'a Master<T> {
        // SAFETY: the caller's promise; all that changes in a master is in cells.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Master<T> {
    fn new(value: T, birth: u64) -> Self {
        Self { head: Head { newest: AtomicPtr::new(end(birth)), watch: Watch::new() }, value: UnsafeCell::new(value) }
    }
}

/// An object, and which domain it is of (never followed).
#[repr(C)]
struct Object<T> {
    domain: *const (),
    master: Master<T>,
}

/// A reference to an object of a [`Domain`](super::Domain): copyable, storable in other objects, never dangling by safe
/// means. What it refers to depends on the snapshot that follows it.
pub struct Link<T> {
    object: NonNull<Object<T>>,
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
        self.object == other.object
    }
}

impl<T> Eq for Link<T> {}

impl<T> core::fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Link({:p})", self.object)
    }
}

impl<T: Versioned> Link<T> {
    /// Bytes of an object.
    pub(super) const BYTES: usize = size_of::<Object<T>>();

    /// A new object that no other thread knows, and that no section below `birth` will see.
    pub(super) fn new(value: T, birth: u64, domain: *const ()) -> Self {
        let object = Box::new(Object { domain, master: Master::new(value, birth) });
        Self { object: NonNull::from(Box::leak(object)), owns: PhantomData }
    }

    /// Of objects from [`new`](Self::new).
    pub(super) const FREE: Free = {
        /// # Safety
        /// As [`Free`].
        unsafe fn free<T>(head: NonNull<Head>) -> usize {
            // SAFETY: the head of a master in an object from `Link::new`, whose pointer was to the whole; the caller's
            // promise.
            drop(unsafe {
                Box::from_raw(head.byte_sub(core::mem::offset_of!(Object<T>, master)).cast::<Object<T>>().as_ptr())
            });
            size_of::<Object<T>>()
        }
        free::<T>
    };

    /// The object without its domain.
    ///
    /// # Safety
    /// The object is not freed yet.
    ///
    /// # Panics
    /// If it is of another domain than this.
    #[inline]
    pub(super) unsafe fn raw(self, domain: *const ()) -> Raw<T> {
        let object = self.object.as_ptr();
        // SAFETY: the caller's promise; a pointer into the object, made of one to the whole.
        let (of, master) = unsafe { ((*object).domain, NonNull::new_unchecked(&raw mut (*object).master)) };
        assert!(ptr::eq(of, domain), "a link of another domain");
        Raw(master)
    }
}

/// The payload of a copy of a `T`.
#[inline]
pub(super) fn payload<T>(copy: NonNull<Copied>) -> NonNull<T> {
    // SAFETY: copies of a `T` are blocks of `Shape::of::<T>().copy`, in which `in_copy` is in bounds.
    unsafe { copy.byte_add(const { Shape::of::<T>().in_copy as usize }).cast() }
}

/// A committed version, on its way to the master or to the pool.
#[derive(Clone, Copy)]
pub(super) struct Version {
    pub(super) copy: NonNull<Copied>,
    pub(super) master: NonNull<Head>,
    pub(super) shape: &'static Shape,
    /// How to free the object, in the mark of a retired one, which is its last version.
    pub(super) retired: Option<Free>,
}

impl Version {
    pub(super) fn bytes(&self) -> usize {
        self.shape.copy.size()
    }

    /// # Safety
    /// The copy is not freed: as the log that holds this version has not freed it.
    pub(super) unsafe fn copy<'a>(self) -> &'a Copied {
        // SAFETY: the caller's promise.
        unsafe { self.copy.as_ref() }
    }
}
