//! Threads, thread-locals, and the small dense number every live thread has.

#[cfg(loom)]
pub use loom::thread::{Builder, JoinHandle, Thread, current, park, spawn, yield_now};
#[cfg(not(loom))]
pub use std::thread::{
    Builder, JoinHandle, Scope, ScopedJoinHandle, Thread, ThreadId, available_parallelism, current, panicking, park,
    park_timeout, scope, sleep, spawn, yield_now,
};

#[cfg(loom)]
pub use loom::thread_local;
#[cfg(not(loom))]
pub use std::thread_local;

/// Who the calling thread is: a dense index, unique among live threads and reused after a thread ends, and the NUMA
/// node it was last known to run on. Correctness never depends on `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSlot {
    /// Dense index: the smallest that no live thread had when this one first asked.
    pub index: usize,
    /// NUMA node index (see `topology`), 0 on one-node machines.
    pub node: usize,
}
