//! An interpolation trie: the position of a word among sorted anchors (the lowest keys of pages) is computed rather
//! than searched, and a look-up reads one cache line.
//!
//! A [`Node`] divides the span of its anchors into equal buckets, each with a [`Line`] (one cache line). A
//! multiplication gives a key's bucket, and its *place* (its position) within the bucket with 30 bits. A line has up to
//! seven anchors' places, and the eight pages between and around them. If a bucket has more than seven anchors (it is
//! *crowded*), or two anchors with the same place, its line leads to a node of its own, which covers only the span of
//! the bucket's anchors. So clustered keys cost one line more.
//!
//! The result is the page of the greatest anchor at or below the key, or the previous page: if keys below an anchor
//! have the anchor's place, then all keys with this place (even the anchor itself) count as below the anchor. (In
//! buckets narrower than 2^30 this does not happen.)
//!
//! Invariants: places within a line are strictly ascending, except for padding. An anchor's place is the least place
//! that no key below the anchor has. So a key at or above that place is at or above the anchor.

use archipelago_platform::memory::Array;
use archipelago_platform::touch;

/// The most anchors per line.
pub const ANCHORS: usize = 7;

/// The intended number of anchors per line. With three, one bucket in eighty is crowded.
const FILL: usize = 3;

/// The intended number for anchors that are so evenly distributed that hardly any bucket becomes crowded, such as those
/// of consecutive keys.
const EVEN_FILL: usize = 5;

/// If most anchors would be in crowded buckets, the anchors form clusters, and most buckets would be empty, between the
/// clusters. Then buckets for this many anchors each are made instead.
const CLUSTER: usize = 64;

/// The padding behind the places, which is greater than every place.
const PAD: i32 = i32::MAX;

/// The number of bits of a place.
const PLACE_BITS: u32 = 30;

/// The mark in the first word of `ids` of a line that leads to a node.
const MARK: u32 = 1 << 31;

/// Page numbers are less than this bound.
pub const MAX_ID: u32 = MARK;

/// A line of the trie, as the module's documentation describes it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Line {
    /// Seven places (none, if the line leads to a node), then the rank of the line's first page.
    places: [i32; 8],
    /// In a line of pages: the page before the first anchor, then one page per anchor. In a line that leads to a node:
    /// the marked fields of the node.
    ids: [u32; 8],
}

/// A node, which determines the line of a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Node {
    /// The least anchor.
    first: u64,
    /// Keys farther than this from `first` count as being at this distance.
    limit: u64,
    /// The factor that converts the distance from `first` into a position: a line number, and the place as its
    /// fraction.
    factor: u64,
    /// The number of the node's first line.
    start: u32,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The page's number.
    pub id: u32,
    /// The rank of the page: the number of anchors before it.
    pub rank: u32,
}

impl Node {
    /// Returns a node over `anchors` (at least one) with about one line per `share` of them, from line `start` on, and
    /// the number of lines.
    fn over(anchors: &[u64], share: usize, start: usize) -> (Self, usize) {
        let (first, last) = (anchors[0], anchors[anchors.len() - 1]);
        let span = last - first;
        // The node ends a little behind the last anchor, so that greater keys have other places than the last anchor.
        let limit = span.saturating_add(span / 256 + 1).min(u64::MAX - first).max(1);
        // There are at least two lines. So in a node for anchors that had the same place, the first and the last anchor
        // get different lines.
        let lines =
            anchors.len().div_ceil(share).max(2).min(usize::try_from(limit).unwrap_or(usize::MAX).saturating_add(1));
        // This is the greatest factor with which `limit` itself is in the last line. It is at least `lines`, so
        // rounding down leaves the last anchor in another line than the first one.
        let factor = ((((lines as u128) << 64) - 1) / u128::from(limit)).min(u128::from(u64::MAX));
        (Self { first, limit, factor: factor as u64, start: start as u32 }, lines)
    }

    /// Returns a key's line and place. They do not decrease if the key increases. The key must be at least `first`.
    #[inline(always)]
    fn place(&self, key: u64) -> (usize, i32) {
        let distance = (key - self.first).min(self.limit);
        let position = u128::from(distance) * u128::from(self.factor);
        (self.start as usize + (position >> 64) as usize, (position as u64 >> (64 - PLACE_BITS)) as i32)
    }

    /// Returns an anchor's line and place, see the module's invariants.
    fn place_of_anchor(&self, anchor: u64) -> (usize, i32) {
        let (line, place) = self.place(anchor);
        let shared = anchor > self.first && self.place(anchor - 1) == (line, place);
        (line, place + i32::from(shared))
    }
}

