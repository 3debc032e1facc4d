//! Node replication: one replica of a sequential structure per NUMA node. A shared log of operations keeps the replicas
//! consistent.
//!
//! After "How to implement any concurrent data structure" (Calciu, Sen, Balakrishnan, Aguilera).
//! `docs/mechanisms/node-replication.md` explains when *not* to use it, and the states and orderings of the
//! implementation.

mod background;
mod builder;
mod engine;
mod future;
mod handle;
mod observe;
mod replay;
mod rest;
mod room;
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

/// A [`Sequential`] structure that can be replicated, that is, one whose parts may be sent between threads. Implemented
/// for all such types.
pub trait Replicable: Sequential<Write: Send + Sync, Response: Send> + Send + Sync + 'static {}

impl<T: Sequential<Write: Send + Sync, Response: Send> + Send + Sync + 'static> Replicable for T {}

/// A sequential structure made concurrent by node replication.
///
/// Threads use it through [`handles`](Self::handle). Reads run in parallel, on the replica of the thread's node. One
/// thread per node, the *combiner*, appends the node's changes in batches to a log, which all replicas replay.
/// Operations are linearizable. They are blocking: a thread that is preempted while it combines delays its replica.
/// Memory: one copy of the structure per replica.
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

/// The part that the structure and its handles keep alive together. The background threads end when the last of them is
/// dropped.
struct Owner<T: Replicable> {
    /// Declared before `shared`, so that the threads are joined first.
    _background: Background,
    shared: Arc<Shared<T>>,
    placement: Placement,
}

impl<T: Replicable> Owner<T> {
    fn shared(&self) -> &Arc<Shared<T>> {
        &self.shared
    }

    /// Returns the replica for the calling thread.
    fn nearest_replica(&self) -> usize {
        match &self.placement {
            Placement::Node(topology) => topology.node_of_current() % self.shared.replicas.len(),
            Placement::InTurn(next) => next.fetch_add(1, Ordering::Relaxed) % self.shared.replicas.len(),
        }
    }
}

/// How a handle's replica is chosen.
enum Placement {
    /// The replica of the node on which the handle is first used.
    Node(Topology),
    /// The replicas in turn.
    InTurn(AtomicUsize),
}

impl<T: Replicable> Replicated<T> {
    /// Replicates the structure that `init` makes, with one replica per NUMA node and the default settings.
    ///
    /// # Panics
    /// As for [`Builder::build`].
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

    /// Returns a builder, for other settings.
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

    /// Returns a handle for a thread. The handle uses the replica of the node on which it is first used. If
    /// [`Builder::replicas`] was called, the replicas are assigned to the handles in turn instead. The number of
    /// handles is not limited, and handles may be made and dropped at any time.
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

    /// Returns a handle on the replica with this index.
    ///
    /// # Panics
    /// If there is no replica with this index.
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

    /// Returns the number of replicas.
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

    /// Calls `look` with a replica that reflects every change answered before the call.
    ///
    /// While `look` runs, changes through handles of this replica wait, and so do reads that begin after such a change.
    /// So `look` should be short, or should use a replica with few users. Handles of other replicas continue until the
    /// log is full at its largest size ([`Builder::largest_log`]).
    ///
    /// # Errors
    /// If the structure is poisoned.
    ///
    /// # Panics
    /// If there is no replica with this index. With debug assertions, also if `inspect` is called from inside an
    /// operation on the same structure, or if `look` calls such an operation; other builds hang in these cases.
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

    /// Returns a copy of a replica that reflects every change answered before the call.
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

    /// Brings all replicas up to date and drops the operations that all replicas have applied. A replica is skipped if
    /// a combiner is active on it, or if a reader stays inside it. [`Stats::log_in_use`] is the number of entries that
    /// are left. If another thread drops operations at the moment, the call waits for that thread.
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

    /// Returns counts of the structure's work so far.
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
        for at in 0..self.replicas.len() {
            self.refresh_idle(at)?;
        }
        self.recycle_all()
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats {
            log_growths: self.log.growths(),
            log_capacity: self.log.capacity() as u64,
            log_in_use: self.log.in_use(),
            log_bytes: self.log.bytes() as u64,
            // If several replicas are equally slow, the first of them is chosen.
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
