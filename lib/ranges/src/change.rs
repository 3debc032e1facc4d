//! Changes. A change locks the leaves of its window (the range of points that it changes) in ascending order, makes new
//! blocks or leaves, and publishes them by one store.
//!
//! # Why it cannot deadlock
//! A thread locks leaves in ascending order of their low ends, and the directory's lock after all leaves. Users' code
//! (`Clone`, `Eq`, the closure of `change`) runs while leaves are locked. So a thread that is in a change must not
//! begin another change, of this map or of another one ([`Changing`] panics). While the thread is in a change, its
//! look-ups over several leaves do not wait for locks.
//!
//! # Why a change is atomic
//! A change of one leaf stores a new block in the leaf. In a change of several leaves, the directory replaces all of
//! them by one store, and the old leaves stay locked until this store. Replaced blocks are retired after the leaves
//! have been unlocked, since a retirement may run users' destructors. For the same reason unused clones of values are
//! dropped after the leaves have been unlocked, even if the change panics: users' values and builders are declared
//! before [`Held`], and so are dropped after it.

use core::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use archipelago_sync::rcu::Guard;

use core::cell::Cell;

use archipelago_platform::thread;

use crate::block::{Block, Blocks, CAPACITY, Making};
use crate::directory::Directory;
use crate::leaf::Leaf;
use crate::point::Point;
use crate::replaced::Replaced;

#[cfg(not(loom))]
thread::thread_local! {
    /// Whether this thread is in a change.
    static CHANGING: Cell<bool> = const { Cell::new(false) };
}
#[cfg(loom)]
thread::thread_local! {
    static CHANGING: Cell<bool> = Cell::new(false);
}

/// Marks this thread as being in a change.
struct Changing(());

impl Changing {
    /// # Panics
    /// If the thread already is in a change.
    fn begin() -> Self {
        assert!(
            !CHANGING.with(|changing| changing.replace(true)),
            "a RangeMap is changed from inside a change of a RangeMap: change it afterwards"
        );
        Self(())
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        CHANGING.with(|changing| changing.set(false));
    }
}

/// Returns whether this thread is in a change.
pub(crate) fn is_changing() -> bool {
    CHANGING.with(Cell::get)
}

/// Consecutive leaves that this thread has locked.
pub(crate) struct Held<'g, K: Point, V: 'static>(Vec<&'g Leaf<K, V>>);

impl<'g, K: Point, V: 'static> Held<'g, K, V> {
    /// Locks the leaves of all points from `first` to `last`.
    pub(crate) fn lock(directory: &Directory<K, V>, guard: &'g Guard<'_>, first: K, last: K) -> Self {
        let mut held = Self(Vec::with_capacity(2));
        held.lock_next(directory, guard, first);
        while held.high() <= last && held.high() < K::MAX {
            let next = held.high();
            held.lock_next(directory, guard, next);
        }
        held
    }

    /// Locks the leaf that contains `point`, adds it to the held leaves, and returns it. Each retry follows a change of
    /// another thread that has replaced the leaf meanwhile; a look-up replaces none.
    pub(crate) fn lock_next(&mut self, directory: &Directory<K, V>, guard: &'g Guard<'_>, point: K) -> &'g Leaf<K, V> {
        loop {
            let leaf = directory.find(guard, point);
            leaf.lock();
            if !leaf.is_dead() {
                debug_assert!(self.0.is_empty() || self.high() == leaf.low());
                self.0.push(leaf);
                return leaf;
            }
            // SAFETY: locked above.
            unsafe { leaf.unlock() };
        }
    }

    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    fn high(&self) -> K {
        self.0[self.0.len() - 1].high()
    }

    /// Returns the ranges, ascending.
    pub(crate) fn entries(&self, guard: &'g Guard<'_>) -> impl Iterator<Item = (Range<K>, &'g V)> {
        self.0.iter().flat_map(|leaf| leaf.block(guard).entries())
    }

    /// Returns the ranges that overlap a window, ascending.
    pub(crate) fn overlapping(
        &self,
        guard: &'g Guard<'_>,
        window: Range<K>,
    ) -> impl Iterator<Item = (Range<K>, &'g V)> {
        self.0.iter().flat_map(move |leaf| {
            let block = leaf.block(guard);
            block.overlapping(&window).map(|place| (block.range(place), block.value(place)))
        })
    }

    /// Replaces all ranges of the held leaves by those of `blocks`. `rises` is a hint that the next insertion will be
    /// above these ranges.
    fn publish(&self, directory: &Directory<K, V>, guard: &Guard<'_>, blocks: Blocks<K, V>, rises: bool) -> Replaced
    where
        V: Eq,
    {
        let blocks = match (&self.0[..], blocks.into_one()) {
            ([leaf], Ok(block)) => return leaf.store(block),
            (_, Ok(block)) => vec![block],
            (_, Err(blocks)) => blocks.into_all(!rises),
        };
        directory.replace(guard, &self.0, self.cut(blocks))
    }

    /// Makes leaves of these blocks. Each leaf ends where the first range of the next one begins.
    fn cut(&self, blocks: Vec<Box<Block<K, V>>>) -> Vec<Leaf<K, V>> {
        let ends: Vec<K> = blocks[1..].iter().map(|block| block.starts()[0]).chain([self.high()]).collect();
        let mut low = self.0[0].low();
        let leaf = |(block, high)| Leaf::new(core::mem::replace(&mut low, high), high, block);
        blocks.into_iter().zip(ends).map(leaf).collect()
    }
}

