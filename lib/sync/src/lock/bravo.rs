//! A bias towards readers for any reader-writer lock, after BRAVO (Dice and Kogan 2019).
//!
//! While the bias is on, a reader does not touch the underlying lock: it increments a counter on a line of its own and
//! checks that the bias is still on. A writer takes the underlying lock and, if the bias is on, *revokes* the bias: the
//! writer switches it off and waits for the readers that entered by it. Readers switch the bias on again after a number
//! of reads through the underlying lock. The number is so high that revocations take about a tenth of the time at most.
//!
//! Differences from the paper: The table of visible readers belongs to the lock instead of the process. So locks share
//! no state, but each needs memory, which is allocated when the bias is first used. The bias is inhibited for a number
//! of reads instead of a time, so no clock is read.
//!
//! # How a reader remembers by which path it entered
//! `lock_api` passes no data from the call that takes a lock to the call that releases it. So a thread-local row of
//! [`ROW`] entries contains the identity of every lock that the thread holds by the bias, once per hold. A thread whose
//! row is full takes the underlying lock. No two locks have the same identity, so the entry of a leaked guard is never
//! taken for another lock's. A thread may hold one lock both by the bias and by the underlying lock; it may release the
//! two in either order, since both exclude writers.
//!
//! # Why reader and writer never miss each other
//! The argument is at [`readers`](super::readers). The flag `biased` is the inverse of the writer's flag in this
//! argument. Only a holder of the underlying lock sets `biased`, and every writer that finds it set waits until the
//! counts are zero. So whenever `biased` is clear and no writer holds the underlying lock, no reader is inside by the
//! bias.

use core::cell::Cell;

use archipelago_platform::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use archipelago_platform::thread;
use archipelago_platform::topology::Topology;
use lock_api::{GuardNoSend, RawRwLock};

use super::home::shard;
use super::readers::Readers;
use super::wait::locked_in_region;
use crate::identity::Identities;

/// The number of locks that a thread can hold by their biases at the same time.
const ROW: usize = 8;

/// How many reads go through the underlying lock before the bias is switched on again, for each line that a revocation
/// checks. The check of a line costs about one cache miss, and so does a read through the underlying lock. So revoking
/// takes at most a tenth of the time. The paper calls this number N.
const READS_PER_LOOK: u32 = 9;

#[cfg(not(loom))]
thread::thread_local! {
    static HELD: [Cell<u64>; ROW] = const { [const { Cell::new(0) }; ROW] };
}
#[cfg(loom)]
thread::thread_local! {
    static HELD: [Cell<u64>; ROW] = [const { Cell::new(0) }; ROW];
}

static IDENTITIES: Identities = Identities::new();

/// BRAVO-style wrapper: reads scale as if each thread had the lock to itself, writes cost more after reads. The
/// underlying lock `R` determines the fairness among writers, and among all threads while the bias is off.
///
/// ```
/// use archipelago::sync::lock::{RawBravo, RawCrwNp, RwLock};
///
/// let table: RwLock<RawBravo<RawCrwNp>, Vec<u32>> = RwLock::default();
/// table.write().push(7);
/// assert_eq!(*table.read(), [7]);
/// ```
#[derive(Debug)]
pub struct RawBravo<R> {
    biased: AtomicBool,
    /// The number of reads that still have to go through `under` before the bias is switched on.
    inhibited: AtomicU32,
    /// The number by which a thread's row refers to this lock; 0 until the bias was first switched on.
    identity: AtomicU64,
    readers: Readers,
    under: R,
}

impl<R: RawRwLock> RawBravo<R> {
    /// An unlocked lock over the unlocked lock `under`.
    #[cfg(not(loom))]
    pub const fn over(under: R) -> Self {
        Self {
            biased: AtomicBool::new(false),
            inhibited: AtomicU32::new(0),
            identity: AtomicU64::new(0),
            readers: Readers::new(),
            under,
        }
    }

    /// An unlocked lock over the unlocked lock `under`.
    ///
    /// ```
    /// use archipelago::sync::lock::{RawBravo, RawCrwNp, RwLock};
    ///
    /// let lock = RwLock::from_raw(RawBravo::over(RawCrwNp::new()), 7);
    /// assert_eq!(*lock.read(), 7);
    /// ```
    #[cfg(loom)]
    pub fn over(under: R) -> Self {
        Self {
            biased: AtomicBool::new(false),
            inhibited: AtomicU32::new(0),
            identity: AtomicU64::new(0),
            readers: Readers::new(),
            under,
        }
    }

    /// Counts the reader in on its own line, if the bias is on.
    #[inline]
    fn try_read_by_bias(&self) -> bool {
        // Acquire: `identity` was set before the bias was first switched on.
        if !self.biased.load(Ordering::Acquire) {
            return false;
        }
        let Some(entry) = HELD.with(|row| row.iter().position(|entry| entry.get() == 0)) else { return false };
        self.readers.arrive(shard(), lines);
        // `SeqCst` for the argument at `readers`. As an Acquire it pairs with the store in `after_slow_read`, so that
        // this reader sees the last writer's stores.
        let entered = self.biased.load(Ordering::SeqCst);
        if entered {
            HELD.with(|row| row[entry].set(self.identity.load(Ordering::Relaxed)));
        } else {
            self.readers.depart(shard(), lines);
        }
        entered
    }

