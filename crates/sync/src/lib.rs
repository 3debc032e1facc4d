//! Synchronization: locks, version locks, backoff, RCU (by which every structure of the workspace reclaims), and RLU and
//! MV-RLU.

pub mod backoff;
pub mod lock;
pub mod mvrlu;
pub mod rcu;
pub mod rlu;
pub mod version_lock;
// In the model world: a witness of the accesses to a value that are not atomic.
pub(crate) use archipelago_platform::watch;
