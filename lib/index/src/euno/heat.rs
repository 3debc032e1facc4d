//! Detects contention of a chunk (a leaf). While a chunk has no conflicts, nothing is counted. After a conflict, the
//! chunk's writes are counted for a while.
//!
//! A change of a chunk is *refused* if the chunk no longer has the expected version, or if another thread's access
//! aborts the change's transaction.
//!
//! The first refusal of a quiet chunk (one without parts) opens a window. If there are [`HOT`] refusals within
//! [`WINDOW`] writes, the chunk is scattered: it gets parts, into which new entries are inserted. A scattered chunk is
//! joined again (loses its parts) after its parts were emptied into it [`FOLDS`] times, which is about a thousand
//! insertions. Only this trial can show whether insertions would conflict without parts. If they do, a few refusals
//! scatter the chunk again. The two thresholds are far apart, so a chunk does not oscillate.
//!
//! Counts are hints: accesses are relaxed, and threads may overwrite each other's counts.

use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of writes in a window.
const WINDOW: u64 = 256;
/// The number of refusals within a window that makes a chunk contended.
const HOT: u64 = 4;
/// How often the parts of a chunk are emptied before it is joined.
const FOLDS: u64 = 64;

/// The upper half counts refusals (in a scattered chunk, how often its parts were emptied), the lower half writes.
pub(super) struct Heat(AtomicU64);

const ONE: u64 = 1 << 32;

impl Heat {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Notes a write of a quiet chunk. Returns whether the chunk is contended now, because of aborted transactions.
    #[inline(always)]
    pub(super) fn write(&self) -> bool {
        let seen = self.0.load(Relaxed);
        if seen == 0 {
            return false;
        }
        self.0.store(if seen % ONE < WINDOW { seen + 1 } else { 0 }, Relaxed);
        seen / ONE >= HOT
    }

    /// Notes the abort of a transaction that was to write to a quiet chunk.
    #[cold]
    pub(super) fn aborted(&self) {
        self.refused();
    }

    /// Notes that a write of a quiet chunk was refused, since another thread was changing the chunk. Returns whether
    /// the chunk is contended now.
    pub(super) fn refused(&self) -> bool {
        let seen = self.0.load(Relaxed) + ONE;
        self.0.store(seen, Relaxed);
        seen / ONE >= HOT
    }

    /// Notes that a scattered chunk's parts were emptied into it. Returns whether it should be joined.
    pub(super) fn folded(&self) -> bool {
        let seen = self.0.load(Relaxed) + ONE;
        self.0.store(seen, Relaxed);
        seen / ONE >= FOLDS
    }

    /// Resets the counts, after the chunk was scattered or joined.
    pub(super) fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    /// Copies another chunk's counts.
    pub(super) fn inherit(&self, other: &Heat) {
        self.0.store(other.0.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_refusals_in_a_window_make_it_contended() {
        let heat = Heat::new();
        assert!((0..10_000).all(|_| !heat.write()));
        assert_eq!(heat.0.load(Relaxed), 0, "a quiet chunk counts nothing");
        assert_eq!([(); 4].map(|()| heat.refused()), [false, false, false, true]);
        heat.reset();
        assert_eq!([(); 4].map(|()| (heat.aborted(), heat.write()).1), [false, false, false, true]);
        heat.reset();
        for _ in 0..100 {
            assert!(!heat.refused(), "one refusal in a window is none too many");
            assert!((0..=WINDOW).all(|_| !heat.write()));
        }
    }

    #[test]
    fn it_is_joined_much_later_than_scattered() {
        let heat = Heat::new();
        assert_eq!((0..).take_while(|_| !heat.folded()).count() as u64, FOLDS - 1);
    }
}
