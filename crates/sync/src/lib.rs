//! Synchronization: locks, version locks, backoff, RCU (the one reclamation of the house), and MV-RLU.

pub mod backoff;
pub mod lock;
pub mod mvrlu;
pub mod rcu;
pub mod version_lock;
