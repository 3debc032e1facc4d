//! Latches beside a page's version: what the thesis compares.
//!
//! Writers always take the page's version lock, which tells readers that a page has changed. A policy may have them take a
//! reader-writer lock first, and may have readers take it too: then readers never meet a writer, and the versions that they
//! validate are always right. Everything else is the same text for all policies.

use archipelago_sync::lock::{
    CohortRw, Neutral, PreferWriters, Preference, RawDistributedRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// A reader-writer latch of a page.
pub trait Latch: Send + Sync + 'static {
    /// Holds the latch for reading.
    type Read<'a>
    where
        Self: 'a;

    /// Holds the latch for writing.
    type Write<'a>
    where
        Self: 'a;

    /// A free latch.
    fn new() -> Self;

    /// Waits until no thread writes.
    fn read(&self) -> Self::Read<'_>;

    /// Waits until no thread reads or writes.
    fn write(&self) -> Self::Write<'_>;
}

/// No latch but the version lock that every page has. Readers go by versions.
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

/// A standard reader-writer lock: one count of readers, whatever their node.
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

/// A cohort reader-writer lock: a count of readers for each node, and writers that hand it on within theirs.
#[derive(Debug)]
pub struct Cohort<P: Preference + 'static>(RwLock<CohortRw<P>, ()>);

/// C-RW-WP: writers go first.
pub type CohortWp = Cohort<PreferWriters>;

/// C-RW-NP: in order of arrival.
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
