//! Ordered list, hash table and binary search tree of `u64` keys and values. Each is written once over a
//! synchronization mechanism. The crate also has *rivals*: baselines for comparison, with algorithms of their own.
//!
//! **These are evaluation structures.** They compare MV-RLU, RLU and RCU as Mathew's thesis does (§3.6.2), and have
//! only what the comparison needs: fixed key and value types, a table that does not grow, a tree that is not balanced.
//! For applications, use `HydraList` or `Art` of the crate `archipelago-index`.
//!
//! A structure needs few operations of a mechanism: reading nodes in a read-side section, changing links in an update,
//! allocating and retiring nodes. The mechanisms of the table below provide these operations. So a comparison shows the
//! mechanisms' differences, not differences of the structures' code.
//!
//! | | one key | several keys at once | writers |
//! |---|---|---|---|
//! | [`OverMvRlu`] | linearizable | a snapshot, never waits | run in parallel; an update that conflicts with another is repeated |
//! | [`OverRlu`] | linearizable | a snapshot, never waits | as above, and a commit waits for readers (with deferral, only some commits) |
//! | [`OverVersioned`] | linearizable | a snapshot, never waits | run in parallel, and none waits for another; an update that conflicts with another is repeated |
//! | [`OverRcu`] | linearizable | under the writers' locks | one at a time per lock: one lock for a list or tree, one per bucket of a table |
//! | [`OverRcuHmcs`] | linearizable | under the writers' locks | as over RCU, with a hierarchical lock |
//! | [`SynchronousRcu`] | linearizable | under the writers' locks | as over RCU, and a session waits for readers in each thousandth removal |
//! | [`OverRcx`], [`OverRcxStriped`] | linearizable | one after another | run in parallel, with the nodes that they change locked by two levels of locks |
//! | [`OverRcxSuccessors`], [`OverRcxSuccessorsKilobyte`] | linearizable | as over RCX | as over RCX, and a list's updates lock successors, too |
//! | [`RcuHtm`] | linearizable | one after another | run in parallel, each a transaction, or with the nodes that it changes locked |
//! | [`RcuHtmOneLock`] | linearizable | one after another | run in parallel, each a transaction; after ten aborts, or without hardware transactions, an update holds its scopes' locks |
//!
//! [`OverRcuKilobyte`], [`OverRluKilobyte`], [`OverRcxKilobyte`], [`OverRcxSuccessorsKilobyte`] and
//! [`RcuHtmOneLockKilobyte`] have nodes of 1,024 bytes.
//!
//! Rivals with algorithms of their own: the lock-free [`HarrisList`] (also as a table of lists), [`HazardList`] (the
//! same with hazard pointers) and [`FraserSkipList`]; and [`CitrusTree`] and [`SynchronousCitrusTree`], which use RCU
//! with a lock per node, and [`PredicateCitrusTree`] and [`CountedCitrusTree`], the same with predicate RCU.
//!
//! ```
//! use archipelago_sets::{OverMvRlu, Set, SetSession, Tree};
//!
//! let tree: Tree<OverMvRlu> = Tree::default();
//! let mut session = tree.session();
//! assert!(session.insert(7, 70) && session.insert(3, 30));
//! assert!(session.move_key(7, 9));
//! assert_eq!(session.get_many(&[3, 7, 9]), [Some(30), None, Some(70)]);
//! assert_eq!(session.range(0, 10), [(3, 30), (9, 70)]);
//! ```

mod citrus;
mod commit_list;
mod counted_sections;
mod forest;
mod harris;
mod hash;
mod hazard;
mod list;
mod mechanism;
mod optimistic;
mod over_mvrlu;
mod over_rcu;
mod over_rcx;
mod over_rlu;
mod over_versioned;
mod plan;
mod rcu_htm;
mod rcu_htm_one_lock;
mod room;
mod scratch;
mod sections;
mod shared;
mod skip_list;
mod synchronous_rcu;
mod tag;
mod tree;
mod version_chain;
mod visit;

