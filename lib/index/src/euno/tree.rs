//! The inner levels of a B+tree: the search layer of [`EunoBTree`](super::EunoBTree), by which a walk finds the chunk
//! (leaf) of a key.
//!
//! An inner node has up to 62 separators ([`Size::KEYS`]), and one child more than separators: child `i` is for keys
//! from separator `i - 1` up to, and without, separator `i`. A separator is the `low` of the first chunk below the
//! child to its right. The root does not move: when it is full, its content moves to two new children, and when its
//! only child is an inner node, it takes over that child's content.
//!
//! # Invariants
//! 1. Each chunk of the list, except chunks that are just being added, removed or replaced, has exactly one link from a
//!    node of height 1. These links are in the list's order.
//! 2. Every node has at least one child. A root of a height above 1 has at least two children, except between the merge
//!    of its last two children and the step that takes over the merged child's content.
//! 3. Nodes change only under their locks, never in hardware transactions. So version validation protects readers of
//!    nodes even in maps whose chunks are changed by hardware transactions.
//!
//! The caller of [`add`](Index::add) and [`forget`](Index::forget) holds the lock of a chunk to the left of the added
//! or removed chunk. These methods find the path and the versions of its nodes. Then they lock, at these versions and
//! from the root downwards, the nodes that will change. If a node has changed, all are unlocked and the path is found
//! again. Threads that hold inner nodes wait only for nodes below them.

use super::chunk::Chunk;
use super::form::ChunkForm;
use super::held::Held;
use super::index::{Aim, Index, show_some};
use super::look::{Alone, AtVersion, Look, order, settled, walking};
use super::size::{Array, Size, Wide};
use super::waste::Waste;
use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};
use archipelago_platform::hint;
use archipelago_platform::memory::taken_by;
use archipelago_platform::pad::CachePadded;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::region::{Again, Link, Var, Versioned, Walk};
use archipelago_sync::version_lock::{Version, VersionLock};
use core::alloc::Layout;
use core::cmp::Ordering;
use core::marker::PhantomData;

/// The value of unused separators. It compares above all keys.
const NONE: u64 = u64::MAX;
/// The greatest height of a tree.
const HEIGHTS: usize = 16;

/// An inner node. A wide one has 1024 bytes if addresses have eight bytes.
#[repr(C, align(64))]
pub struct Inner<S: Size> {
    lock: VersionLock,
    /// The first word has the number of separators in its low half, and the node's height in the high half (1 if the
    /// children are chunks). The separators follow; unused ones are [`NONE`].
    words: S::Words,
    /// Links to inner nodes, or in nodes of height 1 to chunks.
    children: S::Children<Inner<S>>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Inner<Wide>>() == 1024);

// SAFETY: the page's words and links are plain fields.
unsafe impl<S: Size> Versioned for Inner<S> {
    const UNDER_LOCK_ONLY: bool = true;

    #[inline(always)]
    fn lock(&self) -> &VersionLock {
        &self.lock
    }
}

impl<S: Size> Inner<S> {
    /// A node is merged with a neighbour if it has fewer than `FEW` separators, and the merged node has at most `WELL`
    /// separators.
    const FEW: usize = S::KEYS / 4;
    const WELL: usize = S::KEYS * 3 / 4;

    fn new(height: usize) -> Box<Self> {
        Box::new(Self {
            lock: VersionLock::new(),
            words: Array::of(|at| Var::new(if at == 0 { (height as u64) << 32 } else { NONE })),
            // SAFETY: the target is null.
            children: Array::of(|_| unsafe { Link::new(core::ptr::null_mut()) }),
        })
    }

    /// Returns the number of bytes that a node takes.
    fn bytes() -> usize {
        taken_by(Layout::new::<Self>())
    }

    /// Prefetches the cache lines that a search reads, all at the same time.
    #[inline(always)]
    fn fetch(node: *const Self) {
        for line in 0..size_of::<Self>() / 64 {
            hint::prefetch_read(node.wrapping_byte_add(line * 64));
        }
    }

