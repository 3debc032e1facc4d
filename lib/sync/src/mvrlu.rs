//! Multi-version read-log-update: consistent snapshots for readers, atomic changes of many objects for writers.
//!
//! After "MV-RLU: Scaling Read-Log-Update with Multi-Versioning" (Kim et al., ASPLOS 2019; thesis chapter 3). Objects
//! live in a [`Domain`]. A thread registers for a [`Handle`]. In [`Handle::read`] it sees all objects as of one moment.
//! In [`Handle::update`] it locks the objects that it changes, one by one, and commits all changes atomically.
//!
//! ```
//! use archipelago::sync::mvrlu::{Domain, Link};
//!
//! #[derive(Clone, Copy)]
//! struct Account {
//!     balance: i64,
//! }
//!
//! let domain = Domain::new();
//! let (a, b) = (domain.alloc(Account { balance: 10 }), domain.alloc(Account { balance: 0 }));
//! let mut handle = domain.register();
//! handle.update(|tx| {
//!     tx.lock(a)?.balance -= 7;
//!     tx.lock(b)?.balance += 7;
//!     Ok(())
//! })?;
//! let snapshot = handle.read();
//! assert_eq!((snapshot.get(a).balance, snapshot.get(b).balance), (3, 7));
//! # drop(snapshot);
//! # handle.update(|tx| unsafe { tx.retire(a)?; tx.retire(b) })?;
//! # Ok::<(), archipelago::sync::mvrlu::Full>(())
//! ```
//!
//! # What is promised
//! - A snapshot is consistent, and not older than its begin: with either clock it has all commits that had
//!   returned by then, including those of its own thread.
//! - Transactions are snapshot-isolated: each sees one moment, and if two concurrent transactions lock the same
//!   object, one of them is aborted. Write skew is possible; [`Tx::lock_const`] and
//!   [`Handle::update_serializable`] prevent it.
//! - Readers are never aborted, and never wait, with one exception. With [`ClockKind::Hardware`], a reader that meets a
//!   version younger than the clocks' uncertainty waits, for at most twice this uncertainty. Writers do not wait for
//!   readers: a stuck reader costs one version of each object, because versions in between are pruned, and objects that
//!   were made and retired since are freed. (If more sections are open than processors exist, a writer whose log has
//!   grown pauses for milliseconds, once per oldest section.)
//! - A domain has a thread of its own only if this is configured ([`Collection`]). An idle domain does nothing.
//!
//! # Memory
//! An object takes one word in addition to its value, and each version at least a cache line. The threads that write
//! collect versions. [`Builder::memory_cap`] bounds all memory, and [`Domain::stats`] shows it. Objects are freed when
//! they are retired ([`Tx::retire`]) and no section can see them; objects that are never retired outlive the domain.
//!
//! # When not to use it
//! - Few objects that receive nearly all changes: transactions on them abort each other. Combining
//!   (`archipelago-replicate`) carries such changes out in batches.
//! - Large objects: each change copies the whole object.
//! - Readers that need only the newest state of single objects: RCU is cheaper.
//!
//! # How it is built
//! | file | idea |
//! |---|---|
//! | `clock` | the shared counter or the hardware clock, and the guarantees of their times |
//! | `version` | masters (the objects' own memory), copies (newer versions, in a chain above the master), stamps; helping to stamp |
//! | `pool` | memory of copies and of retired objects, the cap |
//! | `patience` | how to wait for a thread that may not be running |
//! | `record` | what a handle publishes: the time of its section, and its walks of chains |
//! | `grown` | a list that only grows, and that threads read without a lock |
//! | `chain` | what a scan of sections says about versions; pruning a chain |
//! | `horizon` | the clock, the records, and the horizon that scans and glances find |
//! | `log` | write-back, freeing; what is to be pruned |
//! | `ring`, `slot` | the latest commits, before the log takes them over; a domain's state for each handle |
//! | `background` | a domain's collecting thread, if it has one |
//! | `shared` | the slots, and which thread collects which log |
//! | `writes`, `abort` | the write set; why a transaction does not commit |
//! | `handle`, `snapshot` | sections, reading, collecting by a handle |
//! | `tx`, `commit` | checking and locking objects; commit, abort, validation of reads |
//! | `update` | transactions repeated until they commit |
//! | `domain` | making a domain; its statistics |
//!
//! Each file uses only those above it.
//!
//! # The horizon
//! The paper detects grace periods, and uses two of them at a time. This module has one number instead, the horizon H:
//! no present or future section has a local time below H. A collector computes H by reading the clock's floor, a full
//! barrier, and reading every record. A section publishes a bound before its own barrier and reads its local time after
//! the barrier. One of the two barriers comes first: so either the collector sees the section, or the section's local
//! time is not below the floor. H only grows, and `log` decides everything by H. The paper's two grace periods follow:
//! a version is written back when H reaches its stamp, and freed when H reaches a *tick*, a time that is drawn from the
//! clock after the write-back.
//!
//! # What differs from the paper, and why
//! - *Helped stamps.* In the paper a writer draws its time and publishes it in two steps. So a reader that begins in
//!   between sees one object without the change and the next object with it. Here such a reader sets the stamp itself.
//! - *Own commits are visible at once*, also with the hardware clock: the committing thread waits for the clocks'
//!   uncertainty.
//! - *The commit is inside the section*. A retired master waits for a tick after its *mark* (the object's newest
//!   version), so that a collector that has missed the mark may still access the master.
//! - *Blocks instead of rings*: no overflow, no blocking, versions freed in any order. An object of 24 bytes takes one
//!   cache line per version (in the authors' C code two or three).
//! - *Pruning* in the middle of chains; one stuck reader stops the paper's collection.
//! - *No lock word.* A copy that is linked above an object, and is not visible yet, locks the object; it names the
//!   holder and its position in the holder's write set. So an object needs one word (C: 24 bytes), linking is locking,
//!   and a transaction finds its own copies (C: it does not see its own changes).
//! - When a handle is dropped, its log passes to the next handle, or to a thread that helps to collect.

mod abort;
#[cfg(not(loom))]
mod background;
mod chain;
mod commit;
mod domain;
mod grown;
mod handle;
mod horizon;
mod log;
mod patience;
mod pool;
mod record;
mod ring;
mod shared;
mod slot;
mod snapshot;
mod tx;
mod update;
mod version;
mod writes;

/// Named points at which the simulator may stall a thread: the critical windows of the arguments in these files.
#[doc(hidden)]
pub mod points {
    /// A section knows its local time, and has not published it.
    pub const ENTERING: &str = "mvrlu section has its time";
    /// A transaction has found an object free, and has not linked its copy.
    pub const LINKING: &str = "mvrlu copy to be linked";
    /// A collector has found a copy the newest, and has not written it back.
    pub const WRITING_BACK: &str = "mvrlu copy to be written back";
    /// A pruner has found copies that no section needs, and has not unlinked them.
    pub const PRUNING: &str = "mvrlu copies to be unlinked";
    /// The first copy of a write set (its leader) says that the set is linked, and the set has no stamp yet.
    pub const LINKED: &str = "mvrlu set linked";
}

debug_by_name! { Snapshot Tx }

pub use crate::clock::ClockKind;
pub use abort::{Abort, Full};
pub use domain::{Builder, Collection, Domain, Stats};
pub use handle::{Counts, Handle};
pub use horizon::Tuning;
pub use snapshot::Snapshot;
pub use tx::Tx;
pub use version::{Link, Raw, Versioned};
