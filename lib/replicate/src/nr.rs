//! Node replication: one replica of a sequential structure per NUMA node, kept in step by a shared log of operations.
//!
//! After "How to implement any concurrent data structure" (Calciu, Sen, Balakrishnan, Aguilera). A guide, with when
//! *not* to use it, and the states and orderings behind it: `docs/mechanisms/node-replication.md`.

mod background;
mod builder;
mod engine;
mod future;
mod handle;
mod observe;
mod rest;
mod stats;

use core::fmt;

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::sync::Arc;
use archipelago_platform::topology::Topology;

use crate::poison::Poisoned;
use crate::reentry;
use crate::sequential::Sequential;
use background::Background;
use engine::Shared;

pub use builder::Builder;
pub use future::{ReadFuture, WriteFuture};
pub use handle::Handle;
pub use observe::Observer;
pub use stats::{BATCH_CLASSES, Stats};

/// A [`Sequential`] structure that can be replicated: any whose parts may go from thread to thread. Implemented for all
/// such types.
pub trait Replicable: Sequential<Write: Send + Sync, Response: Send> + Send + Sync + 'static {}

impl<T: Sequential<Write: Send + Sync, Response: Send> + Send + Sync + 'static> Replicable for T {}

/// A sequential structure made concurrent by node replication.
///
/// Threads work through [`handles`](Self::handle): reads on the replica of their own node, in parallel; changes in
/// batches that one thread per node, the *combiner*, appends to a log which all replicas replay. Linearizable; blocking
/// (a thread that is preempted while it combines holds up its replica); memory: one copy of the structure per replica.
///
/// ```
/// use archipelago::replicate::{Replicated, Sequential};
/// use std::collections::BTreeMap;
///
/// #[derive(Default)]
/// struct Map(BTreeMap<u64, u64>);
///
/// impl Sequential for Map {
///     type Read = u64;
///     type Write = (u64, u64);
///     type Response = Option<u64>;
///     fn read(&self, key: &u64) -> Option<u64> { self.0.get(key).copied() }
///     fn write(&mut self, &(key, value): &(u64, u64)) -> Option<u64> { self.0.insert(key, value) }
/// }
///
/// let map = Replicated::new(Map::default);
/// std::thread::scope(|scope| {
///     for thread in 0..4 {
///         let mut map = map.handle();
///         scope.spawn(move || map.write((thread, thread * 10)).unwrap());
///     }
/// });
/// assert_eq!(map.handle().read(&3), Ok(Some(30)));
/// ```
pub struct Replicated<T: Replicable> {
    owner: Arc<Owner<T>>,
}

/// What the structure and its handles keep alive together: background threads end when the last of them goes.
struct Owner<T: Replicable> {
    /// Before `shared`: the threads are joined first.
    _background: Background,
    shared: Arc<Shared<T>>,
    placement: Placement,
}

impl<T: Replicable> Owner<T> {
    fn shared(&self) -> &Arc<Shared<T>> {
        &self.shared
    }

    /// The replica for the calling thread.
    fn nearest_replica(&self) -> usize {
        match &self.placement {
            Placement::Node(topology) => topology.node_of_current() % self.shared.replicas.len(),
            Placement::InTurn(next) => next.fetch_add(1, Ordering::Relaxed) % self.shared.replicas.len(),
        }
    }
}

/// Which replica a handle works on.
enum Placement {
    /// That of the node on which the thread runs that uses it first.
    Node(Topology),
    /// One after the other.
    InTurn(AtomicUsize),
}

impl<T: Replicable> Replicated<T> {
    /// Replicates what `init` makes, one replica per NUMA node, with all settings at their defaults.
    ///
    /// # Panics
    /// As [`Builder::build`].
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let words = Replicated::new(|| Closures::new(Vec::<String>::new()));
    /// words.handle().update(|words| words.push("one".into()))?;
    /// assert_eq!(words.handle().view(|words| words.len()), Ok(1));
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn new(init: impl Fn() -> T + Sync) -> Self {
        Self::builder().build(init)
    }

    /// For other settings.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().replicas(2).build(|| Closures::new(7));
    /// assert_eq!(number.replicas(), 2);
    /// ```
    pub fn builder() -> Builder<T> {
        Builder::new()
    }

    /// A handle for a thread: it works on the replica of the node of the thread that uses it first. There may be any
    /// number, and they may come and go.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let sum = Replicated::new(|| Closures::new(0));
    /// std::thread::scope(|scope| {
    ///     for number in 1..=3 {
    ///         let mut sum = sum.handle();
    ///         scope.spawn(move || sum.update(move |sum| *sum += number));
    ///     }
    /// });
    /// assert_eq!(sum.handle().view(|sum| *sum), Ok(6));
    /// ```
    pub fn handle(&self) -> Handle<T> {
        Handle::new(&self.owner, None)
    }

