//! The domain: its builder, its objects, and its statistics.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use archipelago_platform::atomic::Ordering;
#[cfg(not(loom))]
use archipelago_platform::fork::outside_forks;
use archipelago_platform::sync::Arc;
#[cfg(not(loom))]
use archipelago_platform::sync::Weak;

#[cfg(not(loom))]
use super::background::Background;
use super::handle::Handle;
use super::horizon::{Horizon, Tuning};
use super::pool::fresh_object;
use super::shared::Shared;
use super::version::{Link, Raw, Versioned};
use crate::clock::ClockKind;

/// Which threads collect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Collection {
    /// Threads that write, when their logs have grown, and threads that read, when they meet many copies.
    Cooperative,
    /// A thread of the domain, which sleeps until a log has grown. It advances the horizon, and collects the logs that
    /// no other thread is collecting. Writers, too, free what the horizon allows. A `fork` of the process waits while
    /// the thread works, for at most a second. The child does not have the thread, so writers do its work there.
    Background,
}

/// Makes a [`Domain`].
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    clock: ClockKind,
    collection: Collection,
    memory_cap: usize,
    tuning: Tuning,
    /// For RLU, which has only two versions: how many commits may be deferred and written back together.
    two_versions: Option<usize>,
}

impl Builder {
    pub(crate) fn two_versions(mut self, deferred: usize) -> Self {
        self.two_versions = Some(deferred);
        self
    }

    /// Sets the clock that orders commits and snapshots. The default is [`ClockKind::Logical`].
    #[must_use]
    pub fn clock(mut self, clock: ClockKind) -> Self {
        self.clock = clock;
        self
    }

    /// Sets which threads collect. The default is [`Collection::Cooperative`].
    #[must_use]
    pub fn collection(mut self, collection: Collection) -> Self {
        self.collection = collection;
        self
    }

    /// Sets the most bytes that the domain may take for objects, versions, logs, and threads' free blocks. (Each thread
    /// keeps free blocks of at most three times the present low watermark, see `Tuning`, and of at most a 64th of the
    /// cap.) The default is no bound. A transaction that would exceed the cap gets [`Abort::Full`](super::Abort::Full).
    /// Allocations that cannot be refused ([`Domain::alloc`], [`Domain::register`], a log's table) count, too, and
    /// leave less for transactions.
    #[must_use]
    pub fn memory_cap(mut self, bytes: usize) -> Self {
        self.memory_cap = bytes;
        self
    }

    /// Sets when to collect.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Builds the domain.
    pub fn build(self) -> Domain {
        let horizon = || Horizon::new(self.clock, self.memory_cap, self.tuning, self.two_versions);
        #[cfg(not(loom))]
        if self.collection == Collection::Background {
            let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
                let shared = shared.clone();
                Shared::new(horizon(), Some(Background::start(move || collect_in_background(&shared))))
            });
            return Domain { shared };
        }
        Domain { shared: Arc::new(Shared::new(horizon(), None)) }
    }
}

/// Collects, if the domain still exists. Returns whether it does.
#[cfg(not(loom))]
fn collect_in_background(shared: &Weak<Shared>) -> bool {
    // A child process would wait forever for a log that this thread has locked.
    outside_forks(|| {
        let Some(shared) = shared.upgrade() else { return false };
        Handle::uncounted(shared).collect_everybody();
        true
    })
}

/// Statistics of a domain; exact only while no thread uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Committed versions that are not freed yet.
    pub versions: usize,
    /// Bytes of copies, logs and handles' slots, including free blocks that threads keep for reuse. Without a cap, they
    /// include up to 8 KiB that each handle has freed and not yet reported.
    pub bytes: usize,
    /// Bytes of objects, without up to 4 KiB that each handle has not yet reported, and without the allocator's
    /// overhead.
    pub objects: usize,
    /// Handles alive.
    pub handles: usize,
    /// Handles inside a section, that is, with a snapshot or a transaction in progress.
    pub active_sections: usize,
    /// How far the oldest section is behind: in commits with the logical clock, in ticks with the hardware clock.
    pub oldest_lag: u64,
}