pub use citrus::{
    AllReaders, AllSections, Citrus, CitrusSession, CitrusTree, CountedCitrusTree, CountedReaders, OpenSections,
    PredicateCitrusTree, ReadersOfKeys, SynchronousCitrusTree, Waiting,
};
pub use forest::{Forest, ForestSession};
pub use harris::{HarrisList, HarrisSession};
pub use hash::{Hash, HashSession};
pub use hazard::{HazardList, HazardSession};
pub use list::{List, ListSession};
pub use mechanism::Mechanism;
pub use optimistic::Optimistic;
pub use over_mvrlu::OverMvRlu;
pub use over_rcu::{OverRcu, OverRcuHmcs, OverRcuKilobyte, RcuUnder};
pub use over_rcx::{OverRcx, OverRcxKilobyte, OverRcxStriped, OverRcxSuccessors, OverRcxSuccessorsKilobyte};
pub use over_rlu::{OverRlu, OverRluKilobyte, RluWith};
pub use over_versioned::OverVersioned;
pub use rcu_htm::RcuHtm;
pub use rcu_htm_one_lock::{RcuHtmOneLock, RcuHtmOneLockKilobyte};
pub use room::{Kilobyte, Room, Snug};
pub use skip_list::{FraserSession, FraserSkipList, SharedSeedSkipList, SkipList, SkipListSession};
pub use synchronous_rcu::SynchronousRcu;
pub use tree::{Tree, TreeSession};
pub use visit::Visit;

/// Points at which a simulated schedule can stop a thread. See `archipelago_platform::hint::point`.
pub mod points {
    /// An insertion into a [`CitrusTree`](crate::CitrusTree) has found its position, and has locked nothing.
    pub const FOUND: &str = "Citrus: found";
    /// An update over [`OverRcx`](crate::OverRcx) or [`RcuHtm`](crate::RcuHtm) has been decided, and has locked
    /// nothing.
    pub const DECIDED: &str = "update: decided";
    /// A commit over [`OverVersioned`](crate::OverVersioned) is in the list, and its versions do not have their epoch.
    pub const APPENDED: &str = "versioned: appended";
    /// An update over [`OverVersioned`](crate::OverVersioned) has put its versions into their chains, and is not in the
    /// list.
    pub const PUT: &str = "versioned: put";
}

/// A structure that threads use through a session each.
pub trait Set: Send + Sync {
    /// A thread's access to the structure.
    type Session<'s>: SetSession
    where
        Self: 's;

    /// Returns a session for the calling thread.
    fn session(&self) -> Self::Session<'_>;
}

/// The operations of a structure. Each is linearizable unless it says otherwise.
pub trait SetSession {
    /// Adds the key if it is absent. Returns whether it was absent.
    fn insert(&mut self, key: u64, value: u64) -> bool;

    /// Removes the key. Returns its value.
    fn remove(&mut self, key: u64) -> Option<u64>;

    /// Returns the key's value.
    fn get(&mut self, key: u64) -> Option<u64>;

    /// Returns whether the key is present.
    fn contains(&mut self, key: u64) -> bool {
        self.get(key).is_some()
    }

    /// Returns the values of all the keys at one moment. Structures that cannot do so (see [the crate](crate)) read one
    /// key after another. Then a key that occurs twice in `keys` may have two values.
    fn get_many(&mut self, keys: &[u64]) -> Vec<Option<u64>> {
        keys.iter().map(|key| self.get(*key)).collect()
    }

    /// If `from` is present and `to` is absent, removes `from` and gives its value to `to`, atomically. Returns whether
    /// it did. Structures that cannot do this atomically insert `to` first. Then a reader may see both keys. If another
    /// thread removes `from` after the insertion, the result is `false`, and `to` stays.
    fn move_key(&mut self, from: u64, to: u64) -> bool {
        let Some(value) = self.get(from) else { return false };
        self.insert(to, value) && self.remove(from).is_some()
    }

    /// Returns all entries with `from <= key < to`, strictly ascending, each key once, at one moment. Returns nothing
    /// for a table. Some structures read one key after another (see [the crate](crate)). These structures and the
    /// rivals return every key that is present from the beginning of the walk to its end, and possibly other keys that
    /// were present at some moment of the walk.
    fn range(&mut self, from: u64, to: u64) -> Vec<(u64, u64)>;

    /// Stays in a read-side section until the visit is over: a stuck reader for measurements. The effect on other
    /// threads depends on the mechanism. Memory grows (over [`OverVersioned`], by all that updates make); or updates
    /// wait for the section's end (all updates over RLU; each thousandth removal over [`SynchronousRcu`]; over
    /// [`OverRcu`] and in a [`Citrus`], removals that replace a node of a tree). In a [`HazardList`] the visit has no
    /// effect.
    ///
    /// No code of the caller runs in the section. An update in the section, by another session of the same thread,
    /// would wait for its own thread.
    fn linger(&mut self, visit: &Visit);

    /// Returns how many attempts at updates this session has repeated: they conflicted with another update, or their
    /// hardware transaction aborted. Returns 0 for rivals, which do not count.
    fn aborts(&self) -> u64 {
        0
    }
}
