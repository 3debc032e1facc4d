//! Everything that a map owns: the data list's pages, the search layer's replicas, op logs, reclamation and
//! configuration.

use super::config::Config;
use super::layer::{Followers, Layer};
use super::oplog::{Op, OpKind, PagePtr, ThreadCell};
use super::page::{Page, Seen};
use super::shortcuts::Shortcuts;
use super::upkeep::Maintenance;
use crate::hydra::HydraForm;
use crate::limits::Limits;
use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use archipelago_platform::clock::OrderedClock;
use archipelago_platform::memory::{BlockArena, Sparse};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::sync::Weak;
use archipelago_platform::topology::NodeId;
use archipelago_sync::rcu::{Domain, Guard, Owner};
use core::alloc::Layout;
use core::ptr::NonNull;

/// The part of a map that does not depend on the types of its keys and values.
///
/// Field order is drop order: the domain first (its pending retirements free pages into the arenas), the arenas last.
pub struct Core<F: HydraForm> {
    pub(super) domain: Domain,
    /// The search layers, one per NUMA node, in node order. Each has its own cache lines, since one layer is replaced
    /// while other layers are read.
    pub(super) layers: Box<[CachePadded<Layer<F>>]>,
    pub(super) shortcuts: Shortcuts<F>,
    /// The number of pages retired so far. It is incremented before a retirement.
    retirements: CachePadded<AtomicU64>,
    pub(super) cells: PerThread<CachePadded<ThreadCell<F>>>,
    pub(super) maintenance: Maintenance<F>,
    pub(super) config: Config,
    pub(super) limits: Limits,
    /// A reference for background threads, which keep the core alive only while they work.
    pub(super) this: Weak<Self>,
    head: PagePtr<F>,
    /// The arenas, one per NUMA node, in node order. They are boxed, so that retired pages can refer to them by
    /// address.
    arenas: Box<Arenas>,
}

/// The page arenas of a map.
struct Arenas {
    of_nodes: Vec<BlockArena>,
    /// The number of bytes that the bounds of pages take outside these arenas.
    bounds: AtomicUsize,
}

/// An operation's context: its guard and node.
pub(crate) struct Local<'a, F: HydraForm> {
    pub guard: &'a Guard<'a>,
    pub node: usize,
    /// The node's search layer.
    pub layer: &'a Layer<F>,
}

impl<F: HydraForm> Local<'_, F> {
    /// Returns the jump node for `key`: a page at or left of it, according to this node's search layer.
    #[inline(always)]
    pub(crate) fn jump(&self, key: F::Probe<'_>) -> &F::Page {
        // SAFETY: a page is retired only after no layer leads to it. A page to which a layer leads now is protected by
        // the guard, which was entered before.
        unsafe { self.layer.jump(self.guard, key).0.as_ref() }
    }

    /// Returns the jump node for `key`, and the pages behind it.
    #[inline]
    pub(super) fn jump_ahead(&self, key: F::Probe<'_>) -> (&F::Page, Followers<'_, F>) {
        let (page, behind) = self.layer.jump_ahead(self.guard, key);
        // SAFETY: as in `jump`.
        (unsafe { page.0.as_ref() }, behind)
    }

    /// Returns a page whose `low` is below `bound`, or any page if there is no bound. `bound` must not be the least
    /// key.
    pub(crate) fn jump_below(&self, bound: Option<F::Probe<'_>>) -> &F::Page {
        // SAFETY: as in `jump`.
        unsafe { self.layer.jump_below(self.guard, bound).0.as_ref() }
    }
}

impl<F: HydraForm> Core<F> {
    pub(crate) fn new(config: Config, limits: Limits, this: Weak<Self>) -> Self {
        let nodes = config.topology.nodes().len().max(1);
        let place = |node| (nodes > 1).then_some(NodeId(node));
        let arena = |node| BlockArena::new(Layout::new::<F::Page>(), place(node));
        let arenas = Box::new(Arenas {
            of_nodes: (0..nodes).map(arena).collect(),
            bounds: AtomicUsize::new(F::bound_bytes(F::probe(&F::least()))),
        });
        let head = arenas.of_nodes[0].alloc().cast::<F::Page>();
        // SAFETY: the block is fresh, and has the page's layout.
        unsafe { F::Page::init(head.as_ptr(), F::probe(&F::least()), core::ptr::null()) };
        let head = PagePtr(head);
        Self {
            domain: limits.backlog.domain().tended_by(this.clone()),
            layers: (0..nodes)
                .map(|node| CachePadded::new(Layer::new(config.search_layer, head, place(node))))
                .collect(),
            shortcuts: Shortcuts::new(),
            retirements: CachePadded::new(AtomicU64::new(0)),
            cells: PerThread::new(),
            maintenance: Maintenance::new(nodes),
            config,
            limits,
            this,
            head,
            arenas,
        }
    }

