//! The peers, each behind an adapter of its own.
//!
//! Every adapter uses the peer's best idiom with one guard per operation, as a user without a session of their own
//! would. Nothing is cached between operations.

use crate::keys::BenchKey;

pub mod locked;

#[cfg(feature = "peers")]
pub mod arctic;
#[cfg(feature = "peers")]
pub mod artmap;
#[cfg(feature = "peers")]
pub mod bplustree;
#[cfg(feature = "peers")]
pub mod concurrent_map;
#[cfg(feature = "peers")]
pub mod congee;
#[cfg(feature = "peers")]
pub mod ferntree;
#[cfg(feature = "peers")]
pub mod indexset;
#[cfg(feature = "peers")]
pub mod masstree;
#[cfg(feature = "peers")]
pub mod scc;
#[cfg(feature = "peers")]
pub mod skiplist;

/// What the generic peers ask of a key beyond [`BenchKey`].
#[cfg(feature = "peers")]
pub trait PeerKey: BenchKey + ::concurrent_map::Minimum + ::ferntree::OptimisticRead {}
#[cfg(feature = "peers")]
impl<K: BenchKey + ::concurrent_map::Minimum + ::ferntree::OptimisticRead> PeerKey for K {}

/// What the generic peers ask of a key beyond [`BenchKey`].
#[cfg(not(feature = "peers"))]
pub trait PeerKey: BenchKey {}
#[cfg(not(feature = "peers"))]
impl<K: BenchKey> PeerKey for K {}
