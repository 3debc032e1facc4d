//! [`BLinkTree`]: a concurrent B+tree whose pages know their neighbours.
//!
//! The tree is from "Efficient Locking for Concurrent Operations on B-Trees" (Lehman and Yao, TODS 1981), in the shape
//! that Malbrain gave it ("A Blink Tree method and latch protocol") and that McKenzie's thesis adapted to NUMA
//! machines. This implementation differs as follows:
//!
//! - Reads take no latch (under the default policy), and are correct with concurrent deletes. Version coupling
//!   (`tree.rs`) and RCU make this possible; the thesis instead relies on pages never being freed.
//! - A removed entry disappears at once. The thesis's code marks entries dead, and still finds them.
//! - A merge latches the parent before its children. So a page's key in its parent is always exactly the page's lower
//!   fence (its least possible key), and neighbours can also *share* their entries (`balance.rs`). The original copies
//!   the right page over the left one, and then repairs the parent by two recursive operations.
//! - A page's left link has no latch of its own: the left neighbour's latch protects the link (`page.rs`).
//!
//! | file | contents |
//! |---|---|
//! | `page.rs` | pages, and their invariants |
//! | `slots.rs`, `word.rs`, `bytes.rs` | the meaning of a page's words, for both forms of keys |
//! | `run.rs`, `piece.rs` | entries outside pages, and where to cut them |
//! | `tree.rs`, `split.rs`, `balance.rs`, `ends.rs`, `locked.rs` | the protocol |
//! | `store.rs`, `sweep.rs` | the memory of pages, and its compaction after removals |
//! | `replicas.rs`, `logged.rs`, `inner.rs`, `policy.rs`, `latch.rs` | replicas and the other policies |
//! | `cursor.rs` | scans |
//! | `check.rs` | the check of all invariants, for tests |
//! | `structure.rs` | the tree as the structure of a [`Map`], the public interface |

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
/// Look-ups cost a page search per level of the tree; under the usual policy they take no latch. A [`Policy`] selects
/// variants at compile time. Keys are at most [`LONGEST_KEY`](Map::LONGEST_KEY) bytes long, a quarter of a page:
/// methods that store a key panic on a longer one, and their `try_` forms return an error.
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
    /// Sets the machine for which the map is laid out. A page is on the NUMA node of the thread that makes it. If the
    /// policy has replicas, each replica's pages are on the replica's node. Default: the machine on which the program
    /// runs.
    ///
    /// ```
    /// use archipelago::index::blink::{BLinkTree, Mirrored, Standard};
    /// use archipelago::platform::topology::Topology;
    ///
    /// let machine = Topology::synthetic(4, 8); // four nodes, so `Mirrored` makes four trees
    /// let map = BLinkTree::<u64, &str, Mirrored<Standard>>::builder().topology(machine).build();
    /// map.pin().insert(1, "one"); // in all of them
    /// assert_eq!((map.len(), map.stats().pages), (1, 4));
    /// ```
    pub fn topology(mut self, topology: Topology) -> Self {
        self.config.topology = topology;
        self
    }
}

impl<K: Key, V: Send + Sync + 'static, P: Policy> BLinkTree<K, V, P> {
    /// For tests and comparisons: returns how often threads had to restart because a page had changed during a descent
    /// or a read. O(threads).
    #[doc(hidden)]
    pub fn retries(&self) -> u64 {
        self.core().hooks().retries()
    }

    /// For tests: moves every page except the root. Does nothing if the policy has coarse latches ([`Granular`]).
    #[doc(hidden)]
    pub fn move_pages(&self) {
        self.core().hooks().move_pages();
    }

    /// For tests: returns the number of the tree's levels, which is 1 if the root is its only page.
    #[doc(hidden)]
    pub fn levels(&self) -> usize {
        self.core().hooks().levels()
    }
}