    /// Switches the bias on, unless it was revoked a short while ago. Called by a reader that holds `under`.
    fn after_slow_read(&self) {
        // Relaxed, and a plain store: readers that race lose counts, and nothing else.
        match self.inhibited.load(Ordering::Relaxed) {
            0 if self.biased.load(Ordering::Relaxed) => {}
            0 => {
                self.identify();
                // `SeqCst` for the argument at `readers`. As a Release it pairs with the loads in `try_read_by_bias`.
                self.biased.store(true, Ordering::SeqCst);
            }
            reads => self.inhibited.store(reads - 1, Ordering::Relaxed),
        }
    }

    /// Gives the lock its number, if it has none. Relaxed: `biased` publishes the number, and a thread that loses the
    /// race reads the winner's.
    fn identify(&self) {
        if self.identity.load(Ordering::Relaxed) == 0 {
            let fresh = IDENTITIES.fresh();
            let _ = self.identity.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Switches the bias off. Called by a writer that holds `under`. Returns whether the bias was on. If so, readers
    /// may be inside by the bias.
    fn revoke(&self) -> bool {
        let biased = self.biased.load(Ordering::Relaxed);
        if biased {
            self.biased.store(false, Ordering::SeqCst);
        }
        biased
    }

    fn inhibit(&self) {
        self.inhibited.store(READS_PER_LOOK * lines() as u32, Ordering::Relaxed);
    }
}

impl<R: RawRwLock + Default> Default for RawBravo<R> {
    fn default() -> Self {
        Self::over(R::default())
    }
}

/// The number of lines on which readers count themselves: one for every CPU, and two under loom.
fn lines() -> usize {
    if cfg!(loom) { 2 } else { Topology::current().cpus().len() }
}

// SAFETY: a writer holds `under` exclusively, which excludes the readers that take `under` shared. It has also waited
// for every reader that entered by the bias, see the module's text. Guards stay on their thread, so the row tells
// correctly by which path each reader entered, and the reader leaves by the shard by which it entered.
unsafe impl<R: RawRwLock> RawRwLock for RawBravo<R> {
    const INIT: Self = initial!(Self::over(R::INIT));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        if !self.try_read_by_bias() {
            self.under.lock_shared();
            self.after_slow_read();
        }
    }

    fn try_lock_shared(&self) -> bool {
        if self.try_read_by_bias() {
            return true;
        }
        let locked = self.under.try_lock_shared();
        if locked {
            self.after_slow_read();
        }
        locked
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // Relaxed: a thread that holds the lock by the bias has read the identity already. The identity 0 is excluded,
        // because a search for 0 would find a free entry.
        let identity = self.identity.load(Ordering::Relaxed);
        let entry = HELD.with(|row| row.iter().position(|entry| identity != 0 && entry.get() == identity));
        match entry {
            Some(entry) => {
                HELD.with(|row| row[entry].set(0));
                self.readers.depart(shard(), lines);
            }
            // SAFETY: the caller holds the lock, and not by the bias.
            None => unsafe { self.under.unlock_shared() },
        }
    }

    fn lock_exclusive(&self) {
        if locked_in_region(|| self.try_lock_exclusive()) {
            return;
        }
        self.under.lock_exclusive();
        if self.revoke() {
            self.readers.wait_gone(lines);
            self.inhibit();
        }
    }

    fn try_lock_exclusive(&self) -> bool {
        if !self.under.try_lock_exclusive() {
            return false;
        }
        if self.revoke() {
            if !self.readers.are_gone(lines) {
                // Readers are still inside, so the bias must stay on: the next writer then waits for them.
                self.biased.store(true, Ordering::SeqCst);
                // SAFETY: locked above.
                unsafe { self.under.unlock_exclusive() };
                return false;
            }
            self.inhibit();
        }
        true
    }

    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.under.unlock_exclusive() };
    }

    fn is_locked(&self) -> bool {
        self.under.is_locked() || !self.readers.are_gone(lines)
    }

    fn is_locked_exclusive(&self) -> bool {
        self.under.is_locked_exclusive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lock::RawCrwNp;

    /// A lock keeps its number when its bias is switched on again, so it does not use up numbers.
    #[test]
    fn a_lock_has_one_number() {
        let lock = RawBravo::over(RawCrwNp::new());
        let before = IDENTITIES.fresh();
        for _ in 0..1_000 {
            lock.after_slow_read();
            assert!(lock.revoke());
        }
        // Tests beside this one may draw some, too.
        assert!(IDENTITIES.fresh() - before < 100);
    }
}
