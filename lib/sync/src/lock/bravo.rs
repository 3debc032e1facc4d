//! A bias towards readers for any reader-writer lock, after BRAVO (Dice and Kogan 2019).
//!
//! While the bias is on, a reader does not touch the underlying lock: it increments a counter on a line of its own and
//! checks that the bias is still on. A writer takes the underlying lock and, if the bias is on, *revokes* the bias: the
//! writer switches it off and waits for the readers that entered by it. For [`INHIBITED`] times as long as the
//! revocation took, the bias stays off. So revocations take at most a tenth of the time. After that time, the next reader
//! that holds the underlying lock switches the bias on again.
//!
//! While the bias is off, a reader writes nothing shared but the underlying lock. By a load it sees from when on the bias
//! may be switched on, and by the clock, at one of [`LOOKS`] reads, whether this time has come. (Until 2026-12-01 readers
//! counted themselves in a word beside the lock, which they took from each other.)
//!
//! Difference from the paper: The table of visible readers belongs to the lock instead of the process. So locks share
//! no state, but each needs memory, which is allocated when the bias is first used.
//!
//! # How a reader remembers by which path it entered
//! `lock_api` passes no data from the call that takes a lock to the call that releases it. So a thread-local row of
//! [`ROW`] entries contains the identity of every lock that the thread holds by the bias, once per hold. A thread whose
//! row is full takes the underlying lock. No two locks have the same identity, so the entry of a leaked guard is never
//! taken for another lock's. A thread may hold one lock both by the bias and by the underlying lock; it may release the
//! two in either order, since both exclude writers.
//!
//! # Why reader and writer never miss each other
//! The argument is at [`readers`](super::readers). The writer's flag in this argument is set while `bias` is not [`ON`].
//! Only a holder of the underlying lock switches the bias on, and every writer that finds it on waits until the counts
//! are zero. So whenever the bias is off and no writer holds the underlying lock, no reader is inside by the bias.

use core::cell::Cell;

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::thread;
use archipelago_platform::time::monotonic;
use archipelago_platform::topology::Topology;
use lock_api::{GuardNoSend, RawRwLock};

use super::home::shard;
use super::readers::Readers;
use super::wait::locked_in_region;
use crate::identity::Identities;

/// The number of locks that a thread can hold by their biases at the same time.
const ROW: usize = 8;

/// How many times as long as a revocation took the bias stays off. The paper calls this number N.
const INHIBITED: u64 = 9;

/// The value of [`RawBravo::bias`] while the bias is on.
const ON: u64 = u64::MAX;

/// Of how many reads through an underlying lock one looks at the clock, which takes longer than the read of a free lock.
const LOOKS: u32 = 8;

#[cfg(not(loom))]
thread::thread_local! {
    static HELD: [Cell<u64>; ROW] = const { [const { Cell::new(0) }; ROW] };
    /// Counts the thread's reads through underlying locks, modulo [`LOOKS`].
    static READS: Cell<u32> = const { Cell::new(0) };
}
#[cfg(loom)]
thread::thread_local! {
    static HELD: [Cell<u64>; ROW] = [const { Cell::new(0) }; ROW];
    static READS: Cell<u32> = Cell::new(0);
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
    /// [`ON`], or the time in nanoseconds ([`monotonic`]) from which on the bias may be switched on. On a line of its own:
    /// while the bias is off, readers load the word, and each thread that takes `under` writes there.
    bias: CachePadded<AtomicU64>,
    /// The number by which a thread's row refers to this lock; 0 until the bias was first switched on.
    identity: AtomicU64,
    readers: Readers,
    under: R,
}

impl<R: RawRwLock> RawBravo<R> {
    /// An unlocked lock over the unlocked lock `under`.
    #[cfg(not(loom))]
    pub const fn over(under: R) -> Self {
        Self { bias: CachePadded::new(AtomicU64::new(0)), identity: AtomicU64::new(0), readers: Readers::new(), under }
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
        Self { bias: CachePadded::new(AtomicU64::new(0)), identity: AtomicU64::new(0), readers: Readers::new(), under }
    }

    /// Counts the reader in on its own line, if the bias is on.
    #[inline]
    fn try_read_by_bias(&self) -> bool {
        // Acquire: `identity` was set before the bias was first switched on.
        if self.bias.load(Ordering::Acquire) != ON {
            return false;
        }
        let Some(entry) = HELD.with(|row| row.iter().position(|entry| entry.get() == 0)) else { return false };
        self.readers.arrive(shard(), lines);
        // `SeqCst` for the argument at `readers`. As an Acquire it pairs with the store in `after_slow_read`, so that
        // this reader sees the last writer's stores.
        let entered = self.bias.load(Ordering::SeqCst) == ON;
        if entered {
            HELD.with(|row| row[entry].set(self.identity.load(Ordering::Relaxed)));
        } else {
            self.readers.depart(shard(), lines);
        }
        entered
    }