    /// Returns the first page. It is never merged away.
    #[inline]
    pub(crate) fn head(&self) -> &F::Page {
        // SAFETY: the head lives as long as the map.
        unsafe { self.head.0.as_ref() }
    }

    /// Returns the cell of this thread's present slot. The caller must not store the reference, since a session may
    /// outlive its thread's slot.
    #[inline]
    pub(crate) fn cell(&self) -> &ThreadCell<F> {
        self.cells.get_or(archipelago_platform::thread::slot().index, || CachePadded::new(ThreadCell::new()))
    }

    /// Returns the data with which an operation under `guard` on `node` starts.
    pub(super) fn local_at<'a>(&'a self, guard: &'a Guard<'a>, node: usize) -> Local<'a, F> {
        Local { guard, node, layer: &self.layers[node] }
    }

    /// Closes, for allocation, the mostly free chunks (memory regions of up to 2 MiB) of sparse arenas. Returns the
    /// number of pages in closed chunks. See [`BlockArena::close_sparse`].
    pub(super) fn close_sparse(&self, sparse: Sparse) -> usize {
        self.arenas.of_nodes.iter().map(|arena| arena.close_sparse(sparse)).sum()
    }

    /// Returns whether any arena is sparse.
    pub(super) fn is_sparse(&self, sparse: Sparse) -> bool {
        self.arenas.of_nodes.iter().any(|arena| arena.is_sparse(sparse))
    }

    /// Returns the number of bytes of pages that are free on a node.
    pub(super) fn spare_bytes(&self, node: usize) -> usize {
        self.arenas.of_nodes[node].bytes_spare()
    }

    /// Closes all chunks.
    pub(super) fn close_all(&self) {
        self.arenas.of_nodes.iter().for_each(BlockArena::close_all);
    }

    /// Returns the node of a page, if the page is in a closed chunk.
    pub(super) fn closed_at(&self, page: &F::Page) -> Option<usize> {
        let block = NonNull::from(page).cast();
        self.arenas.of_nodes.iter().position(|arena| arena.is_closed(block))
    }

    /// Allocates a block for a page, on `node`.
    pub(super) fn allocate(&self, node: usize) -> NonNull<F::Page> {
        self.arenas.of_nodes[node].alloc().cast()
    }

    /// Frees a block that never became a page.
    ///
    /// # Safety
    /// The block must be from `allocate`, and unused, and no other thread may have access to it.
    pub(super) unsafe fn release_block(&self, block: NonNull<F::Page>) {
        // SAFETY: the caller guarantees the same contract.
        unsafe { self.arenas.free(block.cast()) }
    }

    /// Counts the bytes that a fresh page takes outside itself.
    pub(super) fn note_page(&self, page: &F::Page) {
        // Relaxed: a number, which orders nothing.
        self.arenas.bounds.fetch_add(F::bound_bytes(page.low()), Relaxed);
    }

    /// Retires an obsolete page to which no search layer leads any more.
    ///
    /// # Safety
    /// It must be called once per page. No search layer may lead to the page, or to a page that forwards to it.
    pub(super) unsafe fn retire_page(&self, guard: &Guard<'_>, page: PagePtr<F>) {
        unsafe fn reclaim<F: HydraForm>(page: *mut (), arenas: *mut ()) {
            let page = page.cast::<F::Page>();
            // SAFETY: RCU calls this once, when no reader is left, and before the arenas are dropped (field order).
            unsafe {
                let arenas = &*arenas.cast::<Arenas>();
                // Relaxed, as in `note_page`.
                arenas.bounds.fetch_sub(F::bound_bytes((*page).low()), Relaxed);
                F::Page::destroy(page);
                arenas.free(NonNull::new_unchecked(page.cast()));
            }
        }
        // Release, and before the retirement: a thread for whose guard RCU does not wait sees the new count.
        self.retirements.fetch_add(1, Release);
        let arenas = (&raw const *self.arenas).cast_mut().cast();
        // The page's memory belongs to the arena, which counts it until it is freed.
        // SAFETY: the caller guarantees that guards entered from now on cannot reach the page.
        unsafe { guard.retire(page.0.as_ptr().cast(), arenas, reclaim::<F>) }
    }

    /// Appends to this thread's op log, and returns the op's stamp. Called under the locks of the pages concerned.
    pub(super) fn log(&self, kind: OpKind, page: NonNull<F::Page>) -> u64 {
        let stamp = OrderedClock::shared().now();
        self.cell().append(Op { kind, page: PagePtr(page), stamp });
        stamp
    }

    /// Returns how many pages have been retired, for [`Finger`](super::oplog::Finger)s.
    #[inline]
    pub(super) fn retirements(&self) -> u64 {
        // Acquire pairs with the Release in `retire_page`: if a page that is read after this load is live, the loaded
        // count does not include its retirement.
        self.retirements.load(Acquire)
    }

    /// Returns the number of entries. It is exact while no thread changes the map.
    pub(crate) fn len(&self) -> usize {
        let sum: isize = self.cells.iter().map(|cell| cell.count()).sum();
        usize::try_from(sum).unwrap_or(0)
    }

    /// Returns the number of bytes that the keys of entries take outside pages, with [`len`](Self::len)'s consistency.
    pub(super) fn outside_bytes(&self) -> usize {
        let sum: isize = self.cells.iter().map(|cell| cell.outside()).sum();
        usize::try_from(sum).unwrap_or(0)
    }

    /// Returns the number of pages, including those whose memory is not free yet.
    pub(super) fn pages(&self) -> usize {
        self.arenas.of_nodes.iter().map(BlockArena::blocks_live).sum()
    }

    /// Returns the number of bytes of memory held for pages and their bounds.
    pub(super) fn page_bytes(&self) -> usize {
        let blocks: usize = self.arenas.of_nodes.iter().map(BlockArena::bytes_held).sum();
        blocks + self.arenas.bounds.load(Relaxed)
    }

    /// Returns the number of bytes of memory held for search layers and shortcuts.
    pub(super) fn layer_bytes(&self) -> usize {
        let guard = self.domain.pin();
        self.layers.iter().map(|layer| layer.bytes(&guard)).sum::<usize>() + self.shortcuts.bytes(&guard)
    }

    /// Calls `each` with every page of the list, while no other thread uses the map.
    pub(crate) fn for_each_page(&self, mut each: impl FnMut(&F::Page)) {
        let mut page: *const F::Page = self.head.0.as_ptr();
        while !page.is_null() {
            // SAFETY: no other thread is using the map, so live pages stay.
            let this = unsafe { &*page };
            let next = this.next();
            each(this);
            page = next;
        }
    }

    /// Checks every invariant of the list, the pages and the search layers. No other thread may use the map meanwhile.
    pub(crate) fn check_invariants(&self) {
        let mut entries = 0;
        // A background thread may be working: it changes pages only with this lock held.
        let _still = self.maintenance.hold_still();
        self.for_each_page(|page| {
            assert!(page.lock().read().is_some(), "live pages are neither locked nor obsolete");
            page.check();
            entries += page.len();
            let next = page.next();
            if !next.is_null() {
                // SAFETY: as in `for_each_page`.
                let next = unsafe { &*next };
                assert!(page.low() < next.low(), "anchors ascend");
                assert_eq!(page.is_beyond(next.low(), Seen::Held), Ok(true), "a page ends where the next begins");
                assert_eq!(page.ends_before(next.low(), Seen::Held), Ok(false), "a page ends where the next begins");
            }
        });
        assert_eq!(entries, self.len(), "the entry count is exact at quiescence");
        let guard = self.domain.pin();
        for layer in &self.layers {
            layer.check(&guard);
        }
    }
}

impl<F: HydraForm> Owner for Core<F> {
    fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl<F: HydraForm> Drop for Core<F> {
    fn drop(&mut self) {
        self.for_each_page(|page| {
            let page: *const F::Page = page;
            // SAFETY: the map is being dropped. Each live page is destroyed once here, and obsolete pages below or by
            // RCU.
            unsafe { F::Page::destroy(page.cast_mut()) };
        });
        for page in self.take_unretired() {
            // SAFETY: the page is obsolete, so it is not in the list; it is not yet retired to RCU.
            unsafe { F::Page::destroy(page.0.as_ptr()) };
        }
    }
}

impl Arenas {
    /// # Safety
    /// `block` must be from one of these arenas, and must not be used any more.
    unsafe fn free(&self, block: NonNull<u8>) {
        let owner = self.of_nodes.iter().find(|arena| self.of_nodes.len() == 1 || arena.owns(block));
        let owner = owner.expect("a page's block belongs to one of its map's arenas");
        // SAFETY: the caller guarantees the same contract.
        unsafe { owner.free(block) }
    }
}
