//! Read-log-update (RLU): a two-version mechanism with the same programming model as [MV-RLU](crate::mvrlu), its
//! competitor.
//!
//! After Matveev, Shavit, Felber and Marlier (SOSP 2015). An object has a master version and at most one copy, which
//! belongs to the writer that has locked the object. A commit makes the copies visible. It then *waits* until all
//! sections that began earlier have ended, writes the copies back to the masters, and unlocks the objects. MV-RLU
//! avoids this wait. This module exists to measure the difference.
//!
//! RLU shares everything else with MV-RLU: objects, links, handles, snapshots, transactions, clocks, and the helped
//! stamp. The helped stamp closes a gap of the original, which concerns two writers that commit together and a reader
//! that begins between them.
//!
//! # The paper's rules and their implementation
//! - *A writer's clock is the global clock plus one, published before the global clock moves.* When all copies are
//!   linked, the commit draws its stamp by the increment of the clock itself. A thread that meets the set of copies
//!   before it has a stamp draws one, too. One of the drawn stamps wins.
//! - *A reader takes a locked object's copy if its local clock is at or above the writer's.* The test is `stamp <=
//!   local`.
//! - *Otherwise it reads the master.* There is no other version. The master changes only when no section's local time
//!   is below the stamp.
//! - *A run counter tells whether a thread is in a section.* A record contains its section's local time, or a lower
//!   bound of it until the time is known.
//! - *A commit waits for running sections with a smaller local clock.* It waits until the horizon has reached the
//!   stamp. From then on, no section's local time is below the stamp.
//! - *Write back, then unlock.* The commit copies the value to the master, then removes the copy from its object
//!   (Release). The copy's presence is the lock.
//! - *A log is reused after another such wait.* Copies are freed when the horizon has reached a tick that was drawn
//!   after the copies were removed.
//! - *With deferral, a thread that meets a locked object makes its holder synchronize.* The thread writes the holder's
//!   log back itself, under the log's lock.
//!
//! *Deferral*: up to `deferred` commits of a handle are written back together, after one wait. Until then the objects
//! stay locked, and a writer that meets one of them writes the holder's log back itself. In the original, a deferred
//! commit becomes visible to others only at the write-back. Here it is visible at once, so deferral changes only the
//! speed.
//!
//! Sections begin with a fence instead of relying on `membarrier`, because commits scan the sections often.

use crate::mvrlu::{self, ClockKind, Handle, Link, Raw, Stats, Versioned};

/// Objects with two versions. See [the module](self).
///
/// ```
/// use archipelago::sync::{mvrlu::ClockKind, rlu::Domain};
///
/// let domain = Domain::new(ClockKind::Logical, 0);
/// let link = domain.alloc(1_u64);
/// let mut handle = domain.register();
/// handle.update(|tx| {
///     *tx.lock(link)? += 1;
///     Ok(())
/// })?;
/// assert_eq!(*handle.read().get(link), 2);
/// # handle.update(|tx| unsafe { tx.retire(link) })?;
/// # Ok::<(), archipelago::sync::mvrlu::Full>(())
/// ```
#[derive(Clone, Debug)]
pub struct Domain(mvrlu::Domain);

impl Domain {
    /// Makes a domain ordered by this clock. Its handles defer the write-back of up to `deferred` commits.
    pub fn new(clock: ClockKind, deferred: usize) -> Self {
        Self(mvrlu::Domain::builder().clock(clock).two_versions(deferred).build())
    }

    /// As [`mvrlu::Domain::register`]. In this domain, a commit that is not deferred waits for the sections of other
    /// handles that began before its stamp. A thread waits for the same sections in two more cases: before a
    /// transaction locks an object whose change is not yet written back, and after an attempt that met such an object.
    /// So a thread that is in a snapshot of one handle may wait for itself, for ever, if it commits by another handle,
    /// or locks a changed object by it. An aborted attempt that met no such object, [`Handle::collect`] and the drop of
    /// a handle wait for no section.
    pub fn register(&self) -> Handle {
        self.0.register()
    }

    /// As [`mvrlu::Domain::alloc`].
    pub fn alloc<T: Versioned>(&self, value: T) -> Link<T> {
        self.0.alloc(value)
    }

    /// As [`alloc`](Self::alloc), for callers that keep track of the object's domain themselves.
    pub fn alloc_raw<T: Versioned>(&self, value: T) -> Raw<T> {
        self.0.alloc_raw(value)
    }

    /// As [`mvrlu::Domain::stats`].
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }
}
