//! Multi-version read-log-update: consistent snapshots for readers, atomic changes of many objects for writers.
//!
//! After "MV-RLU: Scaling Read-Log-Update with Multi-Versioning" (Kim et al., ASPLOS 2019; thesis chapter 3). Objects live in
//! a [`Domain`]. A thread registers for a [`Handle`]; in [`Handle::read`] it sees all objects at one moment, in
//! [`Handle::update`] it locks those it changes, one by one, and commits them at once.
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
//! - A snapshot is consistent, and not older than its begin: it has all commits that had returned by then, its own
//!   thread's included, on either clock.
//! - Transactions are snapshot-isolated: they see one moment, and of two that are alive at a time and lock one object
//!   one is aborted. Write skew is possible, and prevented by [`Tx::lock_const`] or by
//!   [`Handle::update_serializable`].
//! - Readers are never aborted, and never wait, but with [`ClockKind::Hardware`] for a version that is newer than the
//!   clocks' uncertainty, at most twice that. Writers do not wait for readers: a reader that is stuck costs one version of
//!   each object, because the versions in between are pruned, and objects that came and went since are freed. (Where more
//!   sections are open than there are processors, a writer whose log has grown pauses for milliseconds, once per oldest section.)
//! - No thread of its own unless asked for ([`Collection`]); an idle domain does nothing.
//!
//! # Memory
//! An object has one word beside its value, a version of it a cache line at least. Versions are collected by the threads that
//! write; [`Builder::memory_cap`] bounds all of it, [`Domain::stats`] shows it. Objects are freed when they are retired
//! ([`Tx::retire`]) and no section can see them; objects that are never retired outlive the domain.
//!
//! # When not to use it
//! - Objects of which a few take nearly all changes: transactions on them abort each other. Combining (`archipelago-replicate`)
//!   carries such changes out in batches.
//! - Objects that are large: a change copies one.
//! - Readers that need the newest state rather than one moment: RCU is cheaper.
//!
//! # How it is built
//! | file | idea |
//! |---|---|
//! | `clock` | the shared counter or the hardware clock, and what their times promise |
//! | `version` | masters, copies, stamps; who helps to stamp |
//! | `pool` | memory of copies, the cap |
//! | `patience` | how to wait for a thread that may not be running |
//! | `record` | what a handle publishes: the time of its section, and its walks |
//! | `chain` | what a scan says about versions; pruning a chain |
//! | `horizon` | the clock, the records, and the horizon that scans of them find |
//! | `log` | write-back, freeing; what is to be pruned |
//! | `ring`, `slot` | what was committed last, on its way to the log; all that a domain keeps per handle |
//! | `shared` | the slots, and who collects whose log |
//! | `handle`, `snapshot` | sections, reading, a handle's turn at collecting |
//! | `writes`, `tx`, `commit` | the write set; looking and locking; commit, abort, checking of reads |
//! | `update`, `abort` | transactions tried until they commit; why one does not |
//! | `domain`, `background` | making one; the thread that collects, where there is one |
//!
//! Each uses only those above it.
//!
//! # The horizon
//! The paper detects grace periods and hands them out two at a time. Here there is one number, the horizon H: no section
//! that is alive, or will be, has a local time below it. A collector finds it by reading the clock's floor, a full
//! barrier, and reading every record; a section publishes a bound before its own barrier and reads its local time after
//! that. Of the two barriers one comes first: either the section is seen, or its local time is not below the floor. H
//! only grows, and everything is judged by it: see `log`. The paper's two grace periods come out by themselves: a version
//! is written back when H reaches its stamp, and freed when H reaches the tick drawn after that.
//!
//! # What differs from the paper, and why
//! - *Helped stamps.* A writer draws its time and publishes it in two steps; a reader that begins in between sees one
//!   object without the change and the next one with it. Here the reader sets the stamp.
//! - *Own commits are visible at once* with the hardware clock too: the uncertainty is waited for by who commits.
//! - *The commit is inside the section*; a master that is retired waits for a tick more than its mark, so that a collector
//!   that has missed the mark may still look at it.
//! - *Blocks instead of rings*: no overflow, no blocking, versions freed in any order. An object of 24 bytes takes one
//!   cache line per version (C: two or three).
//! - *Pruning* in the middle of chains; the paper's collection stands still behind one stuck reader.
//! - *No lock word.* An object is locked by the copy that is linked above it, held and not visible yet, which names the
//!   holder and the place in its write set: so an object has one word of its own (C: 24 bytes), a lock is the link,
//!   and a transaction finds its own copies (C: it does not see its own changes).
//! - A handle's log is left to the next handle, or to the thread that comes by, when the handle is dropped.

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

/// Where the virtual machine may stall a thread: the windows that the arguments in these files are about.
#[doc(hidden)]
pub mod points {
    /// A section knows its local time, and has not published it.
    pub const ENTERING: &str = "mvrlu section has its time";
    /// A transaction has found an object free, and has not linked its copy.
    pub const LINKING: &str = "mvrlu copy to be linked";
    /// A collector has found a copy the newest, and has not written it back.
    pub const WRITING_BACK: &str = "mvrlu copy to be written back";
    /// A pruner has found copies spare, and has not unlinked them.
    pub const PRUNING: &str = "mvrlu copies to be unlinked";
    /// A leader says that its set is linked, and has no stamp.
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
