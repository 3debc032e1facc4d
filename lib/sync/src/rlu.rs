//! Read-log-update: the two-version rival of [MV-RLU](crate::mvrlu), with the same programming model.
//!
//! After Matveev, Shavit, Felber and Marlier (SOSP 2015). An object has its master and at most one copy, the one of the
//! writer that holds it. A commit makes the copies visible, *waits* until all sections from before have ended, writes
//! the copies back and only then unlocks: that wait is what MV-RLU does away with, and what this module is for
//! measuring.
//!
//! It shares everything else with MV-RLU: objects, links, handles, snapshots, transactions, clocks, and the helped
//! stamp, which closes a gap of the original (two writers that commit together and a reader that begins between them).
//!
//! # The paper's rules, and what keeps them here
//! - *A writer's clock is the global clock plus one, published before the global clock moves.* The stamp is drawn by
//!   the addition itself, when all copies are linked; who meets the set before it says its stamp draws one too, one
//!   of which wins.
//! - *A reader takes a locked object's copy if its local clock is at or above the writer's.* `stamp <= local`.
//! - *Otherwise it reads the master.* There is no other version; the master changes only when no section is below the
//!   stamp.
//! - *A run counter says who is in a section.* A record says its section's local time, or a bound before that is
//!   known.
//! - *A commit waits for sections that are under way with a smaller local clock.* Until the horizon has reached the
//!   stamp: then no section is below it, nor will be.
//! - *Write back, then unlock.* Copying the value, then taking the copy out of its object (Release), which is the
//!   lock.
//! - *A log is used again after another such wait.* Copies are freed when the horizon has reached a tick drawn after
//!   that.
//! - *With deferral, who meets a locked object has its holder synchronize.* It writes the holder's log back, under
//!   its lock.
//!
//! *Deferral*: up to this many commits of a handle are written back together, after one wait. Meanwhile the objects
//! stay locked; a writer that meets one writes the holder's log back itself. In the original a deferred commit isn't
//! visible to others until then; here it is at once, so deferral changes speed and nothing else.
//!
//! Sections enter with a fence, since commits scan too often for membarriers.

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
    /// A domain ordered by this clock, whose handles put off the write-back of up to `deferred` commits.
    pub fn new(clock: ClockKind, deferred: usize) -> Self {
        Self(mvrlu::Domain::builder().clock(clock).two_versions(deferred).build())
    }

    /// As [`mvrlu::Domain::register`]. With this domain, a commit waits for the sections of other handles: a thread that
    /// commits by one handle while it is in a snapshot by another waits for itself.
    pub fn register(&self) -> Handle {
        self.0.register()
    }

    /// As [`mvrlu::Domain::alloc`].
    pub fn alloc<T: Versioned>(&self, value: T) -> Link<T> {
        self.0.alloc(value)
    }

    /// As [`alloc`](Self::alloc), for who knows the object's domain.
    pub fn alloc_raw<T: Versioned>(&self, value: T) -> Raw<T> {
        self.0.alloc_raw(value)
    }

    /// As [`mvrlu::Domain::stats`].
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }
}
