//! The memory layout of objects and their versions.
//!
//! A *master* is a box: one word, its head, then the value. A *copy* is a block of the [pool](super::pool): a header of
//! 32 bytes, then the payload. The chain leads from the master's `newest` through `older` to older and older copies.
//! After the last copy comes the master's own value. A chain ends in a word that is not a pointer; in a master without
//! copies, `newest` is this word. It contains the object's [`birth`]: no section with an earlier time sees the object,
//! or looks for a version before the master's.
//!
//! There is no lock word: linking a copy that has no stamp yet locks an object, and the copy's `superseded` names the
//! holder. So a reader loads one word of an object, which is odd if the object has no copies, and a writer makes one
//! exchange.
//!
//! | word | of | changes from | written by |
//! |---|---|---|---|
//! | `newest` | master | an [`end`] or a copy to a newer copy, held | the thread that locks |
//! | | | a held copy to the one below | its holder, at an abort, or at a commit if the copy only locks |
//! | | | a copy to an [`end`] | the collector |
//! | `stamp` | copy | [`UNSET`] ([`LINKING`], [`LINKED`], [`CHECKING`], [`ABORTED`] in the first of a write set) to a time | the committer, helpers |
//! | `superseded` | copy | a [lock word](lock_word) to [`NEVER`], or to [`GONE`] for ever | its holder |
//! | | | [`NEVER`] to the time of the next version | the next version's committer |
//! | | | a time to [`PRUNED`] | the pruner |
//! | `older` | copy | a copy to an older copy or an [`end`] | the holder before linking; the pruner |
//!
//! The copies of one write set have one stamp, which is decided in the first of them, the *leader*. The stamp is stored
//! in the others afterwards, before any object of the set is unlocked.

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::clock::Clock;
use crate::watch::Watch;

/// A type of versioned objects: plain data that may be copied bit by bit and shared between threads, such as numbers,
/// arrays, [`Link`]s, and structs of these. (A `Copy` type has no interior mutability and no destructor.) A `String` or
/// a `Vec` is not: keep such values in a table of your own whose entries do not move, and store an entry's number or a
/// `Link` in the object.
///
/// ```compile_fail,E0277
/// let domain = archipelago::sync::mvrlu::Domain::new();
/// domain.alloc(String::from("not `Copy`"));
/// ```
// The message contains everything, since for the supertrait `Copy` the compiler shows its own label and notes.
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
/// Leader: the validation of reads failed; the set is never visible.
pub(super) const ABORTED: u64 = u64::MAX - 3;
/// A flag in the leader's word, together with a stamp that is drawn and becomes final if the validation of reads
/// succeeds. A thread that meets this state, and would see the set with this stamp, resets the word to
/// [`LINKING`]. The stamp is 0 while it is being drawn.
pub(super) const CHECKING: u64 = 1 << 63;
/// The copy is neither superseded nor held.
pub(super) const NEVER: u64 = u64::MAX;
/// The copy is the mark (the newest copy) of a retired object, which stays locked forever.
pub(super) const GONE: u64 = u64::MAX - 1;
/// The copy is superseded, and unlinked from its chain.
pub(super) const PRUNED: u64 = u64::MAX - 2;
/// A bit that is set in every word of `superseded` that is not a time.
pub(super) const HELD: u64 = 1 << 63;

/// Returns the end word of a chain: no section below `birth` has a link to the object, or looks for an older version of
/// it.
#[inline]
pub(super) fn end(birth: u64) -> *mut Copied {
    // If addresses are shorter than times, all objects count as made before all sections.
    let birth = if usize::BITS < u64::BITS { 0 } else { birth };
    ptr::without_provenance_mut((birth << 1 | 1) as usize)
}

/// Returns whether a word of `newest` or `older` does not point to a copy.
#[inline]
pub(super) fn is_end(word: *mut Copied) -> bool {
    word.addr() & 1 == 1
}

