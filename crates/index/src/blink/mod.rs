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
//! | `run.rs` | entries outside pages, and where to cut them |
//! | `tree.rs`, `split.rs`, `balance.rs`, `ends.rs`, `locked.rs` | the protocol |
//! | `cursor.rs`, `iter.rs` | scans |
//! | `session.rs` | the types users see |

mod balance;
mod bytes;
mod check;
mod cursor;
mod ends;
mod iter;
mod latch;
mod locked;
mod page;
mod policy;
mod replicas;
mod run;
mod session;
mod slots;
mod split;
mod tree;
mod word;

pub use iter::Range;
pub use latch::{Central, Cohort, CohortNp, CohortWp, Latch, VersionOnly};
pub use policy::{Dense, LARGEST, Latched, Pages, Policy, Replicated, SMALLEST, Standard};
pub use session::BLinkSession;
pub(crate) use slots::SlotForm;

use crate::art::Counter;
use crate::backlog::Garbage;
use crate::value::DropAll;
use crate::{Key, OrderedIndex};
use archipelago_platform::topology::Topology;
use archipelago_sync::rcu::Domain;
use core::fmt::{self, Debug};
use core::marker::PhantomData;
use page::Page;
use replicas::Trees;
use tree::Tree;

/// A concurrent ordered map: a B-link tree. See the [module](self) for how it works.
///
/// Look-ups cost as many page searches as the tree has levels; they take no latch. Operations go through a session, see
/// [`pin`](Self::pin). Keys are at most [`LONGEST_KEY`](Self::LONGEST_KEY) bytes long.
///
/// ```
/// use archipelago_index::BLinkTree;
///
/// let map: BLinkTree<u64, u64> = BLinkTree::new();
/// let map = map.pin();
/// map.insert(&7, 42);
/// map.insert(&5, 40);
/// assert_eq!(map.get(&7), Some(42));
/// assert_eq!(map.range(..=6).next_back(), Some((5, 40)));
/// ```
pub struct BLinkTree<K: Key, V: Clone + Send + Sync + 'static, P: Policy = Standard> {
    // First: what was retired goes back to the tree's arenas.
    domain: Domain,
    trees: Trees<K::Form, P>,
    count: Counter,
    _values: PhantomData<(K, V)>,
}

/// A key is too long for the pages of a map, and nothing was changed. It has what was to be stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TooLong<V>(pub V);

impl<V> Debug for TooLong<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TooLong").finish_non_exhaustive()
    }
}

impl<V> fmt::Display for TooLong<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key is longer than a quarter of a page")
    }
}

impl<V> core::error::Error for TooLong<V> {}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> BLinkTree<K, V, P> {
    /// The longest key that is stored, in bytes: a quarter of a page.
    pub const LONGEST_KEY: usize = Page::<K::Form, P>::LONGEST_KEY;

    /// An empty map.
    pub fn new() -> Self {
        Self::with_topology(Topology::current().clone())
    }

    /// An empty map for a machine of another shape than this one, for tests.
    #[doc(hidden)]
    pub fn with_topology(topology: Topology) -> Self {
        BLinkTree {
            domain: Domain::new(),
            trees: Trees::new(topology),
            count: Counter::default(),
            _values: PhantomData,
        }
    }

    /// This thread's session. Cheap; keeping it over many operations is cheaper.
    pub fn pin(&self) -> BLinkSession<'_, K, V, P> {
        BLinkSession::new(self)
    }

    /// The number of entries: exact while no thread inserts or removes, otherwise off by at most what is inserted or
    /// removed during the call. Constant time.
    pub fn len(&self) -> usize {
        self.count.sum()
    }

    /// Whether the map was empty at some moment of the call.
    pub fn is_empty(&self) -> bool {
        self.pin().first_key_value().is_none()
    }

    /// Removes all entries.
    ///
    /// # Panics
    /// With what a value's drop panicked with first; all are dropped by then.
    pub fn clear(&mut self) {
        let mut values = DropAll::new();
        let guard = self.domain.pin();
        // SAFETY: `&mut self` says that no thread uses the tree; each word is shown once.
        unsafe { self.trees.clear(&guard, |word| values.drop_word::<V>(word)) };
        self.count.reset();
    }

    /// Frees what can be freed. Never needed for right answers; useful before measuring.
    pub fn sync(&self) {
        // An attempt moves the epoch by one; what was retired last is free after three moves.
        (0..4).for_each(|_| self.domain.collect());
    }

    /// What the map holds now. O(threads), with a few locks: for reports, not for hot paths.
    pub fn stats(&self) -> Stats {
        let trees = self.trees.all();
        let (pages, bytes) = (trees.iter().map(Tree::pages).sum(), trees.iter().map(Tree::bytes).sum());
        Stats { entries: self.len(), pages, bytes, garbage: Garbage::of(&self.domain) }
    }

    /// The levels that the tree has: 1 if the root is its only page.
    #[doc(hidden)]
    pub fn levels(&self) -> usize {
        let guard = self.domain.pin();
        let levels = self.trees.all().iter().map(|tree| tree.root(&guard).level() + 1);
        levels.max().unwrap_or(1)
    }

    /// Checks every invariant of the tree: order, fences, links, levels, the number of entries. For tests.
    ///
    /// # Panics
    /// If one is broken. Also if other threads write meanwhile: it reads the tree page by page.
    pub fn check_invariants(&self) {
        let guard = self.domain.pin();
        for tree in self.trees.all() {
            assert_eq!(check::check(tree, &guard), self.len(), "the count is the number of entries");
            check::check_same(tree, &self.trees.all()[0], &guard);
        }
    }
}

/// What a [`BLinkTree`] holds at the moment; exact only while no other thread uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// See [`BLinkTree::len`].
    pub entries: usize,
    /// Pages, those included that wait for readers.
    pub pages: usize,
    /// Memory held for pages, in bytes.
    pub bytes: usize,
    /// What waits for readers.
    pub garbage: Garbage,
}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> Drop for BLinkTree<K, V, P> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> Default for BLinkTree<K, V, P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> OrderedIndex<K, V> for BLinkTree<K, V, P> {
    type Session<'a> = BLinkSession<'a, K, V, P>;

    fn pin(&self) -> BLinkSession<'_, K, V, P> {
        self.pin()
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> Extend<(K, V)> for BLinkTree<K, V, P> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        let session = self.pin();
        for (key, value) in entries {
            session.insert(&key, value);
        }
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static, P: Policy> FromIterator<(K, V)> for BLinkTree<K, V, P> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<'a, K: Key, V: Clone + Send + Sync + 'static, P: Policy> IntoIterator for &'a BLinkTree<K, V, P> {
    type Item = (K, V);
    type IntoIter = Range<'a, K, V, P>;

    fn into_iter(self) -> Range<'a, K, V, P> {
        self.pin().iter()
    }
}

impl<K: Key, V: Clone + Send + Sync + 'static, const N: usize> From<[(K, V); N]> for BLinkTree<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Key + Debug, V: Debug + Clone + Send + Sync + 'static, P: Policy> Debug for BLinkTree<K, V, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.pin().iter()).finish()
    }
}
