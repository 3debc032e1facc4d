//! The tree over encoded keys and value words: finding a page, and the point operations.
//!
//! # Descent
//! A descent uses *version coupling*: it reads the version of the next page (a child, or the right neighbour), and only
//! then validates the previous page again. So at the moment when the next page's version was read, the previous page
//! still led to it for this key. By invariants 2 and 3 of [`page`](super::page) the next page was then in the tree and
//! its `low` was at most the key. In the other order, the next page could lose its lower keys to its left neighbour, or
//! be merged into this neighbour, between the two steps. Algorithm 5 of McKenzie's thesis (see the module `blink`)
//! never compares a child's version with anything, which is correct only because the thesis's pages are never freed.
//!
//! A key that is not below `high` is in a page to the right. Either a split has not updated the level above yet, or the
//! descent read that level before the update.
//!
//! # Latches
//! A thread that changes a page latches the page at the version that it has read. If the page has another version by
//! then, the thread waits for the latch, and checks again that the key is between the page's fences, the bounds `low`
//! and `high` of its keys ([`Locked::covering`]). Threads take several latches from upper levels to lower ones, and
//! from left to right on each level, so they do not wait in a circle. A split holds one latch at a time: it unlatches
//! its page before it updates the level above.
//!
//! A policy may have latches only at and above a level ([`Policy::FINEST`]). Then the latch of a page's ancestor on
//! that level covers the page, or the latch of the root if the tree is not that high. A thread takes this latch, checks
//! that the ancestor has not changed since the descent ([`Hold`] remembers it), and only then takes the version lock of
//! the page. Version locks still exclude writers and validate readers, so coarse latches change where threads wait, but
//! not correctness.
//!
//! The table is for policies without [`LATCHED_READS`](Policy::LATCHED_READS). With latched reads, a descent also holds
//! the latch of the page that it reads, shared, and takes the latch of the next page before it releases this one.
//!
//! | operation | latches, in this order |
//! |---|---|
//! | look-up, scan | none |
//! | replace a value | the leaf's, shared |
//! | insert, remove | the leaf's |
//! | split | the page's; then, alone, its parent's |
//! | growth of the root | the root's |
//! | merge, or moving entries to a neighbour | the parent's, the left page's, the right page's |
//! | removal of a level: the root takes over its only child's entries | the root's, the child's |
//! | replacing a page by another ([`sweep`](super::sweep)) | the parent's, the left neighbour's, the page's |
//!
//! Malbrain's tree has further latches, which this one replaces: *access intent* and *node delete* by RCU, *parent
//! modification* by the parent's own latch, and the latch for a *link* to the left by the latch of the left neighbour.

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

/// A tree. It does not interpret value words.
pub struct Tree<F: SlotForm, P: Policy> {
    /// The root page. It never moves, and is never merged away; its level changes.
    pub(super) root: NonNull<Header>,
    pub(super) topology: Topology,
    /// One arena per home (a NUMA node that holds pages of the tree), in the order of the NUMA nodes. If the tree has
    /// pages without latches, as many arenas for these follow. Reclamation finds these arenas by the tree's address, so
    /// the tree must not be moved in memory.
    pub(super) arenas: Box<[BlockArena]>,
    /// The number of homes.
    pub(super) homes: usize,
    /// The index of the first home among the machine's NUMA nodes.
    pub(super) number: usize,
    /// The counts that [`retries`](Self::retries) adds up. They are not in the cache line of `root`, which all walks
    /// read.
    pub(super) retries: CachePadded<PerThread<CachePadded<AtomicU64>>>,
    /// The number of retired pages that are not freed yet, because readers may still use them.
    pub(super) retired: AtomicUsize,
    /// The position at which the current sweep continues, see [`sweep`](super::sweep).
    pub(super) sweeping: Mutex<Option<Spot<F>>>,
    pub(super) _types: PhantomData<fn() -> (F, P)>,
}

/// The position of a [`sweep`](super::sweep): the page of a level to which a key belongs.
pub(super) struct Spot<F: SlotForm> {
    pub(super) level: usize,
    pub(super) key: F::Owned,
}

// SAFETY: everything that threads share is atomic, and pages are freed by RCU.
unsafe impl<F: SlotForm, P: Policy> Send for Tree<F, P> {}
// SAFETY: as above.
unsafe impl<F: SlotForm, P: Policy> Sync for Tree<F, P> {}

impl<F: SlotForm, P: Policy> Tree<F, P> {
    /// Returns the index of the tree's first home. Among replicas, which have one home each, this is the index of the
    /// replica.
    #[inline]
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Returns the page at which descents begin.
    #[inline(always)]
    pub(super) fn root<'g>(&self, _: &'g Guard<'_>) -> Page<'g, F, P> {
        // SAFETY: the root lives as long as the tree, which its users' guards do not outlive.
        unsafe { Page::from_address(self.root) }
    }

    /// Finds the page on a level to which `goal` (a key, or an end of the level) leads. Returns `None` if the tree has
    /// no such level.
    ///
    /// The caller validates all reads of the page, including those by which this method has chosen the page.
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

