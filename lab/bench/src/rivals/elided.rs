//! Operations that are one hardware transaction each, with one lock for operations that do not commit. This is the
//! scheme of DBX (Wang, Qian, Li, Chen: Using Restricted Transactional Memory to Build a Scalable In-Memory Database,
//! EuroSys 2014).
//!
//! An operation's body that commits has read the lock as free, and all its accesses happened in one instant. Taking the
//! lock aborts all transactions, so a body that holds the lock runs alone. So bodies happen one after the other. On a
//! machine without hardware transactions each body takes the lock.

use archipelago_platform::htm::{Retry, elide};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::lock::{Mutex, RawTtas};

/// The one lock of a structure.
pub struct Elided(CachePadded<Mutex<RawTtas, ()>>);

/// How often Eunomia, a successor of DBX, retries a transaction, for each cause of an abort. There is no pause between
/// attempts. (From `rtm.h` of Eunomia's published code, for transactions of up to 64 cache lines.)
const BUDGET: Retry = Retry { conflicts: 128, capacity: 16, silent: 3, pause: 0 };

impl Default for Elided {
    fn default() -> Self {
        Elided(CachePadded::new(Mutex::new(())))
    }
}

impl Elided {
    /// Runs a body alone, or with the same effect as alone. The body may run several times; the writes of an aborted
    /// run are undone. The body must not allocate.
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
