//! The settings of a replicated structure, and its construction.

use core::fmt;

use archipelago_platform::atomic::{AtomicU64, AtomicUsize};
use archipelago_platform::sync::{Arc, Mutex};
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_platform::topology::Topology;
use archipelago_sync::log::Log;

use super::background::Background;
use super::engine::{Replica, Shared};
use super::observe::{Observed, Observer};
use super::{Owner, Placement, Replicable, Replicated};
use crate::poison::Poison;

/// Default number of entries of the log at the start. The log grows when it is full.
const LOG_CAPACITY: usize = 1 << 10;
/// Default limit of the size of a segment, in bytes.
const LARGEST_LOG_BYTES: usize = 64 << 20;
const LEAST_SLOTS: usize = 8;

/// The settings of a [`Replicated`]. Made by [`Replicated::builder`].
pub struct Builder<T: Replicable> {
    replicas: Option<usize>,
    topology: Option<Topology>,
    log_capacity: Option<usize>,
    largest_log: Option<usize>,
    min_batch: usize,
    slots: Option<usize>,
    helper: Option<Duration>,
    dedicated: bool,
    observer: Option<Box<dyn Observer<T::Write>>>,
}

impl<T: Replicable> Builder<T> {
    pub(super) fn new() -> Self {
        Self {
            replicas: None,
            topology: None,
            log_capacity: None,
            largest_log: None,
            min_batch: 1,
            slots: None,
            helper: None,
            dedicated: false,
            observer: None,
        }
    }