/// Returns the birth in an end word.
pub(super) fn birth(end: *mut Copied) -> u64 {
    end.addr() as u64 >> 1
}

/// Returns the copy to which a word of `newest` or `older` points, or `None` at the end.
///
/// # Safety
/// The copy is not freed as long as the caller uses it.
#[inline]
pub(super) unsafe fn follow<'a>(word: *mut Copied) -> Option<&'a Copied> {
    // SAFETY: not an end, so a copy; the caller's promise.
    let copy = (!is_end(word)).then(|| unsafe { &*word })?;
    copy.header.read();
    Some(copy)
}

/// The head of an object, independent of the object's type.
pub(super) struct Head {
    pub(super) newest: AtomicPtr<Copied>,
    /// Watches the master's value.
    pub(super) watch: Watch,
}

/// Returns the lock word of entry `index` in the write set of record `owner`.
#[inline]
pub(super) fn lock_word(owner: u32, index: usize) -> u64 {
    debug_assert!(owner < 1 << 30 && (index as u64) < DEFERRED);
    HELD | u64::from(owner) << 32 | index as u64
}

/// In a domain with two versions per object (RLU): the holder's transaction has ended, but its change is not yet
/// written back.
pub(super) const DEFERRED: u64 = 1 << 31;

/// Returns the entry that a lock word names, if a running transaction of `owner` holds the object.
#[inline]
pub(super) fn own_index(word: u64, owner: u32) -> Option<usize> {
    let index = word ^ lock_word(owner, 0);
    (index < DEFERRED).then_some(index as usize)
}

/// Returns the owner that a word names, if it is a lock word.
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
    /// The copy whose stamp counts until this copy's own stamp is set. Null in a leader, and in a copy that only locks,
    /// which counts as a leader that never gets a stamp. Written before the copy is linked.
    pub(super) leader: *const Copied,
    pub(super) older: AtomicPtr<Copied>,
    pub(super) superseded: AtomicU64,
    /// Watches the payload.
    pub(super) watch: Watch,
    /// Watches the header, which walks of the chain read, and which ends when the copy is freed.
    pub(super) header: Watch,
}

impl Copied {
    /// Makes the header of a copy above `older`, held by the owner that `word` names.
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

    /// Returns whether a snapshot at `local` sees this copy. Sets the stamp if it is not set and the snapshot might see
    /// the copy.
    ///
    /// # Safety
    /// The caller is inside a section at `local` and read the copy from its chain there.
    #[inline]
    pub(super) unsafe fn is_visible(&self, local: u64, clock: &Clock) -> bool {
        // Acquire: pairs with the Release that set the stamp, so that the payload and the set's other links are seen.
        let mut stamp = self.stamp.load(Ordering::Acquire);
        if stamp >= CHECKING {
            // SAFETY: the stamp is set before the set's objects are unlocked, so before the leader can be superseded. A
            // thread that collects the leader after that has to wait for the caller's section; see `super`.
            stamp = unsafe { self.leader.as_ref() }.unwrap_or(self).decide(local, clock);
        }
        let is_visible = stamp <= local;
        if is_visible {
            clock.observe(stamp, local);
        }
        is_visible
    }

