//! A concurrent map of disjoint ranges.
//!
//! A [`RangeMap`] maps points (unsigned integers) to values, and stores consecutive points with equal values as one
//! range. Examples are an address space and its mappings, a file and its extents, a disk and its reserved blocks. Most
//! programs protect such a map by one lock (Linux's `mmap_lock` is the best known), although nearly all operations on
//! the map are look-ups of one point.
//!
//! ```
//! use archipelago_ranges::RangeMap;
//!
//! let space: RangeMap<u64, &str> = RangeMap::new();
//! space.insert(0x1000..0x9000, "rw");                          // map
//! space.change(0x2000..0x3000, |_, _| "r");                    // protect: splits
//! space.remove(0x8000..0xa000);                                // unmap: trims
//! std::thread::scope(|scope| {
//!     scope.spawn(|| assert_eq!(space.get(0x2abc), Some("r"))); // no lock
//!     scope.spawn(|| space.insert_in_gap(0x1000, 0x1000, 0x1000..0x10_0000, "rw"));
//! });
//! let pinned = space.pin();
//! assert_eq!(pinned.get_range(0x2abc), Some((0x2000..0x3000, &"r")));
//! ```
//!
//! # Guarantees
//!
//! | operation | waits for | takes effect | costs |
//! |---|---|---|---|
//! | [`get`](Pinned::get), [`get_range`](Pinned::get_range) | nothing; writes nothing | at a moment of the call | O(log n) |
//! | [`overlapping`](Pinned::overlapping), [`iter`](Pinned::iter), [`len`](Pinned::len), [`find_gap`](Pinned::find_gap) | nothing; after eight attempts that failed because of concurrent changes, changes of the window | all of it at one moment of the call | O(log n + ranges / 16) |
//! | [`insert`](RangeMap::insert), [`try_insert`](RangeMap::try_insert), [`remove`](RangeMap::remove), [`change`](RangeMap::change) | changes of windows in the same leaves (at most 16 ranges each), and, if the change replaces leaves, shortly for other such changes | all of it at one moment of the call | O(log n + ranges hit), copies of at most 32 neighbours |
//!
//! - *Ranges are as long as possible.* Two ranges that touch have different values by `V: Eq`. If `Eq` is
//!   inconsistent, ranges are split or joined in surprising ways, but memory stays safe.
//! - *Values are cloned* when their neighbours change, since the block that stores them (see *Inside*) is replaced, not changed. Use small values, or
//!   an `Arc`.
//! - *Panics* of `Clone`, `Eq` or a closure leave the map as it was.
//! - *Users' code in a change* runs while the change's leaves are locked. It may look points up; a change of a
//!   `RangeMap` within it panics. Destructors run without locks.
//! - *Memory*: replaced memory is freed when all sessions ([`RangeMap::pin`]) that were open at its replacement have
//!   ended. So a long session delays the freeing of everything that is replaced during the session.
//!
//! # When to use something else
//! For ranges that overlap each other, use an interval tree. For one thread, use `BTreeMap` with
//! `range(..=point).next_back()`. If each entry is a single point, use an ordered map. If values are large and change
//! often, store keys of another map as values.
//!
//! # Inside
//! ```text
//! directory   root: sorted lows ─→ chunk: sorted lows ─→ leaf      one store of a chunk or root changes several leaves at once
//! leaf        [low, high)  owner  block                            one store of the block changes the content of one leaf
//! block       up to 16 ranges: starts, ends, values                never changed
//! ```
//! `directory.rs` explains why look-ups are linearizable, `window.rs` why a read of several leaves sees one moment, and `change.rs` why changes are
//! atomic and cannot deadlock.

mod block;
mod change;
mod directory;
mod iter;
mod leaf;
mod map;
#[cfg(all(test, loom))]
mod model;
mod point;
mod replaced;
mod window;

pub use iter::Iter;
pub use map::{Occupied, Pinned, RangeMap};
pub use point::Point;
