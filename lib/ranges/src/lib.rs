//! A concurrent map of disjoint ranges.
//!
//! A [`RangeMap`] maps points (unsigned integers) to values, and keeps points with equal values that follow one another as one
//! range: an address space and its mappings, a file and its extents, a disk and what of it is reserved. Such maps stand behind
//! one lock nearly everywhere (Linux's `mmap_lock` is the best known), though nearly all of what is done to them are look-ups of
//! one point.
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
//! # What holds
//!
//! | operation | waits for | takes effect | costs |
//! |---|---|---|---|
//! | [`get`](Pinned::get), [`get_range`](Pinned::get_range) | nothing; writes nothing | at a moment of the call | O(log n) |
//! | [`overlapping`](Pinned::overlapping), [`iter`](Pinned::iter), [`len`](Pinned::len), [`find_gap`](Pinned::find_gap) | nothing; after eight changes in between, changes of the window | all of it at one moment of the call | O(log n + ranges / 16) |
//! | [`insert`](RangeMap::insert), [`try_insert`](RangeMap::try_insert), [`remove`](RangeMap::remove), [`change`](RangeMap::change) | changes of windows in the same leaves (16 ranges and fewer), and, if it changes several leaves, shortly for others that do | all of it at one moment of the call | O(log n + ranges hit), copies of at most 32 neighbours |
//!
//! - *Ranges are as long as they can be.* Two that touch have different values. `V: Eq` decides that, and is expected to be
//!   consistent; if it is not, ranges are split or joined in surprising ways, and nothing worse.
//! - *Values are cloned* when their neighbours change, since a leaf is replaced and not changed: take small values, or an `Arc`.
//! - *Panics* of `Clone`, `Eq` or a closure leave the map as it was.
//! - *Users' code in a change* runs while its leaves are locked. It may look things up; where it changes the same leaves it
//!   panics, with a sentence. Destructors run with nothing locked.
//! - *Memory*: a leaf is freed when the sessions have ended that were there when it was replaced. A session that stays keeps
//!   what is replaced meanwhile.
//!
//! # When to take something else
//! Ranges that overlap each other: an interval tree. One thread: `BTreeMap` with `range(..=point).next_back()`. Points without
//! neighbours: an ordered map. Values that are large and change often: ranges of keys into another map.
//!
//! # Inside
//! ```text
//! directory   root: sorted lows ─→ chunk: sorted lows ─→ leaf      replaced by one store: several leaves change at once
//! leaf        [low, high)  owner  block                            replaced by one store: what is in one leaf changes
//! block       up to 16 ranges: starts, ends, values                never changed
//! ```
//! `directory.rs` says why look-ups are linearizable, `window.rs` why several leaves are seen at one moment, `change.rs` why
//! changes are atomic and cannot deadlock.

mod block;
mod change;
mod directory;
mod iter;
mod leaf;
mod map;
mod point;
mod replaced;
mod window;

pub use iter::Iter;
pub use map::{Occupied, Pinned, RangeMap};
pub use point::Point;
