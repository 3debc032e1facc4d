//! How contended a chunk is. A chunk where no thread was in another's way counts nothing; after that its writes are counted, for
//! a while.
//!
//! A refusal is a change that came too late, or a transaction with one that another thread's access has aborted.
//!
//! Quiet chunk: [`HOT`] refusals within [`WINDOW`] writes, the first refusal opening the window, and the chunk is scattered. A
//! scattered chunk is joined again after [`FOLDS`] times that its parts were emptied into it, a thousand insertions or so:
//! whether they would be in each other's way without parts can only be found out by trying, and if they are, a few refusals
//! scatter it again. So the two thresholds are far apart, and a chunk does not go to and fro.
//!
//! Counts are advice: they are relaxed, and threads may overwrite each other's.

use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};

/// Writes that are looked at together.
const WINDOW: u64 = 256;
/// Refusals among them that make a chunk contended.
const HOT: u64 = 4;
/// So often the parts of a chunk are emptied before it is joined.
const FOLDS: u64 = 64;

/// In the upper half refusals (of a scattered chunk: how often it was emptied), in the lower writes.
pub(super) struct Heat(AtomicU64);

const ONE: u64 = 1 << 32;

impl Heat {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A write of a quiet chunk was done. Whether the chunk is contended now: by transactions that were aborted.
    #[inline(always)]
    pub(super) fn write(&self) -> bool {
        let seen = self.0.load(Relaxed);
        if seen == 0 {
            return false;
        }
        self.0.store(if seen % ONE < WINDOW { seen + 1 } else { 0 }, Relaxed);
        seen / ONE >= HOT
    }

    /// A transaction that was to write to a quiet chunk was aborted.
    #[cold]
    pub(super) fn aborted(&self) {
        self.refused();
    }

    /// A write of a quiet chunk was refused, since another thread was changing it. Whether it is contended now.
    pub(super) fn refused(&self) -> bool {
        let seen = self.0.load(Relaxed) + ONE;
        self.0.store(seen, Relaxed);
        seen / ONE >= HOT
    }

    /// A scattered chunk's parts were emptied into it. Whether it is to be joined.
    pub(super) fn folded(&self) -> bool {
        let seen = self.0.load(Relaxed) + ONE;
        self.0.store(seen, Relaxed);
        seen / ONE >= FOLDS
    }

    /// Begins anew: the chunk was scattered or joined.
    pub(super) fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    /// Takes over what another chunk has.
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