    /// Returns the number of separators and the height. They are not proven (validated), but within bounds.
    #[inline(always)]
    fn meta(&self, look: &impl Look) -> (usize, usize) {
        let meta = look.get(self.word(0));
        ((meta as u32 as usize).min(S::KEYS), (meta >> 32) as usize)
    }

    /// Returns the index of the child that leads to the goal.
    #[inline(always)]
    fn child<F: ChunkForm>(&self, look: &impl Look, count: usize, aim: Aim<F::Probe<'_>>) -> Result<usize, Again> {
        match aim {
            Aim::At(probe) => self.rank::<F>(look, count, probe, Ordering::is_le),
            Aim::Below(bound) => self.rank::<F>(look, count, bound, Ordering::is_lt),
            Aim::Last => Ok(count),
        }
    }

    /// Returns how many separators precede `key` in the sense of `before`.
    #[inline(always)]
    fn rank<F: ChunkForm>(
        &self,
        look: &impl Look,
        count: usize,
        key: F::Probe<'_>,
        before: impl Fn(Ordering) -> bool,
    ) -> Result<usize, Again> {
        let mut at = 0;
        // The number of steps is constant. A branch predictor could predict neither a number of steps that depends on
        // the number of separators nor the direction of a step.
        for step in (0..(S::KEYS + 2).next_power_of_two().trailing_zeros()).rev() {
            // The last word, like all unused separators, is `NONE`.
            let middle = at | 1 << step;
            if F::BOXED && middle > count {
                continue;
            }
            let below = before(order::<F>(look, look.get(self.word(middle.min(S::KEYS + 1))), key)?);
            at = core::hint::select_unpredictable(below, middle, at);
        }
        Ok(at.min(count))
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &Var {
        &self.words.as_ref()[at]
    }

    #[inline(always)]
    fn link(&self, at: usize) -> &Link<Self> {
        &self.children.as_ref()[at]
    }

    /// Returns the link at a position of a node of height 1.
    #[inline(always)]
    fn to_chunk(&self, at: usize) -> &Link<Chunk<S>> {
        // SAFETY: a link is an atomic pointer, with the same layout for all targets; in a node of height 1 the targets
        // are chunks.
        unsafe { &*core::ptr::from_ref(self.link(at)).cast() }
    }

    // ---- For the only thread that may change the node ------------------------------------------------------------

    fn count(&self) -> usize {
        self.meta(&Alone).0
    }

    fn height(&self) -> usize {
        self.meta(&Alone).1
    }

    fn set_meta(&self, count: usize, height: usize) {
        (count..self.count()).for_each(|at| self.key(at).set(NONE));
        self.word(0).set(count as u64 | (height as u64) << 32);
    }

    fn key(&self, at: usize) -> &Var {
        self.word(1 + at)
    }

    fn keys(&self, count: usize) -> &[Var] {
        &self.words.as_ref()[1..=count]
    }

    fn set_child(&self, at: usize, to: *mut Self) {
        // SAFETY: children are retired by RCU after no node links them any more.
        unsafe { self.link(at).publish(to) };
    }

    /// Adds a separator and the child to its right. The node has room.
    fn insert<F: ChunkForm>(&self, kept: u64, child: *mut Self) {
        let (count, height) = self.meta(&Alone);
        // SAFETY: the caller owns the separator.
        let at = settled(self.child::<F>(&Alone, count, Aim::At(unsafe { F::kept(kept) })));
        for from in (at..count).rev() {
            self.key(from + 1).set(self.key(from).load());
            self.set_child(from + 2, self.link(from + 1).load());
        }
        self.key(at).set(kept);
        self.set_child(at + 1, child);
        self.set_meta(count + 1, height);
    }

    /// Removes a separator and the child to its right. Returns the separator's word.
    fn remove(&self, at: usize) -> u64 {
        let (count, height) = self.meta(&Alone);
        let kept = self.key(at).load();
        for to in at..count - 1 {
            self.key(to).set(self.key(to + 1).load());
            self.set_child(to + 1, self.link(to + 2).load());
        }
        self.set_meta(count - 1, height);
        kept
    }

    /// Makes a node with the separators after separator `at`, and with the children on both sides of them.
    fn upper(&self, at: usize) -> Box<Self> {
        let (count, height) = self.meta(&Alone);
        let upper = Self::new(height);
        upper.append(None, self, at + 1..count);
        upper
    }

    /// Appends separators of another node and the children on both sides of them. They are appended after the separator
    /// `kept`; if `kept` is `None`, they become the node's only content.
    fn append(&self, kept: Option<u64>, from: &Self, keys: core::ops::Range<usize>) {
        let (mut count, height) = self.meta(&Alone);
        if let Some(kept) = kept {
            self.key(count).set(kept);
            count += 1;
        }
        self.set_child(count, from.link(keys.start).load());
        for at in keys {
            self.key(count).set(from.key(at).load());
            count += 1;
            self.set_child(count, from.link(at + 1).load());
        }
        self.set_meta(count, height);
    }

    /// Splits a full child. Returns the child for `key`.
    fn split_child<'a, F: ChunkForm>(&self, child: &'a Self, key: F::Probe<'_>) -> &'a Self {
        // If keys arrive in ascending order, this node stays full.
        // SAFETY: the word is a separator of a node that only this thread changes.
        let last = F::compare(unsafe { F::kept(child.key(S::KEYS - 1).load()) }, key).is_le();
        let middle = if last { S::KEYS - 1 } else { S::KEYS / 2 };
        let separator = child.key(middle).load();
        let right = Box::into_raw(child.upper(middle));
        child.set_meta(middle, child.height());
        self.insert::<F>(separator, right);
        // SAFETY: the word is a separator of a node that only this thread changes. The right node was just made, and no
        // other thread retires it meanwhile.
        let (kept, right) = unsafe { (F::kept(separator), &*right) };
        if F::compare(kept, key).is_le() { right } else { child }
    }

    /// Moves the content of a full root to two new children. Returns the child for `key`.
    fn deepen<F: ChunkForm>(&self, key: F::Probe<'_>) -> &Self {
        let (count, height) = self.meta(&Alone);
        let left = Self::new(height);
        left.append(None, self, 0..count);
        self.set_meta(0, height + 1);
        let left = Box::into_raw(left);
        self.set_child(0, left);
        // SAFETY: the node was just made, and no other thread passes the root, which is locked.
        self.split_child::<F>(unsafe { &*left }, key)
    }
}

/// A node on a path, with its version, its number of separators at that version, and the child that the path takes.
struct Step<'g, S: Size> {
    node: &'g Inner<S>,
    version: Version,
    count: usize,
    at: usize,
}