    /// Switches the bias on, unless it was revoked a short while ago. Called by a reader that holds `under`.
    fn after_slow_read(&self) {
        // Relaxed: only holders of `under` change the word, and `under` excludes the writers.
        let free = self.bias.load(Ordering::Relaxed);
        if free != ON && has_come(free) {
            self.identify();
            // `SeqCst` for the argument at `readers`. As a Release it pairs with the loads in `try_read_by_bias`.
            self.bias.store(ON, Ordering::SeqCst);
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

    /// Switches the bias off, if it is on, and calls `gone`, which tells whether the readers have left that are inside by
    /// the bias. Switches the bias on again if they have not: the next writer then has to look for them. Returns whether
    /// no reader is inside by the bias. Called by a writer that holds `under`.
    fn revoke(&self, gone: impl FnOnce() -> bool) -> bool {
        // Relaxed: as in `after_slow_read`.
        if self.bias.load(Ordering::Relaxed) != ON {
            return true;
        }
        let start = now();
        self.bias.store(0, Ordering::SeqCst);
        let revoked = gone();
        if revoked {
            let end = now();
            self.bias.store(end + INHIBITED * (end - start), Ordering::SeqCst);
        } else {
            self.bias.store(ON, Ordering::SeqCst);
        }
        revoked
    }
}

impl<R: RawRwLock + Default> Default for RawBravo<R> {
    fn default() -> Self {
        Self::over(R::default())
    }
}

/// Returns whether a time has come, as far as the thread knows: it looks at the clock at one of [`LOOKS`] calls. The time
/// 0, of a bias that was never revoked, has come.
fn has_come(time: u64) -> bool {
    time == 0
        || READS.with(|reads| {
            reads.set((reads.get() + 1) % LOOKS);
            reads.get() == 0 && time <= now()
        })
}

/// The time in nanoseconds.
fn now() -> u64 {
    monotonic().as_nanos() as u64
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
        // A thread that holds no lock by a bias does not read the lock's line for the number. Relaxed: a thread that holds
        // the lock by the bias has read the number already. The number 0, of a lock whose bias was never on, is in no row.
        let entry = HELD.with(|row| {
            let mut held = (0..ROW).filter(|&entry| row[entry].get() != 0);
            held.find(|&entry| row[entry].get() == self.identity.load(Ordering::Relaxed))
        });
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
        self.revoke(|| {
            self.readers.wait_gone(lines);
            true
        });
    }

    fn try_lock_exclusive(&self) -> bool {
        if !self.under.try_lock_exclusive() {
            return false;
        }
        let locked = self.revoke(|| self.readers.are_gone(lines));
        if !locked {
            // SAFETY: locked above.
            unsafe { self.under.unlock_exclusive() };
        }
        locked
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
    use core::time::Duration;

    /// A lock keeps its number when its bias is switched on again, so it does not use up numbers.
    #[test]
    fn a_lock_has_one_number() {
        let lock = RawBravo::over(RawCrwNp::new());
        let before = IDENTITIES.fresh();
        for _ in 0..1_000 {
            while lock.bias.load(Ordering::Relaxed) != ON {
                lock.after_slow_read();
            }
            assert!(lock.revoke(|| true));
        }
        // Tests beside this one may draw some, too.
        assert!(IDENTITIES.fresh() - before < 100);
    }

    /// The longer a revocation takes, the longer the bias stays off.
    #[test]
    fn a_revocation_inhibits_the_bias() {
        let lock = RawBravo::over(RawCrwNp::new());
        let is_on = || {
            (0..LOOKS).for_each(|_| lock.after_slow_read());
            lock.bias.load(Ordering::Relaxed) == ON
        };
        assert!(is_on(), "a lock begins without a revocation");
        let took = Duration::from_millis(20);
        let slept = || {
            thread::sleep(took);
            true
        };
        assert!(lock.revoke(slept));
        let nanos = took.as_nanos() as u64;
        assert!(lock.bias.load(Ordering::Relaxed) >= (1 + INHIBITED) * nanos);
        lock.bias.store(now() + 3_600_000_000_000, Ordering::Relaxed);
        assert!(!is_on(), "an hour is not over");
        lock.bias.store(now(), Ordering::Relaxed);
        assert!(is_on());
        assert!(!lock.revoke(|| false), "readers are inside");
        assert_eq!(lock.bias.load(Ordering::Relaxed), ON);
    }
}
