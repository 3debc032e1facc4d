//! The tree over encoded keys and value words: finding a page, and the point operations.
//!
//! # Descent
//! It goes by *version coupling*: the version of the next page (a child, or the right neighbour) is read, and only then the
//! page that led there validated once more. So at the moment when the next page's version was read, the page before still
//! led there for this key, and by invariants 2 and 3 of [`page`](super::page) the next page was in the tree and its `low`
//! was at most the key. Validated in the other order, the next page could lose its lower keys to its left neighbour, or be
//! merged into it, in between. The thesis's algorithm 5 never compares the version it had of a child with anything, which
//! is right only as its pages are never freed.
//!
//! A key that is not below `high` lies to the right: a split has not told the level above yet, or the level above has been
//! read before it was told.
//!
//! # Latches
//! One who changes a page latches it at the version seen, or waits for it and looks at the fences again
//! ([`Locked::covering`]). A thread that holds several took them from upper levels to lower ones, and from left to right on each:
//! there is no circle to wait in. A split holds one latch at a time: it unlatches its page before it tells the level above.
//!
//! A policy may have latches down to a level only ([`Policy::FINEST`]). Then a page below is under the latch of the page of
//! that level that covers it, or of a root that is lower. A thread takes that one, looks whether its page is as it was on the way
//! down ([`Hold`] remembers it), and only then the version lock of the page below. Version locks exclude writers and tell readers
//! as ever: that a latch is taken above changes who waits where, and nothing of what is right.
//!
//! | operation | latches, in this order |
//! |---|---|
//! | look-up, scan | none |
//! | replace a value | the leaf's, shared |
//! | insert, remove | the leaf's |
//! | split | the page's; then, alone, its parent's |
//! | growth of the root | the root's |
//! | merge, or moving entries to a neighbour | the parent's, the left page's, the right page's |
//! | collapse of the root | the root's, its only child's |
//! | replacing a page by another ([`sweep`](super::sweep)) | the parent's, the left neighbour's, the page's |
//!
//! What the original tree has further latches for: *access intent* and *node delete* are RCU's, *parent modification* is the
//! parent's own latch, and a *link* to the left is written under the latch of the left neighbour.

use super::locked::{Held, Hold, Locked};
use super::page::{Goal, Header, Page, Seen};
use super::policy::Policy;
use super::run::Run as _;
use super::slots::SlotForm;
use crate::points;
use crate::structure::{Put, When};
use archipelago_platform::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use archipelago_platform::atomic::{AtomicU64, AtomicUsize};
use archipelago_platform::hint::point;
use archipelago_platform::memory::BlockArena;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::sync::Mutex;
use archipelago_platform::thread;
use archipelago_platform::topology::Topology;
use archipelago_sync::rcu::Guard;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// A tree. Words are whatever the caller makes of them; they are never looked into.
pub struct Tree<F: SlotForm, P: Policy> {
    /// Never moves, and is never merged away; its level changes.
    pub(super) root: NonNull<Header>,
    pub(super) topology: Topology,
    /// One per home, in node order; then as many for pages without latches, if there are such pages. The
    /// tree does not move: retired pages name it by its address.
    pub(super) arenas: Box<[BlockArena]>,
    /// How many homes there are.
    pub(super) homes: usize,
    /// The first of them.
    pub(super) number: usize,
    /// See [`retries`](Self::retries). Not on the line of the root, which all walks read.
    pub(super) retries: CachePadded<PerThread<CachePadded<AtomicU64>>>,
    /// Pages that wait for readers.
    pub(super) retired: AtomicUsize,
    /// Where the walk under way goes on: see [`sweep`](super::sweep).
    pub(super) sweeping: Mutex<Option<Spot<F>>>,
    pub(super) _types: PhantomData<fn() -> (F, P)>,
}

/// Where a [`sweep`](super::sweep) goes on: at the page of a level that a key belongs to.
pub(super) struct Spot<F: SlotForm> {
    pub(super) level: usize,
    pub(super) key: F::Owned,
}

// SAFETY: everything that threads share is atomic, and pages are freed by RCU.
unsafe impl<F: SlotForm, P: Policy> Send for Tree<F, P> {}
// SAFETY: as above.
unsafe impl<F: SlotForm, P: Policy> Sync for Tree<F, P> {}

impl<F: SlotForm, P: Policy> Tree<F, P> {
    /// Of several trees with a home each, which one it is.
    #[inline]
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The page where descents begin.
    #[inline(always)]
    pub(super) fn root<'g>(&self, _: &'g Guard<'_>) -> Page<'g, F, P> {
        // SAFETY: the root lives as long as the tree, which its users' guards do not outlive.
        unsafe { Page::from_address(self.root) }
    }