impl Line {
    fn leaf(places: [i32; ANCHORS], rank: usize, ids: [u32; 8]) -> Self {
        let mut line = Self { places: [PAD; 8], ids };
        line.places[..ANCHORS].copy_from_slice(&places);
        line.places[ANCHORS] = rank as i32;
        line
    }

    /// Makes a line that leads to `node`, and to the page `before` for keys below the node.
    fn inner(node: Node, before: Found) -> Self {
        let mut places = [PAD; 8];
        places[ANCHORS] = before.rank as i32;
        let halves = |word: u64| [word as u32, (word >> 32) as u32];
        let ([a, b], [c, d], [e, f]) = (halves(node.first), halves(node.limit), halves(node.factor));
        // The line has no places, so a search finds the first word of `ids`, which is marked.
        Self { places, ids: [node.start | MARK, before.id, a, b, c, d, e, f] }
    }

    /// Returns how many of the places are at most `place`.
    #[inline(always)]
    fn count(&self, place: i32) -> usize {
        first_above(&self.places, place)
    }

    /// Returns the node to which a marked line leads, and the page before it.
    fn node(&self) -> (Node, Found) {
        let word = |at: usize| u64::from(self.ids[at]) | u64::from(self.ids[at + 1]) << 32;
        let node = Node { first: word(2), limit: word(4), factor: word(6), start: self.ids[0] & !MARK };
        (node, Found { id: self.ids[1], rank: self.rank() })
    }

    #[inline(always)]
    fn rank(&self) -> u32 {
        self.places[ANCHORS] as u32
    }
}

/// Returns the index of the first of the [`ANCHORS`] places that is greater than `place`. The places are ascending, so
/// this is the number of places that are not greater.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn first_above(places: &[i32; 8], place: i32) -> usize {
    use core::arch::x86_64::*;
    // SAFETY: SSE2 is part of x86-64; the loads stay within the array, and need no alignment.
    let above = unsafe {
        let halves = places.as_ptr().cast::<__m128i>();
        let place = _mm_set1_epi32(place);
        let [low, high] = [0, 1].map(|half| _mm_cmpgt_epi32(_mm_loadu_si128(halves.add(half)), place));
        _mm_movemask_epi8(_mm_packs_epi32(low, high))
    };
    // Two bits for each word; the last one is not a place.
    (above | 1 << (2 * ANCHORS)).trailing_zeros() as usize / 2
}

#[cfg(not(target_arch = "x86_64"))]
use first_above_anywhere as first_above;

/// The portable version of `first_above`. It has no branches, so that the compiler can vectorize it.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn first_above_anywhere(places: &[i32; 8], place: i32) -> usize {
    places[..ANCHORS].iter().map(|&at| usize::from(at <= place)).sum()
}

/// Finds the page of `key`. `root` is the root of the trie with these lines, and `head` is the page of keys below all
/// anchors.
///
/// # Safety
/// `lines` and `root` must be from the same [`build`].
#[inline(always)]
pub unsafe fn find(lines: &[Line], root: &Node, head: u32, key: u64) -> Found {
    if key < root.first {
        return Found { id: head, rank: 0 };
    }
    // SAFETY: the caller guarantees the same contract. The second level is handled here instead of in a loop, since
    // clustered keys have two levels.
    unsafe {
        match step(lines, root, key) {
            Ok(found) => found,
            Err(line) => match step_down(lines, line, key) {
                Ok(found) => found,
                Err(line) => find_deep(lines, line, key),
            },
        }
    }
}

/// Looks `key` up in a node. Returns its page, or the line that leads farther down.
///
/// # Safety
/// `node` and `lines` must be from the same [`build`], and `key` must not be below the node.
#[inline(always)]
unsafe fn step<'a>(lines: &'a [Line], node: &Node, key: u64) -> Result<Found, &'a Line> {
    let (line, place) = node.place(key);
    debug_assert!(line < lines.len());
    // SAFETY: by the caller's guarantee, a node's places lead to the node's own lines.
    let line = unsafe { lines.get_unchecked(line) };
    touch(line, size_of::<Line>());
    let count = line.count(place);
    let id = line.ids[count];
    if id & MARK == 0 { Ok(Found { id, rank: line.rank() + count as u32 }) } else { Err(line) }
}

/// Continues at the node to which `line` leads.
///
/// # Safety
/// The contract of [`find`] must hold; `line` must be one of `lines`, and lead to a node.
#[inline(always)]
unsafe fn step_down<'a>(lines: &'a [Line], line: &Line, key: u64) -> Result<Found, &'a Line> {
    let (node, before) = line.node();
    // SAFETY: the caller guarantees the same contract.
    if key < node.first { Ok(before) } else { unsafe { step(lines, &node, key) } }
}

