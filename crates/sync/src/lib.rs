//! Synchronization: version locks, backoff, RCU (the one reclamation of the house), RLU and MV-RLU, and
//! list, hash table and search tree over them.

pub mod backoff;
pub mod mvrlu;
pub mod rcu;
pub mod rlu;
pub mod set;
pub mod version_lock;
