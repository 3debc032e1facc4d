//! A tree's memory: an arena of pages for each NUMA node that holds pages of the tree. If the policy has coarse
//! latches, each of these nodes has a second arena, for pages without a latch.

use super::page::Page;
use super::piece::Piece;
use super::policy::{Policy, Replicas};
use super::slots::SlotForm;
use super::tree::Tree;
use archipelago_platform::atomic::AtomicUsize;
use archipelago_platform::atomic::Ordering::{Acquire, Relaxed};
use archipelago_platform::memory::BlockArena;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::sync::Mutex;
use archipelago_platform::topology::{NodeId, Topology};
use archipelago_sync::rcu::Guard;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;

impl<F: SlotForm, P: Policy> Tree<F, P> {
    /// Makes an empty tree. Callers of its methods pass guards of one domain, which is dropped before the tree.
    ///
    /// The tree's pages are on the nodes `homes`. A page is on the node of the thread that makes it, if this node is
    /// one of them.
    pub(super) fn new(topology: Topology, homes: Range<usize>) -> Self {
        // A page without a latch has no room for the addresses of copies, and a descent by copies holds no latch above
        // the leaf.
        const { assert!(P::FINEST == 0 || !matches!(P::REPLICAS, Replicas::OfInnerPages), "leaves without latches") };
        let nodes = topology.nodes().len();
        let copies = if P::REPLICAS == Replicas::OfInnerPages && homes.len() > 1 { homes.len() } else { 0 };
        let block = if copies > 0 { Page::<F, P>::block_with_copies(copies) } else { Page::<F, P>::BLOCK };
        let blocks = [block, Page::<F, P>::BARE_BLOCK];
        let kinds = &blocks[..if P::FINEST > 0 { 2 } else { 1 }];
        let arena = |block, node| BlockArena::new(block, (nodes > 1).then_some(NodeId(node)));
        let arenas: Box<[BlockArena]> =
            kinds.iter().flat_map(|&block| homes.clone().map(move |node| arena(block, node))).collect();
        // SAFETY: the block is fresh.
        let root = unsafe { Page::<F, P>::create(arenas[0].alloc(), 0, true, copies) };
        root.fill(&Piece::new(0), 0..0);
        Tree {
            root: root.address(),
            topology,
            arenas,
            homes: homes.len(),
            number: homes.start,
            retries: CachePadded::new(PerThread::new()),
            sweeping: Mutex::new(None),
            retired: AtomicUsize::new(0),
            _types: PhantomData,
        }
    }

    /// Makes a page for a level, on the caller's node.
    pub(super) fn create_page<'g>(&self, level: usize, guard: &'g Guard<'_>) -> Page<'g, F, P> {
        let node = self.node();
        let latched = Page::<F, P>::is_latched(level);
        let home = if latched { node } else { self.homes + node };
        self.create_page_at(home, level, guard)
    }

    /// Makes a page as `create_page` does, in a given arena.
    pub(super) fn create_page_at<'g>(&self, home: usize, level: usize, _: &'g Guard<'_>) -> Page<'g, F, P> {
        let latched = Page::<F, P>::is_latched(level);
        // SAFETY: the block is fresh.
        unsafe { Page::create(self.arenas[home].alloc(), home, latched, self.copies()) }
    }

