//! Operations that are one hardware transaction each, with one lock for operations that do not commit. This is the
//! scheme of DBX (Wang, Qian, Li, Chen: Using Restricted Transactional Memory to Build a Scalable In-Memory Database,
//! EuroSys 2014).
//!
//! An operation's body that commits has read the lock as free, and all its accesses happened in one instant. Taking the
//! lock aborts all transactions, so a body that holds the lock runs alone. So bodies happen one after the other. On a
//! machine without hardware transactions each body takes the lock.

use core::cell::Cell;

use archipelago_platform::htm::{Retry, elide};
use archipelago_platform::pad::CachePadded;
use archipelago_sync::lock::{Mutex, RawTtas};

/// The one lock of a structure.
pub struct Elided(CachePadded<Mutex<RawTtas, ()>>);

/// How often Eunomia, a successor of DBX, retries a transaction, for each cause of an abort. There is no pause between
/// attempts. (From `rtm.h` of Eunomia's published code, for transactions of up to 64 cache lines.)
const BUDGET: Retry = Retry { conflicts: 128, capacity: 16, silent: 3, pause: 0 };

/// Entries that a scan copies in one transaction.
const BATCH: usize = 128;

/// A place to which a transaction copies an entry.
pub type Place = Cell<(u64, u64)>;

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

    /// Changes a value that was `expected` by `f`, which does not run in a transaction. `swap` is a body; it replaces
    /// the value if it is the first argument, by the second, and returns the value that it found. Returns the old value.
    #[track_caller]
    pub fn update(
        &self,
        mut expected: u64,
        mut f: impl FnMut(&u64) -> u64,
        swap: impl Fn(u64, u64) -> Option<u64> + Copy,
    ) -> Option<u64> {
        loop {
            let new = f(&expected);
            let found = self.run(|| swap(expected, new))?;
            if found == expected {
                return Some(found);
            }
            expected = found;
        }
    }

    /// Shows at most `limit` entries from the key `from` on. `copy` is a body; it copies as many entries from a key on
    /// as there is room for, and returns how many it copied. Returns how many entries were shown.
    #[track_caller]
    pub fn scan(
        &self,
        mut from: u64,
        limit: usize,
        mut visit: impl FnMut(u64, &u64),
        copy: impl Fn(u64, &[Place]) -> usize + Copy,
    ) -> usize {
        let page: [Place; BATCH] = [const { Cell::new((0, 0)) }; BATCH];
        let mut seen = 0;
        while seen < limit {
            let room = &page[..BATCH.min(limit - seen)];
            let copied = self.run(|| copy(from, room));
            room[..copied].iter().for_each(|entry| visit(entry.get().0, &entry.get().1));
            seen += copied;
            match room[..copied].last().and_then(|last| last.get().0.checked_add(1)) {
                Some(next) if copied == room.len() => from = next,
                _ => break,
            }
        }
        seen
    }
}
