//! A concurrent cache, bounded by bytes.
//!
//! ```
//! use archipelago_cache::Cache;
//!
//! let pages: Cache<String, String> = Cache::new(16 << 20); // 16 MiB, all that entries take included
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             // One thread renders, the others wait for it.
//!             let page = pages.get_or_insert_with("/about".to_owned(), |path| format!("<h1>{path}</h1>"));
//!             assert_eq!(page, "<h1>/about</h1>");
//!         });
//!     }
//! });
//! assert_eq!(pages.pin().get("/about").map(String::len), Some(15)); // lent, not copied
//! ```
//!
//! # What holds
//!
//! | operation | waits for | takes effect | costs |
//! |---|---|---|---|
//! | [`get`](Cache::get), [`with`](Cache::with), [`Pinned::get`], [`contains`](Cache::contains) | nothing | at a moment of the call | O(1); writes at most one mark, into the entry |
//! | [`insert`](Cache::insert), [`remove`](Cache::remove) | threads that change the same shard | at a moment of the call, evictions one by one before | O(1) and what gives way |
//! | [`get_or_insert_with`](Cache::get_or_insert_with) and its kin | the one that makes the key | as `get`, or as `insert` | as these, and what the maker takes |
//! | [`iter`](Pinned::iter), [`invalidate_if`](Cache::invalidate_if) | nothing; changed shards, one at a time | entry by entry | O(capacity) |
//!
//! - *The bound holds at every moment*, however many threads insert: what is here weighs at most the capacity. What has left and
//!   waits for readers comes beside it: at most a hundredth, 64 KiB, and 64 KiB a thread, and the objects that were inserted
//!   meanwhile. Where a reader stays, nothing more comes in ([`insert`](Cache::insert) says so), since nothing could be freed.
//! - *Weights are bytes by default*: what the entry takes of the allocator, with the blocks of key and value ([`Heap`]) and its
//!   place in tables and queues. [`Builder::entries`] counts entries, [`Builder::weigher`] what you say.
//! - *Scans do not flush it*: see [`S3Fifo`]. [`Sieve`] and [`SampledLru`] are there to compare.
//! - *No code of yours runs under a lock*: hashes, comparisons, weighers, makers, listeners and destructors may use the cache.
//!   What they panic with comes out of the call, and the cache is whole.
//! - *Time* is a monotonic clock's: to set the wall clock changes nothing.
//!
//! # When to take something else
//! What must not be lost is no cache: take a map. One thread: `lru`, or a `HashMap` and a queue. Values that are read far more
//! rarely than written: a map behind a lock costs less than entries that wait for readers.
//!
//! # Inside
//! ```text
//! shard ─┬─ table    buckets of seven entries, one line each: read without a lock, under RCU
//!        └─ lock ── policy    queues of entries
//!                   lease     its part of the capacity; what no shard has lies in the pool
//! ```
//! `table.rs` says why look-ups are linearizable beside the writer, `shard.rs` how keys are compared without a lock, `budget.rs`
//! how the bound is kept without a common counter, `makers.rs` how one maker a key is found. MV-RLU's and RCX's papers put their
//! mechanisms into Kyoto Cabinet's cache (thesis §3.6, figure 3.10); of its slots, trees and LRU lists nothing is here.

mod blocks;
mod budget;
mod builder;
mod cache;
mod cause;
mod clock;
mod config;
mod entry;
mod few;
mod heap;
mod hits;
mod inner;
mod iter;
mod makers;
mod policy;
mod shard;
mod stats;
mod table;

pub use builder::Builder;
pub use cache::{Cache, Pinned};
pub use cause::Cause;
pub use heap::Heap;
pub use iter::Iter;
pub use policy::{Policy, S3Fifo, SampledLru, Sieve};
pub use stats::Stats;
