//! Synchronization: version locks, backoff, and RCU (the one reclamation of the house).
