//! How transactions keep out of each other's way: what a scheme decides, beside the one text of all commits in `work.rs`.

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

/// What a commit is judged at.
#[derive(Clone, Copy)]
pub struct Moment {
    /// The commit's epoch.
    pub(crate) epoch: u64,
    /// Commits with the same epoch are in the order of their ranks, in schemes that link before they stamp.
    pub(crate) rank: usize,
    /// What it writes has been latched and frozen (not so when only the reads are judged).
    pub(crate) latched: bool,
}

/// A concurrency control. Sealed: [`Silo`], [`TicToc`], [`NoWait`], [`WaitDie`], [`Hekaton`] and [`MvRlu`] are the ones there
/// are.
pub trait Scheme: sealed::Sealed + Sized + Send + Sync + 'static {
    /// What it is called.
    const NAME: &'static str;

    /// Whether reads and writes of rows lock them, until the transaction's end.
    #[doc(hidden)]
    const LOCKS: bool = false;

    /// Whether transactions are numbered as they arrive.
    #[doc(hidden)]
    const AGES: bool = false;

    /// Whether transactions read what there was when they began, from versions with stamps of commits, and own what they write from
    /// the first write on.
    #[doc(hidden)]
    const VERSIONS: bool = false;

    /// Whether a commit may come before one that it does not see, by what it knows of the clock when it began.
    #[doc(hidden)]
    const BACKDATES: bool = false;

    /// Whether `Stamps` of origins are written: each record has its own then.
    #[doc(hidden)]
    const MARKS_ORIGINS: bool = false;

    /// Whether versions are linked before it is known if they are committed, and when: readers ask `sees`, and wait for no latch.
    #[doc(hidden)]
    const LINKS: bool = false;

    /// What each version has.
    #[doc(hidden)]
    type Stamps: Default + Send + Sync;

    /// What each record has.
    #[doc(hidden)]
    type Lock: Default + Send + Sync;

    /// What each index has.
    #[doc(hidden)]
    type Gap: Default + Send + Sync;

    /// Returns whether a reader of a moment sees a version, or else an older one.
    #[doc(hidden)]
    fn sees(version: &Version<Self>, moment: u64, epochs: &Epochs<Self>) -> bool {
        epochs.shows(version.begin.load(Ordering::Relaxed), moment)
    }

    /// What a transaction that commits at `moment` may have read of a record with this head: the version under one that is not
    /// stamped yet and will be after `moment`. Called after the draw of its stamp and a SeqCst fence.
    #[doc(hidden)]
    fn under<'v>(head: &'v Version<Self>, moment: Moment, epochs: &Epochs<Self>) -> Option<&'v Version<Self>> {
        let _ = (head, moment, epochs);
        None
    }

    /// Publishes what a transaction has written, if what it has read allows it; the epoch.
    #[doc(hidden)]
    fn install(work: &mut Work<'_, Self>, encoded: Option<Encoded>, done: &mut Done<Self>) -> Result<u64, Error> {
        work.install_latched(encoded, done)
    }

    /// Locks a record for the transaction that arrived as number `arrival` and has it in the mode `held`.
    #[doc(hidden)]
    fn take(record: &Record<Self>, mode: Mode, held: Option<Mode>, arrival: u64) -> Result<(), Conflict> {
        let _ = (record, mode, held, arrival);
        Ok(())
    }

    /// Gives the lock back.
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

    /// A transaction that arrived as number `arrival` could not have the record in this mode and has let go of all that it had:
    /// waits until it may be had, or a while.
    #[doc(hidden)]
    fn linger(record: &Record<Self>, mode: Mode, arrival: u64) {
        let _ = (mode, arrival);
        linger(|| !record.is_owned());
    }

    /// The version, of a latched head, is about to be replaced.
    #[doc(hidden)]
    fn freeze(version: &Version<Self>) {
        let _ = version;
    }

    /// It is not, after all.
    #[doc(hidden)]
    fn thaw(version: &Version<Self>) {
        let _ = version;
    }

    /// Judges what a transaction has read; the time stamp of its versions.
    #[doc(hidden)]
    fn judge(work: &Work<'_, Self>, moment: Moment) -> Result<u64, Conflict>;

    /// Stamps a version that is not published yet.
    #[doc(hidden)]
    fn stamp(version: &Version<Self>, stamp: u64) {
        let _ = (version, stamp);
    }

    /// A record, latched, that was not there when a transaction looked for its key, and has an origin: returns whether that
    /// transaction may be stamped with `stamp`.
    #[doc(hidden)]
    fn admits(origin: &Version<Self>, stamp: u64) -> bool {
        let _ = (origin, stamp);
        true
    }

    /// A record with this version, latched, is about to be taken out of an index.
    #[doc(hidden)]
    fn before_unlink(version: &Version<Self>, gap: &Self::Gap) {
        let _ = (version, gap);
    }
}

/// Returns whether all that was read is current, and not latched by another.
fn all_current<S: Scheme>(work: &Work<'_, S>, moment: Moment) -> Result<u64, Conflict> {
    let holds =
        work.reads().all(|(record, seen)| work.is_current(record, seen, moment.latched)) && work.gaps_hold(0, moment);
    if holds { Ok(0) } else { Err(Conflict) }
}

/// The longest that a transaction lingers, in turns of a wait loop, most of which yield the processor.
const TURNS: u32 = 64;

/// Waits until `free`, or for a while; returns whether it was.
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
