//! Multi-version read-log-update: consistent snapshots for readers, atomic changes of many objects for writers.
//!
//! After "MV-RLU: Scaling Read-Log-Update with Multi-Versioning" (Kim et al., ASPLOS 2019; thesis chapter 3). Objects live in
//! a [`Domain`]. A thread registers for a [`Handle`]; in [`Handle::read`] it sees all objects at one moment, in
//! [`Handle::update`] it locks those it changes, one by one, and commits them at once.
//!
//! ```
//! use archipelago_sync::mvrlu::{Domain, Link};
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
//! # Ok::<(), archipelago_sync::mvrlu::Full>(())
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
//! # How it is built
//! | file | idea |
//! |---|---|
//! | `clock` | the shared counter or the hardware clock, and what their times promise |
//! | `version` | masters, copies, stamps; who helps to stamp |
//! | `tx` | locking, commit, abort, checking of reads |
//! | `record` | what a handle publishes: the time of its section, and its walks |
//! | `ring` | what was committed last, on its way to the log |
//! | `log` | write-back, freeing; what is to be pruned |
//! | `chain` | what a scan says about versions; pruning a chain |
//! | `domain` | the horizon, who collects whose log |
//! | `patience` | how to wait for a thread that may not be running |
//! | `pool` | memory of copies, the cap |
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
//! - A handle's log is left to the next handle, or to whoever comes by, when the handle is dropped.

#[cfg(not(loom))]
mod background;
mod chain;
mod clock;
mod domain;
mod handle;
mod log;
mod patience;
mod pool;
mod record;
mod ring;
mod tx;
mod version;

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

pub use clock::ClockKind;
pub use domain::{Builder, Collection, Domain, Stats, Tuning};
pub use handle::{Abort, Counts, Full, Handle, Snapshot};
pub use tx::Tx;
pub use version::{Link, Raw, Versioned};
