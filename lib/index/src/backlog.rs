//! Memory that waits for readers: how much it is, and what to do when it is too much.
//!
//! What is removed or replaced is freed when no reader can still be using it. A reader that stays where it is (a closure
//! given to `get_with` that waits, a kept reference) therefore holds up all of it. That is visible in
//! [`Garbage`], and bounded if the map was built with a limit: then it is the writers that stop.

use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Domain;

/// What operations that change a map do while more memory waits for readers than the map's `backlog_limit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnBacklog {
    /// They wait, before they begin, until readers have let go of enough of it; they help to free it. A thread that is
    /// reading the same map (inside `get_with`, `scan`, `update` or `retain`, or with a `Ref` or an `Entry` that it has made itself)
    /// does not wait, as it would wait for itself: what it removes and replaces meanwhile comes on top of the limit, all of it. There
    /// too the `try_` operations refuse. But two threads can wait for each other: one in a closure under `get_with`,
    /// for something that the other does after an insert. And a task that has taken an `Entry` along to another thread would
    /// wait for itself there: it should use the `try_` operations.
    #[default]
    Wait,
    /// They go on; only the `try_` operations refuse.
    Proceed,
}

/// Memory that a map has let go of, and that waits until no reader can still be using it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Garbage {
    /// Values, keys, nodes and search layers.
    pub objects: usize,
    /// Their memory, in bytes, with what the allocator adds, without what values own elsewhere.
    pub bytes: usize,
    /// Threads that are reading now.
    pub readers: usize,
    /// By how many epochs the longest read is behind; more than 0 stops reclamation.
    pub lag: u64,
    /// Attempts to go on with reclamation that a reader has stopped since the last that succeeded. A number that grows
    /// together with `bytes` says that some reader stays where it is.
    pub refused: u64,
}

impl Garbage {
    /// O(threads that ever used the map at a time).
    pub(crate) fn of(domain: &Domain) -> Self {
        let stats = domain.stats();
        Self {
            objects: stats.pending,
            bytes: stats.pending_bytes,
            readers: stats.active_readers,
            lag: stats.oldest_reader_lag,
            refused: stats.refused_advances,
        }
    }
}

/// A map's limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    bytes: usize,
    then: OnBacklog,
}

/// How many bags of one thread make up a limit: with three or four on their way each, a few threads stay below it as
/// long as no reader is stuck.
const BAGS: usize = 32;
const MOST_BAG: usize = 256 << 10;

impl Limit {
    pub(crate) const NONE: Self = Self { bytes: usize::MAX, then: OnBacklog::Proceed };

    pub(crate) fn new(bytes: usize, then: OnBacklog) -> Self {
        Self { bytes, then }
    }

    /// A domain for a map with this limit.
    pub(crate) fn domain(self) -> Domain {
        Domain::new().with_bag_bytes((self.bytes / BAGS).min(MOST_BAG))
    }

    /// Without a limit it does not look: the count's line would come to every operation after each bag of any thread.
    #[inline]
    fn is_passed(self, domain: &Domain) -> bool {
        self.bytes != usize::MAX && domain.sealed_bytes() > self.bytes
    }

    /// Before an operation that changes the map, outside any guard of it.
    #[inline]
    pub(crate) fn admit(self, domain: &Domain) {
        if self.is_passed(domain) {
            self.wait(domain);
        }
    }

    #[cold]
    fn wait(self, domain: &Domain) {
        if self.then == OnBacklog::Proceed || !domain.may_wait() {
            return;
        }
        let backoff = Backoff::new();
        while !self.has_room(domain) {
            backoff.wait();
        }
    }

    /// Whether there is room for more, after freeing what can be freed.
    pub(crate) fn has_room(self, domain: &Domain) -> bool {
        // An attempt moves the epoch by one, and is in vain while the thread for maps at rest is at it; what was retired last is
        // free after three moves.
        (0..4).any(|_| {
            let has_room = !self.is_passed(domain);
            if !has_room {
                domain.collect();
            }
            has_room
        }) || !self.is_passed(domain)
    }
}
