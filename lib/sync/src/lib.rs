//! Synchronization: locks, version locks, backoff, RCU (by which every structure of the workspace reclaims), RCX for RCU's
//! writers, regions, logs for replicas, and RLU and MV-RLU.
//!
//! | module | what it is | take it when |
//! |---|---|---|
//! | [`lock`] | mutexes and reader-writer locks that keep to a NUMA node while they can, behind `lock_api` | a short critical section has many threads at it |
//! | [`rcu`] | critical sections for readers that cost a store, and deferred destruction | readers follow pointers that writers unlink |
//! | [`rcx`] | locks of two levels, in objects or striped, for those that change what RCU protects | several writers change a structure that readers traverse |
//! | [`region`] | short sections that run as hardware transactions, or under version locks | a change touches a few pages that readers traverse |
//! | [`log`] | a log of operations that replicas replay, which grows and is recycled | several copies of a structure are to be kept in step |
//! | [`mvrlu`] | transactions over objects, snapshots that never wait | several objects change together, and readers need a consistent snapshot |
//! | [`rlu`] | the same with two versions of an object: commits wait for readers | to compare |
//! | [`version_lock`] | eight bytes: writers exclude each other, readers detect a concurrent write | you build an optimistic structure |
//! | [`clock`] | what orders commits and snapshots: a counter, or the processors' clocks | you build transactions of many versions |
//! | [`backoff`] | how to wait: spin, then yield | you build anything that waits |
//!
//! Consistency, memory, performance and when to take something else: at the head of each module.

/// `Debug` for what shows nothing of itself.
macro_rules! debug_by_name {
    ($($type:ident)*) => { $(
        impl core::fmt::Debug for $type<'_> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }
    )* };
}

pub mod backoff;
pub mod clock;
mod crowd;
mod identity;
pub mod lock;
pub mod log;
pub mod mvrlu;
pub mod rcu;
pub mod rcx;
pub mod region;
pub mod rlu;
pub mod version_lock;
// In the model world: a witness of the accesses to a value that are not atomic.
pub(crate) use archipelago_platform::watch;
