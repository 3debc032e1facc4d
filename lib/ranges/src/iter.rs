//! The iterator over ranges, which are stored in several blocks.

use core::fmt;
use core::iter::FusedIterator;
use core::ops::Range;

use crate::block::Block;
use crate::point::Point;

/// Ranges and their values, ascending, as they were at one moment: [`Pinned::overlapping`](crate::Pinned::overlapping).
pub struct Iter<'g, K, V> {
    blocks: Vec<&'g Block<K, V>>,
    /// The position of the next entry from the front: the block, and the index in the block. At most `back`.
    front: (usize, usize),
    /// The position after the next entry from the back.
    back: (usize, usize),
}

impl<'g, K: Point, V> Iter<'g, K, V> {
    /// Makes an iterator over the ranges of `blocks` that overlap `window`. Only the first and the last block may have
    /// ranges outside the window.
    pub(crate) fn new(blocks: Vec<&'g Block<K, V>>, window: Range<K>) -> Self {
        let last = blocks.len() - 1;
        let from = blocks[0].overlapping(&window).start;
        let to = blocks[last].overlapping(&window).end;
        // If the window is empty and the map has one block, `to` may be less than `from`.
        let to = if last == 0 { to.max(from) } else { to };
        Self { blocks, front: (0, from), back: (last, to) }
    }

    fn entry(&self, (block, place): (usize, usize)) -> (Range<K>, &'g V) {
        let block = self.blocks[block];
        (block.range(place), block.value(place))
    }
}

impl<'g, K: Point, V> Iterator for Iter<'g, K, V> {
    type Item = (Range<K>, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        while self.front < self.back {
            let at = self.front;
            if at.1 < self.blocks[at.0].len() {
                self.front.1 += 1;
                return Some(self.entry(at));
            }
            self.front = (at.0 + 1, 0);
        }
        None
    }
}

impl<K: Point, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        while self.front < self.back {
            match self.back {
                (block, 0) => self.back = (block - 1, self.blocks[block - 1].len()),
                (_, place) => {
                    self.back.1 = place - 1;
                    return Some(self.entry(self.back));
                }
            }
        }
        None
    }
}

impl<K: Point, V> FusedIterator for Iter<'_, K, V> {}

impl<K: Point, V: fmt::Debug> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}