    /// A handle on the replica with this index.
    ///
    /// # Panics
    /// If there is none.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().replicas(2).build(|| Closures::new(7));
    /// let (mut first, mut second) = (number.handle_on(0), number.handle_on(1));
    /// first.update(|number| *number += 1)?;
    /// assert_eq!(second.view(|number| *number)?, 8);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn handle_on(&self, replica: usize) -> Handle<T> {
        assert!(replica < self.replicas(), "there are {} replicas, none with index {replica}", self.replicas());
        Handle::new(&self.owner, Some(replica))
    }

    /// How many replicas there are.
    ///
    /// ```
    /// use archipelago::platform::topology::Topology;
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().topology(Topology::synthetic(4, 8)).build(|| Closures::new(7));
    /// assert_eq!(number.replicas(), 4);
    /// ```
    pub fn replicas(&self) -> usize {
        self.owner.shared.replicas.len()
    }

    /// Runs `look` on a replica, which reflects every change answered before the call.
    ///
    /// Meanwhile changes through handles of that replica wait, and so do reads that begin after such a change: let
    /// `look` be short, or choose a replica that few use. Other replicas' handles go on, until as many changes were
    /// appended as the log may hold at its largest ([`Builder::largest_log`]).
    ///
    /// # Errors
    /// If the structure is poisoned.
    ///
    /// # Panics
    /// If there is no replica with this index. With debug assertions also if it is called from inside an operation on
    /// the same structure, or `look` calls one; other builds hang.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let list = Replicated::new(|| Closures::new(vec![1, 2, 3]));
    /// list.handle().update(|list| list.push(4))?;
    /// assert_eq!(list.inspect(0, |list| list.state().iter().sum::<u64>())?, 10);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn inspect<R>(&self, replica: usize, look: impl FnOnce(&T) -> R) -> Result<R, Poisoned> {
        self.owner.shared.read(replica, look)
    }

    /// A copy of a replica, which reflects every change answered before the call.
    ///
    /// # Errors
    /// If the structure is poisoned.
    ///
    /// # Panics
    /// If there is no replica with this index.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let list = Replicated::new(|| Closures::new(vec![1, 2, 3]));
    /// let before = list.replica_snapshot(0)?;
    /// list.handle().update(|list| list.clear())?;
    /// assert_eq!(before.state(), &[1, 2, 3]);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn replica_snapshot(&self, replica: usize) -> Result<T, Poisoned>
    where
        T: Clone,
    {
        self.inspect(replica, T::clone)
    }

    /// Brings all replicas up to date and drops what all have applied. Replicas at which a combiner is at work are left
    /// to it, and so are those that a reader stays in ([`Stats::log_in_use`] says what is left to do).
    ///
    /// # Errors
    /// If the structure is poisoned.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().replicas(2).build(|| Closures::new(7));
    /// number.handle_on(0).update(|number| *number += 1)?;
    /// number.sync()?;
    /// assert_eq!(number.stats().log_in_use, 0);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn sync(&self) -> Result<(), Poisoned> {
        self.owner.shared.sync()
    }

    /// What the structure did so far.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::new(|| Closures::new(7));
    /// number.handle().update(|number| *number += 1)?;
    /// assert_eq!(number.stats().writes, 1);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.owner.shared.stats()
    }
}

impl<T: Replicable> Shared<T> {
    fn sync(&self) -> Result<(), Poisoned> {
        reentry::check(reentry::identity(self));
        self.poison.check()?;
        for (at, replica) in self.replicas.iter().enumerate() {
            if self.log.local_tail(at) < self.visible_tail()
                && let Some(mut turn) = self.try_turn(at)
            {
                replica.counts.helper_runs.add(1);
                self.refresh_idle(at, &mut turn)?;
            }
        }
        self.recycle_guarded()
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats {
            log_growths: self.log.growths(),
            log_capacity: self.log.capacity() as u64,
            log_in_use: self.log.in_use(),
            log_bytes: self.log.bytes() as u64,
            // Ties go to the first.
            slowest_replica: (0..self.replicas.len()).min_by_key(|&at| self.log.local_tail(at)).unwrap_or(0),
            ..Stats::default()
        };
        for replica in &self.replicas {
            replica.counts.add_to(&mut stats);
            stats.naps += replica.rest.naps.get();
        }
        stats
    }
}

impl<T: Replicable> fmt::Debug for Replicated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated").field("replicas", &self.replicas()).finish_non_exhaustive()
    }
}
