//! The settings of a cache.

use archipelago_platform::time::Duration;

use crate::cause::Cause;
use crate::clock::Idle;

pub(crate) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> usize + Send + Sync>;
pub(crate) type Listener<K, V> = Box<dyn Fn(&K, &V, Cause) + Send + Sync>;

/// The settings of a cache. Only the capacity may change later (`Budget` has the present one).
pub(crate) struct Config<K, V> {
    pub capacity: usize,
    /// The weight of removed entries that may wait for readers in addition to a hundredth of the capacity.
    pub waiting: usize,
    /// `true` if weights have a unit of the user's choice. Then a fixed number of units may be any amount of memory.
    pub own_unit: bool,
    pub weigher: Weigher<K, V>,
    /// The additional weight of a long entry's extension (see `entry.rs`).
    pub extension: usize,
    pub listener: Option<Listener<K, V>>,
    pub live: Option<Duration>,
    pub idle: Option<Idle>,
    pub record_hits: bool,
}

/// The weight of removed entries that may wait for readers in addition to the capacity is 1/WAITING_PART of the
/// capacity, plus [`Config::waiting`]. If weights have a unit of the user's choice, `waiting` counts only up to
/// 1/OWN_UNIT_PART of the capacity.
const WAITING_PART: usize = 100;
const OWN_UNIT_PART: usize = 4;

impl<K, V> Config<K, V> {
    /// Returns the most weight of removed entries that may wait for readers, where `capacity` is the present one.
    pub fn most_waiting(&self, capacity: usize) -> usize {
        let most = if self.own_unit { capacity / OWN_UNIT_PART } else { usize::MAX };
        capacity / WAITING_PART + self.waiting.min(most)
    }
}
