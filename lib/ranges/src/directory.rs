//! The directory, which maps a point to its leaf. It has two levels of sorted arrays: a root, and *chunks* of leaves. A
//! change replaces a chunk in the root's slot, or the root; the sorted arrays themselves never change.
//!
//! # Invariants
//! 1. The leaves of a directory cover all points from [`Point::MIN`] to [`Point::MAX`], without gaps and overlaps.
//! 2. Each change is one store, of a chunk or of the root, so it replaces all its leaves at one moment.
//!
//! # Which leaf a look-up finds
//! A look-up finds a leaf that was in the directory at some moment of the look-up. The root was current when it was
//! loaded; call this moment *a*. The look-up then loads a chunk from the root. If the root is still in the directory,
//! the chunk is current when it is loaded. If the root has been replaced since, the chunk was current at the moment of
//! the replacement, which is after *a*. So the leaf was in the directory at *a* or later. If the leaf is replaced
//! before its block is loaded, its block does not change after the replacement ([`leaf`](crate::leaf)). So at some
//! moment of the look-up, the loaded block was the map's content for the leaf's points.
//!
//! # Why all threads agree on these moments
//! The stores of roots, chunks and blocks, and the loads of look-ups, are sequentially consistent: they have one order,
//! which is that of the moments. Release and Acquire would not suffice, since a session enters RCU only once. Of two
//! threads that each change a range and then look up the other's, both could miss the other's change; and two threads
//! could see two changes in different orders. The loads cost what Acquire loads cost (on x86-64 and on Armv8 without
//! RCpc the instruction is the same), and the stores are exchanges, or rare.

use archipelago_platform::atomic::{AtomicPtr, Ordering};
use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_platform::touch;
use archipelago_sync::rcu::Guard;

use crate::block::Block;
use crate::leaf::Leaf;
use crate::point::Point;
use crate::replaced::Replaced;

/// The most leaves of a chunk. A change copies one chunk.
const WIDTH: usize = if cfg!(loom) {
    2
} else if cfg!(any(miri, archipelago_sim)) {
    4
} else {
    128
};

struct Chunk<K, V> {
    lows: Box<[K]>,
    leaves: Box<[*mut Leaf<K, V>]>,
}

struct Root<K, V> {
    lows: Box<[K]>,
    chunks: Box<[AtomicPtr<Chunk<K, V>>]>,
}

pub(crate) struct Directory<K, V> {
    root: AtomicPtr<Root<K, V>>,
    /// The lock that a thread holds while it changes the directory.
    shape: Mutex<()>,
    owns: core::marker::PhantomData<Leaf<K, V>>,
}

// SAFETY: the directory owns its leaves, and hands out only shared references to them and to values.
unsafe impl<K: Point, V: Send + Sync + 'static> Send for Directory<K, V> {}
// SAFETY: as above.
unsafe impl<K: Point, V: Send + Sync + 'static> Sync for Directory<K, V> {}

/// Returns the index of the last element of `lows` that is not above `point`. The first element must not be above
/// `point`.
#[inline]
fn place<K: Point>(lows: &[K], point: K) -> usize {
    touch(lows.as_ptr(), size_of_val(lows));
    lows.partition_point(|low| *low <= point) - 1
}

impl<K: Point, V: 'static> Chunk<K, V> {
    fn new(leaves: &[*mut Leaf<K, V>]) -> *mut Self {
        // SAFETY: these are leaves of the directory, or leaves that are about to be added.
        let lows = leaves.iter().map(|leaf| unsafe { (**leaf).low() }).collect();
        Box::into_raw(Box::new(Self { lows, leaves: leaves.into() }))
    }
}

impl<K: Point, V: 'static> Root<K, V> {
    fn new(chunks: Vec<*mut Chunk<K, V>>) -> *mut Self {
        // SAFETY: these are chunks of the directory, or chunks that are about to be added.
        let lows = chunks.iter().map(|chunk| unsafe { (&(**chunk).lows)[0] }).collect();
        let chunks = chunks.into_iter().map(AtomicPtr::new).collect();
        Box::into_raw(Box::new(Self { lows, chunks }))
    }
}

