//! [`BLinkTree`]: a concurrent B+tree whose pages know their neighbours.
//!
//! From "Efficient Locking for Concurrent Operations on B-Trees" (Lehman and Yao, TODS 1981), in the shape that Malbrain gave
//! it ("A Blink Tree method and latch protocol") and McKenzie's thesis took to NUMA machines. What differs, and why:
//!
//! - Reads take no latch, and are right with deletes: version coupling (`tree.rs`) and RCU, where the thesis relies on pages
//!   never being freed.
//! - A removed entry is gone at once. The code base of the thesis marks entries dead, and finds them still.
//! - The parent is latched before its children when pages become one, so that a page's key above is always exactly its
//!   lower fence, and pages can also *share* their entries (`balance.rs`). The original copies the right page over the
//!   left one, then repairs the parent by two recursive operations.
//! - A latch on the left link is not needed: the left neighbour's own latch guards it (`page.rs`).
//!
//! | file | what is there |
//! |---|---|
//! | `page.rs` | pages, and what holds of them |
//! | `slots.rs`, `word.rs`, `bytes.rs` | what a page's words mean, for either form of keys |
//! | `run.rs`, `piece.rs` | entries outside pages, and where to cut them |
//! | `tree.rs`, `split.rs`, `balance.rs`, `ends.rs`, `locked.rs` | the protocol |
//! | `store.rs` | where pages come from, and go |
//! | `replicas.rs`, `logged.rs`, `inner.rs`, `policy.rs`, `latch.rs` | what can be chosen |
//! | `cursor.rs` | scans |
//! | `structure.rs` | what all this supplies to [`Map`], of which users see the whole face |

mod balance;
mod bytes;
mod check;
mod cursor;
mod ends;
mod inner;
mod latch;
mod locked;
mod logged;
mod page;
mod piece;
mod policy;
mod replicas;
mod run;
mod slots;
mod split;
mod store;
mod structure;
mod sweep;
mod tree;
mod word;

pub use latch::{Central, Cohort, CohortNp, CohortWp, Latch, VersionOnly};
pub use policy::{
    Dense, Granular, InnerReplicas, LARGEST, Latched, LogFed, Mirrored, Pages, Policy, Replicas, SMALLEST, Standard,
    Variation,
};

use crate::Key;
use crate::map::{Map, Session};
use crate::structure::Structure as _;
use archipelago_platform::topology::Topology;
use core::marker::PhantomData;

/// Marks maps that are B-link trees with a policy. See [`BLinkTree`].
#[derive(Debug)]
pub struct BLink<P = Standard>(PhantomData<P>);

/// A concurrent ordered map: a B-link tree. See the [module](self) for how it works, and [`Map`] for how to use it.
///
/// Its operations are the methods of a [`Session`]: `map.pin().insert(key, value)`, `map.pin().get(&key)`.
///
/// Look-ups cost a page search per level of the tree; under the usual policy they take no latch. What is chosen at compile
/// time is a [`Policy`]. Keys are at most [`LONGEST_KEY`](Map::LONGEST_KEY) bytes long, a quarter of a page: what stores
/// panics at a longer one, and its `try_` form returns an error.
///
/// ```
/// use archipelago::BLinkTree;
///
/// let map: BLinkTree<u64, u64> = BLinkTree::new();
/// let map = map.pin();
/// map.insert(7, 42);
/// map.insert(5, 40);
/// assert_eq!(map.get(&7), Some(42));
/// assert_eq!(map.range(..=6).next_back(), Some((5, 40)));
/// ```
pub type BLinkTree<K, V, P = Standard> = Map<BLink<P>, K, V>;

/// A session on a [`BLinkTree`].
pub type BLinkSession<'m, K, V, P = Standard> = Session<'m, BLink<P>, K, V>;

/// An iterator over a range of a [`BLinkTree`].
pub type Range<'m, K, V, P = Standard> = crate::map::Range<'m, BLink<P>, K, V>;

/// Configures a [`BLinkTree`].
pub type Builder<K, V, P = Standard> = crate::map::Builder<BLink<P>, K, V>;

impl<K: Key, V: Send + Sync + 'static, P: Policy> Builder<K, V, P> {
    /// The machine to lay the map out for: pages lie on the node of the thread that makes them, and replicas, if the policy
    /// has them, on theirs. Default: the machine this runs on.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.config.topology = topology;
        self
    }
}

impl<K: Key, V: Send + Sync + 'static, P: Policy> BLinkTree<K, V, P> {
    /// For tests and comparisons: how often threads began anew as a page had changed under them while they were on their way to
    /// an entry or read it. O(threads).
    #[doc(hidden)]
    pub fn retries(&self) -> u64 {
        self.core().hooks().retries()
    }

    /// For tests: moves every page but the root.
    #[doc(hidden)]
    pub fn move_pages(&self) {
        self.core().hooks().move_pages();
    }

    /// For tests: the levels that the tree has, 1 if the root is its only page.
    #[doc(hidden)]
    pub fn levels(&self) -> usize {
        self.core().hooks().levels()
    }
}
