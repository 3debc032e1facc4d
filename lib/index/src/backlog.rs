//! Memory that waits for readers: its amount, and a limit on it.
//!
//! Removed and replaced objects are freed when no reader can still be using them. So one long read (a closure of
//! `get_with` that waits, a kept reference) delays the freeing of all of them. [`Garbage`] shows the amount. If a map
//! was built with a limit, writers wait at the limit, or the `try_` operations refuse.

use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Domain;

/// What operations that change a map do while more memory waits for readers than the map's `backlog_limit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnBacklog {
    /// They wait, before they begin, until enough memory can be freed, and help to free it. A thread that is reading
    /// the same map does not wait, since it would wait for itself. (A thread is reading inside a closure that
    /// receives a value, as that of `get_with`, `scan`, `update`, `compute` or `retain`, and while it has a `Ref` or an
    /// `Entry` that it has made itself.) The memory that such a thread removes and replaces meanwhile may exceed the
    /// limit, but the `try_` operations refuse in this case, too.
    ///
    /// Two cases can deadlock. In the first, a closure of `get_with` waits for something that another thread does after
    /// an insert: the two threads wait for each other. In the second, a task holds an `Entry`, moves to another thread,
    /// and inserts there: the insert waits for the task's own `Entry`. Such a task should use the `try_` operations.
    #[default]
    Wait,
    /// They proceed; only the `try_` operations refuse.
    Proceed,
}

/// Memory that was removed from a map and waits until no reader can still be using it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Garbage {
    /// The number of retired values, keys, nodes and search layers.
    pub objects: usize,
    /// The memory of these objects in bytes, including the allocator's overhead, without memory that values own
    /// elsewhere.
    pub bytes: usize,
    /// The number of threads that are reading now.
    pub readers: usize,
    /// The number of epochs by which the oldest reader is behind. If it is more than 0, the epoch cannot advance, so
    /// memory removed from now on cannot be reclaimed until this reader ends.
    pub lag: u64,
    /// The number of failed attempts to advance reclamation since the last success; each failed because of a reader. If
    /// this number and `bytes` both grow, some reader does not end.
    pub refused: u64,
}

impl Garbage {
    /// Returns the garbage of a domain. O(greatest number of threads that used the map at the same time).
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

/// A map's limit on memory that waits for readers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    bytes: usize,
    then: OnBacklog,
}

/// The number of bags (batches of garbage of one thread) that fill a limit. Each thread usually has three or four bags
/// that are not freed yet. So a few threads stay below the limit as long as every reader ends.
const BAGS: usize = 32;
const MOST_BAG: usize = 256 << 10;

impl Limit {
    pub(crate) const NONE: Self = Self { bytes: usize::MAX, then: OnBacklog::Proceed };

    pub(crate) fn new(bytes: usize, then: OnBacklog) -> Self {
        Self { bytes, then }
    }

    /// Makes a domain for a map with this limit.
    pub(crate) fn domain(self) -> Domain {
        Domain::new().with_bag_bytes((self.bytes / BAGS).min(MOST_BAG))
    }

    /// Returns whether the garbage exceeds the limit. Without a limit the count of garbage is not loaded: each bag (a
    /// batch of garbage) of any thread changes the count's cache line, which every operation would then have to fetch.
    #[inline]
    fn is_passed(self, domain: &Domain) -> bool {
        self.bytes != usize::MAX && domain.sealed_bytes() > self.bytes
    }

    /// Waits if the garbage exceeds the limit and the limit requires it. It is called before an operation that changes
    /// the map, outside any guard of the map.
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

    /// Frees what can be freed. Returns whether the garbage is then within the limit.
    pub(crate) fn has_room(self, domain: &Domain) -> bool {
        // One attempt frees everything if no reader is behind. It may fail while the thread that maintains idle maps
        // makes its own attempt, so several attempts are made.
        (0..4).any(|_| {
            let has_room = !self.is_passed(domain);
            if !has_room {
                domain.collect();
            }
            has_room
        }) || !self.is_passed(domain)
    }
}
