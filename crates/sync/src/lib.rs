//! Synchronization: locks, version locks, backoff, and RCU (the one reclamation of the house).

pub mod backoff;
pub mod lock;
pub mod rcu;
pub mod version_lock;
