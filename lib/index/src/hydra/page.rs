//! Data nodes ("pages"): the slotted nodes of the data list (thesis §4.3.1, figure 4.4).
//!
//! A page has the entries of one key range `[low, high)`, unsorted, with a one-byte *tag* (fingerprint) per slot.
//! Two layouts implement [`Page`]: [`word`] for keys that are a `u64` and [`bytes`] for byte strings.
//!
//! Pages of words have a second form without keys and tags (`word/direct.rs`), to which 1 and 2 do not apply.
//!
//! Invariants of both layouts, on which the list relies:
//! 1. Occupied slots come first: slots `0..len` have a non-zero tag, the others a zero tag.
//! 2. The first `sorted` slots are in ascending key order. (This replaces the permutation array of Mathew's thesis: a
//!    scan that finds a page unsorted sorts it in place, so the next scan copies a run instead of chasing indices.)
//! 3. `low` never changes while a page is live; `high` is the next page's `low`, or +∞ on the last page.
//! 4. A live entry's value word may change, by one atomic operation, while the page's lock is shared; everything else
//!    changes under the lock.
//! 5. All words that readers may access during a change are atomics. Readers use a value only after
//!    [`VersionLock::validate`], or in ways that are harmless for arbitrary values. A validation uses a version that
//!    was read while the lock was free ([`Seen`]); a copy that could not be validated is empty.
//! 6. After a page has become obsolete, `next` is its *forward* pointer (to the page that absorbed it, or to its twin),
//!    forever.

pub(crate) mod bytes;
pub(crate) mod word;

use crate::points;
use crate::structure::Form;
use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};
use archipelago_platform::hint::point;
use archipelago_sync::version_lock::{Version, VersionLock};

/// The page has changed since its version was read, or another thread is changing it. The caller must read again.
///
/// This result must not be turned into an answer that is validated later. An unlock without a change restores the
/// version. So a read that failed while the lock was held would pass the later validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed;

/// The page's entries are not in order, or not in a searchable form.
pub struct Unsorted;

/// The reason for which a caller may trust its reads of a page. Layouts with pointers check it before they follow a
/// pointer ([`Page::trust`]).
#[derive(Clone, Copy)]
pub enum Seen {
    /// The page was free at this version. Reads are valid only while it still has the version.
    At(Version),
    /// The caller holds the page's lock, or no other thread uses the map.
    Held,
}

/// The approximate number of entries of a page, if nothing else is known.
pub(super) const FILL: usize = 32;

/// The reason that reads of a page cannot fail while the caller holds its lock.
pub(super) const LOCKED: &str = "a locked page does not change";

/// A form of keys that has a page layout.
pub trait PageForm: Form {
    /// The layout.
    type Page: Page<Self>;

    /// Returns the number of bytes that a page keeps outside itself for `key`.
    #[inline]
    fn outside(key: Self::Probe<'_>) -> usize {
        let _ = key;
        0
    }

    /// Returns the number of bytes that a page keeps outside itself for its lower bound.
    fn bound_bytes(low: Self::Probe<'_>) -> usize {
        let _ = low;
        0
    }
}

/// The limit up to which a page may be filled by taking over its neighbour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// About half, so that neither a few insertions nor a few removals change the structure again.
    Half,
    /// Most of it, since the map has shrunk and is idle.
    Most,
}

/// The entry that [`Page::remove`] has removed from a page.
pub struct Removed {
    /// The entry's value word.
    pub value: u64,
    /// The memory outside the page that has the key, or null. [`Page::reclaim_key`] reclaims it.
    pub key: *mut (),
}