impl<K: Point, V: 'static> Drop for Held<'_, K, V> {
    fn drop(&mut self) {
        // SAFETY: `lock_next` has locked the leaves, and they are unlocked only here.
        self.0.iter().for_each(|leaf| unsafe { leaf.unlock() });
    }
}

/// Adds to a builder, in ascending order: the parts of old ranges outside `window`, unchanged; the parts inside, with
/// the value that `inside` returns, or nothing if it returns `None`; and, above these parts, `window` itself with the
/// value `fill`, if given. With a `fill`, `inside` must return `None`.
pub(crate) fn rewrite<'v, K: Point, V: Clone + Eq + 'static>(
    old: impl Iterator<Item = (Range<K>, &'v V)>,
    new: &mut Making<K, V>,
    window: Range<K>,
    inside: &mut impl FnMut(Range<K>, &V) -> Option<V>,
    fill: &mut Option<V>,
) {
    for (range, value) in old {
        if range.start < window.start {
            new.push(range.start..range.end.min(window.start), value.clone());
        }
        let shared = range.start.max(window.start)..range.end.min(window.end);
        if shared.start < shared.end
            && let Some(value) = inside(shared.clone(), value)
        {
            new.push(shared, value);
        }
        if range.end > window.end {
            if let Some(fill) = fill.take() {
                new.push(window.clone(), fill);
            }
            new.push(range.start.max(window.end)..range.end, value.clone());
        }
    }
    if let Some(fill) = fill.take() {
        new.push(window, fill);
    }
}

impl<K: Point, V: Clone + Eq + 'static> Directory<K, V> {
    /// Replaces the ranges around `window` by those that `edit` adds to the builder. If `edit` returns an error,
    /// nothing changes. The leaves of neighbours that touch the window are locked, too, since the neighbours may be
    /// joined to ranges inside.
    pub(crate) fn edit<R>(
        &self,
        guard: &Guard<'_>,
        window: Range<K>,
        edit: impl FnOnce(&Held<'_, K, V>, &Guard<'_>, &mut Making<K, V>) -> Result<(), R>,
    ) -> Result<(), R> {
        let mut new = Making::new();
        let changing = Changing::begin();
        let held = Held::lock(self, guard, window.start.before(), window.end);
        let low = held.0[0].low();
        let before = held.entries(guard).count();
        edit(&held, guard, &mut new)?;
        let blocks = new.take();
        let after = blocks.len();
        let rises = blocks.end() == Some(window.end);
        let replaced = held.publish(self, guard, blocks, rises);
        drop((held, changing));
        replaced.retire(guard);
        if after < before && after <= CAPACITY / 4 {
            self.merge(guard, low);
            // If ranges are removed in ascending order, the next leaf is still full, and the previous one is small.
            if low > K::MIN {
                self.merge(guard, low.before());
            }
        }
        Ok(())
    }

    /// Merges the leaf that contains `point` with the next one, if both together have few ranges. If a value's `clone`
    /// panics, the panic is caught and the leaves stay separate, since the change that precedes the merge has already
    /// taken effect.
    fn merge(&self, guard: &Guard<'_>, point: K) {
        let mut new = Making::new();
        let changing = Changing::begin();
        let mut held = Held::none();
        let high = held.lock_next(self, guard, point).high();
        if high == K::MAX {
            return;
        }
        held.lock_next(self, guard, high);
        if held.entries(guard).count() > CAPACITY / 2 {
            return;
        }
        let copy = || held.entries(guard).for_each(|(range, value)| new.push(range, value.clone()));
        if let Err(payload) = catch_unwind(AssertUnwindSafe(copy)) {
            // The payload is leaked: its destructor is users' code, may panic, and must not run while leaves are
            // locked.
            core::mem::forget(payload);
            return;
        }
        let replaced = held.publish(self, guard, new.take(), false);
        drop((held, changing));
        replaced.retire(guard);
    }
}