    /// Sets the number of replicas. Handles are assigned to them in turn, in the order in which the handles are first
    /// used.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().replicas(2).build(|| Closures::new(7));
    /// let (mut one, mut other) = (number.handle(), number.handle());
    /// one.view(|_| ())?;
    /// other.view(|_| ())?;
    /// assert_ne!(one.replica(), other.replica());
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = Some(replicas.max(1));
        self
    }

    /// Sets one replica for every node of `topology`. A handle uses the replica of the node on which it is first used.
    /// This is the default, with [`Topology::current`].
    ///
    /// ```
    /// use archipelago::platform::topology::Topology;
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().topology(Topology::synthetic(2, 4)).build(|| Closures::new(7));
    /// assert_eq!(number.replicas(), 2);
    /// ```
    #[must_use]
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self.replicas = None;
        self
    }

    /// Sets the initial number of entries of the log, rounded up to a power of two. (With one replica and no observer,
    /// the log has no reader, and nothing is written to it.) The log grows when it is full, up to
    /// [`largest_log`](Self::largest_log), and shrinks again after it was at most half full for a long time. So the
    /// default is safe for all uses.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().log_capacity(1 << 16).build(|| Closures::new(7));
    /// number.handle().update(|number| *number += 1)?;
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    #[must_use]
    pub fn log_capacity(mut self, entries: usize) -> Self {
        self.log_capacity = Some(entries);
        self
    }

    /// Sets the number of entries to which the log may grow, rounded up to a power of two (and down to a size of 512
    /// MiB). The default is the number that fits in 64 MiB: four million for operations of one word.
    ///
    /// This limit matters if a replica stops, because a reader stays inside it ([`inspect`](Replicated::inspect),
    /// [`view`](super::Handle::view)) or the system has preempted its combiner. The other replicas continue for as many
    /// changes as the log can hold. When the log has its largest size and is full, a thread that appends waits until
    /// the slowest replica continues. [`Stats`](super::Stats) tells which replica is the slowest, how often a change
    /// had to wait, and the size of the log. The log's memory is at most that of two and a half times this number of
    /// entries, plus the memory that the operations own.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().largest_log(1 << 20).build(|| Closures::new(7));
    /// number.handle().update(|number| *number += 1)?;
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    #[must_use]
    pub fn largest_log(mut self, entries: usize) -> Self {
        self.largest_log = Some(entries);
        self
    }

    /// Sets a minimum batch size. A combiner with fewer operations than this number, and fewer than the replica has
    /// handles, waits a little for more. The default is 1: no waiting.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().min_batch(8).build(|| Closures::new(7));
    /// number.handle().update(|number| *number += 1)?; // one handle: there is nothing to wait for
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    #[must_use]
    pub fn min_batch(mut self, operations: usize) -> Self {
        self.min_batch = operations;
        self
    }

    /// Sets the number of slots per replica, in which threads post operations. If there are more threads than slots,
    /// the threads share them: a thread that finds no free slot waits in line for one. The default is two slots per CPU
    /// of the node, but at least 8.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().slots(16).build(|| Closures::new(7));
    /// number.handle().update(|number| *number += 1)?;
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    #[must_use]
    pub fn slots(mut self, per_replica: usize) -> Self {
        self.slots = Some(per_replica);
        self
    }

    /// Starts a thread per replica, its *helper*, that refreshes the replica while no thread of its node does (paper
    /// §3.9, "inactive replica"). A helper is bound to its replica's node. It sleeps until the replica lags behind by
    /// an eighth of the log, at most for this interval. So replicas that no handle uses do not fill the log, their memory
    /// stays in their nodes' caches, and operations are dropped soon. Combiners of other replicas do this work only if
    /// the log is full and a helper makes no room for a while; without helpers they do it, a little at a time, when
    /// replicas lag behind by an eighth of the log. A single replica
    /// without an observer gets no helper, since it is always up to date.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    /// use std::time::Duration;
    ///
    /// let number = Replicated::builder().replicas(2).helper(Duration::from_millis(1)).build(|| Closures::new(7));
    /// number.handle_on(0).update(|number| *number += 1)?;
    /// // Replica 1 has the change soon, though no handle uses it.
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    #[must_use]
    pub fn helper(mut self, interval: Duration) -> Self {
        self.helper = Some(interval);
        self
    }

    /// Starts a thread per replica that combines and replays (paper §3.2). This suits structures that many threads per
    /// node use. Each of these threads occupies a CPU while there are changes. After about a millisecond without
    /// changes the thread sleeps, until a handle of its replica posts an operation, or the replica lags behind by an
    /// eighth of the log.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let number = Replicated::builder().replicas(2).dedicated_combiners().build(|| Closures::new(7));
    /// assert_eq!(number.handle().update(|number| { *number += 1; *number })?, 8);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    #[must_use]
    pub fn dedicated_combiners(mut self) -> Self {
        self.dedicated = true;
        self
    }

    /// Shows every operation to `observer`, in log order, before the operation is applied or answered.
    ///
    /// ```
    /// use archipelago::replicate::{FromFns, Observer, Replicated};
    /// use std::sync::{Arc, Mutex};
    ///
    /// struct Journal(Arc<Mutex<Vec<u64>>>);
    ///
    /// impl Observer<u64> for Journal {
    ///     fn operation(&mut self, _: u64, more: &u64) {
    ///         self.0.lock().unwrap().push(*more);
    ///     }
    ///
    ///     fn commit(&mut self, _: u64) {} // here a file would be synchronized
    /// }
    ///
    /// let journal = Arc::new(Mutex::new(Vec::new()));
    /// let add = |sum: &mut u64, more: &u64| *sum += more;
    /// let sum = Replicated::builder()
    ///     .observer(Journal(journal.clone()))
    ///     .build(|| FromFns::new(0, |_: &u64, (): &()| (), add));
    /// let mut sum = sum.handle();
    /// sum.write(2)?;
    /// sum.write(3)?;
    /// assert_eq!(*journal.lock().unwrap(), [2, 3]);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    #[must_use]
    pub fn observer(mut self, observer: impl Observer<T::Write> + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Builds the structure. `init` is called once for every replica. If there are several nodes, it is called on a
    /// thread of the replica's node, so that the replica's memory is allocated there. All calls must return equal
    /// structures.
    ///
    /// # Panics
    /// If `init` panics, or a thread cannot be started.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    /// use std::collections::HashMap;
    ///
    /// let map = Replicated::builder().build(|| Closures::new(HashMap::from([("one", 1)])));
    /// assert_eq!(map.handle().view(|map| map["one"]), Ok(1));
    /// ```
    pub fn build(self, init: impl Fn() -> T + Sync) -> Replicated<T> {
        let topology = self.topology.unwrap_or_else(|| Topology::current().clone());
        let replicas = self.replicas.unwrap_or(topology.nodes().len());
        let capacity = self.log_capacity.unwrap_or(LOG_CAPACITY);
        // Upper bound of an entry's size: the operation and its state, padded to the operation's alignment.
        let fitting = LARGEST_LOG_BYTES / (size_of::<T::Write>() + align_of::<T::Write>());
        let largest = self.largest_log.unwrap_or_else(|| 1 << fitting.max(1).ilog2()).max(capacity);
        let readers = replicas + usize::from(self.observer.is_some());
        let (log, mut cursors) = Log::new(readers, capacity, largest.max(2));
        let observer = self.observer.map(|observer| {
            let cursor = cursors.pop().expect("one cursor more than replicas");
            Mutex::new(Observed::new(cursor, observer))
        });
        let cpus = topology.cpus().len().div_ceil(replicas);
        let slots = self.slots.unwrap_or((2 * cpus).max(LEAST_SLOTS));
        let make = |(at, cursor)| on_node(&topology, at, || Replica::new(init(), cursor, slots, cpus));
        let shared = Arc::new(Shared {
            log,
            replicas: cursors.into_iter().enumerate().map(make).collect(),
            poison: Poison::default(),
            observer,
            observed: AtomicU64::new(0),
            exclusive: Default::default(),
            min_batch: self.min_batch,
            dedicated: self.dedicated,
            helped: self.helper.is_some(),
        });
        let background = Background::start(&shared, self.helper, &topology);
        let placement = match self.replicas {
            Some(_) => Placement::InTurn(AtomicUsize::new(0)),
            None => Placement::Node(topology),
        };
        Replicated { owner: Arc::new(Owner { _background: background, shared, placement }) }
    }
}

/// Calls `make` on a thread of the node with index `at`, if there are several real nodes.
fn on_node<R: Send>(topology: &Topology, at: usize, make: impl FnOnce() -> R + Send) -> R {
    let Some(node) = topology.nodes().get(at) else { return make() };
    if topology.is_synthetic() || topology.nodes().len() == 1 {
        return make();
    }
    let cpu = node.cpus[0];
    let pinned = move || {
        // If pinning fails, the memory may be on another node: slower but still correct.
        let _ = thread::pin_current(cpu);
        make()
    };
    thread::scope(|scope| scope.spawn(pinned).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl<T: Replicable> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("replicas", &self.replicas)
            .field("log_capacity", &self.log_capacity)
            .field("largest_log", &self.largest_log)
            .field("min_batch", &self.min_batch)
            .field("slots", &self.slots)
            .field("helper", &self.helper)
            .field("dedicated", &self.dedicated)
            .finish_non_exhaustive()
    }
}
