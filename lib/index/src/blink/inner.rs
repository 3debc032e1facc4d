//! Replicas of the inner pages: each NUMA node has copies of the inner pages that its threads use, and leaves have no
//! copies.
//!
//! A copy is a page with the entries that its *source* (the inner page that it copies) had at some version. On level 1
//! the entries are the addresses of leaves, and above it the addresses of this node's copies. Before it reaches a leaf,
//! a walk by copies reads no source except the root, from which it takes only the address of the root's copy. Copies
//! may be outdated. This is correct, for two reasons:
//!
//! - *The leaf alone decides whether a walk is right.* A leaf that is in the tree and whose fences enclose the key is
//!   the right one, however the walk found it. Otherwise the walk is repeated from the sources. The copy that led to
//!   the wrong leaf is compared with its source's version, and renewed if it is older (`refresh`).
//! - *Pages to which a copy leads are not freed.* Entries may leave a page: they are moved to another page, or the
//!   child to which they lead is retired. The copies of the page that loses entries are forgotten
//!   ([`Page::forget_copies`]) before the page that receives the entries is unlocked, and before the child is retired.
//!   So a copy that is not forgotten leads only to children of its source. These children are retired only after the
//!   copy is forgotten, and a walk that reached them before holds an older guard. Added entries do not require
//!   forgetting: a leaf that a copy does not know is to the right of a leaf that the copy knows.
//!
//! A copy's own version lock is held while the copy is made or forgotten. A thread that forgets a copy holds the
//! source's latch, and waits for a thread that makes the copy. A thread that makes a copy latches the copy *before* it
//! loads the source's version, and never waits. If the source is latched, the thread gives up. If another thread
//! latches the source later and removes entries from it, the other thread waits until the copy has been made, and then
//! forgets the copy. A copy is freed together with its source.
//!
//! A forgotten copy is of level 0. (Leaves are not copied.)

use super::locked::Held;
use super::locked::Hold;
use super::page::{Goal, Header, Page};
use super::policy::{Policy, Replicas};
use super::run::Run as _;
use super::slots::SlotForm;
use super::tree::Tree;
use crate::points;
use archipelago_platform::atomic::AtomicPtr;
use archipelago_platform::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use archipelago_platform::hint::point;
use archipelago_sync::rcu::Guard;
use core::ptr::NonNull;

impl<F: SlotForm, P: Policy> Tree<F, P> {
    /// Returns whether pages have copies.
    #[inline(always)]
    pub(super) fn has_copies(&self) -> bool {
        P::REPLICAS == Replicas::OfInnerPages && self.homes() > 1
    }

    /// Finds the leaf of a key by this node's copies. Returns `None` if the copies do not lead to this leaf.
    ///
    /// The caller validates all reads of the leaf, including those by which this method has checked that it is the
    /// right leaf.
    pub(super) fn leaf_by_copies<'g>(&self, key: F::Probe<'_>, guard: &'g Guard<'_>) -> Option<Held<'g, F, P>> {
        let node = self.node();
        let mut copy = self.copy_of(self.root(guard), node);
        let mut above = copy;
        // The walk does not wait while a copy is being made: it can use the sources instead.
        let mut seen = copy.latch().read()?;
        loop {
            let level = copy.level();
            if level == 0 {
                if self.root(guard).level() > 0 {
                    self.refresh(copy, node, guard);
                }
                return None;
            }
            if copy.is_left_of(Goal::At(key)) {
                self.refresh(above, node, guard);
                return None;
            }
            let next = copy.child(copy.child_slot(Goal::At(key)));
            if !copy.is_still(seen) {
                return None;
            }
            point(points::ENTERING);
            // SAFETY: the copy led there while it was not forgotten, so the page was not retired, and pages that are
            // retired from now on are not freed under the guard.
            let next: Page<'g, F, P> = unsafe { Page::from_address(next?) };
            if level == 1 {
                let leaf = Self::enter(next, key);
                if leaf.is_none() {
                    self.refresh(copy, node, guard);
                }
                return leaf;
            }
            (above, copy, seen) = (copy, next, next.latch().read()?);
        }
    }

    /// Enters a leaf, if it is in the tree and encloses the key.
    fn enter<'g>(leaf: Page<'g, F, P>, key: F::Probe<'_>) -> Option<Held<'g, F, P>> {
        let hold = Hold::of(leaf);
        let seen = leaf.latch().read_unlocked()?;
        leaf.covers(key).then_some(((leaf, seen), hold))
    }

    /// Renews a copy if its source has changed. Does nothing if another thread has latched the copy or the source.
    #[cold]
    fn refresh(&self, copy: Page<'_, F, P>, node: usize, guard: &Guard<'_>) {
        if !copy.latch().try_lock() {
            return;
        }
        if self.copy_again(copy, node, guard) {
            copy.latch().unlock();
        } else {
            copy.latch().unlock_unchanged();
        }
    }

    /// Renews a copy as `refresh` does. This thread must have latched the copy. Returns whether it changed the copy.
    fn copy_again<'g>(&self, copy: Page<'g, F, P>, node: usize, _: &'g Guard<'_>) -> bool {
        let source: Page<'g, F, P> = copy.source();
        let Some(seen) = source.latch().read() else { return false };
        if copy.level() > 0 && copy.copied_version() == seen.number() {
            return false;
        }
        let mut piece = source.piece();
        // The check precedes all accesses to children. If the source is a leaf (the root of a tree without inner
        // pages), it is not copied.
        if !source.is_still(seen) || piece.level == 0 {
            return false;
        }
        if piece.level > 1 {
            let mut run = F::Run::with_room(piece.run.len());
            for at in 0..piece.run.len() {
                let child = NonNull::new(core::ptr::with_exposed_provenance_mut(piece.run.value(at) as usize));
                // SAFETY: the page is a child of a page in the tree, and is not freed under the guard.
                let child: Page<'g, F, P> = unsafe { Page::from_address(child.expect("it has a child")) };
                run.push(piece.run.key(at), self.copy_of(child, node).as_word());
            }
            piece.run = run;
        }
        let all = 0..piece.run.len();
        copy.fill(&piece, all);
        copy.set_right_of(source);
        copy.set_copied_version(seen.number());
        true
    }

    /// Returns a node's copy of an inner page, or of the root. The copy may be forgotten, or not yet made.
    fn copy_of<'g>(&self, source: Page<'g, F, P>, node: usize) -> Page<'g, F, P> {
        let place = &source.copies()[node];
        // Acquire: pairs with the exchange below, so that the copy is seen as it was made.
        if let Some(copy) = NonNull::new(place.load(Acquire)) {
            // SAFETY: the copy is freed together with its source.
            return unsafe { Page::from_address(copy) };
        }
        let copy = self.create_copy(source, node);
        match place.compare_exchange(core::ptr::null_mut(), copy.address().as_ptr(), AcqRel, Acquire) {
            Ok(_) => copy,
            Err(there) => {
                // SAFETY: no other thread has seen this copy.
                unsafe { self.free_copy(copy) };
                // SAFETY: as above. The exchange with null failed, so the pointer is not null.
                unsafe { Page::from_address(NonNull::new_unchecked(there)) }
            }
        }
    }
}

