//! In-memory data structures that scale on many-core NUMA servers.

pub use archipelago_index as index;
pub use archipelago_platform as platform;
pub use archipelago_replicate as replicate;
pub use archipelago_sync as sync;

pub use archipelago_index::{Art, HydraList};
pub use archipelago_replicate::{Combined, Replicated, Sequential};
