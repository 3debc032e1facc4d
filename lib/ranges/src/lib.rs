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
//! | [`get`](Pinned::get), [`get_range`](Pinned::get_range) | nothing; writes no memory in a session, and its thread's own RCU record outside of one | at a moment of the call | O(log n) |
//! | [`next_range`](Pinned::next_range), [`is_empty`](Pinned::is_empty) | as the next row | at a moment of the call | O(log n), see there |
//! | [`overlapping`](Pinned::overlapping), [`iter`](Pinned::iter), [`len`](Pinned::len), [`find_gap`](Pinned::find_gap) | nothing; after eight attempts that failed because of concurrent changes, changes of the window, and reads of it that take locks for the same reason | all of it at one moment of the call | O(log n + ranges / 16) |
//! | [`insert`](RangeMap::insert), [`try_insert`](RangeMap::try_insert), [`remove`](RangeMap::remove), [`change`](RangeMap::change) | changes of windows in the same leaves (at most 16 ranges each); reads of such windows that take locks after eight attempts; if the change replaces leaves, shortly for other such changes; and *Memory*, below | all of it at one moment of the call | O(log n + ranges hit), copies of at most 32 neighbours |
//!
//! - *Ranges are as long as possible.* Two ranges that touch have different values by `V: Eq`. If `Eq` is
//!   inconsistent, ranges are split or joined in surprising ways, but memory stays safe.
//! - *Values are cloned* when their neighbours change, since the block that stores them (see *Inside*) is replaced, not
//!   changed. Use small values, or an `Arc`.
//! - *Waiting threads* spin for a few microseconds, and then sleep until they are woken. The first thread that waits
//!   for a leaf is passed by few others, and the others follow in the order of their arrival on a NUMA node. So a
//!   change finishes beside any number of reads, and a slow closure costs waiting threads no processor time.
//! - *Panics* of `Clone`, `Eq` or a closure leave the map as it was. A destructor's panic leaves the map changed.
//! - *Users' code in a change* runs while the change's leaves are locked. It may look points up; a change of a
//!   `RangeMap` within it panics. Destructors run without locks, after the change took effect.
//! - *Memory*: replaced memory is freed when all sessions ([`RangeMap::pin`]) and calls have ended that had begun
//!   before its replacement. (Such a call may be a change that waits for a leaf.) So a long session delays the freeing
//!   of everything that is replaced during the session. If more threads than processors use the map, a change first
//!   waits for sessions when this thread's replaced memory exceeds about 10 KiB: for 10 ms at most, and not again
//!   before some of these sessions have ended. So beside many threads that read large windows all the time, changes are
//!   slow, but not stopped.
//!
//! # When to use something else
//! For ranges that overlap each other, use an interval tree. For one thread, use `BTreeMap` with
//! `range(..=point).next_back()`. If each entry is a single point, use an ordered map. If values are large and change
//! often, store keys of another map as values.
//!
//! # Inside
//! ```text
//! directory   root: sorted lows ─→ chunk: sorted lows ─→ leaf      one store of a chunk or root changes several leaves at once
//! leaf        [low, high)  lock   block                            one store of the block changes the content of one leaf
//! block       up to 16 ranges: starts, ends, values                never changed
//! ```
//! `directory.rs` explains why look-ups are linearizable, `window.rs` why a read of several leaves sees one moment, and
//! `change.rs` why changes are atomic and cannot deadlock.

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