    /// A page of a level. `None` if the tree is not so high.
    ///
    /// What is read of it is to be validated, that it is the one looked for included.
    #[inline]
    pub(super) fn find<'g>(&self, goal: Goal<'_, F>, level: usize, guard: &'g Guard<'_>) -> Option<Held<'g, F, P>> {
        'again: loop {
            let mut page = self.root(guard);
            let mut hold = Hold::of(page);
            let mut seen = page.latch().read_unlocked().expect("the root stays");
            loop {
                let next = if page.is_left_of(goal) {
                    page.right()
                } else {
                    let here = page.level();
                    if here == level {
                        return Some(((page, seen), hold));
                    }
                    if here < level {
                        if page.is_still(seen) {
                            return None;
                        }
                        self.note_retry();
                        continue 'again;
                    }
                    page.child(page.child_slot(goal))
                };
                let Some(next) = self.step((page, seen), hold, next, guard) else {
                    self.note_retry();
                    continue 'again;
                };
                ((page, seen), hold) = next;
            }
        }
    }

    /// From a page to one that it leads to: see the module's text. `None` if it may not be believed.
    #[inline]
    pub(super) fn step<'g>(
        &self,
        (page, seen): Seen<'g, F, P>,
        hold: Hold<'g, F, P>,
        next: Option<NonNull<Header>>,
        _: &'g Guard<'_>,
    ) -> Option<Held<'g, F, P>> {
        if !page.is_still(seen) {
            return None;
        }
        point(points::ENTERING);
        // SAFETY: a page that is in the tree led there, so it is not retired, and what is retired from now on is not freed
        // under the guard.
        let next: Page<'g, F, P> = unsafe { Page::from_address(next?) };
        let (hold, _before) = hold.go_on((page, seen), next);
        let next_seen = next.latch().read_unlocked()?;
        page.is_still(seen).then_some(((next, next_seen), hold))
    }

    /// The leaf that a key belongs to.
    #[inline]
    pub(super) fn leaf<'g>(&self, key: F::Probe<'_>, guard: &'g Guard<'_>) -> Held<'g, F, P> {
        if self.has_copies() {
            if let Some(leaf) = self.leaf_by_copies(key, guard) {
                return leaf;
            }
            // A root that is a leaf has no copies.
            if self.root(guard).level() > 0 {
                self.note_retry();
            }
        }
        self.find(Goal::At(key), 0, guard).expect("there is a lowest level")
    }

    /// The value word of a key.
    #[inline]
    pub(super) fn get(&self, key: F::Probe<'_>, guard: &Guard<'_>) -> Option<u64> {
        loop {
            let ((page, seen), _hold) = self.leaf(key, guard);
            let found = page.search(key);
            point(points::FOUND);
            // Acquire pairs with the AcqRel of the swap that put the word in: what it points to is there.
            let word = found.hit.then(|| page.value(found.slot).load(Acquire));
            if page.is_still(seen) {
                return word;
            }
            self.note_retry();
        }
    }

    /// How often threads began anew as a page had changed under them while they were on their way or read it.
    pub(super) fn retries(&self) -> u64 {
        self.retries.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Counts a retry. Each thread has a count that it alone writes.
    #[cold]
    pub(super) fn note_retry(&self) {
        let count = self.retries.get_or(thread::slot().index, || CachePadded::new(AtomicU64::new(0)));
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    /// Stores a value word; see [`Structure::put`](crate::map::Structure::put). The search begins at the leaf `near`, if there
    /// is one, and leaves there the one where it ended.
    pub(super) fn put<'g>(
        &self,
        near: &mut Option<Page<'g, F, P>>,
        key: F::Probe<'_>,
        word: u64,
        when: When,
        guard: &'g Guard<'_>,
    ) -> Put {
        let mut relieved = !P::DENSE;
        loop {
            let ((page, seen), hold) = match near.take().and_then(|page| revisit(page, key)) {
                Some(leaf) => leaf,
                None => self.leaf(key, guard),
            };
            let found = page.search(key);
            if found.hit {
                match store((page, seen), found.slot, word, when) {
                    Some(put) => {
                        *near = Some(page);
                        return put;
                    }
                    None => continue,
                }
            }
            if matches!(when, When::Present | When::Holds(_)) {
                if page.is_still(seen) {
                    return Put::Missing;
                }
                continue;
            }
            let Some((locked, same)) = Locked::covering((page, seen), hold.release(), 0, key) else { continue };
            let found = if same { found } else { page.search(key) };
            if found.hit {
                continue;
            }
            if !relieved && !page.has_room_for(key) {
                drop(locked);
                relieved = true;
                self.relieve(key, guard);
                continue;
            }
            self.insert(locked, found.slot, key, word, guard);
            *near = Some(page);
            return Put::Inserted;
        }
    }

    /// Takes a key out, if its word is `expected` (any, if `None`): the word, which is now the caller's.
    pub(super) fn remove(&self, key: F::Probe<'_>, expected: Option<u64>, guard: &Guard<'_>) -> Option<u64> {
        loop {
            let ((page, seen), hold) = self.leaf(key, guard);
            let found = page.search(key);
            if !found.hit {
                if page.is_still(seen) {
                    return None;
                }
                continue;
            }
            let Some((locked, same)) = Locked::covering((page, seen), hold.release(), 0, key) else { continue };
            let found = if same { found } else { page.search(key) };
            if !found.hit {
                return None;
            }
            let word = page.value(found.slot).load(Acquire);
            if expected.is_some_and(|expected| expected != word) {
                return None;
            }
            self.take(locked, found.slot, key, guard);
            return Some(word);
        }
    }

    /// Takes an entry out of a leaf, and unlatches it.
    pub(super) fn take(&self, locked: Locked<'_, F, P>, slot: usize, key: F::Probe<'_>, guard: &Guard<'_>) {
        if self.cut_out(locked, slot, guard) {
            self.shrink(key, guard);
        }
    }

    /// As [`take`](Self::take), but leaves it to the caller to balance the level above, if this returns true.
    pub(super) fn cut_out(&self, locked: Locked<'_, F, P>, slot: usize, guard: &Guard<'_>) -> bool {
        let page = locked.page();
        page.remove(slot);
        let underfull = page.is_underfull() && page != self.root(guard);
        locked.changed();
        underfull
    }

    /// Looks after a leaf that holds little, which a key belongs to.
    #[cold]
    pub(super) fn shrink(&self, key: F::Probe<'_>, guard: &Guard<'_>) {
        if self.balance(1, key, guard) {
            self.sweep_in_passing(guard);
        }
    }

    /// Returns whether a key is there, or its leaf has room for it.
    pub(super) fn fits(&self, key: F::Probe<'_>, guard: &Guard<'_>) -> bool {
        loop {
            let ((page, seen), _hold) = self.leaf(key, guard);
            let fits = page.search(key).hit || page.has_room_for(key);
            if page.is_still(seen) {
                return fits;
            }
        }
    }

    /// Latches the leaf that a key belongs to.
    pub(super) fn latch_leaf<'g>(&self, key: F::Probe<'_>, guard: &'g Guard<'_>) -> Locked<'g, F, P> {
        loop {
            let (leaf, hold) = self.leaf(key, guard);
            if let Some((locked, _)) = Locked::covering(leaf, hold.release(), 0, key) {
                return locked;
            }
        }
    }

    /// The keys of a level, ascending, that has `count` of them, or else of the leaves. Those of inner pages are fences.
    pub(super) fn cuts(&self, count: usize, guard: &Guard<'_>) -> Vec<F::Owned> {
        let mut cuts = Vec::new();
        for level in (0..=self.root(guard).level()).rev() {
            cuts.clear();
            let mut next = Some(F::least());
            while let Some(low) = next.take() {
                // The tree may have become lower.
                let Some(((page, seen), _hold)) = self.find(Goal::At(F::probe(&low)), level, guard) else { break };
                let piece = page.piece();
                if page.is_still(seen) {
                    cuts.extend((0..piece.run.len()).map(|at| F::own(piece.run.key(at))));
                    next = piece.high;
                } else {
                    next = Some(low);
                }
            }
            if cuts.len() >= count {
                break;
            }
        }
        cuts
    }
}

