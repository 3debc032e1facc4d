//! The settings of a cache.

use archipelago_platform::time::Duration;

use crate::cause::Cause;
use crate::clock::Tick;

pub(crate) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> usize + Send + Sync>;
pub(crate) type Listener<K, V> = Box<dyn Fn(&K, &V, Cause) + Send + Sync>;

/// The settings of a cache. Only the capacity may change later (`Budget` has the present one).
pub(crate) struct Config<K, V> {
    pub capacity: usize,
    /// The weight of removed entries that may wait for readers in addition to a hundredth of the capacity.
    pub waiting: usize,
    pub weigher: Weigher<K, V>,
    /// The additional weight of a long entry's extension (see `entry.rs`).
    pub extension: usize,
    pub listener: Option<Listener<K, V>>,
    pub live: Option<Duration>,
    pub idle: Option<Tick>,
    pub record_hits: bool,
}