/// Objects that are versioned together: snapshots see all of a domain's objects at one moment. No snapshot or
/// transaction concerns two domains.
///
/// The value is a reference to shared state; cloning it is cheap.
#[derive(Clone)]
pub struct Domain {
    shared: Arc<Shared>,
}

impl Domain {
    /// Makes a domain with a logical clock and cooperative collection.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// assert_eq!(Domain::new().stats().objects, 0);
    /// ```
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder of a domain.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::{Collection, Domain};
    ///
    /// let domain = Domain::builder().collection(Collection::Background).memory_cap(1 << 30).build();
    /// assert_eq!(domain.stats().objects, 0);
    /// ```
    pub fn builder() -> Builder {
        let tuning = Tuning::default();
        Builder {
            clock: ClockKind::Logical,
            collection: Collection::Cooperative,
            memory_cap: usize::MAX,
            tuning,
            two_versions: None,
        }
    }

    /// Registers a handle. One thread at a time uses it; it may be sent to another thread between sections. O(handles).
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let number = domain.alloc(0);
    /// std::thread::scope(|scope| {
    ///     for _ in 0..2 {
    ///         let mut handle = domain.register();
    ///         scope.spawn(move || handle.update(|tx| Ok(*tx.lock(number)? += 1)));
    ///     }
    /// });
    /// assert_eq!(*domain.register().read().get(number), 2);
    /// # domain.register().update(|tx| unsafe { tx.retire(number) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    pub fn register(&self) -> Handle {
        Handle::new(self.shared.clone())
    }

    /// Makes an object with its first value. It lives until it is retired; objects that are never retired outlive the
    /// domain. Sections that began before this call may use the link only if the object is not
    /// [retired](super::Tx::retire) as long as they last.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let number = domain.alloc(7);
    /// assert_eq!(*domain.register().read().get(number), 7);
    /// // SAFETY: the link is not used any more.
    /// domain.register().update(|tx| unsafe { tx.retire(number) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    pub fn alloc<T: Versioned>(&self, value: T) -> Link<T> {
        let memory = self.object_memory(Link::<T>::LAYOUT);
        // SAFETY: fresh memory.
        unsafe { Link::new_in(memory, value, self.birth(), self.shared.horizon().id()) }
    }

    /// As [`alloc`](Self::alloc), for structures that know the object's domain.
    pub fn alloc_raw<T: Versioned>(&self, value: T) -> Raw<T> {
        let memory = self.object_memory(Raw::<T>::LAYOUT);
        // SAFETY: fresh memory.
        unsafe { Raw::new_in(memory, value, self.birth()) }
    }

    /// Counts an object, and returns memory for it.
    fn object_memory(&self, layout: Layout) -> NonNull<u8> {
        self.shared.horizon().budget().objects_changed(layout.size() as isize);
        fresh_object(layout)
    }

    /// Returns the birth of an object that is made now: sections that begin later are at or above it.
    fn birth(&self) -> u64 {
        self.shared.horizon().clock().floor()
    }

    /// Returns the clock's kind.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::{ClockKind, Domain};
    ///
    /// assert_eq!(Domain::new().clock(), ClockKind::Logical);
    /// ```
    pub fn clock(&self) -> ClockKind {
        self.shared.horizon().clock().kind()
    }

    /// Returns the domain's statistics. O(handles). Waits for no lock of a log, so it may be called anywhere.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let mut handle = domain.register();
    /// assert_eq!((domain.stats().handles, domain.stats().active_sections), (1, 0));
    /// let snapshot = handle.read();
    /// assert_eq!(domain.stats().active_sections, 1);
    /// # drop(snapshot);
    /// ```
    pub fn stats(&self) -> Stats {
        let horizon = self.shared.horizon();
        let now = horizon.clock().begin();
        let slots = self.shared.slots();
        let sections = || slots.iter().filter_map(|slot| slot.record.section());
        Stats {
            versions: slots.iter().map(|slot| slot.versions()).sum(),
            bytes: horizon.budget().held(),
            objects: horizon.budget().objects(),
            handles: self.shared.handles().load(Ordering::Relaxed),
            active_sections: sections().count(),
            oldest_lag: sections().map(|section| now.saturating_sub(section.local)).max().unwrap_or(0),
        }
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}
