//! Latches in addition to a page's version lock, as McKenzie's thesis (see `blink.rs`) compares them.
//!
//! Writers always take the page's version lock, which shows readers that a page has changed. A policy may let writers
//! take a reader-writer lock first, and may let readers take it too. Then a reader never runs at the same time as a
//! writer of its page, and the reader's validation of the version always succeeds. All other code is the same for all
//! policies.

use archipelago_sync::lock::{
    CohortRw, Neutral, PreferWriters, Preference, RawDistributedRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// A reader-writer latch of a page.
pub trait Latch: Send + Sync + 'static {
    /// A guard that holds the latch for reading.
    type Read<'a>
    where
        Self: 'a;

    /// A guard that holds the latch for writing.
    type Write<'a>
    where
        Self: 'a;

    /// Makes a free latch.
    fn new() -> Self;

    /// Waits until no thread holds the latch for writing, and takes it for reading.
    fn read(&self) -> Self::Read<'_>;

    /// Waits until no thread holds the latch, and takes it for writing.
    fn write(&self) -> Self::Write<'_>;
}

/// No latch in addition to the version lock that every page has. Readers validate versions.
#[derive(Debug)]
pub struct VersionOnly;

impl Latch for VersionOnly {
    type Read<'a> = ();
    type Write<'a> = ();

    fn new() -> Self {
        VersionOnly
    }

    #[inline(always)]
    fn read(&self) {}

    #[inline(always)]
    fn write(&self) {}
}

/// A standard reader-writer lock, with one count of readers for all NUMA nodes.
#[derive(Debug)]
pub struct Central(RwLock<RawDistributedRwLock, ()>);

impl Latch for Central {
    type Read<'a> = RwLockReadGuard<'a, RawDistributedRwLock, ()>;
    type Write<'a> = RwLockWriteGuard<'a, RawDistributedRwLock, ()>;

    fn new() -> Self {
        Central(RwLock::from_raw(RawDistributedRwLock::with_slots(1), ()))
    }

    fn read(&self) -> Self::Read<'_> {
        self.0.read()
    }

    fn write(&self) -> Self::Write<'_> {
        self.0.write()
    }
}

/// A cohort reader-writer lock. It has a count of readers for each NUMA node, and a writer hands the lock to a waiting
/// writer of its own node first.
#[derive(Debug)]
pub struct Cohort<P: Preference + 'static>(RwLock<CohortRw<P>, ()>);

/// C-RW-WP: writers have priority.
pub type CohortWp = Cohort<PreferWriters>;

/// C-RW-NP: threads are served in the order of arrival.
pub type CohortNp = Cohort<Neutral>;

impl<P: Preference + Send + Sync + 'static> Latch for Cohort<P> {
    type Read<'a> = RwLockReadGuard<'a, CohortRw<P>, ()>;
    type Write<'a> = RwLockWriteGuard<'a, CohortRw<P>, ()>;

    fn new() -> Self {
        Cohort(RwLock::from_raw(CohortRw::new(), ()))
    }

    fn read(&self) -> Self::Read<'_> {
        self.0.read()
    }

    fn write(&self) -> Self::Write<'_> {
        self.0.write()
    }
}
