//! Concurrency control: the decisions in which the schemes differ. `work.rs` has the code that commits of all schemes
//! share.

mod hekaton;
mod locking;
mod mvrlu;
mod silo;
mod tictoc;

pub use hekaton::Hekaton;
pub use locking::{NoWait, WaitDie};
pub use mvrlu::MvRlu;
pub use silo::Silo;
pub use tictoc::TicToc;

use archipelago_platform::atomic::Ordering;
use archipelago_sync::backoff::Backoff;

use crate::codec::Encoded;
use crate::epochs::Epochs;
use crate::error::Error;
pub use crate::locks::{Conflict, Mode};
use crate::record::{Record, Version};
use crate::work::{Done, Work};

/// The moment at which a commit is validated.
#[derive(Clone, Copy)]
pub struct Moment {
    /// The commit's epoch.
    pub(crate) epoch: u64,
    /// The order of commits with the same epoch, in schemes that link versions before they stamp them.
    pub(crate) rank: usize,
    /// Whether the records that the transaction writes are latched, and the versions that it replaces are frozen (see
    /// `Scheme::freeze`). `false` if only reads are validated.
    pub(crate) latched: bool,
}

/// A concurrency control. Sealed: [`Silo`], [`TicToc`], [`NoWait`], [`WaitDie`], [`Hekaton`] and [`MvRlu`] implement
/// it.
pub trait Scheme: sealed::Sealed + Sized + Send + Sync + 'static {
    /// The scheme's name.
    const NAME: &'static str;

    /// Whether each read or write of a row locks the row until the transaction's end.
    #[doc(hidden)]
    const LOCKS: bool = false;

    /// Whether transactions get numbers in the order of their arrival.
    #[doc(hidden)]
    const AGES: bool = false;

    /// Whether the scheme is multi-version: transactions read as of their begin, by the stamps of versions, and own
    /// each record from their first write of it on.
    #[doc(hidden)]
    const VERSIONS: bool = false;

    /// Whether a commit may precede, in the order of serialization, a commit that it has not seen. Then the scheme
    /// needs the clock's value at the transaction's begin.
    #[doc(hidden)]
    const BACKDATES: bool = false;

    /// Whether the scheme writes the `Stamps` of origins (the empty first versions of records), so that each record
    /// needs an origin of its own.
    #[doc(hidden)]
    const MARKS_ORIGINS: bool = false;

    /// Whether versions are linked before their commit is decided and stamped. Then readers call `sees`, and do not
    /// wait for latches.
    #[doc(hidden)]
    const LINKS: bool = false;

    /// The scheme's data in each version.
    #[doc(hidden)]
    type Stamps: Default + Send + Sync;

    /// The scheme's data in each record.
    #[doc(hidden)]
    type Lock: Default + Send + Sync;

    /// The scheme's data in each index.
    #[doc(hidden)]
    type Gap: Default + Send + Sync;

    /// Returns whether a reader of `moment` sees this version, rather than an older one.
    #[doc(hidden)]
    fn sees(version: &Version<Self>, moment: u64, epochs: &Epochs<Self>) -> bool {
        epochs.shows(version.begin.load(Ordering::Relaxed), moment)
    }

    /// Returns the version below `head`, if `head` is not stamped yet and its stamp will be after `moment`. A
    /// transaction that commits at `moment` may have read this version. Called after the transaction has drawn its
    /// stamp and settled it (`Epochs::settle`).
    #[doc(hidden)]
    fn under<'v>(head: &'v Version<Self>, moment: Moment, epochs: &Epochs<Self>) -> Option<&'v Version<Self>> {
        let _ = (head, moment, epochs);
        None
    }

    /// Publishes a transaction's writes, if its reads are valid. Returns the epoch.
    #[doc(hidden)]
    fn install(work: &mut Work<'_, Self>, encoded: Option<Encoded>, done: &mut Done<Self>) -> Result<u64, Error> {
        work.install_latched(encoded, done)
    }

    /// Locks a record for the transaction with this arrival number. `held` is the mode in which the transaction already
    /// has the lock. After a grant the caller's later loads follow a SeqCst fence (`locks.rs`).
    #[doc(hidden)]
    fn take(record: &Record<Self>, mode: Mode, held: Option<Mode>, arrival: u64) -> Result<(), Conflict> {
        let _ = (record, mode, held, arrival);
        Ok(())
    }

    /// Releases the lock.
    #[doc(hidden)]
    fn release(record: &Record<Self>, held: Mode, arrival: u64) {
        let _ = (record, held, arrival);
    }

    /// Returns whether no transaction holds the lock.
    #[doc(hidden)]
    fn is_free(record: &Record<Self>) -> bool {
        let _ = record;
        true
    }

    /// Waits until the record is available in this mode, but only for a bounded time. The caller is the transaction
    /// with this arrival number: its request for the record was refused, and it has released all its locks and holds.
    #[doc(hidden)]
    fn linger(record: &Record<Self>, mode: Mode, arrival: u64) {
        let _ = (mode, arrival);
        linger(|| !record.is_owned());
    }

    /// Prepares a latched head's version for its replacement.
    #[doc(hidden)]
    fn freeze(version: &Version<Self>) {
        let _ = version;
    }

    /// Reverts `freeze`: the version is not replaced.
    #[doc(hidden)]
    fn thaw(version: &Version<Self>) {
        let _ = version;
    }

    /// Validates a transaction's reads. Returns the time stamp of its versions.
    #[doc(hidden)]
    fn judge(work: &Work<'_, Self>, moment: Moment) -> Result<u64, Conflict>;

    /// Stamps a version that is not published yet.
    #[doc(hidden)]
    fn stamp(version: &Version<Self>, stamp: u64) {
        let _ = (version, stamp);
    }

    /// Returns whether a transaction may commit with the stamp `stamp`. The transaction has found a key absent. Since
    /// then a record with this origin, which is not latched, has appeared for the key.
    #[doc(hidden)]
    fn admits(origin: &Version<Self>, stamp: u64) -> bool {
        let _ = (origin, stamp);
        true
    }

    /// Prepares a record with this origin for its link into an index that had no record of its key.
    #[doc(hidden)]
    fn before_link(origin: &Version<Self>, gap: &Self::Gap) {
        let _ = (origin, gap);
    }

    /// Prepares the unlinking of a latched record with this version from its index.
    #[doc(hidden)]
    fn before_unlink(version: &Version<Self>, gap: &Self::Gap) {
        let _ = (version, gap);
    }
}

/// Fails if a version that was read is not current, if another transaction has latched the record of such a version, or
/// if a row has appeared in a gap (`gaps_hold`).
fn all_current<S: Scheme>(work: &Work<'_, S>, moment: Moment) -> Result<u64, Conflict> {
    let holds =
        work.reads().all(|(record, seen)| work.is_current(record, seen, moment.latched)) && work.gaps_hold(0, moment);
    if holds { Ok(0) } else { Err(Conflict) }
}

/// The longest time that a transaction lingers (waits before a retry), in turns of a wait loop. Most turns yield the
/// processor.
const TURNS: u32 = 64;

/// Waits until `free` returns true, or for a bounded time. Returns whether `free` returned true.
pub(crate) fn linger(free: impl Fn() -> bool) -> bool {
    let backoff = Backoff::new();
    (0..TURNS).any(|_| {
        let is = free();
        if !is {
            backoff.wait();
        }
        is
    })
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Silo {}
    impl Sealed for super::TicToc {}
    impl Sealed for super::NoWait {}
    impl Sealed for super::WaitDie {}
    impl Sealed for super::Hekaton {}
    impl Sealed for super::MvRlu {}
}
