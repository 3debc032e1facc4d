//! The version lock: one word that lets writers exclude each other and lets readers find out that they raced.
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | locked |
//! | 1 | obsolete: the page this lock guards has left the structure; never set back, never locked again |
//! | 2–63 | counter, +1 at every unlock that follows a change |
//!
//! A reader takes a [`Version`], reads the guarded words (all of them relaxed atomics), and calls
//! [`validate`](VersionLock::validate) *before* it follows a pointer or trusts a length that it read. A writer that
//! decided something on a read version locks at exactly that version ([`try_lock_at`](VersionLock::try_lock_at)), so
//! that what it decided on still holds.
//!
//! # Why a validated read is never torn (the seqlock argument)
//!
//! Reader: (r1) load the version, Acquire, unlocked; (r2) relaxed loads of data; (r3) `fence(Acquire)`; (r4) relaxed
//! load of the version. Writer: (w1) compare-and-exchange that locks; (w2) `fence(Release)`; (w3) relaxed stores of
//! data; (w4) Release store that unlocks.
//!
//! - *Nothing newer than r1's version is read unnoticed.* If some r2 reads a value stored by w3, then fence w2 comes
//!   before that store and fence r3 after that load, so w2 synchronizes with r3 and w1 happens before r4. Hence r4 reads
//!   w1's value or a later one, which differs from r1's (the lock bit, later the counter), and validation fails.
//!   Without w2, w3's stores might become visible before the lock; without r3, r4 might run before r2.
//! - *Nothing older than r1's version is read.* r1 reads the version from some w4 (or later): Release and Acquire
//!   synchronize, so every earlier writer's stores happen before r2.
//!
//! [`unlock_unchanged`](VersionLock::unlock_unchanged) puts the old version back: a reader that overlapped it may
//! validate, rightly, since nothing was stored.
//!
//! Writers exclude each other as with any lock: w1 is an Acquire that reads the last w4, a Release. The counter has 62
//! bits, so it does not wrap between a reader's r1 and r4.

use archipelago_platform::atomic::{AtomicU64, Ordering, fence};
use archipelago_platform::hint::point;

use crate::backoff::Backoff;

const LOCKED: u64 = 1;
const OBSOLETE: u64 = 2;
const COUNT: u64 = 4;

/// A [`VersionLock`]'s word as somebody once read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    /// A writer held the lock.
    #[inline]
    pub const fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    /// The page had left the structure: look its content up again from the root.
    #[inline]
    pub const fn is_obsolete(self) -> bool {
        self.0 & OBSOLETE != 0
    }

    /// Neither locked nor obsolete: what was read beside it may validate, and it can be locked at.
    #[inline]
    pub const fn is_free(self) -> bool {
        self.0 & (LOCKED | OBSOLETE) == 0
    }
}

/// An optimistic lock of eight bytes. See the module's text.
///
/// ```
/// use archipelago_sync::version_lock::VersionLock;
///
/// let lock = VersionLock::new();
/// let seen = lock.read();
/// assert!(seen.is_free() && lock.validate(seen));
/// assert!(lock.try_lock_at(seen));
/// lock.unlock();
/// assert!(!lock.validate(seen));
/// ```
#[derive(Debug)]
#[repr(transparent)]
pub struct VersionLock {
    word: AtomicU64,
}

impl VersionLock {
    /// The name of the [`point`] that is passed whenever a lock has been taken.
    pub const HELD: &str = "version lock held";

    /// An unlocked, live version lock.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// An unlocked, live version lock.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// The version now, whatever it is. Acquire: reads that follow see at least what it stands for. Never waits.
    #[inline]
    pub fn read(&self) -> Version {
        Version(self.word.load(Ordering::Acquire))
    }

    /// The version as soon as no writer holds the lock. It may be obsolete.
    #[inline]
    pub fn read_unlocked(&self) -> Version {
        let version = self.read();
        if version.is_locked() { self.wait_unlocked() } else { version }
    }

    #[cold]
    fn wait_unlocked(&self) -> Version {
        let backoff = Backoff::new();
        loop {
            backoff.wait();
            let version = self.read();
            if !version.is_locked() {
                return version;
            }
        }
    }

    /// Whether the word still is `version`: if `version` was not locked, everything read between the two was stored
    /// before it and belongs together.
    #[inline]
    pub fn validate(&self, version: Version) -> bool {
        // Pairs with the Release fence in `try_lock_at`; see the seqlock argument above (r3, r4).
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == version.0
    }

