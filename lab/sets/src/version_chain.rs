//! The objects of Versioned Programming, and the chains of their versions. A chain has *all* versions: those of
//! commits, those of updates that are not decided, and those of updates that have failed. The newest is first.
//!
//! A version stays in its chain until a later version of the object is committed. Then no later section walks on from
//! the committed version, so what is below it is freed without being unlinked: the versions down to the last one that
//! was committed before, which is the last that earlier sections read.
//!
//! # Why committed versions lie in the order of their epochs
//! Let two updates of an object commit, one later than the other. The later one had passed the earlier commit when its
//! snapshot was taken; otherwise it would have met the earlier commit, and failed. So it put its version into the chain
//! after the earlier version, hence above it.
//!
//! # Why nothing is freed twice, or too early
//! Below a version that was just committed, down to the one committed before, lie versions of updates that fail: each
//! of them began before this commit, and changes the same object. No other commit has the object until a later
//! snapshot, so only this committer retires them, and the version at the end. Threads whose updates fail still write
//! into their versions. They do so in their sections, which began before the commit.
//!
//! A retired object's chain is closed by a mark in its first link, after which no version is put there. So the chain is
//! complete when its versions are retired with the object.

use core::ptr::{self, NonNull};

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};
use archipelago_platform::plain::Plain;
use archipelago_platform::watch::Watch;
use archipelago_sync::rcu::Guard;

use crate::commit_list::{FIRST, Record};
use crate::mechanism::Node;
use crate::tag::{is_tagged, tagged, untagged};

/// A version's epoch: ask the record.
const PENDING: u64 = 0;
/// A version's epoch: of an update that has failed; above all epochs.
const ABORTED: u64 = u64::MAX;

/// A node, whose key and value never change.
#[repr(C)]
pub(crate) struct Object<const LINKS: usize> {
    pub(crate) key: Plain<u64>,
    /// The newest version; the pointer is tagged when the chain is closed.
    newest: AtomicPtr<Version<LINKS>>,
    pub(crate) value: Plain<u64>,
    watch: Watch,
}

impl<const LINKS: usize> Drop for Object<LINKS> {
    fn drop(&mut self) {
        self.watch.gone();
    }
}

/// A version of a node's links.
#[repr(C)]
pub(crate) struct Version<const LINKS: usize> {
    /// [`PENDING`], [`ABORTED`], or the commit's epoch.
    epoch: AtomicU64,
    pub(crate) next: Plain<[Option<VersionedLink<LINKS>>; LINKS]>,
    older: Plain<*mut Version<LINKS>>,
    record: Plain<*const Record>,
    watch: Watch,
}

impl<const LINKS: usize> Drop for Version<LINKS> {
    fn drop(&mut self) {
        self.watch.gone();
    }
}

#[doc(hidden)]
pub struct VersionedLink<const LINKS: usize>(NonNull<Object<LINKS>>);

impl<const LINKS: usize> Clone for VersionedLink<LINKS> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<const LINKS: usize> Copy for VersionedLink<LINKS> {}

impl<const LINKS: usize> PartialEq for VersionedLink<LINKS> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<const LINKS: usize> Eq for VersionedLink<LINKS> {}

// SAFETY: a link by itself gives no access to anything.
unsafe impl<const LINKS: usize> Send for VersionedLink<LINKS> {}
// SAFETY: as above.
unsafe impl<const LINKS: usize> Sync for VersionedLink<LINKS> {}

impl<const LINKS: usize> VersionedLink<LINKS> {
    /// Makes an object with one version, which every snapshot sees.
    pub(crate) fn new(node: Node<Self, LINKS>) -> Self {
        let first = Version::boxed(FIRST, node.next);
        let (key, value) = (Plain::new(node.key), Plain::new(node.value));
        let object = Box::new(Object { key, newest: AtomicPtr::new(first.as_ptr()), value, watch: Watch::new() });
        object.watch.write();
        Self(NonNull::from(Box::leak(object)))
    }

    /// Returns the object's address.
    pub(crate) fn address(self) -> usize {
        self.0.addr().get()
    }

    /// Returns the object.
    ///
    /// # Safety
    /// The object was reachable in the caller's section, or belongs to the caller.
    #[inline]
    pub(crate) unsafe fn object<'a>(self) -> &'a Object<LINKS> {
        // SAFETY: the caller's promise: in the section, no object is freed that was reachable in it.
        let object = unsafe { self.0.as_ref() };
        object.watch.read();
        object
    }

    /// Frees an object that no other thread knows, with all its versions.
    ///
    /// # Safety
    /// The caller made the object, and no committed version leads to it. The link is not used any more.
    pub(crate) unsafe fn free(self) {
        // SAFETY: the caller's promise. All versions of the chain are the caller's.
        let object = unsafe { Box::from_raw(self.0.as_ptr()) };
        let mut at = object.newest.load(Ordering::Relaxed);
        while !at.is_null() {
            // SAFETY: as above.
            at = *unsafe { Box::from_raw(at) }.older;
        }
    }