/// A leaf where an earlier search ended, if the key belongs there.
#[inline]
fn revisit<'g, F: SlotForm, P: Policy>(page: Page<'g, F, P>, key: F::Probe<'_>) -> Option<Held<'g, F, P>> {
    if !page.has_latch() {
        return None;
    }
    let hold = Hold::of(page);
    let seen = page.latch().read_unlocked()?;
    // The root may have become an inner page.
    (page.level() == 0 && page.covers(key)).then_some(((page, seen), hold))
}

/// Stores a word in place of another; `None` if the page is not as it was seen.
#[inline]
fn store<F: SlotForm, P: Policy>((page, seen): Seen<'_, F, P>, slot: usize, word: u64, when: When) -> Option<Put> {
    let place = page.value(slot);
    if matches!(when, When::Absent) {
        point(points::PRESENT);
        let there = place.load(Acquire);
        return page.is_still(seen).then_some(Put::Kept(there));
    }
    if !page.latch().try_share_at(seen) {
        return None;
    }
    let put = match when {
        When::Holds(old) => match place.compare_exchange(old, word, AcqRel, Acquire) {
            Ok(old) => Put::Replaced(old),
            Err(there) => Put::Kept(there),
        },
        _ => Put::Replaced(place.swap(word, AcqRel)),
    };
    page.latch().unshare();
    Some(put)
}
