//! Counts of aborted transactions, for each site of the program at which transactions begin.
//!
//! Only aborts are counted. Counting commits would add an instruction to the fast path, and a program knows how often
//! it passes a site. The counts are spread over several cache lines by thread. The simulator does not see them; it has
//! counts of its own (`Report::tx_sites`).

use core::fmt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::{Abort, Cause};
use crate::pad::CachePadded;
use crate::thread;

/// A site at which transactions begin, declared as a static.
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
    /// The next site in the list of all sites, once this one is in the list.
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

/// The counts of a [`Site`] since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Aborts because another thread accessed a cache line of the transaction.
    pub conflicts: u64,
    /// Aborts because cache lines did not fit.
    pub capacity: u64,
    /// Aborts by the program itself, for example because a lock was held.
    pub explicit: u64,
    /// Aborts without a stated reason.
    pub silent: u64,
    /// The number of times that a budget was used up and the program used its fallback.
    pub given_up: u64,
}

impl Counts {
    /// Returns the number of all aborts.
    pub fn aborts(&self) -> u64 {
        self.conflicts + self.capacity + self.explicit + self.silent
    }

    /// Returns the counts since `earlier`, a reading of the same site.
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

/// The list of sites at which anything was counted. It only grows.
static FIRST: AtomicPtr<Site> = AtomicPtr::new(core::ptr::null_mut());

impl Site {
    /// Makes a site with a name for reports.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            shards: [const { CachePadded::new(Shard::new()) }; SHARDS],
            next: AtomicPtr::new(core::ptr::null_mut()),
            listed: AtomicBool::new(false),
        }
    }

    /// Returns the site's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the counts so far. If other threads are counting, the counts are approximate.
    pub fn counts(&self) -> Counts {
        self.shards.iter().fold(Counts::default(), |sum, shard| Counts {
            conflicts: sum.conflicts + shard.conflicts.load(Ordering::Relaxed),
            capacity: sum.capacity + shard.capacity.load(Ordering::Relaxed),
            explicit: sum.explicit + shard.explicit.load(Ordering::Relaxed),
            silent: sum.silent + shard.silent.load(Ordering::Relaxed),
            given_up: sum.given_up + shard.given_up.load(Ordering::Relaxed),
        })
    }

    /// Counts an abort. Must not be called inside a transaction.
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
            // Release: pairs with the Acquire in `sites`, so a thread that finds the site also finds its link.
            match FIRST.compare_exchange(first, me, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }
}

/// Returns all sites at which anything was counted, with their counts.
pub fn sites() -> Vec<(&'static str, Counts)> {
    let mut found = Vec::new();
    let mut next = FIRST.load(Ordering::Acquire);
    // SAFETY: the list contains only statics.
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