    /// Retires an object whose last version, `mark`, is committed: the object, and the versions from the first to the
    /// mark. The caller has retired what is [below the mark](Version::retire_below).
    ///
    /// # Safety
    /// The caller has committed the mark in the section of `guard`. No later snapshot has a link to the object.
    pub(crate) unsafe fn retire(self, mark: NonNull<Version<LINKS>>, guard: &Guard<'_>) {
        // SAFETY: not retired before this.
        let newest = &unsafe { self.object() }.newest;
        let mut at = newest.load(Ordering::Acquire);
        // Acquire: the versions that were put there are seen, before they are retired. Release keeps the order for
        // earlier sections, which may still walk the chain.
        while let Err(now) = newest.compare_exchange(at, tagged(at), Ordering::AcqRel, Ordering::Acquire) {
            at = now;
        }
        loop {
            // SAFETY: see the module's text: these versions are retired here only.
            unsafe {
                let below = *(*at).older;
                guard.retire_box(at);
                if at == mark.as_ptr() {
                    break;
                }
                at = below;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { guard.retire_box(self.0.as_ptr()) };
    }
}

impl<const LINKS: usize> Object<LINKS> {
    /// Returns the version that a snapshot at `epoch` sees.
    ///
    /// # Safety
    /// The object is reachable by that snapshot, which was taken in the caller's section.
    #[inline]
    pub(crate) unsafe fn at(&self, epoch: u64) -> &Version<LINKS> {
        // Acquire: pairs with the Release that put the version there. The version of each commit up to `epoch` was put
        // there before the commit, which the snapshot has passed. So the walk meets it.
        let mut at = untagged(self.newest.load(Ordering::Acquire));
        loop {
            // SAFETY: a section does not walk beyond the first version that its snapshot sees, and what is above the
            // version is retired after the section began. The first version of an object is seen by all.
            let version = unsafe { &*at };
            version.watch.read();
            let of = version.epoch();
            if of != PENDING && of <= epoch {
                return version;
            }
            at = *version.older;
        }
    }

    /// Puts a version, which belongs to the caller, into the chain. Returns whether it did: a closed chain takes no
    /// version.
    ///
    /// # Safety
    /// The object is reachable by the caller's snapshot, or new.
    pub(crate) unsafe fn put(&self, version: NonNull<Version<LINKS>>, record: *const Record) -> bool {
        let mut newest = self.newest.load(Ordering::Acquire);
        while !is_tagged(newest) {
            // SAFETY: still the caller's.
            let own = unsafe { &mut *version.as_ptr() };
            own.watch.write();
            (*own.older, *own.record) = (newest, record);
            // Release: a thread that finds the version sees its fields.
            match self.newest.compare_exchange(newest, version.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => newest = now,
            }
        }
        false
    }
}

impl<const LINKS: usize> Version<LINKS> {
    fn boxed(epoch: u64, next: [Option<VersionedLink<LINKS>>; LINKS]) -> NonNull<Self> {
        let (older, record) = (Plain::new(ptr::null_mut()), Plain::new(ptr::null()));
        let epoch = AtomicU64::new(epoch);
        let version = Box::new(Self { epoch, next: Plain::new(next), older, record, watch: Watch::new() });
        version.watch.write();
        NonNull::from(Box::leak(version))
    }

    /// Makes a version of an update that is not decided. It belongs to the caller until it is [put](Object::put) into a
    /// chain.
    pub(crate) fn pending(next: [Option<VersionedLink<LINKS>>; LINKS]) -> NonNull<Self> {
        Self::boxed(PENDING, next)
    }

    /// Returns [`PENDING`], [`ABORTED`], or the commit's epoch.
    #[inline]
    fn epoch(&self) -> u64 {
        let own = self.epoch.load(Ordering::Acquire);
        // SAFETY: the record is retired only after the version's own epoch is set, so in a later section than the
        // caller's if the caller does not see it set.
        if own == PENDING { unsafe { &**self.record }.epoch() } else { own }
    }

    /// Notes the epoch of the version's commit. Release: a thread that sees the epoch needs the record no longer.
    pub(crate) fn committed(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Notes that the version's update has failed.
    pub(crate) fn aborted(&self) {
        self.epoch.store(ABORTED, Ordering::Release);
    }

    /// Retires the versions below this one that only earlier snapshots can see, and those that none can see.
    ///
    /// # Safety
    /// The caller has committed this version in the section of `guard`, and calls this once.
    pub(crate) unsafe fn retire_below(&self, guard: &Guard<'_>) {
        let mut at = *self.older;
        loop {
            // SAFETY: see the module's text: these versions are retired here only. The loop ends at the version that
            // was committed before, at the latest at the object's first one.
            let (below, of) = unsafe { (*(*at).older, (*at).epoch()) };
            // SAFETY: as above.
            unsafe { guard.retire_box(at) };
            if of != PENDING && of != ABORTED {
                break;
            }
            at = below;
        }
    }
}
