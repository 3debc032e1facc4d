//! Synchronization: locks, version locks, backoff, RCU (the one reclamation of the house), its rivals RLU and MV-RLU, and
//! the list, hash table and search tree built over all of them.

pub mod backoff;
mod crowd;
pub mod lock;
pub mod mvrlu;
pub mod rcu;
pub mod rlu;
pub mod set;
pub mod version_lock;
mod watch;
