//! Threads, thread-locals, the small dense number of every live thread, and pinning of threads to CPUs.

#[cfg(not(loom))]
mod crew;
#[cfg(not(loom))]
mod end;
mod pinning;
mod slot;

#[cfg(loom)]
pub use loom::thread::{Builder, JoinHandle, Thread, ThreadId, current, park, spawn, yield_now};
#[cfg(not(any(loom, archipelago_sim)))]
pub use std::thread::{
    Builder, JoinHandle, Scope, ScopedJoinHandle, Thread, ThreadId, available_parallelism, current, panicking, park,
    park_timeout, scope, sleep, spawn, yield_now,
};

#[cfg(archipelago_sim)]
pub use crate::simulated::thread::{
    Builder, JoinHandle, Scope, ScopedJoinHandle, Thread, ThreadId, available_parallelism, current, panicking, park,
    park_timeout, scope, sleep, spawn, yield_now,
};

#[cfg(loom)]
pub use std::thread::{available_parallelism, panicking};

#[cfg(archipelago_sim)]
pub use crate::simulated::local::{AccessError, LocalKey};
#[cfg(archipelago_sim)]
pub use crate::simulated_thread_local as thread_local;
#[cfg(loom)]
pub use loom::thread_local;
#[cfg(not(any(loom, archipelago_sim)))]
pub use std::thread_local;

#[cfg(not(loom))]
pub use crew::Crew;
#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) use pinning::process_cpus;
pub use pinning::{Pinning, allowed_cpus, bind_current, pin_current};
#[cfg(not(loom))]
pub(crate) use pinning::{pinned, set_affinity};
pub(crate) use slot::note_node;
pub use slot::{ThreadSlot, has_slot, slot, slots_high_water};
