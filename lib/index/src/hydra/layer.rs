//! The search layer, which maps a key to a jump node (thesis §4.3.2). Each NUMA node has a replica (§4.3.5).
//!
//! A *jump node* is a page at or left of the key. Any such page is a correct answer, so a layer may be arbitrarily
//! stale. But it must never lead to a page right of the key, or to a page whose removal it has applied. A layer stores
//! a page under its *anchor*, the page's lowest possible key.
//!
//! Readers call [`Layer::jump`] at any time under a guard of the map's domain; [`Layer::apply`] is called by one
//! updater at a time.

use super::config::SearchLayerKind;
use super::oplog::{MergedLog, PagePtr};
use super::page::Page as _;
use super::snapshot::{self, Snapshot};
use crate::art::{RawArt, WriteSync};
use crate::hydra::HydraForm;
use archipelago_platform::atomic::{AtomicPtr, Ordering::*};
use archipelago_platform::hint;
use archipelago_platform::topology::NodeId;
use archipelago_platform::touch;
use archipelago_sync::rcu::Guard;
use archipelago_sync::version_lock::Look;
use core::ops::Bound;

/// A replica. (`repr(u8)` puts the kind first, in the cache line of the snapshot's pointer, which every look-up reads.)
#[repr(u8)]
pub(crate) enum Layer<F: HydraForm> {
    Snapshot(SnapshotLayer<F>),
    Art(ArtLayer<F>),
}

/// The pages behind a jump node, see [`Layer::jump_ahead`]. It is used under the guard under which it was made.
pub(super) struct Followers<'a, F: HydraForm>(Option<snapshot::Followers<'a, F, PagePtr<F>>>);

impl<F: HydraForm> Followers<'_, F> {
    /// Prefetches the next page. Returns whether there is one.
    #[inline]
    pub(super) fn prefetch(&mut self) -> bool {
        let page = self.pass();
        page.inspect(|page| F::Page::prefetch_all(page.0.as_ptr())).is_some()
    }

    /// Returns the next page.
    #[inline]
    pub(super) fn pass(&mut self) -> Option<PagePtr<F>> {
        self.0.as_mut().and_then(Iterator::next)
    }
}

impl<F: HydraForm> Layer<F> {
    /// Makes a replica whose memory prefers `node`, whichever thread updates it.
    pub(super) fn new(kind: SearchLayerKind, head: PagePtr<F>, node: Option<NodeId>) -> Self {
        match kind {
            SearchLayerKind::Snapshot => Self::Snapshot(SnapshotLayer::new(head, node)),
            SearchLayerKind::Art => Self::Art(ArtLayer::new(head)),
        }
    }

    /// Returns a page at or left of `key`.
    #[inline(always)]
    pub(super) fn jump(&self, guard: &Guard<'_>, key: F::Probe<'_>) -> PagePtr<F> {
        let _part = hint::part("search layer");
        match self {
            Self::Snapshot(layer) => layer.current().jump(key),
            Self::Art(layer) => layer.nearest(guard, Bound::Included(key)),
        }
    }

    /// Returns the page of the greatest anchor below `bound`, or of an anchor a little further left. Without a bound it
    /// is the page of the greatest anchor. The bound is not the least key.
    pub(super) fn jump_below(&self, guard: &Guard<'_>, bound: Option<F::Probe<'_>>) -> PagePtr<F> {
        let _part = hint::part("search layer");
        match self {
            Self::Snapshot(layer) => layer.current().jump_below(bound),
            Self::Art(layer) => layer.nearest(guard, bound.map_or(Bound::Unbounded, Bound::Excluded)),
        }
    }

    /// Prefetches the memory that [`Self::jump`] will read first.
    #[inline]
    pub(super) fn prefetch(&self, key: F::Probe<'_>) {
        if let Self::Snapshot(layer) = self {
            layer.current().prefetch(key);
        }
    }

    /// Returns the page to which [`Self::jump`] leads, and pages behind it, if they are cheap to find. The pages may be
    /// retired, except the first one: they are for prefetching only.
    #[inline]
    pub(super) fn jump_ahead(&self, guard: &Guard<'_>, key: F::Probe<'_>) -> (PagePtr<F>, Followers<'_, F>) {
        let _part = hint::part("search layer");
        match self {
            Self::Snapshot(layer) => {
                let (page, behind) = layer.current().jump_ahead(key);
                (page, Followers(Some(behind)))
            }
            Self::Art(layer) => (layer.nearest(guard, Bound::Included(key)), Followers(None)),
        }
    }

    /// Applies a round: first inserts, then removals of anchors that still lead to the removed page.
    pub(super) fn apply(&self, guard: &Guard<'_>, log: &MergedLog<F>) {
        match self {
            Self::Snapshot(layer) => layer.apply(guard, log),
            Self::Art(layer) => layer.apply(guard, log),
        }
    }
}

impl<F: HydraForm> Layer<F> {
    /// Returns the number of bytes of memory held, as far as it is known.
    pub(super) fn bytes(&self, _: &Guard<'_>) -> usize {
        match self {
            Self::Snapshot(layer) => layer.current().bytes(),
            Self::Art(layer) => layer.tree.bytes(),
        }
    }