/// A data node. Its methods are grouped by the condition under which they may be called; `unsafe` methods have further
/// conditions.
///
/// Pages are not dropped: they are in an arena. The list calls [`Page::destroy`], and then returns the page's memory to
/// the arena.
pub trait Page<F: PageForm>: Sized + Send + Sync + 'static {
    /// A private, consistent, sortable copy of some of a page's entries.
    type Copy: PageCopy<F>;

    /// The most entries for which a page has room.
    const SLOTS: usize;

    /// The most entries of a page after a merge with [`Fill::Most`].
    const MOST: usize;

    /// Writes a fresh, unlocked, empty page to `at`. Its range goes from `low` to `next`'s `low` (null: +∞).
    ///
    /// # Safety
    /// `at` must be valid for writes, and no other thread may have access to it. `next` must be null or a page that
    /// stays.
    unsafe fn init(at: *mut Self, low: F::Probe<'_>, next: *const Self);

    /// Returns the version lock.
    fn lock(&self) -> &VersionLock;

    /// Returns the next page (null on the last page), or the forward pointer of an obsolete page.
    fn next(&self) -> *const Self;

    /// Validates all reads of the page since `seen`.
    #[inline]
    fn trust(&self, seen: Seen) -> Result<(), Changed> {
        match seen {
            Seen::At(version) if !self.lock().validate(version) => {
                point(points::REFUSED);
                Err(Changed)
            }
            Seen::At(_) | Seen::Held => Ok(()),
        }
    }

    // ---- Optimistic reads at any time, which the caller validates -------------------------------------------------
    // If a method fails, all that it has read is invalid.

    /// Prefetches the lines that an optimistic look-up will read first.
    fn prefetch(page: *const Self);

    /// Prefetches a whole page, for a scan.
    #[inline]
    fn prefetch_all(page: *const Self) {
        for offset in (0..size_of::<Self>()).step_by(64) {
            archipelago_platform::hint::prefetch_read(page.wrapping_byte_add(offset));
        }
    }

    /// Returns whether `key >= high`. Returns `false` on the last page.
    fn is_beyond(&self, key: F::Probe<'_>, seen: Seen) -> Result<bool, Changed>;

    /// Returns whether `high < bound`. If so, the page with the greatest keys below `bound` is to the right of this
    /// page. Returns `false` on the last page.
    fn ends_before(&self, bound: F::Probe<'_>, seen: Seen) -> Result<bool, Changed>;

    /// Returns the slots that may hold `key`, whose tag is `tag`, as a bit mask.
    fn candidates(&self, key: F::Probe<'_>, tag: u8) -> u64;

    /// Returns all slots that hold entries, as [`candidates`](Self::candidates).
    fn occupied(&self) -> u64 {
        !u64::MAX.checked_shl(self.len() as u32).unwrap_or(0)
    }

    /// Prefetches the entry of the candidate `slot`.
    fn prefetch_slot(&self, slot: usize);

    /// Prefetches the cache lines that [`push`](Self::push) will write, for a caller that is about to lock the page.
    /// (The lock's atomic operation waits for all earlier writes, so the lines are fetched before it.) Returns
    /// information for `push`, which is valid while the version does not change.
    #[inline]
    fn prepare_push(&self, key: F::Probe<'_>) -> usize {
        let _ = key;
        0
    }

    /// Returns the place of the value of `key`, if one of `candidates` holds the key.
    fn find_among(&self, candidates: u64, key: F::Probe<'_>, seen: Seen) -> Result<Option<usize>, Changed>;

    /// Returns the place of the value of `key`: what [`value`](Self::value) and [`remove`](Self::remove) take.
    #[inline]
    fn find(&self, key: F::Probe<'_>, tag: u8, seen: Seen) -> Result<Option<usize>, Changed> {
        let candidates = self.candidates(key, tag);
        point(points::CANDIDATES);
        if candidates == 0 { Ok(None) } else { self.find_among(candidates, key, seen) }
    }

    /// Returns the value word at `place`.
    fn value_word(&self, place: usize) -> &AtomicU64;

    /// Loads the value word at `place`.
    #[inline]
    fn value(&self, place: usize) -> u64 {
        self.value_word(place).load(Relaxed)
    }

    /// Returns how many entries there are.
    fn len(&self) -> usize;

    /// Returns the page's first entry at or above `from`, if it can be found without a copy of the page.
    #[inline]
    fn successor(&self, from: F::Probe<'_>) -> Result<Option<(F::Probe<'static>, u64)>, Unsorted> {
        let _ = from;
        Err(Unsorted)
    }

    /// Copies out the entries that a scan of at most `limit` entries at or above `from` needs (or more). A copy that
    /// fails is empty.
    fn copy_from(&self, from: F::Probe<'_>, limit: usize, seen: Seen, copy: &mut Self::Copy) -> Result<(), Changed>;

    /// Copies entries as [`copy_from`](Self::copy_from) does, from the page's first entry on.
    fn copy_first(&self, limit: usize, seen: Seen, copy: &mut Self::Copy) -> Result<(), Changed> {
        let _ = limit;
        self.copy_all(seen, copy)
    }

    /// Copies all entries, as [`copy_from`](Self::copy_from) does.
    fn copy_all(&self, seen: Seen, copy: &mut Self::Copy) -> Result<(), Changed>;

    /// Returns whether an entry with this key, which is in range, would fit. The caller validates the result.
    fn has_room_for(&self, key: F::Probe<'_>) -> bool;

    // ---- Under the lock -------------------------------------------------------------------------------------------

    /// Sets `next`.
    fn set_next(&self, next: *const Self);

    /// Adds an entry whose key is in range and absent. Returns `false` and changes nothing if the page is
    /// full. `prepared` is from [`prepare_push`](Self::prepare_push), at the version at which the page was
    /// locked.
    fn push(&self, key: F::Probe<'_>, tag: u8, value: u64, prepared: usize) -> bool;

    /// Removes the entry whose value is at `place`.
    fn remove(&self, place: usize) -> Removed;

    /// Removes one of the entries, if there are any.
    fn pop(&self) -> Option<Removed>;

    /// Writes the entries of a *whole* copy, which was made under this lock, back in the copy's order.
    fn write_back(&self, copy: &Self::Copy);

    /// Makes room for `key` in the full page. Either it compacts the page in place and returns false. Or it writes a
    /// fresh page to `right`, moves the upper part of the entries to the fresh page, links it behind the full page, and
    /// returns true.
    ///
    /// # Safety
    /// `right` must be valid for writes, no other thread may have access to it, and the caller must hold the lock.
    unsafe fn split(&self, right: *mut Self, key: F::Probe<'_>) -> bool;

    /// Returns whether the page is so empty that it should look for a neighbour to merge with.
    fn is_underfull(&self) -> bool;

    /// Takes over all entries and the range of `right`, if they fit well, and returns whether it did. `right` is the
    /// next page, and is locked, too. If the entries were taken over, the caller makes `right` obsolete.
    fn absorb(&self, right: &Self, fill: Fill) -> bool;

    /// Writes a twin of this page to `at`, unlocked, with the same entries, range and neighbour.
    ///
    /// # Safety
    /// `at` must be valid for writes, and no other thread may have access to it. The caller must hold the lock, and
    /// must make this page obsolete.
    unsafe fn copy_to(&self, at: *mut Self);

    /// Replaces the next page by its twin, made by [`copy_to`](Self::copy_to) under that page's lock.
    fn set_twin(&self, twin: &Self) {
        self.set_next(twin);
    }

    // ---- Ownership ------------------------------------------------------------------------------------------------

    /// Returns the lower bound, which does not change while the page is reachable.
    fn low(&self) -> F::Probe<'_>;

    /// Frees what the page owns outside itself, except values and keys of live entries.
    ///
    /// # Safety
    /// It must be called once, when no thread has access to the page any more.
    unsafe fn destroy(at: *mut Self);

    /// Reclaims [`Removed::key`].
    ///
    /// # Safety
    /// `key` must not be null, must be from [`Page::remove`], and no reader may still use it.
    unsafe fn reclaim_key(key: *mut ());

    /// Checks the page's own invariants. No other thread may use the page meanwhile.
    fn check(&self);
}

/// The interface of a [`Page::Copy`].
pub trait PageCopy<F: PageForm>: Sized {
    /// A buffer in which keys are assembled.
    type Scratch: Default;

    /// Makes an empty copy.
    fn new() -> Self;

    /// Sorts the copy if necessary. Returns true if the page itself should be sorted, too: the copy is whole and was
    /// not sorted.
    fn sort(&mut self) -> bool;

    /// Returns how many entries the copy has.
    fn len(&self) -> usize;

    /// Returns the first position, in sorted order, whose key is `>= key`.
    fn lower_bound(&self, key: F::Probe<'_>) -> usize;

    /// Returns about how many entries the pages around the copied one have, at least one.
    fn fill(&self) -> usize {
        FILL
    }

    /// Prepares `scratch` for this copy's entries.
    fn prepare(&self, scratch: &mut Self::Scratch) {
        let _ = scratch;
    }

    /// Returns the value word at a position in sorted order.
    fn value(&self, at: usize) -> u64;

    /// Returns the entry at a position in sorted order. `scratch` must have been prepared for this copy.
    fn entry<'s>(&self, at: usize, scratch: &'s mut Self::Scratch) -> (F::Probe<'s>, u64);
}