    /// Returns the leader's stamp, or a value above all times if the set is never visible to a snapshot at `local`.
    #[cold]
    fn decide(&self, local: u64, clock: &Clock) -> u64 {
        let mut state = self.stamp.load(Ordering::Acquire);
        loop {
            let next = match state {
                // The stamp will be drawn later, so it will be above the caller's time. The caller may have missed
                // copies of the set, but then the stamp was not drawn before.
                LINKING | ABORTED => return state,
                LINKED => clock.stamp(),
                time if time < CHECKING => return time,
                // This stamp becomes final, or a later one does.
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

/// An object's type, as far as the collector has to know it.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// The size of the value in bytes.
    pub(super) size: u32,
    /// The offset of the value in the master.
    pub(super) in_master: u32,
    /// The offset of the payload in the copy.
    pub(super) in_copy: u32,
    /// The layout of a copy.
    pub(super) copy: Layout,
}

/// The memory of an object, from the global allocator.
pub(super) struct Memory {
    pub(super) at: NonNull<u8>,
    pub(super) layout: Layout,
}

/// Drops an object. Returns its memory.
///
/// # Safety
/// The argument is an object of the type for which the function was made, and no thread uses the object any more.
pub(super) type Free = unsafe fn(NonNull<Head>) -> Memory;

/// Ends a value that was made in memory of its own.
///
/// # Safety
/// The value is in memory of its layout, and no thread uses it any more.
unsafe fn take_apart<T>(value: NonNull<T>) -> Memory {
    // SAFETY: the caller's promise.
    unsafe { value.drop_in_place() };
    Memory { at: value.cast(), layout: Layout::new::<T>() }
}

/// Copies are aligned to cache lines.
const LINE: usize = 64;

/// Objects without a domain of more bytes take whole cache lines.
const LARGE: usize = 512;

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

    /// Returns the addresses of a copy's payload and of its master's value.
    pub(super) fn values(self, copy: NonNull<Copied>, master: NonNull<Head>) -> (*const u8, *mut u8) {
        let from = copy.as_ptr().wrapping_byte_add(self.in_copy as usize);
        let to = master.as_ptr().wrapping_byte_add(self.in_master as usize);
        (from.cast(), to.cast())
    }

    /// Returns the shape without room for a payload, for versions that no thread reads.
    pub(super) const fn without_payload(self) -> Self {
        let Ok(copy) = Layout::from_size_align(size_of::<Copied>().next_multiple_of(LINE), LINE) else {
            unreachable!()
        };
        Self { size: 0, copy, ..self }
    }
}

/// A [`Link`] without its domain, for structures whose objects are all of one domain: the object does not store its
/// domain, and no access checks it. So following such a link is `unsafe`.
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
    /// The memory of an object. A large object takes whole cache lines, so that the head and what follows it are in one
    /// line.
    pub(super) const LAYOUT: Layout = {
        let own = Layout::new::<Master<T>>();
        if own.size() <= LARGE || own.align() > LINE {
            own
        } else {
            let Ok(whole) = Layout::from_size_align(own.size().next_multiple_of(LINE), LINE) else {
                panic!("an object of 2 GiB or more")
            };
            whole
        }
    };

    /// Makes an object that no other thread can access, and that no section below `birth` will see.
    ///
    /// # Safety
    /// The memory has [`LAYOUT`](Self::LAYOUT), and belongs to the caller.
    #[inline]
    pub(super) unsafe fn new_in(memory: NonNull<u8>, value: T, birth: u64) -> Self {
        let master = memory.cast();
        // SAFETY: the caller's promise.
        unsafe { master.write(Master::new(value, birth)) };
        Self(master)
    }

    /// Frees objects from [`new_in`](Self::new_in).
    pub(super) const FREE: Free = {
        /// # Safety
        /// As [`Free`].
        unsafe fn free<T: Versioned>(head: NonNull<Head>) -> Memory {
            // SAFETY: from `Raw::new_in`; the caller's promise.
            let Memory { at, .. } = unsafe { take_apart(head.cast::<Master<T>>()) };
            Memory { at, layout: Raw::<T>::LAYOUT }
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
        // SAFETY: the caller's promise; all variable parts of a master are in cells.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Master<T> {
    fn new(value: T, birth: u64) -> Self {
        Self { head: Head { newest: AtomicPtr::new(end(birth)), watch: Watch::new() }, value: UnsafeCell::new(value) }
    }
}

/// An object, and the number of its domain.
#[repr(C)]
struct Object<T> {
    domain: u64,
    master: Master<T>,
}

/// A reference to an object of a [`Domain`](super::Domain): it can be copied and stored in other objects, and never
/// dangles in safe code. The version that it leads to depends on the snapshot that follows it.
pub struct Link<T> {
    object: NonNull<Object<T>>,
    owns: PhantomData<T>,
}

// SAFETY: a link alone gives no access; snapshots and transactions of any thread use it to return `&T` and copies of
// `T`.
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
    /// The memory of an object.
    pub(super) const LAYOUT: Layout = Layout::new::<Object<T>>();

    /// Makes an object that no other thread can access, and that no section below `birth` will see.
    ///
    /// # Safety
    /// The memory has [`LAYOUT`](Self::LAYOUT), and belongs to the caller.
    #[inline]
    pub(super) unsafe fn new_in(memory: NonNull<u8>, value: T, birth: u64, domain: u64) -> Self {
        let object = memory.cast();
        // SAFETY: the caller's promise.
        unsafe { object.write(Object { domain, master: Master::new(value, birth) }) };
        Self { object, owns: PhantomData }
    }

    /// Frees objects from [`new_in`](Self::new_in).
    pub(super) const FREE: Free = {
        /// # Safety
        /// As [`Free`].
        unsafe fn free<T>(head: NonNull<Head>) -> Memory {
            // SAFETY: the head of a master in an object from `Link::new_in`, whose pointer was to the whole; the caller's
            // promise.
            unsafe { take_apart(head.byte_sub(core::mem::offset_of!(Object<T>, master)).cast::<Object<T>>()) }
        }
        free::<T>
    };

    /// Returns the object without its domain.
    ///
    /// # Safety
    /// The object is not freed yet.
    ///
    /// # Panics
    /// If the link belongs to another domain.
    #[inline]
    pub(super) unsafe fn raw(self, domain: u64) -> Raw<T> {
        let object = self.object.as_ptr();
        // SAFETY: the caller's promise; the pointer into the object is derived from a pointer to the whole object.
        let (of, master) = unsafe { ((*object).domain, NonNull::new_unchecked(&raw mut (*object).master)) };
        assert!(of == domain, "a link of another domain");
        Raw(master)
    }
}

/// Returns the payload of a copy of a `T`.
#[inline]
pub(super) fn payload<T>(copy: NonNull<Copied>) -> NonNull<T> {
    // SAFETY: copies of a `T` are blocks of `Shape::of::<T>().copy`, in which `in_copy` is in bounds.
    unsafe { copy.byte_add(const { Shape::of::<T>().in_copy as usize }).cast() }
}

/// A copy and its object, as a log stores them until the copy is freed.
#[derive(Clone, Copy)]
pub(super) struct Version {
    pub(super) copy: NonNull<Copied>,
    pub(super) master: NonNull<Head>,
    pub(super) shape: &'static Shape,
    /// The function that frees the object, if this version is the mark (the newest version) of a retired object.
    pub(super) retired: Option<Free>,
}

impl Version {
    pub(super) fn bytes(&self) -> usize {
        self.shape.copy.size()
    }

    /// # Safety
    /// The copy is not freed, since the log that has this version has not freed it.
    pub(super) unsafe fn copy<'a>(self) -> &'a Copied {
        // SAFETY: the caller's promise.
        unsafe { self.copy.as_ref() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// An object without a domain takes whole lines if it is large, and only then.
    #[test]
    fn large_objects_take_whole_lines() {
        let layout = |layout: Layout| (layout.size(), layout.align());
        assert_eq!(layout(Raw::<[u64; 3]>::LAYOUT), (32, 8));
        assert_eq!(layout(Raw::<[u64; 63]>::LAYOUT), (512, 8));
        assert_eq!(layout(Raw::<[u64; 64]>::LAYOUT), (576, LINE));
        assert_eq!(layout(Raw::<[u64; 124]>::LAYOUT), (1_024, LINE));
    }
}
