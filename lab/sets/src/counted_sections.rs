//! Read-side sections that are counted by their keys, and waits for the sections of some keys: predicate RCU (Arbel and
//! Morrison, PPoPP 2015) in its form D-PRCU. [`sections`](crate::sections) has the form EER-PRCU.
//!
//! Neighbouring keys share a counter, with a number for each of two *sides*: how many sections are open on this side. A
//! section opens on the counter's present side. So all threads write to the counters, which costs a reader two updates
//! of a line that another processor had; and a wait reads two numbers for each [`KEYS`] keys, however many threads read.
//!
//! # Why no section is overlooked
//! A section adds itself to a number, executes a `SeqCst` fence, and reads the structure. A waiting thread changes the
//! structure, executes a `SeqCst` fence, and waits until it has seen each side's number as 0 once. If the section's
//! fence is first, the waiting thread sees the section in the number of its side, until the section has ended; and then
//! its Acquire load reads what the section's end has stored with Release, or what later updates of the number have made
//! of it. If not, the section sees the change, and need not be waited for.
//!
//! A number that new sections increase again and again would never be 0. So the waiting thread makes the other side the
//! present one while it waits for a side. Only sections that have read the present side before, and are not counted
//! yet, still come to the old one: one for each thread.

use core::ops::RangeInclusive;

use archipelago_platform::atomic::{AtomicUsize, Ordering, fence};
use archipelago_platform::hint::spin_loop;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Mutex;
use archipelago_sync::backoff::Backoff;

/// Keys with one counter, neighbours: as many as the MV-RLU paper's tree has, which draws from 20,000 keys.
const KEYS: u64 = 20;

/// The number of counters, as in the program that the paper measures. Keys that are far apart share counters, too.
const COUNTERS: u64 = if cfg!(loom) { 2 } else { 1023 };

/// How often a wait reads both sides before it changes the present side, as in that program.
const PATIENCE: usize = if cfg!(loom) { 1 } else { 10_000 };

#[derive(Default)]
struct Counter {
    present: AtomicUsize,
    open: [AtomicUsize; 2],
    /// Held by the thread that changes the present side.
    turn: Mutex<()>,
}

impl Counter {
    fn enter(&self) -> CountedSection<'_> {
        let open = &self.open[self.present.load(Ordering::Relaxed)];
        open.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        CountedSection(open)
    }

    fn is_empty(&self, side: usize) -> bool {
        self.open[side].load(Ordering::Acquire) == 0
    }

    /// Waits until each side has been empty once.
    fn drain(&self) {
        for _ in 0..PATIENCE {
            if self.is_empty(0) && self.is_empty(1) {
                return;
            }
            spin_loop();
        }
        let _turn = self.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let first = self.present.load(Ordering::Relaxed);
        for side in [first, 1 - first] {
            self.present.store(1 - side, Ordering::Relaxed);
            let backoff = Backoff::new();
            while !self.is_empty(side) {
                backoff.wait();
            }
        }
    }
}

/// The sections of all sessions.
pub struct CountedSections {
    by_keys: CachePadded<Box<[CachePadded<Counter>]>>,
    /// Sections with all keys.
    of_all_keys: CachePadded<Counter>,
}

impl Default for CountedSections {
    fn default() -> Self {
        let by_keys = (0..COUNTERS).map(|_| CachePadded::default()).collect();
        Self { by_keys: CachePadded::new(by_keys), of_all_keys: CachePadded::default() }
    }
}

/// An open section.
#[doc(hidden)]
pub struct CountedSection<'s>(&'s AtomicUsize);

impl Drop for CountedSection<'_> {
    /// Release: the section's reads precede what a wait permits to its caller.
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl CountedSections {
    /// Enters a section with this key, or with all keys.
    #[inline]
    pub(crate) fn enter(&self, key: Option<u64>) -> CountedSection<'_> {
        match key {
            Some(key) => self.by_keys[(key / KEYS % COUNTERS) as usize].enter(),
            None => self.of_all_keys.enter(),
        }
    }

    /// Waits until the sections that are open now and have one of `keys`, or all keys, have ended. The caller has no
    /// such section open.
    pub(crate) fn wait_for(&self, keys: &RangeInclusive<u64>) {
        fence(Ordering::SeqCst);
        let (first, last) = (keys.start() / KEYS, keys.end() / KEYS);
        for shared in (first..=last).take(COUNTERS as usize) {
            self.by_keys[(shared % COUNTERS) as usize].drain();
        }
        self.of_all_keys.drain();
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use archipelago_platform::atomic::AtomicBool;
    use archipelago_platform::model::model;
    use archipelago_platform::sync::Arc;
    use archipelago_platform::thread;
    use archipelago_platform::watch::Watch;

    #[derive(Default)]
    struct Shared {
        sections: CountedSections,
        unlinked: [AtomicBool; 2],
        memory: [Watch; 2],
    }

    /// The second removal may find a section that was opened on the other side, during the wait of the first one.
    fn reads_beside_removals(key: Option<u64>) {
        model(3, move || {
            let shared = Arc::new(Shared::default());
            let reader = {
                let shared = shared.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let _section = shared.sections.enter(key);
                        for (unlinked, memory) in shared.unlinked.iter().zip(&shared.memory) {
                            if !unlinked.load(Ordering::Relaxed) {
                                memory.read();
                            }
                        }
                    }
                })
            };
            for (unlinked, memory) in shared.unlinked.iter().zip(&shared.memory) {
                unlinked.store(true, Ordering::Relaxed);
                shared.sections.wait_for(&(5..=25));
                memory.write();
            }
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_wait_ends_after_the_sections_of_its_keys() {
        reads_beside_removals(Some(25));
    }

    #[test]
    fn a_wait_ends_after_the_sections_of_all_keys() {
        reads_beside_removals(None);
    }
}
