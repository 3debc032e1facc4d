//! TicToc's stamps: the time in which a version is valid, and an index's bounds for the stamps of commits.
//!
//! *A gap's reader precedes the writer that fills the gap.* The reader raises the index's bound for writers to its own
//! stamp, passes a SeqCst fence and looks the gap up. A writer links and latches its record, passes a SeqCst fence and
//! loads the bound. So the reader finds the record, or the writer finds the raised bound and takes a greater stamp. A
//! reader that finds the record with an origin which is not latched raises the origin's `rts`.

use archipelago_platform::atomic::{AtomicU64, Ordering, fence};

/// The flag in `rts` which states that `rts` is final.
const FROZEN: u64 = 1 << 63;

/// The time in which a version is valid.
#[derive(Default)]
pub struct Stamps {
    wts: AtomicU64,
    /// The end of the validity, with the flag [`FROZEN`].
    rts: AtomicU64,
}

impl Stamps {
    /// Makes the version valid at `stamp`. Returns `false` if this is impossible, since the version is frozen and its
    /// validity ends before `stamp`.
    pub(crate) fn extend(&self, stamp: u64) -> bool {
        // AcqRel, as in `freeze`: only this word orders reader and writer.
        let next = |rts| if rts & !FROZEN >= stamp { Some(rts) } else { (rts & FROZEN == 0).then_some(stamp) };
        self.rts.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    /// Makes the end of the validity final.
    pub(crate) fn freeze(&self) {
        self.rts.fetch_or(FROZEN, Ordering::AcqRel);
    }

    /// Reverts [`freeze`](Self::freeze).
    pub(crate) fn thaw(&self) {
        self.rts.fetch_and(!FROZEN, Ordering::AcqRel);
    }

    /// Sets the stamps of a version that is not published yet.
    pub(crate) fn set(&self, stamp: u64) {
        self.wts.store(stamp, Ordering::Relaxed);
        self.rts.store(stamp, Ordering::Relaxed);
    }

    /// Returns the stamp of the commit that wrote the version.
    pub(crate) fn first(&self) -> u64 {
        self.wts.load(Ordering::Relaxed)
    }

    /// Returns the greatest stamp of a transaction that has read the version.
    pub(crate) fn last(&self) -> u64 {
        self.rts.load(Ordering::Acquire) & !FROZEN
    }
}

/// The stamps of an index. Commits to absent keys must come after `read`, and readers of absent keys must not come
/// before `removed`.
#[derive(Default)]
pub struct GapStamps {
    /// The greatest stamp of a transaction that found a key absent, or read a version that was unlinked.
    read: AtomicU64,
    /// The greatest stamp of a removal whose record was unlinked.
    removed: AtomicU64,
}

impl GapStamps {
    /// Reports a transaction with the stamp `stamp` that has read gaps of these indexes. The transaction looks the gaps
    /// up after the call.
    pub(crate) fn report<'g>(gaps: impl Iterator<Item = &'g Self>, stamp: u64) {
        gaps.for_each(|gap| _ = gap.read.fetch_max(stamp, Ordering::AcqRel));
        // Pairs with the fence of commits to absent records, between the latch and `last_reader`.
        fence(Ordering::SeqCst);
    }

    /// Returns the greatest stamp of a reader of gaps. The caller has latched its record and passed a SeqCst fence.
    pub(crate) fn last_reader(&self) -> u64 {
        self.read.load(Ordering::Acquire)
    }

    /// Returns the greatest stamp of a removal whose record was unlinked.
    pub(crate) fn last_removal(&self) -> u64 {
        self.removed.load(Ordering::Acquire)
    }

    /// Takes over the stamps of the version of a latched record that is about to be unlinked.
    pub(crate) fn take_over(&self, version: &Stamps) {
        version.freeze();
        self.read.fetch_max(version.last(), Ordering::AcqRel);
        self.removed.fetch_max(version.first(), Ordering::AcqRel);
    }
}

#[cfg(all(test, loom))]
mod model {
    use core::iter::once;
    use core::ops::Deref;

    use archipelago_platform::atomic::AtomicBool;
    use archipelago_platform::model::model;
    use archipelago_platform::sync::Arc;
    use archipelago_platform::thread;

    use super::*;
    use crate::words::head::{Latch, Words};

    const ORIGIN: *mut u64 = core::ptr::without_provenance_mut(1 << 4);
    const ROW: *mut u64 = core::ptr::without_provenance_mut(1 << 5);

    /// The stamp of the reader: it has also read a version with this stamp.
    const READER: u64 = 5;

    /// An index without records, and a record with an origin, which a writer links.
    struct Index {
        gap: GapStamps,
        /// Stands for the map: whether it has the record.
        has: AtomicBool,
        words: Words<u64>,
        origin: Stamps,
    }

    // SAFETY: the versions are addresses, which no model dereferences.
    unsafe impl Send for Index {}
    // SAFETY: as above.
    unsafe impl Sync for Index {}

    impl Deref for Index {
        type Target = Words<u64>;

        fn deref(&self) -> &Words<u64> {
            &self.words
        }
    }

    impl Index {
        fn new() -> Arc<Self> {
            let words = Words::held(ORIGIN);
            let (gap, has, origin) = (GapStamps::default(), AtomicBool::new(false), Stamps::default());
            Arc::new(Self { gap, has, words, origin })
        }

        /// Validates a transaction that has found the key absent. Returns whether it commits, with the stamp `READER`.
        fn read(&self) -> bool {
            GapStamps::report(once(&self.gap), READER);
            if !self.has.load(Ordering::Acquire) {
                return true;
            }
            let head = self.head();
            head.version() == ORIGIN && !head.is_latched() && self.origin.extend(READER)
        }

        /// Inserts a row by a commit like `Work::install_latched`. Returns the commit's stamp.
        fn insert(&self) -> u64 {
            self.has.store(true, Ordering::Release);
            let mut latch = Latch::of(self).expect("no thread unlinks it");
            self.origin.freeze();
            fence(Ordering::SeqCst);
            let stamp = self.origin.last().max(self.gap.last_reader()) + 1;
            latch.replace(ROW);
            stamp
        }
    }

    /// Claim: a transaction that has found a key absent gives up, or has a lower stamp than the commit that inserts the
    /// key's row.
    #[test]
    fn a_row_is_inserted_after_the_readers_of_its_gap() {
        model(3, || {
            let index = Index::new();
            let writer = thread::spawn({
                let index = index.clone();
                move || index.insert()
            });
            let commits = index.read();
            let stamp = writer.join().expect("no panic");
            assert!(!commits || READER < stamp, "the writer has the stamp {stamp}");
        });
    }
}
