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
//! # Guarantees
//!
//! | operation | waits for | takes effect | costs |
//! |---|---|---|---|
//! | [`get`](Cache::get), [`with`](Cache::with), [`Pinned::get`], [`contains`](Cache::contains) | nothing | at a moment of the call | O(1); writes little, see *Marks* |
//! | [`insert`](Cache::insert), [`remove`](Cache::remove) | threads that change the same shard; see *Large entries* | at a moment of the call; its evictions before, one by one | O(1), and O(1) for each eviction |
//! | [`get_or_insert_with`](Cache::get_or_insert_with) and its variants | the thread that makes the value | as `get` or `insert` | as `get` or `insert`, and the maker's time |
//! | [`iter`](Pinned::iter), [`invalidate_if`](Cache::invalidate_if) | nothing; changed shards, one at a time | entry by entry | O(capacity) |
//!
//! - *The bound holds at every moment*, however many threads insert: the entries of the cache weigh at most the
//!   capacity. Entries that have left and wait for *readers* are not included. Readers are sessions and calls in
//!   progress, except while these run a listener, a weigher or a maker. The waiting entries weigh at most the sum of
//!   - a hundredth of the capacity,
//!   - 64 KiB (512 entries if entries are counted; with a weigher a quarter of the capacity, but at most 65,536 units),
//!   - 64 KiB for each thread (if weights are not bytes: an eighth of the two amounts above),
//!   - the entries that are being inserted, and an entry for each listener that runs, and
//!   - room that the cache does not use yet.
//!
//!   While a reader does not end, nothing that was removed since its beginning can be freed. Once the waiting entries
//!   reach these amounts, insertions are refused ([`insert`](Cache::insert) returns `false`).
//! - *Large entries*: each shard has a part of the capacity. An entry that needs more takes room from all other shards,
//!   and locks them one after the other. The room returns to them when the entry leaves.
//! - *Weights are bytes by default*: the entry's allocation, the heap blocks of key and value ([`Heap`]), and the
//!   entry's share of tables and queues. [`Builder::entries`] counts entries, and [`Builder::weigher`] uses a function
//!   of yours.
//! - *Scans do not flush the cache*, see [`S3Fifo`]. [`Sieve`] and [`SampledLru`] are for comparison.
//! - *Marks*: a hit may write a mark into its entry, for the policy. [`S3Fifo`] counts hits, and writes only until the
//!   count is 7; each round through the main queue lowers the count. [`Sieve`] writes only if its bit is not set.
//!   [`SampledLru`] writes only if the shard has admitted an entry since this entry's last hit. With a time to idle, a
//!   hit also postpones the entry's deadline, once in a 16th of that time. The first look-up that finds an entry
//!   expired writes this into the entry. With [`Builder::record_hits`] each look-up writes a counter of its thread.
//! - *Your code does not run under a lock*: hashes, comparisons, weighers, makers, listeners and destructors may use
//!   the cache. If one of them panics, the panic propagates to the caller, and the cache stays consistent. Hashes,
//!   weighers, makers and listeners also run outside of all RCU sections, so they may take their time. Comparisons of
//!   keys, `Clone` in [`get`](Cache::get), the closures of [`with`](Cache::with) and
//!   [`invalidate_if`](Cache::invalidate_if), and destructors of removed entries run inside of an RCU section: while
//!   one of them runs, no entry that is removed meanwhile is freed, and insertions may be refused.
//! - *Time* is that of a monotonic clock: changes to the wall clock have no effect.
//!
//! # When to use something else
//! For data that must not be lost, use a map. For one thread, use `lru`, or a `HashMap` and a queue. For values that
//! are written far more often than read, a map behind a lock costs less than entries that wait for readers.
//!
//! # Inside
//! ```text
//! shard ─┬─ table    buckets of seven entries, one line each: read without a lock, under RCU
//!        └─ lock ── policy    queues of entries
//!                   lease     the shard's part of the capacity; the pool is the part that no shard has leased
//! ```
//! `table.rs` proves that look-ups are linearizable concurrently with a writer. `shard.rs` describes how keys are
//! compared without a lock, `budget.rs` how the bound is kept without a common counter, and `makers.rs` how one maker
//! for each key is chosen. MV-RLU's and RCX's papers put their mechanisms into Kyoto Cabinet's cache (thesis §3.6,
//! figure 3.10); this cache uses none of Kyoto Cabinet's slots, trees and LRU lists.

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
mod waits;

pub use builder::Builder;
pub use cache::{Cache, Pinned};
pub use cause::Cause;
pub use heap::Heap;
pub use iter::Iter;
pub use policy::{Policy, S3Fifo, SampledLru, Sieve};
pub use stats::Stats;
