//! Which replaced versions are kept for snapshots and running transactions, and which version a reader sees.
//!
//! A replaced version is seen by each snapshot `s` for which `begin <= s < begin of the next version`. In schemes with
//! one version per row, a commit that writes a record unlinks the versions that no snapshot sees from the record's
//! chain. So a row has at most one more version than there are snapshots, however long the snapshots stay open.
//! (Multi-version schemes also keep versions for running transactions, and prune later: see `Work::prune`.) If a
//! snapshot needs a replaced version, the record is added to the snapshot's list. When the snapshot ends, the records
//! of its list are pruned.
//!
//! A writer that loaded `e` from the clock sees all open snapshots `s < e` in the table of snapshots. A thread that
//! opens a snapshot holds the table's lock, counts the snapshot in `open`, and then adds to the clock. The writer takes
//! the lock (or loads `open`) after its load of the clock.

use archipelago_platform::atomic::Ordering;

use crate::epochs::{Epochs, Keeps, Needs, Open};
use crate::record::{Latch, Record, Version};
use crate::scheme::Scheme;
use crate::tree::Tree;

/// A record with a version that is kept for a snapshot, and the record's index.
pub struct Kept<S: Scheme> {
    pub(crate) record: *const Record<S>,
    pub(crate) tree: *const dyn Tree<S>,
}

// SAFETY: records and indexes are shared by threads; `Shared::close` says why they are alive.
unsafe impl<S: Scheme> Send for Kept<S> {}

impl<S: Scheme> Keeps for S {
    const MANY: bool = S::VERSIONS;
    type Kept = Kept<S>;
}

impl<S: Scheme> Epochs<S> {
    /// Moves the replaced versions that no snapshot and no running transaction sees from the chain of a latched record
    /// into `dropped`. Returns whether a version was kept for running transactions. If so, the chain has to be pruned
    /// again later.
    pub(crate) fn prune(
        &self,
        latch: &Latch<'_, S>,
        tree: *const dyn Tree<S>,
        needs: &Needs,
        dropped: &mut Vec<*mut Version<S>>,
    ) -> bool {
        let mut is_needed = false;
        // SAFETY: the head's version is alive; the caller holds the latch.
        let head = unsafe { &*latch.version() };
        if head.older.load(Ordering::Relaxed).is_null() {
            return false;
        }
        // Acquire: pairs with the Release of `mvrlu.rs`, which publishes stamps without a latch.
        let begin = head.begin.load(Ordering::Acquire);
        // The writer's load of the clock (or, when a snapshot is closed, the table's lock) precedes this load. So 0
        // means that all snapshots below the loaded clock have been closed.
        let mut table = if self.count() == 0 { None } else { Some(self.table()) };
        let mut newer = head;
        let mut next = begin;
        loop {
            let at = newer.older.load(Ordering::Relaxed);
            // SAFETY: versions in the chain are alive, and only the latch's holder takes them out.
            let Some(version) = (unsafe { at.as_ref() }) else { return is_needed };
            let begin = version.begin.load(Ordering::Relaxed);
            if needs.lie_in(begin, next) {
                (is_needed, newer) = (true, version);
            } else if table
                .as_mut()
                .is_some_and(|table| keep(table, version, next, Kept { record: latch.record(), tree }))
            {
                newer = version;
            } else {
                // Release: readers that follow the new pointer see initialized versions. Readers that are at the
                // unlinked version follow its own `older`, which does not change, and the version that they look for is
                // not unlinked.
                newer.older.store(version.older.load(Ordering::Relaxed), Ordering::Release);
                dropped.push(at);
            }
            next = begin;
        }
    }

    /// Returns the version that a snapshot sees in the chain from this head, or null.
    ///
    /// # Safety
    /// `head` is the version of a head that `Record::to_read` gave inside of the domain after `snapshot` was opened (or
    /// the transaction begun); the snapshot stays open.
    pub(crate) unsafe fn visible(&self, head: *mut Version<S>, snapshot: u64) -> *mut Version<S> {
        let mut version = head;
        // SAFETY: versions that were in the chain are alive inside the section. The version that the snapshot sees is
        // never unlinked, and every version above leads to it.
        while let Some(at) = unsafe { version.as_ref() } {
            if S::sees(at, snapshot, self) {
                break;
            }
            version = at.older.load(Ordering::Acquire);
        }
        version
    }
}

/// Returns whether a snapshot sees `version`, whose successor has the stamp `next`. If so, the call also makes sure
/// that the record is in a snapshot's list.
fn keep<S: Scheme>(table: &mut Open<S>, version: &Version<S>, next: u64, entry: Kept<S>) -> bool {
    // An origin (the empty first version of a record) has no row, so no version has to be kept for a snapshot that sees
    // it.
    let begin = version.begin.load(Ordering::Relaxed);
    if begin == 0 || begin >= next {
        return false;
    }
    let Some((&snapshot, _)) = table.range(begin..next).next() else { return false };
    if !table.contains_key(&version.keeper.load(Ordering::Relaxed)) {
        version.keeper.store(snapshot, Ordering::Relaxed);
        table.get_mut(&snapshot).expect("it was found").push(entry);
    }
    true
}
