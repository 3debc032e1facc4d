//! Operations that are one hardware transaction each, beside one lock for those that do not commit: as DBX has them (Wang, Qian,
//! Li, Chen: Using Restricted Transactional Memory to Build a Scalable In-Memory Database, EuroSys 2014).
//!
//! A body that commits has read the lock as free and done all its accesses in one instant; one that holds the lock aborts all
//! others, and is alone. So bodies happen one after the other. Where there are no transactions each takes the lock.

use archipelago_platform::htm::{Retry, elide};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::lock::{Mutex, RawTtas};

/// The one lock of a structure.
pub struct Elided(CachePadded<Mutex<RawTtas, ()>>);

/// How often DBX's successors try again, by cause, without a pause (`rtm.h` of Eunomia's published code, for transactions of up to
/// 64 lines).
const BUDGET: Retry = Retry { conflicts: 128, capacity: 16, silent: 3, pause: 0 };

impl Default for Elided {
    fn default() -> Self {
        Elided(CachePadded::new(Mutex::new(())))
    }
}

impl Elided {
    /// Runs a body alone, or as if. It may run several times, and what it wrote in vain is undone; it does not allocate.
    #[inline]
    #[track_caller]
    pub fn run<R>(&self, body: impl Fn() -> R + Copy) -> R {
        let alone = || {
            let _held = self.0.lock();
            body()
        };
        elide(BUDGET, || self.0.is_locked(), body, alone)
    }
}
