//! The domain: how one is made, its objects, and what it holds.

use core::fmt;

#[cfg(not(loom))]
use archipelago_platform::fork::outside_forks;
use archipelago_platform::sync::Arc;
#[cfg(not(loom))]
use archipelago_platform::sync::Weak;

#[cfg(not(loom))]
use super::background::Background;
use super::handle::Handle;
use super::horizon::{Horizon, Tuning};
use super::shared::Shared;
use super::version::{Link, Raw, Versioned};
use crate::clock::ClockKind;

/// Who looks for grace periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Collection {
    /// The threads that write, when their logs have grown, and those that read, when they meet many copies.
    Cooperative,
    /// A thread of the domain's own, asleep unless a log has grown; writers collect what it has found to be free.
    /// A `fork` of the process waits for what it does; the child has no such thread, and writers do its work there.
    Background,
}

/// Makes a [`Domain`].
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    clock: ClockKind,
    collection: Collection,
    memory_cap: usize,
    tuning: Tuning,
    /// Two versions only (RLU), and how many commits may be put off to be written back together.
    two_versions: Option<usize>,
}

impl Builder {
    pub(crate) fn two_versions(mut self, deferred: usize) -> Self {
        self.two_versions = Some(deferred);
        self
    }

    /// What commits and snapshots are ordered by. [`ClockKind::Logical`] if not set.
    #[must_use]
    pub fn clock(mut self, clock: ClockKind) -> Self {
        self.clock = clock;
        self
    }

    /// Who looks for grace periods. [`Collection::Cooperative`] if not set.
    #[must_use]
    pub fn collection(mut self, collection: Collection) -> Self {
        self.collection = collection;
        self
    }

    /// The most bytes that the domain may take: objects, versions, logs, and free blocks of the threads (three low
    /// watermarks each, or a 64th of the cap). No bound if not set.
    /// A transaction that would go beyond gets [`Abort::Full`](super::Abort::Full). What cannot be refused
    /// ([`Domain::alloc`], [`Domain::register`], a log's table) counts, and leaves transactions the less.
    #[must_use]
    pub fn memory_cap(mut self, bytes: usize) -> Self {
        self.memory_cap = bytes;
        self
    }

    /// When to collect.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// The domain.
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

/// Whether the domain is there.
#[cfg(not(loom))]
fn collect_in_background(shared: &Weak<Shared>) -> bool {
    // A child of the process would wait for ever for a log that this thread has locked.
    outside_forks(|| {
        let Some(shared) = shared.upgrade() else { return false };
        shared.uncounted(|| Handle::new(shared.clone()).collect_everybody());
        true
    })
}

/// What a domain holds at the moment; exact only while no thread uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Versions committed and not freed yet.
    pub versions: usize,
    /// Bytes in copies and logs, with the free blocks that threads keep for reuse.
    pub bytes: usize,
    /// Bytes in objects, but for up to 4 KiB that each handle has not told of. Without what the allocator adds.
    pub objects: usize,
    /// Handles alive.
    pub handles: usize,
    /// Handles inside a section.
    pub active_sections: usize,
    /// By how much time the oldest section is behind: commits with the logical clock, ticks with the hardware's.
    pub oldest_lag: u64,
}

/// Objects that are versioned together: snapshots see all of a domain's objects at one moment. Domains share nothing.
///
/// A reference to a shared state; cloning it is cheap.
#[derive(Clone)]
pub struct Domain {
    shared: Arc<Shared>,
}

impl Domain {
    /// A domain with a logical clock and cooperative collection.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// assert_eq!(Domain::new().stats().objects, 0);
    /// ```
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A domain made to measure.
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

    /// A way in. For one thread at a time; may be sent to another one between sections. O(handles).
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

    /// A new object, in the state it has until a commit changes it. It lives until it is retired; objects that never are
    /// outlive the domain.
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
        self.shared.horizon().budget().objects_changed(Link::<T>::BYTES as isize);
        Link::new(value, 0, self.shared.id())
    }

    /// As [`alloc`](Self::alloc), for who knows the object's domain.
    pub fn alloc_raw<T: Versioned>(&self, value: T) -> Raw<T> {
        self.shared.horizon().budget().objects_changed(Raw::<T>::BYTES as isize);
        Raw::new(value, 0)
    }

    /// The clock in use.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::{ClockKind, Domain};
    ///
    /// assert_eq!(Domain::new().clock(), ClockKind::Logical);
    /// ```
    pub fn clock(&self) -> ClockKind {
        self.shared.horizon().clock().kind()
    }

    /// What the domain holds now. O(handles); waits for no log, so it may be asked anywhere.
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
        // Before the slots, whose list only grows: what is in this one is then in that one.
        let left = self.shared.left().len();
        let slots = self.shared.slots();
        let sections = || slots.iter().filter_map(|slot| slot.record.section());
        Stats {
            versions: slots.iter().map(|slot| slot.versions()).sum(),
            bytes: horizon.budget().held(),
            objects: horizon.budget().objects(),
            handles: self.shared.handles(left, slots.len()),
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