impl<'g, F: SlotForm, P: Policy> Page<'g, F, P> {
    /// Returns the pointers to the page's copies, one for each node; empty if the policy has no copies.
    pub(super) fn copies(self) -> &'g [AtomicPtr<Header>] {
        if P::REPLICAS != Replicas::OfInnerPages {
            return &[];
        }
        let count = (self.header().home.load(Relaxed) >> 32) as usize;
        // SAFETY: the page is alive for 'g (`from_address`), and `create` has written `count` pointers at this offset.
        unsafe { core::slice::from_raw_parts(self.address().byte_add(Self::COPIES).as_ptr().cast(), count) }
    }

    /// Returns the existing copies.
    pub(super) fn each_copy(self) -> impl Iterator<Item = Self> {
        let copies = self.copies().iter().filter_map(|copy| NonNull::new(copy.load(Acquire)));
        // SAFETY: a copy is freed with its source.
        copies.map(|copy| unsafe { Page::from_address(copy) })
    }

    /// Makes a fresh page the copy of another page.
    pub(super) fn become_copy_of(self, source: Self) {
        self.header().left.store(source.address().as_ptr(), Relaxed);
    }

    /// Returns the page of which this is a copy.
    pub(super) fn source(self) -> Self {
        let source = NonNull::new(self.header().left.load(Relaxed)).expect("a copy has a source");
        // SAFETY: a copy is freed with its source.
        unsafe { Self::from_address(source) }
    }

    /// Gives a copy the right link of its source.
    pub(super) fn set_right_of(self, source: Self) {
        self.header().right.store(source.header().right.load(Relaxed), Relaxed);
    }

    /// Returns the version of the source of which this is a copy.
    pub(super) fn copied_version(self) -> u32 {
        self.copies()[0].load(Relaxed).addr() as u32
    }

    /// Stores the version of the source of which this is a copy.
    pub(super) fn set_copied_version(self, version: u32) {
        self.copies()[0].store(core::ptr::without_provenance_mut(version as usize), Relaxed);
    }

    /// Makes all copies of this page useless. This thread must have latched the page. The module's documentation has
    /// the reason.
    pub(super) fn forget_copies(self) {
        for copy in self.copies() {
            if let Some(copy) = NonNull::<Header>::new(copy.load(Acquire)) {
                // SAFETY: the copy is freed together with its source, which is in the tree.
                let copy: Self = unsafe { Page::from_address(copy) };
                if copy.latch().lock() {
                    copy.forget();
                    copy.latch().unlock();
                }
            }
        }
    }

    /// For checks: returns the copies that are not forgotten. No thread may write meanwhile.
    pub(super) fn live_copies(self) -> impl Iterator<Item = Self> {
        let copies = self.copies().iter().filter_map(|copy| NonNull::new(copy.load(Relaxed)));
        // SAFETY: as in `forget_copies`.
        copies.map(|copy| unsafe { Page::from_address(copy) }).filter(|copy: &Self| copy.level() > 0)
    }
}