impl<K: Point, V: 'static> Directory<K, V> {
    /// Makes a directory with one empty leaf.
    pub(crate) fn new() -> Self {
        let leaf = Box::into_raw(Box::new(Leaf::new(K::MIN, K::MAX, Block::new())));
        let root = AtomicPtr::new(Root::new(vec![Chunk::new(&[leaf])]));
        Self { root, shape: Mutex::new(()), owns: core::marker::PhantomData }
    }

    #[inline]
    fn root<'g>(&self, _guard: &'g Guard<'_>) -> &'g Root<K, V> {
        // SAFETY: the root is never null, and a replaced root is retired, so it lives as long as the guard.
        unsafe { &*self.root.load(Ordering::SeqCst) }
    }

    /// Returns a leaf that contained `point` at some moment of the call: see the module's documentation. The guard must
    /// be of the map's RCU domain.
    #[inline]
    pub(crate) fn find<'g>(&self, guard: &'g Guard<'_>, point: K) -> &'g Leaf<K, V> {
        let root = self.root(guard);
        let slot = &root.chunks[place(&root.lows, point)];
        // SAFETY: as for the root: replaced chunks and leaves are retired, too.
        let chunk = unsafe { &*slot.load(Ordering::SeqCst) };
        let leaf = &chunk.leaves[place(&chunk.lows, point)];
        touch(leaf, size_of_val(leaf));
        // SAFETY: as above.
        unsafe { &**leaf }
    }

    /// Checks that leaves are consecutive, and that the ranges of each leaf are within its bounds. Returns the number
    /// of leaves.
    pub(crate) fn check(&self, guard: &Guard<'_>) -> usize {
        let (mut low, mut leaves) = (K::MIN, 0);
        while leaves == 0 || low < K::MAX {
            let leaf = self.find(guard, low);
            let block = leaf.block(guard);
            assert_eq!(leaf.low(), low);
            assert!(block.starts().first().is_none_or(|start| *start >= low));
            assert!(block.ends().last().is_none_or(|end| *end <= leaf.high()));
            (low, leaves) = (leaf.high(), leaves + 1);
        }
        leaves
    }

    /// Replaces `old`, consecutive leaves that the caller has locked, by `new`. The new leaves must begin and end at
    /// the same points as the old ones.
    pub(crate) fn replace(&self, guard: &Guard<'_>, old: &[&Leaf<K, V>], new: Vec<Leaf<K, V>>) -> Replaced {
        debug_assert!(old[0].low() == new[0].low() && old[old.len() - 1].high() == new[new.len() - 1].high());
        old.iter().for_each(|leaf| leaf.die());
        let new = new.into_iter().map(|leaf| Box::into_raw(Box::new(leaf))).collect();
        let _lock = self.lock_shape();
        self.replace_locked(guard, old, new)
    }

    /// Locks the directory. The data of a poisoned lock is valid: each change is published by one store, so a panic
    /// leaves no partial change.
    fn lock_shape(&self) -> MutexGuard<'_, ()> {
        self.shape.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn replace_locked(&self, guard: &Guard<'_>, old: &[&Leaf<K, V>], new: Vec<*mut Leaf<K, V>>) -> Replaced {
        let root = self.root(guard);
        let first = place(&root.lows, old[0].low());
        let mut last = place(&root.lows, old[old.len() - 1].low());
        // SAFETY: these are the directory's chunks, which no other thread changes while this thread holds the lock.
        let chunk = |at: usize| unsafe { &*root.chunks[at].load(Ordering::Relaxed) };
        let mut leaves: Vec<_> = (first..=last).flat_map(|at| chunk(at).leaves.iter().copied()).collect();
        let from = place(&chunk(first).lows, old[0].low());
        // These are the original pointers, not pointers made from references, since they are converted back to boxes.
        let gone: Vec<_> = leaves.splice(from..from + old.len(), new).collect();
        // A chunk that has become small is merged with the next one.
        if leaves.len() < WIDTH / 4 && last + 1 < root.chunks.len() {
            last += 1;
            leaves.extend_from_slice(&chunk(last).leaves);
        }
        let old: Vec<_> = root.chunks[first + 1..=last].iter().map(|chunk| chunk.load(Ordering::Relaxed)).collect();
        // SAFETY: the chunk is unlinked below, under the lock, and was made by `Box::new`. The same is true of the
        // other boxes that are pushed.
        let mut replaced = unsafe { Replaced::new(root.chunks[first].load(Ordering::Relaxed)) };
        if first == last && leaves.len() <= WIDTH {
            // SeqCst: see the module's documentation. Pairs with the load in `find`.
            root.chunks[first].store(Chunk::new(&leaves), Ordering::SeqCst);
        } else {
            let parts = leaves.len().div_ceil(WIDTH);
            let chunks = leaves.chunks(leaves.len().div_ceil(parts)).map(Chunk::new).collect::<Vec<_>>();
            let mut all: Vec<_> = root.chunks.iter().map(|chunk| chunk.load(Ordering::Relaxed)).collect();
            all.splice(first..=last, chunks);
            // As above. Pairs with the load in `root`.
            let old_root = self.root.swap(Root::new(all), Ordering::SeqCst);
            // SAFETY: as above.
            unsafe { replaced.push(old_root) };
        }
        // SAFETY: the leaves were unlinked by the store above, by the thread that owns them, and were made by
        // `Box::new`.
        gone.into_iter().for_each(|leaf| unsafe { replaced.push(leaf) });
        // SAFETY: as above.
        old.into_iter().for_each(|chunk| unsafe { replaced.push(chunk) });
        replaced
    }
}

impl<K, V> Drop for Directory<K, V> {
    fn drop(&mut self) {
        // SAFETY: the map is being dropped: no other thread uses it, and chunks and leaves in the directory have not
        // been retired.
        unsafe {
            let root = Box::from_raw(self.root.load(Ordering::Relaxed));
            for chunk in root.chunks {
                let chunk = Box::from_raw(chunk.load(Ordering::Relaxed));
                chunk.leaves.iter().for_each(|leaf| drop(Box::from_raw(*leaf)));
            }
        }
    }
}
