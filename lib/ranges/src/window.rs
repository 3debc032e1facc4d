//! Atomic snapshots of several leaves, for the operations that read a window (a range of points).

use core::ops::ControlFlow;

use archipelago_sync::rcu::Guard;

use crate::block::Block;
use crate::change::{Held, is_changing};
use crate::directory::Directory;
use crate::leaf::Leaf;
use crate::point::Point;

/// The number of attempts without locks. The next attempt takes locks.
const TRIES: usize = if cfg!(loom) { 1 } else { 8 };

/// Leaves, with the block that was loaded from each.
type Seen<'g, K, V> = Vec<(&'g Leaf<K, V>, &'g Block<K, V>)>;

impl<K: Point, V: 'static> Directory<K, V> {
    /// Calls `visit` with each block and the point at which the block's leaf ends, until `visit` breaks or the last
    /// leaf was visited. The first block is that of the leaf that contains `from`. Returns the value that `visit` has
    /// built. If an attempt fails, the visits start again with a new value. The blocks were all in the map at one
    /// moment of the call.
    ///
    /// # Why the blocks are of one moment
    /// The blocks are looked up twice. If the second look-up finds other blocks or leaves, both look-ups are repeated.
    /// A replaced block or leaf does not become current again as long as the guard lives. So if both look-ups agree,
    /// each leaf was in the directory and had its block between the end of the first look-up and the beginning of the
    /// second. After [`TRIES`] attempts the leaves are locked during the look-up, and no second look-up is needed.
    pub(crate) fn look<'g, A: Default>(
        &self,
        guard: &'g Guard<'_>,
        from: K,
        visit: impl Fn(&mut A, &'g Block<K, V>, K) -> ControlFlow<()>,
    ) -> A {
        let mut tries = 0;
        // A thread that is in a change takes no lock here, since it already holds locks of leaves, perhaps of later
        // ones, and could deadlock.
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
            // A single block needs no second look-up.
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
