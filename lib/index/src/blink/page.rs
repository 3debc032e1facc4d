//! Pages: a header of one cache line, and words whose meaning [`slots`](super::slots) defines.
//!
//! A page of level 0 is a leaf: its entries are keys and value words. A page of level `n > 0` leads to pages of level
//! `n - 1`: its entries are the lower fences and the addresses of these pages. A page's *fences* are the bounds of its
//! range of keys: `low`, included, and `high`, excluded. Invariants of every page that no thread has locked:
//!
//! 1. Its keys are ascending and within `[low, high)`. The rightmost page of a level has no `high`.
//! 2. `right` is the page of the same level whose `low` is this page's `high`, and the `left` of that page is this
//!    page.
//! 3. In an inner page, the key of each entry is *exactly* the `low` of the page to which the entry leads. A page may
//!    be missing in the level above, since a split updates that level after it has unlocked its page. The missing page
//!    is found by its left neighbour's `right`.
//! 4. All words are atomics. They change only under the page's latch, with two exceptions: value words of leaves are
//!    also swapped while the latch is shared, and `left` is written under the latch of its target, old or new.
//!
//! # Rules for readers
//! Readers hold an RCU guard, read a version while the lock is *free*, read, and validate the version before they
//! follow a pointer or return a value (`sync::version_lock`). If a validated pointer leads to a page, the page's
//! initialized content is visible: it was written before the release of the latch under which the pointer was
//! published, and the loaded version is from this release or a later one. Only `left` and swaps of value words are not
//! covered by the version of their page. So `left` is stored with Release and loaded with Acquire. A value word is
//! swapped with AcqRel, and loaded with Acquire or before a validation's Acquire fence.

use super::latch::Latch;
use super::piece::Piece;
use super::policy::{LARGEST, Policy, SMALLEST};
use super::run::Run as _;
use super::slots::{Fence, Found, Shape, SlotForm};
use archipelago_platform::atomic::Ordering::{Acquire, Relaxed, Release};
use archipelago_platform::atomic::{AtomicPtr, AtomicU64};
use archipelago_platform::touch_mut;
use archipelago_sync::version_lock::{Version, VersionLock};
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;

/// A page's header, its first cache line.
#[repr(C, align(64))]
pub(super) struct Header {
    latch: VersionLock,
    /// A packed [`Shape`].
    shape: AtomicU64,
    /// A packed [`PageKind`].
    kind: AtomicU64,
    pub(super) right: AtomicPtr<Header>,
    pub(super) left: AtomicPtr<Header>,
    /// The heads of the fences.
    low: AtomicU64,
    high: AtomicU64,
    /// The number of the page's arena, and in the upper half the number of copies that the page may have. This word
    /// never changes.
    pub(super) home: AtomicU64,
}

const _: () = assert!(size_of::<Header>() == 64);

/// A page's level, and sizes that only some operations need; one word of the header.
#[derive(Clone, Copy)]
struct PageKind {
    level: usize,
    /// The number of heap words that removed entries have left unused.
    dead: usize,
    /// The lengths of the fences in bytes.
    low: usize,
    high: usize,
}

impl PageKind {
    #[inline]
    fn unpack(word: u64) -> Self {
        let field = |shift: u32| (word >> shift) as usize & 0xFFFF;
        PageKind { level: field(0), dead: field(16), low: field(32), high: field(48) }
    }

    fn pack(self) -> u64 {
        self.level as u64 | (self.dead as u64) << 16 | (self.low as u64) << 32 | (self.high as u64) << 48
    }
}

/// A page, and a version that was read while its lock was free.
pub(super) type Seen<'g, F, P> = (Page<'g, F, P>, Version);

/// The page of a level that a descent searches for.
pub(super) enum Goal<'k, F: SlotForm> {
    /// The page to which the key belongs: `low <= key < high`.
    At(F::Probe<'k>),
    /// The page with the greatest keys below the key: `low < key <= high`, or the first page.
    Below(F::Probe<'k>),
    /// The first page.
    First,
    /// The last page.
    Last,
}

impl<F: SlotForm> Clone for Goal<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: SlotForm> Copy for Goal<'_, F> {}

/// A page that is not freed during `'g`.
pub struct Page<'g, F, P> {
    at: NonNull<Header>,
    _life: PhantomData<&'g Header>,
    _types: PhantomData<fn() -> (F, P)>,
}

