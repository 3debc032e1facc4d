//! The words of a record: its head with the latch, its holds, and its owner.
//!
//! *A record that a transaction holds is not unlinked.* A holder adds a hold, passes a SeqCst fence, and loads the head
//! (it waits for a latch). An unlinker latches the head, passes a SeqCst fence, and loads the holds. So the unlinker
//! finds the hold, or the holder finds the latch, waits, and finds the record dead. If the unlinker finds the hold
//! released, it sees all that the holder did before the release.

use core::ops::Deref;

use archipelago_platform::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use archipelago_sync::backoff::Backoff;

use crate::locks::Conflict;

/// The bit of `holds` for the record's repeated callback (see `Typed::due` in `tree.rs`).
const AGAIN: u32 = 1 << 31;

const LATCHED: usize = 1;
const DEAD: usize = 2;

/// A head as it was at some moment: a pointer to a version, and two bits.
pub struct Head<V>(*mut V);

impl<V> Clone for Head<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Head<V> {}

impl<V> Head<V> {
    pub(crate) fn is_latched(self) -> bool {
        self.0.addr() & LATCHED != 0
    }

    pub(crate) fn is_dead(self) -> bool {
        self.0.addr() & DEAD != 0
    }

    pub(crate) fn version(self) -> *mut V {
        self.0.map_addr(|address| address & !(LATCHED | DEAD))
    }
}

/// The words of a record with versions of the type `V`, whose alignment leaves two bits of an address free.
#[repr(C)]
pub struct Words<V> {
    head: AtomicPtr<V>,
    /// The number of holds that keep the record in its index, and the bit [`AGAIN`]. Holds belong to transactions that
    /// are to write the record, and to commits whose grace period is not over (removals, and in multi-version schemes
    /// all commits). See `tree.rs`.
    holds: AtomicU32,
    /// In multi-version schemes, the thread whose transaction is to write the record; 0 for none.
    owner: AtomicU32,
}

impl<V> Words<V> {
    /// Makes the words of a record that the caller holds.
    pub(crate) fn held(version: *mut V) -> Self {
        const { assert!(align_of::<V>() > LATCHED | DEAD) };
        Self { head: AtomicPtr::new(version), holds: AtomicU32::new(1), owner: AtomicU32::new(0) }
    }

    /// Acquire: the version's content was written before the Release of [`Latch`]'s drop (or of the index, for an
    /// origin).
    pub(crate) fn head(&self) -> Head<V> {
        Head(self.head.load(Ordering::Acquire))
    }

    /// Waits until the head is not latched or is dead, and returns it. The wait is short. A latch is held only while a
    /// commit, pruning or unlinking uses the record. The only users' code that runs while a latch is held is the
    /// encoding of keys. The holder waits only for latches that follow its own in the latch order.
    pub(crate) fn settled(&self) -> Head<V> {
        let backoff = Backoff::new();
        loop {
            let head = self.head();
            if head.is_dead() || !head.is_latched() {
                return head;
            }
            backoff.wait();
        }
    }

    /// Gives the thread the sole right to write the record, until [`disown`](Self::disown). Returns `true` if the right
    /// is new, and `false` if the thread had it already. Fails if another thread has it.
    pub(crate) fn own(&self, thread: u32) -> Result<bool, Conflict> {
        // Acquire: the thread sees all writes of the last owner, including its commit's stamp.
        match self.owner.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(true),
            Err(owner) if owner == thread => Ok(false),
            Err(_) => Err(Conflict),
        }
    }

    pub(crate) fn is_owned(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn disown(&self) {
        self.owner.store(0, Ordering::Release);
    }

    /// Keeps the record in its index until [`let_go`](Self::let_go). This has no effect on a dead record, so the caller
    /// checks after the call, by [`settled`](Self::settled), whether the record is dead.
    pub(crate) fn hold(&self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `Latch::to_unlink` between the latch and the load of `holds`.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn let_go(&self) {
        // Release: a thread that unlinks the record sees all writes of the holder.
        self.holds.fetch_sub(1, Ordering::Release);
    }

    /// Takes the hold of the record's repeated callback. Returns whether it was free.
    pub(crate) fn hold_again(&self) -> bool {
        self.holds.fetch_or(AGAIN, Ordering::Relaxed) & AGAIN == 0
    }

    /// Ends the hold of the repeated callback.
    pub(crate) fn let_go_again(&self) {
        // Release, as in `let_go`.
        self.holds.fetch_and(!AGAIN, Ordering::Release);
    }

    fn is_held(&self) -> bool {
        self.holds.load(Ordering::Acquire) > 0
    }
}

/// A latched record `R`; unlatched by drop.
pub(crate) struct Latch<'r, R: Deref<Target = Words<V>>, V> {
    record: &'r R,
    version: *mut V,
}

impl<'r, R: Deref<Target = Words<V>>, V> Latch<'r, R, V> {
    /// Latches a record; `None` if it is dead.
    pub(crate) fn of(record: &'r R) -> Option<Self> {
        loop {
            let head = record.settled();
            if head.is_dead() {
                return None;
            }
            let latched = head.0.map_addr(|address| address | LATCHED);
            // Acquire: the holder sees all writes of the last holder. (In commits a SeqCst fence follows the latch.)
            if record.head.compare_exchange(head.0, latched, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                archipelago_platform::hint::point("txn::latched");
                return Some(Latch { record, version: head.version() });
            }
        }
    }