    /// Steps from a page to a page to which it leads, as the module's documentation describes. Returns `None` if a
    /// validation fails.
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
        // SAFETY: a page that is in the tree led there, so it is not retired, and pages that are retired from now on
        // are not freed under the guard.
        let next: Page<'g, F, P> = unsafe { Page::from_address(next?) };
        let (hold, _before) = hold.go_on((page, seen), next);
        let next_seen = next.latch().read_unlocked()?;
        page.is_still(seen).then_some(((next, next_seen), hold))
    }

    /// Returns the leaf to which a key belongs.
    #[inline]
    pub(super) fn leaf<'g>(&self, key: F::Probe<'_>, guard: &'g Guard<'_>) -> Held<'g, F, P> {
        if self.has_copies() {
            if let Some(leaf) = self.leaf_by_copies(key, guard) {
                return leaf;
            }
            // If the root is a leaf, the tree has no inner pages and thus no copies of them. Then this is no retry.
            if self.root(guard).level() > 0 {
                self.note_retry();
            }
        }
        self.find(Goal::At(key), 0, guard).expect("there is a lowest level")
    }

    /// Returns the value word of a key.
    #[inline]
    pub(super) fn get(&self, key: F::Probe<'_>, guard: &Guard<'_>) -> Option<u64> {
        loop {
            let ((page, seen), _hold) = self.leaf(key, guard);
            let found = page.search(key);
            point(points::FOUND);
            // Acquire pairs with the AcqRel of the swap that stored the word, so the memory to which it leads is
            // visible.
            let word = found.hit.then(|| page.value(found.slot).load(Acquire));
            if page.is_still(seen) {
                return word;
            }
            self.note_retry();
        }
    }

    /// Returns how often threads had to restart because a page had changed during a descent or a read.
    pub(super) fn retries(&self) -> u64 {
        self.retries.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Counts a retry. Each thread has a count that only it writes.
    #[cold]
    pub(super) fn note_retry(&self) {
        let count = self.retries.get_or(thread::slot().index, || CachePadded::new(AtomicU64::new(0)));
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    /// Stores a value word; see [`Structure::put`](crate::map::Structure::put). If `near` is given, the search tries
    /// this leaf first. If the key is present afterwards, its leaf is stored in `near`. (If the insertion has split the
    /// leaf, the key may be in the page to the right.)
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

    /// Removes a key, if its word is `expected` (any word if `None`). Returns the word, which the caller then owns.
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

    /// Removes an entry from a leaf, unlatches the leaf, and balances it if it is underfull.
    pub(super) fn take(&self, locked: Locked<'_, F, P>, slot: usize, key: F::Probe<'_>, guard: &Guard<'_>) {
        if self.cut_out(locked, slot, guard) {
            self.shrink(key, guard);
        }
    }

    /// Removes an entry and unlatches the leaf, as [`take`](Self::take) does. Returns `true` if the leaf is underfull.
    /// Then the caller must call [`shrink`](Self::shrink).
    pub(super) fn cut_out(&self, locked: Locked<'_, F, P>, slot: usize, guard: &Guard<'_>) -> bool {
        let page = locked.page();
        page.remove(slot);
        let underfull = page.is_underfull() && page != self.root(guard);
        locked.changed();
        underfull
    }

    /// Balances the underfull leaf of a key.
    #[cold]
    pub(super) fn shrink(&self, key: F::Probe<'_>, guard: &Guard<'_>) {
        if self.balance(1, key, guard) {
            self.sweep_in_passing(guard);
        }
    }

    /// Returns whether a key is present, or its leaf has room for it.
    pub(super) fn fits(&self, key: F::Probe<'_>, guard: &Guard<'_>) -> bool {
        loop {
            let ((page, seen), _hold) = self.leaf(key, guard);
            let fits = page.search(key).hit || page.has_room_for(key);
            if page.is_still(seen) {
                return fits;
            }
        }
    }

    /// Latches the leaf to which a key belongs.
    pub(super) fn latch_leaf<'g>(&self, key: F::Probe<'_>, guard: &'g Guard<'_>) -> Locked<'g, F, P> {
        loop {
            let (leaf, hold) = self.leaf(key, guard);
            if let Some((locked, _)) = Locked::covering(leaf, hold.release(), 0, key) {
                return locked;
            }
        }
    }

    /// Returns the keys, ascending, of the highest level that has `count` keys, or of the leaves. Keys of inner pages
    /// bound the pages below, and need not be keys of entries.
    pub(super) fn cuts(&self, count: usize, guard: &Guard<'_>) -> Vec<F::Owned> {
        let mut cuts = Vec::new();
        for level in (0..=self.root(guard).level()).rev() {
            cuts.clear();
            let mut next = Some(F::least());
            while let Some(low) = next.take() {
                // The height of the tree may have decreased.
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

/// Returns the last leaf of an earlier search, if the key belongs to this leaf and the leaf has a latch of its own.
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

/// Replaces a word as `when` says. Returns `None` if the page has changed since `seen`, or is latched.
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