    /// Makes a copy of a page for a node.
    pub(super) fn create_copy<'g>(&self, source: Page<'g, F, P>, node: usize) -> Page<'g, F, P> {
        // SAFETY: the block is fresh. A copy has no latch except its version lock.
        let copy = unsafe { Page::create(self.arenas[node].alloc(), node, false, self.copies()) };
        copy.become_copy_of(source);
        copy
    }

    /// Frees a copy.
    ///
    /// # Safety
    /// No thread may use the copy any more.
    pub(super) unsafe fn free_copy(&self, copy: Page<'_, F, P>) {
        // SAFETY: the caller guarantees the same contract.
        unsafe { self.free(copy, false) };
    }

    /// Returns a page's memory to its arena. `latched` says whether the page has a latch besides its version lock.
    ///
    /// # Safety
    /// No thread may use the page any more.
    unsafe fn free(&self, page: Page<'_, F, P>, latched: bool) {
        // SAFETY: the caller guarantees the same contract.
        unsafe { self.arenas[page.home()].free(page.destroy(latched)) };
    }

    /// Returns the number of homes: nodes on which the tree's pages are.
    #[inline]
    pub(super) fn homes(&self) -> usize {
        self.homes
    }

    /// Returns how many copies a page may have.
    fn copies(&self) -> usize {
        if self.has_copies() { self.homes } else { 0 }
    }

    /// Returns the index of this thread's home.
    #[inline]
    pub(super) fn node(&self) -> usize {
        let last = self.homes - 1;
        if last == 0 { 0 } else { self.topology.node_of_current().min(last) }
    }

    /// Retires a removed page: it is freed when no reader can access it.
    pub(super) fn retire(&self, page: Page<'_, F, P>, guard: &Guard<'_>) {
        unsafe fn reclaim<F: SlotForm, P: Policy>(page: *mut (), tree: *mut ()) {
            // SAFETY: RCU calls this once, when no reader is left and before the tree is dropped. The tree does not
            // move. Copies can be reached only through their source.
            unsafe {
                let tree = &*tree.cast_const().cast::<Tree<F, P>>();
                let page = Page::<F, P>::from_address(NonNull::new_unchecked(page.cast()));
                page.each_copy().for_each(|copy| tree.free_copy(copy));
                tree.free(page, page.has_latch());
                tree.retired.fetch_sub(1, Relaxed);
            }
        }
        let tree = core::ptr::from_ref(self).cast_mut().cast();
        self.retired.fetch_add(1, Relaxed);
        // SAFETY: the page was unlinked before its latch was released, and the thread that made it obsolete retires it,
        // once.
        unsafe { guard.retire_sized(page.address().as_ptr().cast(), P::PAGE, tree, reclaim::<F, P>) }
    }

    /// Returns the number of bytes of memory held for pages, without those that wait for readers.
    pub(super) fn bytes(&self) -> usize {
        let held: usize = self.arenas.iter().map(BlockArena::bytes_held).sum();
        held.saturating_sub(self.retired.load(Relaxed) * P::PAGE)
    }

    /// Returns how many bytes of this thread's node's arena are free for leaves.
    pub(super) fn spare(&self) -> usize {
        let bare = if Page::<F, P>::is_latched(0) { 0 } else { self.homes };
        self.arenas[bare + self.node()].bytes_spare()
    }

    /// Returns the number of pages, including those whose memory is not free yet.
    pub(super) fn pages(&self) -> usize {
        self.arenas.iter().map(BlockArena::blocks_live).sum()
    }

    /// Calls `each` with all pages, while no other thread uses the tree. In a child process (after a `fork`), a page
    /// may be latched by a thread of the parent. Such a page and all pages below it are skipped, and leak.
    fn each_page(&self, mut each: impl FnMut(Page<'_, F, P>)) {
        // SAFETY: the root lives as long as the tree.
        let mut pages = vec![unsafe { Page::<F, P>::from_address(self.root) }];
        while let Some(page) = pages.pop() {
            if page.latch().read().is_none() {
                continue;
            }
            for slot in 0..if page.level() > 0 { page.len() } else { 0 } {
                let child = page.child(slot).expect("an inner page's entries are pages");
                // SAFETY: an unlatched page's children are in the tree.
                pages.push(unsafe { Page::from_address(child) });
            }
            each(page);
        }
    }

    /// Calls `each` with each value word, while no other thread uses the tree.
    pub(super) fn show_words(&self, mut each: impl FnMut(u64)) {
        self.each_page(|page| {
            if page.level() == 0 {
                (0..page.len()).for_each(|slot| each(page.value(slot).load(Acquire)));
            }
        });
    }
}

impl<F: SlotForm, P: Policy> Drop for Tree<F, P> {
    fn drop(&mut self) {
        if core::mem::needs_drop::<P::Latch>() {
            // SAFETY: the tree is owned, and each page is shown once. The arenas free the blocks.
            self.each_page(|page| _ = unsafe { page.destroy(page.has_latch() || page.address() == self.root) });
        }
    }
}