    /// Returns the layer's pages in the order of their anchors. If the layer is a tree, this is at most `count` of the
    /// pages, with about equally many other pages between one and the next.
    pub(super) fn anchors(&self, guard: &Guard<'_>, count: usize) -> Vec<PagePtr<F>> {
        match self {
            Self::Snapshot(layer) => layer.current().entries().collect(),
            Self::Art(layer) => {
                let mut pages = Vec::new();
                layer.tree.cut(guard, count, |_, word| pages.push(ArtLayer::page(word)));
                pages
            }
        }
    }

    /// Checks, while no other thread uses the map, that every page to which a snapshot leads can be read and is not
    /// locked. Does nothing for a tree.
    pub(super) fn check(&self, _: &Guard<'_>) {
        let Self::Snapshot(layer) = self else { return };
        layer.current().entries().for_each(|page| {
            // SAFETY: a page to which a layer leads is not retired.
            let look = unsafe { page.0.as_ref() }.lock().look();
            assert!(look != Look::Locked, "pages are not locked at quiescence");
        });
    }
}

impl<F: HydraForm> snapshot::Target for PagePtr<F> {
    const STRIDE: usize = size_of::<F::Page>();

    fn addr(self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    #[inline(always)]
    unsafe fn at(addr: usize) -> Self {
        let page = core::ptr::with_exposed_provenance_mut(addr);
        // SAFETY: the caller guarantees that the address came from `addr`.
        Self(unsafe { core::ptr::NonNull::new_unchecked(page) })
    }
}

/// A read-mostly layer: an immutable snapshot, which every round that has changes replaces by a new one.
///
/// The thesis's radix tree changes in place, so its layout cannot be optimized for reading alone. But a layer may be
/// stale: look-ups are correct whether an anchor appears at once or a thousand splits later. So this layer is rebuilt
/// from sorted anchors, sequentially, into fresh memory.
pub(crate) struct SnapshotLayer<F: HydraForm> {
    current: AtomicPtr<Snapshot<F, PagePtr<F>>>,
}

impl<F: HydraForm> SnapshotLayer<F> {
    fn new(head: PagePtr<F>, node: Option<NodeId>) -> Self {
        Self { current: AtomicPtr::new(Box::into_raw(Box::new(Snapshot::build(node, head, &[])))) }
    }

    #[inline]
    fn current(&self) -> &Snapshot<F, PagePtr<F>> {
        // SAFETY: the pointer is never null; a replaced snapshot is retired to RCU, and the caller holds a guard.
        // Acquire pairs with the Release of the swap in `apply`.
        let current = unsafe { &*self.current.load(Acquire) };
        touch(current, size_of_val(current));
        current
    }

    fn apply(&self, guard: &Guard<'_>, log: &MergedLog<F>) {
        if log.inserts.is_empty() && log.removes.is_empty() {
            return;
        }
        // SAFETY: pages in logs are retired only after their round has been applied.
        let anchored = |page: &PagePtr<F>| unsafe { (page.anchor(), *page) };
        let inserts: Vec<_> = log.inserts.iter().map(anchored).collect();
        let removes: Vec<_> = log.removes.iter().map(anchored).collect();
        let next = self.current().merge(&inserts, &removes);
        let bytes = self.current().bytes();
        let old = self.current.swap(Box::into_raw(Box::new(next)), AcqRel);
        // SAFETY: the only updater has just unpublished the snapshot.
        unsafe { guard.retire_box_sized(old, bytes) };
    }
}

impl<F: HydraForm> Drop for SnapshotLayer<F> {
    fn drop(&mut self) {
        // SAFETY: the current snapshot is owned by the layer.
        drop(unsafe { Box::from_raw(self.current.load(Relaxed)) });
    }
}

/// The thesis's layer: an adaptive radix tree of anchors, changed in place under ROWEX.
pub(crate) struct ArtLayer<F: HydraForm> {
    tree: RawArt<F>,
    head: PagePtr<F>,
}

impl<F: HydraForm> ArtLayer<F> {
    fn new(head: PagePtr<F>) -> Self {
        // SAFETY: all guards that reach the layer are of the map's domain.
        Self { tree: unsafe { RawArt::new(WriteSync::Rowex) }, head }
    }

    #[inline(never)]
    fn nearest(&self, guard: &Guard<'_>, upper: Bound<F::Probe<'_>>) -> PagePtr<F> {
        self.tree.predecessor(upper, guard).map_or(self.head, Self::page)
    }

    fn apply(&self, guard: &Guard<'_>, log: &MergedLog<F>) {
        // SAFETY: pages in logs are retired only after their round has been applied.
        let with_anchor = |page: &PagePtr<F>, f: &dyn Fn(&[u8])| unsafe { F::with_bytes(page.anchor(), f) };
        for page in &log.inserts {
            with_anchor(page, &|anchor| {
                self.tree.insert(anchor, Self::word(*page), guard);
            });
        }
        for page in &log.removes {
            with_anchor(page, &|anchor| {
                self.tree.remove_if(anchor, Self::word(*page), guard);
            });
        }
    }

    fn word(page: PagePtr<F>) -> u64 {
        snapshot::Target::addr(page) as u64
    }

    fn page(word: u64) -> PagePtr<F> {
        // SAFETY: `word` has made all words of the tree.
        unsafe { snapshot::Target::at(word as usize) }
    }
}
