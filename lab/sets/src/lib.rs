//! Ordered list, hash table and binary search tree of `u64` keys and values, each written once over a mechanism; and rivals
//! of them with an algorithm of their own.
//!
//! **These are evaluation structures.** They compare MV-RLU, RLU and RCU as Mathew's thesis does (§3.6.2), and are kept to
//! what that needs: fixed key and value types, a table that does not grow, a tree that is not balanced. To build on, take
//! `HydraList` or `Art` of the crate `archipelago-index`.
//!
//! What a structure needs of a mechanism is small: see nodes in a read-side section, change links in an update, allocate,
//! retire. [`OverMvRlu`], [`OverRlu`] and [`OverRcu`] give it; so a comparison of mechanisms compares mechanisms.
//!
//! | | one key | several keys at once | writers |
//! |---|---|---|---|
//! | [`OverMvRlu`] | linearizable | a snapshot, never waits | run side by side, an update that meets another is repeated |
//! | [`OverRlu`] | linearizable | a snapshot, never waits | as above, and a commit waits for readers |
//! | [`OverRcu`] | linearizable | under the writers' locks | one at a time for each lock: one for a list or tree, one per bucket |
//! | [`OverRcuHmcs`] | linearizable | under the writers' locks | as over RCU, by a hierarchical lock |
//! | [`SynchronousRcu`] | linearizable | under the writers' locks | as over RCU, and whoever takes a node out waits for readers |
//! | [`OverRcx`], [`OverRcxStriped`] | linearizable | one after another | run side by side, with the nodes that they change locked by two levels |
//! | [`RcuHtm`] | linearizable | one after another | run side by side, each a transaction |
//! | [`RcuHtmOneLock`] | linearizable | one after another | the same, with one lock for those that aborted ten times |
//!
//! Rivals with an algorithm of their own: [`HarrisList`] (and a table of them), [`HazardList`] (the same with hazard
//! pointers) and [`FraserSkipList`], lock-free;
//! [`CitrusTree`], RCU with a lock per node.
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
mod plan;
mod rcu_htm;
mod rcu_htm_one_lock;
mod scratch;
mod shared;
mod skip_list;
mod synchronous_rcu;
mod tag;
mod tree;
mod visit;

pub use citrus::{CitrusSession, CitrusTree};
pub use forest::{Forest, ForestSession};
pub use harris::{HarrisList, HarrisSession};
pub use hash::{Hash, HashSession};
pub use hazard::{HazardList, HazardSession};
pub use list::{List, ListSession};
pub use mechanism::Mechanism;
pub use optimistic::Optimistic;
pub use over_mvrlu::OverMvRlu;
pub use over_rcu::{OverRcu, OverRcuHmcs, RcuUnder};
pub use over_rcx::{OverRcx, OverRcxStriped};
pub use over_rlu::OverRlu;
pub use rcu_htm::RcuHtm;
pub use rcu_htm_one_lock::RcuHtmOneLock;
pub use skip_list::{FraserSession, FraserSkipList};
pub use synchronous_rcu::SynchronousRcu;
pub use tree::{Tree, TreeSession};
pub use visit::Visit;

/// Places that a simulated schedule can make a thread stop at. See `archipelago_platform::hint::point`.
pub mod points {
    /// An insertion into a [`CitrusTree`](crate::CitrusTree) has found its place, and locked nothing.
    pub const FOUND: &str = "Citrus: found";
    /// An update over [`OverRcx`](crate::OverRcx) or [`RcuHtm`](crate::RcuHtm) is decided, and nothing is locked.
    pub const DECIDED: &str = "update: decided";
}

/// What threads do with a structure, through a session each.
pub trait Set: Send + Sync {
    /// A thread's way in.
    type Session<'s>: SetSession
    where
        Self: 's;

    /// A session for the calling thread.
    fn session(&self) -> Self::Session<'_>;
}

/// Operations on a structure. Each is linearizable, except where it says otherwise.
pub trait SetSession {
    /// Adds the key if it is not there; whether it was not.
    fn insert(&mut self, key: u64, value: u64) -> bool;

    /// Removes the key; the value it had.
    fn remove(&mut self, key: u64) -> Option<u64>;

    /// The key's value.
    fn get(&mut self, key: u64) -> Option<u64>;

    /// Whether the key is there.
    fn contains(&mut self, key: u64) -> bool {
        self.get(key).is_some()
    }

    /// The values of all the keys at one moment. Where that cannot be: one after another, so a key that is asked for twice may have
    /// two values.
    fn get_many(&mut self, keys: &[u64]) -> Vec<Option<u64>> {
        keys.iter().map(|key| self.get(*key)).collect()
    }

    /// Gives the value of `from` to `to` and removes `from`, at once, if `from` is there and `to` is not; whether so.
    /// Rivals that cannot do it at once insert first, so that a reader may see both, and none sees neither.
    fn move_key(&mut self, from: u64, to: u64) -> bool {
        let Some(value) = self.get(from) else { return false };
        self.insert(to, value) && self.remove(from).is_some()
    }

    /// All entries with `from <= key < to`, strictly ascending: each key once, at one moment. Empty for a hash table. Where several
    /// keys are seen one after another (see [the crate](crate)), and of rivals: every key that is there from the beginning of the
    /// walk to its end, and of the others some.
    fn range(&mut self, from: u64, to: u64) -> Vec<(u64, u64)>;

    /// Stays in a section that reads the structure until the visit is over: a reader that is stuck, for measuring. What
    /// that costs others is the mechanism's affair: memory, or updates that wait for its end (all of RLU's; over
    /// [`OverRcu`] those that replace a node of a tree, in [`CitrusTree`] too).
    ///
    /// No code of the caller's runs in the section, since an update made there, by another session of the same thread,
    /// would wait for itself.
    fn linger(&mut self, visit: &Visit);

    /// Attempts at updates of this session that were repeated because they met another.
    fn aborts(&self) -> u64 {
        0
    }
}