impl<F, P> Clone for Page<'_, F, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, P> Copy for Page<'_, F, P> {}

impl<F, P> PartialEq for Page<'_, F, P> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<'g, F: SlotForm, P: Policy> Page<'g, F, P> {
    /// The number of words behind the header.
    pub(super) const WORDS: usize = {
        assert!(P::PAGE.is_multiple_of(64) && P::PAGE >= SMALLEST && P::PAGE <= LARGEST, "a page size is out of range");
        (P::PAGE - size_of::<Header>()) / 8
    };

    /// The greatest number of entries that a page can have, since each entry takes at least two words.
    pub(super) const MOST: usize = Self::WORDS / 2;

    /// The offset of a page's latch. The latch is behind the page's words, so that the room for entries does not depend
    /// on it.
    const LATCH: usize = P::PAGE.next_multiple_of(align_of::<P::Latch>());

    /// The layout of a page's memory.
    pub(super) const BLOCK: Layout = {
        let align = if align_of::<P::Latch>() > 64 { align_of::<P::Latch>() } else { 64 };
        match Layout::from_size_align(Self::LATCH + size_of::<P::Latch>(), align) {
            Ok(layout) => layout,
            Err(_) => panic!("a page size is out of range"),
        }
    };

    /// The longest key in bytes.
    pub(super) const LONGEST_KEY: usize = P::PAGE / 4;

    /// The offset at which a page stores the addresses of its copies (one for each NUMA node, see `inner.rs`). At this
    /// offset a copy stores the version of its source.
    pub(super) const COPIES: usize = Self::BLOCK.size().next_multiple_of(align_of::<AtomicPtr<Header>>());

    /// Returns the layout of a page that may have copies. Copies have the same layout.
    pub(super) fn block_with_copies(count: usize) -> Layout {
        let bytes = Self::COPIES + count * size_of::<AtomicPtr<Header>>();
        Layout::from_size_align(bytes, Self::BLOCK.align()).expect("a page is far smaller than the address space")
    }

    /// The layout of a page without a latch.
    pub(super) const BARE_BLOCK: Layout = match Layout::from_size_align(P::PAGE, 64) {
        Ok(layout) => layout,
        Err(_) => panic!("a page size is out of range"),
    };

    /// Returns whether a level's pages have latches.
    #[inline(always)]
    pub(super) const fn is_latched(level: usize) -> bool {
        P::FINEST == 0 || level >= P::FINEST
    }

    /// Makes an unlocked page without content in a block. The page has a latch if `latched` is true, and room for the
    /// addresses of `copies` copies.
    ///
    /// # Safety
    /// `at` must be a block of layout [`BLOCK`](Self::BLOCK), of [`BARE_BLOCK`](Self::BARE_BLOCK) if the page gets no
    /// latch, or of [`block_with_copies`](Self::block_with_copies). It must be valid during `'g`, and only the caller
    /// may use it.
    pub(super) unsafe fn create(at: NonNull<u8>, home: usize, latched: bool, copies: usize) -> Self {
        let header = Header {
            latch: VersionLock::new(),
            shape: AtomicU64::new(0),
            kind: AtomicU64::new(0),
            right: AtomicPtr::default(),
            left: AtomicPtr::default(),
            low: AtomicU64::new(0),
            high: AtomicU64::new(0),
            home: AtomicU64::new(home as u64 | (copies as u64) << 32),
        };
        touch_mut(at.as_ptr(), if latched { Self::BLOCK.size() } else { Self::BARE_BLOCK.size() });
        let at = at.cast::<Header>();
        // SAFETY: by the contract there is room for a header, `WORDS` words, and a latch if there is to be one.
        unsafe {
            if latched {
                at.byte_add(Self::LATCH).cast::<P::Latch>().write(P::Latch::new());
            }
            for copy in 0..copies {
                at.byte_add(Self::COPIES).cast::<AtomicPtr<Header>>().add(copy).write(AtomicPtr::default());
            }
            at.write(header);
            for word in 0..Self::WORDS {
                at.add(1).cast::<AtomicU64>().add(word).write(AtomicU64::new(0));
            }
            Self::from_address(at)
        }
    }

    /// # Safety
    /// The page must have been made by [`create`](Self::create) with the same types, and must not be freed during `'g`.
    #[inline(always)]
    pub(super) unsafe fn from_address(at: NonNull<Header>) -> Self {
        Page { at, _life: PhantomData, _types: PhantomData }
    }

    #[inline(always)]
    pub(super) fn address(self) -> NonNull<Header> {
        self.at
    }

    /// Returns the page as an entry of the level above.
    pub(super) fn as_word(self) -> u64 {
        self.at.as_ptr().expose_provenance() as u64
    }

    #[inline(always)]
    pub(super) fn header(self) -> &'g Header {
        // SAFETY: the page is alive for 'g (`from_address`).
        unsafe { self.at.as_ref() }
    }

    #[inline(always)]
    fn words(self) -> &'g [AtomicU64] {
        // SAFETY: the page is alive for 'g (`from_address`), and `create` has written `WORDS` words behind the header.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr().add(1).cast::<AtomicU64>(), Self::WORDS) }
    }

    /// Destroys the page, and returns its block.
    ///
    /// # Safety
    /// No thread may use the page any more, and `latched` must be the value with which it was created.
    pub(super) unsafe fn destroy(self, latched: bool) -> NonNull<u8> {
        if latched {
            // SAFETY: `create` has written the latch at this offset, and it is dropped once.
            unsafe { self.at.byte_add(Self::LATCH).cast::<P::Latch>().drop_in_place() };
        }
        self.at.cast()
    }

    /// Returns whether a page that is not the root has a latch.
    #[inline(always)]
    pub(super) fn has_latch(self) -> bool {
        // Only the root changes its level.
        P::FINEST == 0 || Self::is_latched(self.level())
    }

    /// Returns the latch, which writers take before the version lock. The page must be the root, or [have a
    /// latch](Self::has_latch).
    #[inline(always)]
    pub(super) fn side_latch(self) -> &'g P::Latch {
        // SAFETY: the page is alive for 'g (`from_address`), and `create` has written the latch at this offset.
        unsafe { self.at.byte_add(Self::LATCH).cast::<P::Latch>().as_ref() }
    }

    /// Returns the version lock.
    #[inline(always)]
    pub(super) fn latch(self) -> &'g VersionLock {
        &self.header().latch
    }

    /// Validates everything that was read since `seen`.
    #[inline(always)]
    pub(super) fn is_still(self, seen: Version) -> bool {
        self.latch().validate(seen)
    }

    // ---- Reads at any time, which the caller validates ------------------------------------------------------------

    #[inline]
    fn shape(self) -> Shape {
        Shape::unpack(self.header().shape.load(Relaxed))
    }

    #[inline]
    fn kind(self) -> PageKind {
        PageKind::unpack(self.header().kind.load(Relaxed))
    }

    /// Returns the level, which is 0 for leaves.
    #[inline]
    pub(super) fn level(self) -> usize {
        self.kind().level
    }

    /// Returns the number of entries.
    #[inline]
    pub(super) fn len(self) -> usize {
        self.shape().len
    }

    /// Returns the page to the right.
    #[inline]
    pub(super) fn right(self) -> Option<NonNull<Header>> {
        NonNull::new(self.header().right.load(Relaxed))
    }

    /// Returns the page to the left. The page's version does not cover this link.
    pub(super) fn left(self) -> Option<NonNull<Header>> {
        NonNull::new(self.header().left.load(Acquire))
    }

    /// Replaces a child by another page with the same lower fence.
    pub(super) fn set_child(self, slot: usize, child: Self) {
        self.value(slot).store(child.as_word(), Relaxed);
    }

    fn high_fence(self) -> Fence<'g> {
        let len = self.kind().high;
        let tail = self.words().get(..F::fence_words(len)).unwrap_or(&[]);
        Fence { head: self.header().high.load(Relaxed), len, tail }
    }

    fn low_fence(self) -> Fence<'g> {
        let kind = self.kind();
        let start = F::fence_words(kind.high);
        let tail = self.words().get(start..start + F::fence_words(kind.low)).unwrap_or(&[]);
        Fence { head: self.header().low.load(Relaxed), len: kind.low, tail }
    }

    /// Returns whether the goal is to the right of this page.
    #[inline]
    pub(super) fn is_left_of(self, goal: Goal<'_, F>) -> bool {
        self.right().is_some()
            && match goal {
                Goal::At(key) => F::order(key, self.high_fence()).is_ge(),
                Goal::Below(key) => F::order(key, self.high_fence()).is_gt(),
                Goal::First => false,
                Goal::Last => true,
            }
    }

    /// Returns whether a key belongs to this page.
    pub(super) fn covers(self, key: F::Probe<'_>) -> bool {
        F::order(key, self.low_fence()).is_ge() && !self.is_left_of(Goal::At(key))
    }

    /// Returns the lower fence.
    pub(super) fn low(self) -> F::Owned {
        F::read_fence(self.low_fence())
    }

    /// Returns the upper fence; `None` on the last page.
    pub(super) fn high(self) -> Option<F::Owned> {
        self.right()?;
        Some(F::read_fence(self.high_fence()))
    }

    /// Returns the slot of a key that has the page's prefix, or the slot at which it would be inserted.
    #[inline]
    pub(super) fn search(self, key: F::Probe<'_>) -> Found {
        let high = self.right().map(|_| self.header().high.load(Relaxed));
        F::search(self.words(), self.shape(), (self.header().low.load(Relaxed), high), key)
    }

    /// Returns the slot of the child that leads to the goal.
    #[inline]
    pub(super) fn child_slot(self, goal: Goal<'_, F>) -> usize {
        match goal {
            Goal::At(key) => {
                let found = self.search(key);
                if found.hit { found.slot } else { found.slot.saturating_sub(1) }
            }
            Goal::Below(key) => self.search(key).slot.saturating_sub(1),
            Goal::First => 0,
            Goal::Last => self.len().saturating_sub(1),
        }
    }

    /// Returns the child in a slot. A concurrent writer can make the pointer meaningless, so the caller validates the
    /// page before it follows the pointer.
    #[inline]
    pub(super) fn child(self, slot: usize) -> Option<NonNull<Header>> {
        NonNull::new(core::ptr::with_exposed_provenance_mut(self.value(slot).load(Relaxed) as usize))
    }

    /// Returns the value word of a slot.
    #[inline]
    pub(super) fn value(self, slot: usize) -> &'g AtomicU64 {
        F::value(self.words(), self.shape(), slot)
    }

    /// Appends the entries of `slots` to `run`, as far as the page has them.
    pub(super) fn collect(self, slots: Range<usize>, run: &mut F::Run) {
        let shape = self.shape();
        let mut slots = slots.start..slots.end.min(shape.len).min(Self::WORDS);
        if slots.start == 0 && slots.end > 0 && self.level() > 0 {
            // The first entry is stored with the prefix as its key.
            run.push(F::probe(&self.low()), self.value(0).load(Relaxed));
            slots.start = 1;
        }
        if !slots.is_empty() {
            F::collect(self.words(), shape, self.low_fence(), slots, run);
        }
    }

    // ---- Under the latch, or before another thread can access the page --------------------------------------------

    pub(super) fn set_right(self, right: Option<Self>) {
        self.header().right.store(right.map_or(core::ptr::null_mut(), |page| page.at.as_ptr()), Relaxed);
    }

    /// Sets the left neighbour. The caller holds the latch of the new left neighbour, or of the previous one.
    pub(super) fn set_left(self, left: Option<Self>) {
        self.header().left.store(left.map_or(core::ptr::null_mut(), |page| page.at.as_ptr()), Release);
    }

    pub(super) fn home(self) -> usize {
        self.header().home.load(Relaxed) as usize & 0xFFFF_FFFF
    }

    // ---- Copies: see `inner.rs` -----------------------------------------------------------------------------------

    /// Makes a copy invalid.
    pub(super) fn forget(self) {
        self.header().kind.store(PageKind { level: 0, ..self.kind() }.pack(), Relaxed);
    }

    /// Returns the page's entries and fences.
    pub(super) fn piece(self) -> Piece<F> {
        let mut run = F::Run::default();
        self.collect(0..self.len(), &mut run);
        Piece { run, level: self.level(), low: self.low(), high: self.high() }
    }

    /// Writes the page's content, except the links: a part of a piece that fits ([`Piece::words`]).
    pub(super) fn fill(self, piece: &Piece<F>, part: Range<usize>) {
        debug_assert!(piece.words(part.clone()) <= Self::WORDS, "a part fits its page");
        debug_assert!(
            part.clone().skip(1).all(|at| piece.run.key(at - 1) < piece.run.key(at)),
            "a page is made of entries in order"
        );
        let (words, header) = (self.words(), self.header());
        let (low, high) = (piece.lower(&part), piece.upper(&part));
        let high_words = high.map_or(0, |high| F::fence_words(F::len(high)));
        let base = high_words + F::fence_words(F::len(low));
        if let Some(high) = high {
            F::write_fence(&words[..high_words], high);
            header.high.store(F::head(high), Relaxed);
        }
        F::write_fence(&words[high_words..base], low);
        header.low.store(F::head(low), Relaxed);
        let mut shape = Shape { len: 0, prefix: F::prefix(low, high), base, floor: Self::WORDS };
        for at in part.clone() {
            let slot = shape.len;
            let key = piece.stored(at, &part, shape.prefix);
            F::put(words, &mut shape, slot, key, piece.run.value(at));
        }
        let kind = PageKind { level: piece.level, dead: 0, low: F::len(low), high: high.map_or(0, F::len) };
        header.kind.store(kind.pack(), Relaxed);
        header.shape.store(shape.pack(), Relaxed);
    }

    /// Returns whether an entry with this key would fit.
    pub(super) fn has_room_for(self, key: F::Probe<'_>) -> bool {
        let shape = self.shape();
        shape.free() + self.kind().dead >= F::entry_words(key, shape.prefix)
    }

    /// Returns whether an entry with the key `new` would fit in place of the entry with the key `old`.
    pub(super) fn has_room_instead(self, old: F::Probe<'_>, new: F::Probe<'_>) -> bool {
        let shape = self.shape();
        let old = F::entry_words(old, shape.prefix);
        shape.free() + self.kind().dead + old >= F::entry_words(new, shape.prefix)
    }

    /// Adds an entry. Returns false and changes nothing if there is no room.
    pub(super) fn insert(self, slot: usize, key: F::Probe<'_>, value: u64) -> bool {
        if !self.has_room_for(key) {
            return false;
        }
        let mut shape = self.shape();
        if shape.free() < F::entry_words(key, shape.prefix) {
            self.tidy();
            shape = self.shape();
        }
        F::put(self.words(), &mut shape, slot, key, value);
        self.header().shape.store(shape.pack(), Relaxed);
        true
    }

    /// Removes an entry.
    pub(super) fn remove(self, slot: usize) {
        let (mut shape, mut kind) = (self.shape(), self.kind());
        kind.dead += F::take(self.words(), &mut shape, slot);
        self.header().shape.store(shape.pack(), Relaxed);
        self.header().kind.store(kind.pack(), Relaxed);
    }

    /// Compacts the heap.
    fn tidy(self) {
        let piece = self.piece();
        self.fill(&piece, 0..piece.run.len());
    }

    /// Returns the number of words in use.
    pub(super) fn used(self) -> usize {
        Self::WORDS - self.shape().free() - self.kind().dead
    }

    /// Returns whether the page is underfull: its entries take less than a quarter of the room that the fences leave.
    pub(super) fn is_underfull(self) -> bool {
        let fences = self.shape().base;
        4 * (self.used() - fences) < Self::WORDS - fences
    }
}
