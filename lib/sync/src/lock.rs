//! Locks for many cores and several NUMA nodes. Each is used through [`lock_api`]'s guards.
//!
//! Every raw lock here implements [`lock_api::RawMutex`] or [`lock_api::RawRwLock`], so `Mutex<RawTtas, u64>` has the
//! names and meanings that users of `parking_lot` know. `docs/mechanisms/locks.md` says which one to choose, how fair
//! each is, and how much memory it takes.
//!
//! ```
//! use archipelago::sync::lock::{DistributedRwLock, Mutex, RawTtas};
//!
//! let count: Mutex<RawTtas, u64> = Mutex::new(0);
//! *count.lock() += 1;
//! assert_eq!(count.into_inner(), 1);
//!
//! let words = DistributedRwLock::new(vec!["read", "mostly"]);
//! assert_eq!(words.read().len(), 2);
//! words.write().push("indeed");
//! ```
//!
//! *When not to use them.* On one NUMA node, or with little contention, `RawTtas` or `parking_lot` is as good as the
//! others. With more threads than processors take `RawShfl`, whose waiters sleep. Use a lock of the standard library
//! for a critical section that blocks or takes milliseconds.
//!
//! All of them have these properties:
//!
//! - *Ordering.* Taking a lock is an Acquire of the Release by the thread that unlocked it before (for a writer: by
//!   all readers before it, too).
//! - *Waiting* threads spin, then yield (mostly by [`Backoff`](crate::backoff::Backoff)). In `RawShfl`, which is also
//!   the queue of `RawDistributedRwLock`'s writers and of `RawShflRw`, they park instead. So all locks make progress, at
//!   different speeds, when threads outnumber cores.
//! - *In the body of a [region](crate::region)* a debug build panics where a thread would wait for a lock. The lock is
//!   not changed, and stays usable.
//! - *Panics.* A guard unlocks when it is dropped by a panic. There is no poisoning: the next holder sees the data as
//!   the panicking thread left it.
//! - *The node* on which a thread runs influences only the speed: if the node that a lock reads is wrong or out of
//!   date, the lock is slower.
//! - *Leaked guards* keep a lock held for ever. Other locks stay correct, but may be slower in the thread that leaked.

/// Implements `new` and `Default` for a raw lock. loom's atomics have no `const` constructor.
macro_rules! constructors {
    ($lock:ident $(<const $bound:ident: $kind:ty>)? = $unlocked:expr) => {
        impl $(<const $bound: $kind>)? $lock $(<$bound>)? {
            /// An unlocked lock.
            #[cfg(not(loom))]
            pub const fn new() -> Self {
                $unlocked
            }

            /// An unlocked lock.
            #[cfg(loom)]
            pub fn new() -> Self {
                $unlocked
            }
        }

        impl $(<const $bound: $kind>)? Default for $lock $(<$bound>)? {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}

/// The value of `INIT`. Models under loom do not need it, because they build locks with `from_raw`.
macro_rules! initial {
    () => {
        initial!(Self::new())
    };
    ($unlocked:expr) => {{
        #[cfg(not(loom))]
        {
            $unlocked
        }
        #[cfg(loom)]
        panic!("the model world has no constant locks: use `from_raw`")
    }};
}

mod bravo;
mod cna;
mod cohort;
mod distributed;
mod home;
mod mcs;
pub(crate) mod nodes;
mod numa_rw;
mod queue;
mod readers;
mod shfl;
mod shfl_rw;
mod slots;
mod ticket;
mod ttas;
mod wait;

pub use bravo::RawBravo;
pub use cna::{RawBoundedCna, RawCna};
pub use cohort::{Cohort, Part, RawCboMcs, RawCohort, RawHmcs};
pub use distributed::{DistributedRw, RawDistributedRwLock, RawUnqueuedRwLock};
pub use lock_api::{
    MappedMutexGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
};
pub use mcs::RawMcs;
#[cfg(loom)]
pub use nodes::be_on_node;
pub use numa_rw::{CohortRw, Neutral, PreferReaders, PreferWriters, Preference, RawCrwNp, RawCrwRp, RawCrwWp, Side};
pub use shfl::RawShfl;
pub use shfl_rw::RawShflRw;
pub use ticket::RawTicket;
pub use ttas::{RawTas, RawTtas};

/// A `T` under the [distributed reader-writer lock](RawDistributedRwLock).
pub type DistributedRwLock<T> = RwLock<RawDistributedRwLock, T>;
