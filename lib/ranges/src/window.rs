//! Looking at several leaves at one moment.

use core::ops::ControlFlow;

use archipelago_sync::rcu::Guard;

use crate::block::Block;
use crate::change::{Held, is_changing};
use crate::directory::Directory;
use crate::leaf::Leaf;
use crate::point::Point;

/// Looks without locks, before a look takes them.
const TRIES: usize = 8;

/// Leaves, and the blocks that they were seen with.
type Seen<'g, K, V> = Vec<(&'g Leaf<K, V>, &'g Block<K, V>)>;

impl<K: Point, V: 'static> Directory<K, V> {
    /// Shows the blocks from the one of `from` on to `visit`, with the point where each one's leaf ends, until `visit` breaks.
    /// Returns what `visit` has gathered, of blocks that were the map's at one moment of the call.
    ///
    /// # Why
    /// The blocks are looked up twice, and are the same both times. A block that has been replaced does not come back as
    /// long as the guard lives, and neither does a leaf. So between the end of the first look and the begin of the second,
    /// each leaf was in the directory (it was later, and before) and held its block. After some tries the leaves are locked
    /// as they are looked at, and then there is nothing to look up twice.
    pub(crate) fn look<'g, A: Default>(
        &self,
        guard: &'g Guard<'_>,
        from: K,
        visit: impl Fn(&mut A, &'g Block<K, V>, K) -> ControlFlow<()>,
    ) -> A {
        let mut tries = 0;
        // In a change it takes no lock: its thread holds some, perhaps not in order.
        while tries < TRIES || is_changing() {
            tries += 1;
            let mut found = A::default();
            let mut seen: Seen<'g, K, V> = Vec::with_capacity(4);
            walk(
                from,
                |block, high| visit(&mut found, block, high),
                |point| {
                    let leaf = self.find(guard, point);
                    let block = leaf.block(guard);
                    seen.push((leaf, block));
                    (leaf, block)
                },
            );
            // One block is of one moment anyway.
            if seen.len() == 1 || self.still(guard, &seen) {
                return found;
            }
        }
        let (mut found, mut held) = (A::default(), Held::none());
        walk(
            from,
            |block, high| visit(&mut found, block, high),
            |point| {
                let leaf = held.lock_next(self, guard, point);
                (leaf, leaf.block(guard))
            },
        );
        found
    }

    fn still(&self, guard: &Guard<'_>, seen: &Seen<'_, K, V>) -> bool {
        seen.iter().all(|(leaf, block)| {
            let now = self.find(guard, leaf.low());
            core::ptr::eq(now, *leaf) && core::ptr::eq(now.block(guard), *block)
        })
    }
}

fn walk<'g, K: Point, V: 'static>(
    mut from: K,
    mut visit: impl FnMut(&'g Block<K, V>, K) -> ControlFlow<()>,
    mut next: impl FnMut(K) -> (&'g Leaf<K, V>, &'g Block<K, V>),
) {
    loop {
        let (leaf, block) = next(from);
        from = leaf.high();
        if visit(block, from).is_break() || from == K::MAX {
            return;
        }
    }
}