    /// Locks if the word is exactly `version`, and says whether it did. Never locks a locked or an obsolete version.
    #[inline]
    pub fn try_lock_at(&self, version: Version) -> bool {
        if !version.is_free() {
            return false;
        }
        // Acquire pairs with the Release of the unlock before. Relaxed on failure: nothing is concluded from it.
        let locked =
            self.word.compare_exchange(version.0, version.0 | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if locked {
            // Pairs with the Acquire fence in `validate`; see the seqlock argument above (w1, w2).
            fence(Ordering::Release);
            point(Self::HELD);
        }
        locked
    }

    /// Locks if nobody holds the lock right now and it is not obsolete; says whether it did.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.try_lock_at(self.read())
    }

    /// Waits for the lock. `false`, without the lock, if it is or becomes obsolete.
    #[inline]
    pub fn lock(&self) -> bool {
        let backoff = Backoff::new();
        loop {
            let version = self.read();
            if version.is_obsolete() {
                return false;
            }
            if self.try_lock_at(version) {
                return true;
            }
            backoff.wait();
        }
    }

    /// Unlocks after a change: readers that overlapped the lock will not validate.
    ///
    /// # Panics
    /// In debug builds, if nobody holds the lock. To unlock another's lock is a bug.
    #[inline]
    pub fn unlock(&self) {
        self.release(|held| held - LOCKED + COUNT);
    }

    /// Unlocks after nothing was stored: puts the version from before the lock back, so that readers need not retry.
    ///
    /// # Panics
    /// In debug builds, if nobody holds the lock.
    #[inline]
    pub fn unlock_unchanged(&self) {
        self.release(|held| held - LOCKED);
    }

    /// Unlocks and marks the lock obsolete for ever: nobody validates or locks it again.
    ///
    /// # Panics
    /// In debug builds, if nobody holds the lock.
    #[inline]
    pub fn unlock_obsolete(&self) {
        self.release(|held| (held - LOCKED + COUNT) | OBSOLETE);
    }

    #[inline]
    fn release(&self, next: impl Fn(u64) -> u64) {
        // Relaxed, and a plain store below: while the lock is held only its holder changes the word.
        let held = self.word.load(Ordering::Relaxed);
        debug_assert!(held & LOCKED != 0, "unlock of a version lock that nobody holds");
        debug_assert!(held & OBSOLETE == 0, "an obsolete version lock was held");
        // Release pairs with the Acquire in `read` and in `try_lock_at` (w4).
        self.word.store(next(held), Ordering::Release);
    }
}

impl Default for VersionLock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use archipelago_platform::thread;

    #[test]
    fn versions_follow_changes() {
        let lock = VersionLock::new();
        let first = lock.read();
        assert!(first.is_free() && !first.is_locked() && !first.is_obsolete());

        assert!(lock.try_lock_at(first));
        assert!(lock.read().is_locked() && !lock.try_lock() && !lock.validate(first));
        assert!(!lock.try_lock_at(lock.read()));
        lock.unlock_unchanged();
        assert!(lock.validate(first));

        assert!(lock.lock());
        lock.unlock();
        let second = lock.read_unlocked();
        assert!(second.is_free() && second != first && !lock.validate(first) && !lock.try_lock_at(first));

        assert!(lock.try_lock());
        lock.unlock_obsolete();
        let last = lock.read_unlocked();
        assert!(last.is_obsolete() && !last.is_free() && !last.is_locked());
        assert!(!lock.lock() && !lock.try_lock() && !lock.try_lock_at(last) && lock.validate(last));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "nobody holds")]
    fn unlock_without_lock_is_caught() {
        VersionLock::new().unlock();
    }

    #[test]
    fn one_word() {
        assert_eq!(size_of::<VersionLock>(), 8);
    }

    /// More threads than cores: increments under the lock are not lost, and validated pairs are never torn.
    #[test]
    fn many_threads_count_and_read() {
        let (threads, rounds) = if cfg!(miri) { (3, 20) } else { (8, 5_000) };
        let lock = VersionLock::new();
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        assert!(lock.lock());
                        for word in &words {
                            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        }
                        lock.unlock();
                        let version = lock.read_unlocked();
                        let pair = [&words[0], &words[1]].map(|word| word.load(Ordering::Relaxed));
                        assert!(!lock.validate(version) || pair[0] == pair[1]);
                    }
                });
            }
        });
        assert_eq!(words[0].load(Ordering::Relaxed), threads * rounds);
    }
}