    /// Latches a record that is to be unlinked. Returns `None` if the record is dead or held, or if `may_go` refuses
    /// it. While the caller has the latch, every transaction that takes a hold waits, so the caller may unlink and kill
    /// the record.
    pub(crate) fn to_unlink(record: &'r R, may_go: impl Fn(Head<V>) -> bool) -> Option<Self> {
        let may_go = |head| may_go(head) && !record.is_held();
        // A check without the latch filters out most records that stay. Otherwise transactions that use a record would
        // wait for the latches of transactions that keep retrying.
        let head = record.settled();
        if head.is_dead() || !may_go(head) {
            return None;
        }
        let latch = Self::of(record)?;
        // Pairs with the fences of transactions that take a hold (`Words::hold`) or the record's lock (`locks.rs`).
        fence(Ordering::SeqCst);
        may_go(Head(latch.version)).then_some(latch)
    }

    /// Returns the head's version.
    pub(crate) fn version(&self) -> *mut V {
        self.version
    }

    pub(crate) fn record(&self) -> &'r R {
        self.record
    }

    /// Keeps the record in its index until [`let_go`](Words::let_go). It does not need the fence of
    /// [`hold`](Words::hold): a thread that latches the record later, to unlink it, sees all writes that were made
    /// under this latch.
    pub(crate) fn hold(&self) {
        self.record.holds.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes `version` the head, which stays latched. Returns the previous head's version.
    pub(crate) fn replace(&mut self, version: *mut V) -> *mut V {
        core::mem::replace(&mut self.version, version)
    }

    /// Marks the record dead.
    pub(crate) fn kill(self) {
        // Release, as in `drop`.
        self.record.head.store(self.version.map_addr(|address| address | DEAD), Ordering::Release);
        core::mem::forget(self);
    }
}

impl<R: Deref<Target = Words<V>>, V> Drop for Latch<'_, R, V> {
    fn drop(&mut self) {
        // Release: publishes the version, and all earlier writes of its transaction.
        self.record.head.store(self.version, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod model {
    use archipelago_platform::cell::RaceCell;
    use archipelago_platform::model::model;
    use archipelago_platform::sync::Arc;
    use archipelago_platform::thread;

    use super::*;

    /// A record of an absent key, whose accesses by its users loom checks.
    struct Kept {
        words: Words<u64>,
        used: RaceCell<u64>,
    }

    // SAFETY: loom ends the run when accesses to the cell are not ordered.
    unsafe impl Send for Kept {}
    // SAFETY: as above.
    unsafe impl Sync for Kept {}

    impl Deref for Kept {
        type Target = Words<u64>;

        fn deref(&self) -> &Words<u64> {
            &self.words
        }
    }

    impl Kept {
        /// Returns a record that no transaction holds.
        fn new() -> Arc<Self> {
            // The address of a version, which no model dereferences.
            let version = core::ptr::without_provenance_mut(1 << 4);
            let kept = Self { words: Words::held(version), used: RaceCell::new(0) };
            kept.let_go();
            Arc::new(kept)
        }

        /// Takes a hold. Returns whether the record is in its index, and so stays there.
        fn hold_in(&self) -> bool {
            self.hold();
            !self.settled().is_dead()
        }

        /// Takes a hold under a latch, as a commit does.
        fn hold_latched(&self) -> bool {
            Latch::of(self).map(|latch| latch.hold()).is_some()
        }

        /// Returns whether the call has unlinked the record.
        fn unlink(&self) -> bool {
            let latch = Latch::to_unlink(self, |_| true);
            latch.map(|latch| self.used.with_mut(|_| latch.kill())).is_some()
        }

        /// Uses the record for a while, as a transaction that is to write it does.
        fn visit(&self) {
            if self.hold_in() {
                // SAFETY: loom ends the run if the unlinker accesses the cell concurrently.
                self.used.with(|used| unsafe { *used });
            }
            self.let_go();
        }
    }

    /// Claim: a record that a transaction has held since it found it alive is not unlinked.
    fn held_or_unlinked(hold: fn(&Kept) -> bool) {
        model(3, move || {
            let kept = Kept::new();
            let holder = thread::spawn({
                let kept = kept.clone();
                move || hold(&kept)
            });
            let unlinked = kept.unlink();
            let held = holder.join().expect("no panic");
            assert!(held != unlinked, "held: {held}, unlinked: {unlinked}");
        });
    }

    #[test]
    fn a_record_is_held_or_unlinked() {
        held_or_unlinked(Kept::hold_in);
    }

    #[test]
    fn a_record_is_held_under_a_latch_or_unlinked() {
        held_or_unlinked(Kept::hold_latched);
    }

    /// Claim: the unlinker sees all that a holder did while it had its hold, and a holder that comes later does nothing.
    #[test]
    fn an_unlinker_follows_all_holders() {
        model(3, || {
            let kept = Kept::new();
            let holder = thread::spawn({
                let kept = kept.clone();
                move || (0..2).for_each(|_| kept.visit())
            });
            kept.unlink();
            holder.join().expect("no panic");
        });
    }

    /// Claim: a record is unlinked once.
    #[test]
    fn one_of_two_unlinks() {
        model(3, || {
            let kept = Kept::new();
            let other = thread::spawn({
                let kept = kept.clone();
                move || kept.unlink()
            });
            let mine = kept.unlink();
            assert!(mine != other.join().expect("no panic"));
            assert!(kept.head().is_dead());
        });
    }
}
