//! Changes: the leaves of a window are locked from left to right, their ranges written anew, and what is new is published by
//! one store.
//!
//! # Why it cannot deadlock
//! A thread locks leaves in ascending order of their low ends, and the directory's lock after all leaves. Users' code runs
//! under locks of leaves (`Clone`, `Eq`, the closure of `change`), so a thread does not begin a change inside of a change, of
//! this map or another ([`Changing`]), and a look at several leaves waits for none while its thread is in one.
//!
//! # Why a change is atomic
//! What it changes lies in one leaf whose block is stored, or in leaves that the directory replaces by one store.
//! In between, its leaves are locked. What it replaces is retired, and so users' destructors run, after they have been
//! unlocked; so do those of values that were cloned for nothing, whether the change is done or panics: what users gave and what
//! is in the making is older than [`Held`], and outlives it.

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

thread::thread_local! {
    /// Whether this thread is in a change.
    static CHANGING: Cell<bool> = const { Cell::new(false) };
}

/// A change of this thread.
struct Changing(());

impl Changing {
    /// # Panics
    /// If the thread is in one.
    fn begin() -> Self {
        assert!(
            !CHANGING.replace(true),
            "a RangeMap is changed from inside a change of a RangeMap: change it afterwards"
        );
        Self(())
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        CHANGING.set(false);
    }
}

/// Returns whether this thread is in a change.
pub(crate) fn is_changing() -> bool {
    CHANGING.get()
}

/// Leaves that this thread has locked, which follow one another.
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

    /// Locks the leaf of `point`.
    pub(crate) fn lock_next(&mut self, directory: &Directory<K, V>, guard: &'g Guard<'_>, point: K) -> &'g Leaf<K, V> {
        loop {
            let leaf = directory.find(guard, point);
            leaf.lock();
            if !leaf.is_dead() {
                debug_assert!(self.0.is_empty() || self.high() == leaf.low());
                self.0.push(leaf);
                return leaf;
            }
            leaf.unlock();
        }
    }

    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    fn high(&self) -> K {
        self.0[self.0.len() - 1].high()
    }

    /// The ranges, ascending.
    pub(crate) fn entries(&self, guard: &'g Guard<'_>) -> impl Iterator<Item = (Range<K>, &'g V)> {
        self.0.iter().flat_map(|leaf| leaf.block(guard).entries())
    }

    /// The ranges that overlap a window, ascending.
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

    /// Replaces all ranges by those of `blocks`. `rises`: what comes next will come behind them.
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

    /// Leaves of these blocks: each ends where the first range of the next one begins.
    fn cut(&self, blocks: Vec<Box<Block<K, V>>>) -> Vec<Leaf<K, V>> {
        let ends: Vec<K> = blocks[1..].iter().map(|block| block.starts()[0]).chain([self.high()]).collect();
        let mut low = self.0[0].low();
        let leaf = |(block, high)| Leaf::new(core::mem::replace(&mut low, high), high, block);
        blocks.into_iter().zip(ends).map(leaf).collect()
    }
}

impl<K: Point, V: 'static> Drop for Held<'_, K, V> {
    fn drop(&mut self) {
        self.0.iter().for_each(|leaf| leaf.unlock());
    }
}

/// Writes ranges anew: what lies in `window` is what `inside` makes of it, and then, if there is one, `fill`.
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
    /// Changes what lies in `window`, unless `refuse` says why not. Neighbours that touch the window are locked with it,
    /// since they may become one with what is inside.
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
        }
        Ok(())
    }

    /// Makes the leaf of `low` one with the next, if both have few ranges. If a value panics they stay two: what this comes after is
    /// done, and its caller is not to think otherwise.
    fn merge(&self, guard: &Guard<'_>, low: K) {
        let mut new = Making::new();
        let changing = Changing::begin();
        let mut held = Held::none();
        let high = held.lock_next(self, guard, low).high();
        if high == K::MAX {
            return;
        }
        held.lock_next(self, guard, high);
        if held.entries(guard).count() > CAPACITY / 2 {
            return;
        }
        let copy = || held.entries(guard).for_each(|(range, value)| new.push(range, value.clone()));
        if catch_unwind(AssertUnwindSafe(copy)).is_err() {
            return;
        }
        let replaced = held.publish(self, guard, new.take(), false);
        drop((held, changing));
        replaced.retire(guard);
    }
}