impl<'g, S: Size> Step<'g, S> {
    fn lock(&self) -> Result<Held<'g, Inner<S>>, Again> {
        Held::wait_at(self.node, self.version).ok_or(Again)
    }
}

/// The inner levels of a tree.
pub struct Levels<F: ChunkForm, S: Size> {
    root: Box<Inner<S>>,
    /// The number of nodes, not counting the root. It is not in the cache line of the root, which all walks read.
    nodes: CachePadded<AtomicUsize>,
    form: PhantomData<F>,
}

impl<F: ChunkForm, S: Size> Levels<F, S> {
    /// Returns the nodes from the root down to the node above the chunk for `key`, with their versions. Each node was a
    /// child of the previous node when its version was read. The caller holds a guard.
    fn path(&self, key: F::Probe<'_>) -> Result<Vec<Step<'_, S>>, Again> {
        let mut path: Vec<Step<'_, S>> = Vec::new();
        let mut node = &*self.root;
        loop {
            hint::point(crate::points::DOWN);
            let version = node.lock.read_unlocked().ok_or(Again)?;
            if let Some(above) = path.last() {
                // The proof shows that this node was linked when its version was read.
                AtVersion(&above.node.lock, above.version).prove()?;
            }
            let look = AtVersion(&node.lock, version);
            let (count, height) = node.meta(&look);
            let at = node.child::<F>(&look, count, Aim::At(key))?;
            let child = node.link(at).load();
            look.prove()?;
            path.push(Step { node, version, count, at });
            if height == 1 {
                return Ok(path);
            }
            // SAFETY: the pointers are proven, within the caller's guard.
            node = unsafe { &*child };
        }
    }

    fn try_add(&self, chunk: &Chunk<S>) -> Result<(), Again> {
        let key = chunk.low::<F>();
        let path = self.path(key)?;
        // All nodes of the path below the node at `from` are full, so they will be split.
        let from = path.iter().rposition(|step| step.count < S::KEYS).unwrap_or(0);
        let mut held = path[from..].iter().map(Step::lock).collect::<Result<Vec<_>, _>>()?;
        held.iter_mut().for_each(Held::change);
        let mut node = path[from].node;
        if path[from].count == S::KEYS {
            node = node.deepen::<F>(key);
        }
        for step in &path[from + 1..] {
            node = node.split_child::<F>(step.node, key);
        }
        node.insert::<F>(F::keep(key), core::ptr::from_ref(chunk).cast_mut().cast());
        // A split adds one node for each full node, and one more for the root.
        let full = path[from + 1..].len() + if path[from].count == S::KEYS { 2 } else { 0 };
        self.nodes.fetch_add(full, Relaxed);
        Ok(())
    }

    fn try_forget(&self, chunk: &Chunk<S>, waste: &mut Waste) -> Result<bool, Again> {
        let path = self.path(chunk.low::<F>())?;
        let last = path.last().ok_or(Again)?;
        let mut held = last.lock()?;
        debug_assert!(core::ptr::eq(held.to_chunk(last.at).load(), chunk), "a chunk has its place in the index");
        if last.at == 0 {
            return Ok(false);
        }
        waste.key(held.remove(last.at - 1));
        held.change();
        Ok(true)
    }

    fn try_replace(&self, old: &Chunk<S>, new: &Chunk<S>) -> Result<(), Again> {
        let path = self.path(new.low::<F>())?;
        let last = path.last().ok_or(Again)?;
        let mut held = last.lock()?;
        debug_assert!(core::ptr::eq(held.to_chunk(last.at).load(), old), "a chunk has its place in the index");
        held.set_child(last.at, core::ptr::from_ref(new).cast_mut().cast());
        held.change();
        Ok(())
    }

    /// Tries once to merge a node on the path to `key` that has few separators with its next or previous neighbour, or
    /// a root with its only child. Returns whether nodes were merged. Merges with the previous neighbour are needed if
    /// keys are removed in ascending order: then the next node is full, and the previous node has one empty chunk left.
    /// Without these merges, one empty chunk would stay in the list for each such node.
    fn try_compact(&self, key: F::Probe<'_>, waste: &mut Waste) -> Result<bool, Again> {
        let path = self.path(key)?;
        let root = &path[0];
        if root.count == 0 && path.len() > 1 {
            return self.lower_root(root, &path[1], waste);
        }
        let Some(low) = (1..path.len()).rev().find(|&at| path[at].count < Inner::<S>::FEW && path[at - 1].count > 0)
        else {
            return Ok(false);
        };
        let mut above = path[low - 1].lock()?;
        let (at, last) = (path[low - 1].at, above.count());
        for left in (at..last).take(1).chain(at.checked_sub(1)) {
            if self.try_join(&mut above, left, waste)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Merges a child of a locked node with the next child, if the two fit well. Returns whether they were merged.
    fn try_join(&self, above: &mut Held<'_, Inner<S>>, left: usize, waste: &mut Waste) -> Result<bool, Again> {
        // SAFETY: the children of a locked node are not retired under the caller's guard.
        let [left_node, right_node] = [left, left + 1].map(|at| unsafe { &*above.link(at).load() });
        let (Some(mut to), Some(from)) = (Held::try_now(left_node), Held::try_now(right_node)) else {
            return Err(Again);
        };
        if to.count() + from.count() + 1 > Inner::<S>::WELL {
            return Ok(false);
        }
        let separator = above.remove(left);
        to.append(Some(separator), &from, 0..from.count());
        above.change();
        to.change();
        self.let_go(from.page(), waste);
        from.gone();
        Ok(true)
    }

    fn let_go(&self, node: &Inner<S>, waste: &mut Waste) {
        self.nodes.fetch_sub(1, Relaxed);
        waste.page(node);
    }

    /// Returns whether the root has one child, which is an inner node. Another thread may be changing the root.
    fn has_only_child(&self) -> bool {
        let (count, height) = self.root.meta(&Alone);
        count == 0 && height > 1
    }

    fn lower_root(&self, root: &Step<'_, S>, only: &Step<'_, S>, waste: &mut Waste) -> Result<bool, Again> {
        hint::point(crate::points::LOWERED);
        let (mut root, child) = (root.lock()?, only.lock()?);
        root.set_meta(0, child.height());
        root.append(None, &child, 0..child.count());
        root.change();
        self.let_go(child.page(), waste);
        child.gone();
        Ok(true)
    }
}

impl<F: ChunkForm, S: Size> Index<F> for Levels<F, S> {
    type Size = S;

    const WHOLE: bool = true;

    fn new(first: *mut Chunk<S>) -> Self {
        let root = Inner::new(1);
        root.set_child(0, first.cast());
        Self { root, nodes: CachePadded::new(AtomicUsize::new(0)), form: PhantomData }
    }

    #[inline(always)]
    fn seek<'g>(
        &'g self,
        walk: &mut impl Walk<'g>,
        aim: Aim<F::Probe<'_>>,
        ahead: usize,
    ) -> Result<&'g Chunk<S>, Again> {
        let mut node = walk.enter(&*self.root)?;
        for _ in 0..HEIGHTS {
            let look = walking(walk);
            let (count, height) = node.meta(&look);
            let at = node.child::<F>(&look, count, aim)?;
            if height == 1 {
                if ahead > 0 {
                    // The address is not proven, but any address may be prefetched.
                    (at..=count.min(at + ahead)).for_each(|at| Chunk::fetch(node.to_chunk(at).load()));
                }
                let link = node.to_chunk(at);
                Chunk::fetch_tags(link.load());
                return walk.follow(link)?.ok_or(Again);
            }
            let link = node.link(at);
            Inner::fetch(link.load());
            node = walk.follow(link)?.ok_or(Again)?;
        }
        Err(Again)
    }

    fn add(&self, chunk: &Chunk<S>) {
        let backoff = Backoff::new();
        while self.try_add(chunk).is_err() {
            backoff.wait();
        }
    }

    fn forget(&self, chunk: &Chunk<S>, waste: &mut Waste) -> bool {
        let backoff = Backoff::new();
        loop {
            match self.try_forget(chunk, waste) {
                Ok(forgotten) => return forgotten,
                Err(Again) => backoff.wait(),
            }
        }
    }

    fn replace(&self, old: &Chunk<S>, new: &Chunk<S>, _: &mut Waste) {
        let backoff = Backoff::new();
        while self.try_replace(old, new).is_err() {
            backoff.wait();
        }
    }

    fn compact(&self, key: F::Probe<'_>, waste: &mut Waste) {
        let backoff = Backoff::new();
        loop {
            match self.try_compact(key, waste) {
                Ok(true) => {}
                // The other thread may be inserting, and then compacts nothing.
                Err(Again) if self.has_only_child() => backoff.wait(),
                // Other nodes that another thread is changing are compacted by that thread, or after the next removal.
                Ok(false) | Err(Again) => return,
            }
        }
    }

    fn cut(&self, count: usize, mut show: impl FnMut(F::Probe<'_>)) {
        let mut level: Vec<&Inner<S>> = vec![&self.root];
        loop {
            let (mut keys, mut below, mut deepest) = (Vec::new(), Vec::new(), false);
            for node in level {
                // A node that was just removed or is being changed is skipped, which makes the parts slightly less
                // equal.
                let Some(version) = node.lock.read_unlocked() else { continue };
                let look = AtVersion(&node.lock, version);
                let (separators, height) = node.meta(&look);
                let mut here: Vec<u64> = node.keys(separators).iter().map(|key| look.get(key)).collect();
                let children: Vec<_> = node.children.as_ref()[..=separators].iter().map(Link::load).collect();
                if look.prove().is_err() {
                    continue;
                }
                deepest |= height == 1;
                keys.append(&mut here);
                if height > 1 {
                    // SAFETY: the pointers are proven, within the caller's guard.
                    below.extend(children.into_iter().map(|child| unsafe { &*child }));
                }
            }
            if deepest || below.is_empty() || keys.len() >= count.saturating_mul(16) {
                return show_some::<F>(&keys, count, &mut show);
            }
            level = below;
        }
    }

    fn bytes(&self) -> usize {
        (1 + self.nodes.load(Relaxed)) * Inner::<S>::bytes()
    }

    fn check(&self, mut each: impl FnMut(*const Chunk<S>)) {
        fn visit<F: ChunkForm, S: Size>(
            node: &Inner<S>,
            is_root: bool,
            each: &mut impl FnMut(*const Chunk<S>),
        ) -> usize {
            let (count, height) = node.meta(&Alone);
            let none = &node.words.as_ref()[1 + count..];
            assert!(none.iter().all(|word| word.load() == NONE), "behind the separators is what no key is below");
            assert!(node.lock.read().is_some(), "nodes are neither locked nor obsolete");
            // SAFETY: the words are separators of a tree that no thread changes.
            let keys: Vec<_> = node.keys(count).iter().map(|key| unsafe { F::kept(key.load()) }).collect();
            assert!(keys.windows(2).all(|pair| F::compare(pair[0], pair[1]).is_lt()), "separators ascend");
            assert!(!is_root || height == 1 || count > 0, "a root above inner nodes has two children");
            let mut nodes = 1;
            for at in 0..=count {
                let separator = at.checked_sub(1).map(|at| keys[at]);
                if height == 1 {
                    let chunk = node.to_chunk(at).load();
                    // SAFETY: as above.
                    let low = unsafe { &*chunk }.low::<F>();
                    assert!(separator.is_none_or(|it| F::compare(it, low).is_eq()), "a separator is its chunk's bound");
                    each(chunk);
                } else {
                    // SAFETY: as above.
                    let child = unsafe { &*node.link(at).load() };
                    assert_eq!(child.height(), height - 1, "all chunks are equally deep");
                    nodes += visit::<F, S>(child, false, each);
                }
            }
            nodes
        }
        let nodes = visit::<F, S>(&self.root, true, &mut each);
        assert_eq!(self.bytes(), nodes * Inner::<S>::bytes(), "inner nodes take what was counted");
    }
}

impl<F: ChunkForm, S: Size> Drop for Levels<F, S> {
    fn drop(&mut self) {
        /// Frees everything below a node, and the node's separators.
        ///
        /// # Safety
        /// No thread may use the tree, now or later.
        unsafe fn free<F: ChunkForm, S: Size>(node: &Inner<S>) {
            let (count, height) = node.meta(&Alone);
            for key in node.keys(count) {
                // SAFETY: the caller guarantees the contract; each separator is stored once.
                unsafe { F::discard(key.load()) };
            }
            if height > 1 {
                for child in &node.children.as_ref()[..=count] {
                    // SAFETY: the caller guarantees the contract; each node is linked once.
                    unsafe {
                        let child = Box::from_raw(child.load());
                        free::<F, S>(&child);
                    }
                }
            }
        }
        // SAFETY: no other thread uses the tree.
        unsafe { free::<F, S>(&self.root) }
    }
}
