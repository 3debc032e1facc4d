//! What became of transactions, by the place in the program where they begin.
//!
//! Only aborts are counted, since a count of commits would be an instruction on the path that is to be free: a
//! program knows how often it passes a place. Counts are spread over some lines by thread, and the virtual machine does not
//! see them; it counts by itself (`Report::tx_sites`).

use core::fmt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::{Abort, Cause};
use crate::pad::CachePadded;
use crate::thread;

/// A place where transactions begin, made as a static.
///
/// ```
/// use archipelago::platform::htm::{Retry, Site};
///
/// static SITE: Site = Site::new("an example");
/// let _ = Retry::default().run_at(&SITE, || 1 + 1);
/// println!("{}", SITE.counts());
/// ```
pub struct Site {
    name: &'static str,
    shards: [CachePadded<Shard>; SHARDS],
    /// The next in the list of all, once this one is in it.
    next: AtomicPtr<Site>,
    listed: AtomicBool,
}

const SHARDS: usize = 8;

#[derive(Default)]
struct Shard {
    conflicts: AtomicU64,
    capacity: AtomicU64,
    explicit: AtomicU64,
    silent: AtomicU64,
    given_up: AtomicU64,
}

impl Shard {
    const fn new() -> Self {
        Self {
            conflicts: AtomicU64::new(0),
            capacity: AtomicU64::new(0),
            explicit: AtomicU64::new(0),
            silent: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        }
    }
}

/// What was counted at a [`Site`] since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Aborts because another thread touched a line.
    pub conflicts: u64,
    /// Aborts because lines did not fit.
    pub capacity: u64,
    /// Aborts by the program itself, for instance because a lock was held.
    pub explicit: u64,
    /// Aborts without a stated reason.
    pub silent: u64,
    /// How often a budget was used up, so that the program went its other way.
    pub given_up: u64,
}

impl Counts {
    /// All aborts.
    pub fn aborts(&self) -> u64 {
        self.conflicts + self.capacity + self.explicit + self.silent
    }

    /// What was counted since `earlier`, a reading of the same site.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            conflicts: self.conflicts - earlier.conflicts,
            capacity: self.capacity - earlier.capacity,
            explicit: self.explicit - earlier.explicit,
            silent: self.silent - earlier.silent,
            given_up: self.given_up - earlier.given_up,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { conflicts, capacity, explicit, silent, given_up } = self;
        write!(f, "{conflicts} conflicts, {capacity} for capacity, {explicit} explicit, {silent} silent, ")?;
        write!(f, "{given_up} given up")
    }
}

/// The sites at which anything was counted: a list that only grows.
static FIRST: AtomicPtr<Site> = AtomicPtr::new(core::ptr::null_mut());

impl Site {
    /// A place with a name for reports.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            shards: [const { CachePadded::new(Shard::new()) }; SHARDS],
            next: AtomicPtr::new(core::ptr::null_mut()),
            listed: AtomicBool::new(false),
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What was counted so far; beside threads that count, of about now.
    pub fn counts(&self) -> Counts {
        self.shards.iter().fold(Counts::default(), |sum, shard| Counts {
            conflicts: sum.conflicts + shard.conflicts.load(Ordering::Relaxed),
            capacity: sum.capacity + shard.capacity.load(Ordering::Relaxed),
            explicit: sum.explicit + shard.explicit.load(Ordering::Relaxed),
            silent: sum.silent + shard.silent.load(Ordering::Relaxed),
            given_up: sum.given_up + shard.given_up.load(Ordering::Relaxed),
        })
    }

    /// Counts an abort. Not inside of a transaction.
    #[cold]
    pub fn note_abort(&'static self, why: Abort) {
        let shard = self.shard();
        let count = match why.cause() {
            Cause::Explicit(_) => &shard.explicit,
            Cause::Conflict => &shard.conflicts,
            Cause::Capacity => &shard.capacity,
            Cause::Silent => &shard.silent,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that a budget was used up.
    #[cold]
    pub fn note_given_up(&'static self) {
        self.shard().given_up.fetch_add(1, Ordering::Relaxed);
    }

    fn shard(&'static self) -> &'static Shard {
        if !self.listed.load(Ordering::Relaxed) {
            self.list();
        }
        &self.shards[thread::slot().index % SHARDS]
    }

    fn list(&'static self) {
        if self.listed.swap(true, Ordering::Relaxed) {
            return;
        }
        let me = core::ptr::from_ref(self).cast_mut();
        let mut first = FIRST.load(Ordering::Relaxed);
        loop {
            self.next.store(first, Ordering::Relaxed);
            // Release: the thread that finds the site finds its link. Pairs with the Acquire in `sites`.
            match FIRST.compare_exchange(first, me, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }
}

/// All sites at which an abort was counted, with what was counted there.
pub fn sites() -> Vec<(&'static str, Counts)> {
    let mut found = Vec::new();
    let mut next = FIRST.load(Ordering::Acquire);
    // SAFETY: only statics are in the list.
    while let Some(site) = unsafe { next.as_ref() } {
        found.push((site.name, site.counts()));
        next = site.next.load(Ordering::Relaxed);
    }
    found.sort_unstable_by_key(|(name, _)| *name);
    found
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn aborts_are_counted_by_cause_and_sites_are_found() {
        static SITE: Site = Site::new("a test");
        assert!(!sites().iter().any(|(name, _)| *name == "a test"));
        for why in [0b110, 0b1000, 1, 0, 0] {
            SITE.note_abort(Abort(why));
        }
        SITE.note_given_up();
        let counts = Counts { conflicts: 1, capacity: 1, explicit: 1, silent: 2, given_up: 1 };
        assert_eq!((SITE.counts(), counts.aborts()), (counts, 5));
        assert!(sites().contains(&("a test", counts)));
        assert_eq!(counts.since(&counts), Counts::default());
    }
}