/// Repeats [`step_down`] until a page is found.
///
/// # Safety
/// The contract of [`step_down`] must hold.
#[inline(never)]
unsafe fn find_deep<'a>(lines: &'a [Line], mut line: &'a Line, key: u64) -> Found {
    loop {
        // SAFETY: the caller guarantees the same contract.
        match unsafe { step_down(lines, line, key) } {
            Ok(found) => return found,
            Err(next) => line = next,
        }
    }
}

/// Prefetches the line that [`find`] will read first.
#[inline(always)]
pub fn prefetch(lines: &[Line], root: &Node, key: u64) {
    if key >= root.first {
        archipelago_platform::hint::prefetch_read(lines.as_ptr().wrapping_add(root.place(key).0));
    }
}

/// Lays out lines for `anchors`, which are ascending and lead to `ids[1..]`. `ids[0]` is the page before the first
/// anchor.
///
/// # Panics
/// If there are 2^31 anchors or more.
pub fn build(anchors: &[u64], ids: &[u32], lines: &mut Array<Line>) -> Node {
    assert!(anchors.len() < MARK as usize, "a snapshot holds fewer than 2^31 anchors");
    if anchors.is_empty() {
        // Every key's place in the default node is the beginning of line 0.
        lines.push(Line::leaf([PAD; ANCHORS], 0, [ids[0]; 8]));
        return Node::default();
    }
    // One eighth more lines than the root needs are reserved, for crowded buckets.
    *lines = Array::with_capacity(anchors.len() * 9 / (8 * FILL) + 2, lines.node());
    Builder { anchors, ids, lines }.node(0, anchors.len())
}

struct Builder<'a> {
    anchors: &'a [u64],
    ids: &'a [u32],
    lines: &'a mut Array<Line>,
}

impl Builder<'_> {
    /// Returns a node over the anchors `from..to`. Recursion is as deep as the trie: a level halves the span at least,
    /// so the depth is 64 at most.
    fn node(&mut self, from: usize, to: usize) -> Node {
        let anchors = &self.anchors[from..to];
        let start = self.lines.len();
        let (node, count) = Self::layout(anchors, start);
        self.lines.extend_with(Line { places: [PAD; 8], ids: [0; 8] }, count);
        let mut at = from;
        for line in start..start + count {
            at = self.line(&node, line, at, to);
        }
        debug_assert_eq!(at, to, "every anchor has a line");
        node
    }

    /// Fills `line` with its anchors, which start at `from`. Returns the index at which they end.
    fn line(&mut self, node: &Node, line: usize, from: usize, to: usize) -> usize {
        let mut places = [PAD; ANCHORS];
        let mut end = from;
        while end < to {
            let (at, place) = node.place_of_anchor(self.anchors[end]);
            if at != line {
                break;
            }
            if let Some(slot) = places.get_mut(end - from) {
                *slot = place;
            }
            end += 1;
        }
        let count = end - from;
        self.lines[line] = if count <= ANCHORS && places[..count].windows(2).all(|two| two[0] < two[1]) {
            let mut ids = [0; 8];
            ids[..=count].copy_from_slice(&self.ids[from..=end]);
            Line::leaf(places, from, ids)
        } else {
            let child = self.node(from, end);
            Line::inner(child, Found { id: self.ids[from], rank: from as u32 })
        };
        end
    }

    /// Returns a node over `anchors`, and its number of lines.
    fn layout(anchors: &[u64], start: usize) -> (Node, usize) {
        let even = Node::over(anchors, EVEN_FILL, start);
        if !Self::crowds(&even.0, anchors, anchors.len() / 32) {
            return even;
        }
        let usual = Node::over(anchors, FILL, start);
        if anchors.len() > CLUSTER && Self::crowds(&usual.0, anchors, anchors.len() / 2) {
            return Node::over(anchors, CLUSTER, start);
        }
        usual
    }

    /// Returns whether more than `limit` of the anchors share a bucket with too many others.
    fn crowds(node: &Node, anchors: &[u64], limit: usize) -> bool {
        let same = |a: &u64, b: &u64| node.place(*a).0 == node.place(*b).0;
        let mut crowds = anchors.chunk_by(same).map(<[u64]>::len).filter(|&len| len > ANCHORS);
        let mut sum = 0;
        crowds.any(|len| {
            sum += len;
            sum > limit
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_search_a_line_agree() {
        for count in 0..=ANCHORS {
            for rank in [0, 15, i32::MAX] {
                let mut places = [PAD; 8];
                (0..count).for_each(|at| places[at] = 10 * at as i32 + 5);
                places[ANCHORS] = rank;
                for place in 0..80 {
                    let expected = (0..count as i32).filter(|at| 10 * at + 5 <= place).count();
                    assert_eq!(first_above(&places, place), expected);
                    assert_eq!(first_above_anywhere(&places, place), expected);
                }
            }
        }
    }
}
