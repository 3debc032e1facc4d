//! The version lock: eight bytes by which writers exclude each other and readers detect concurrent writes.
//!
//! One word, the *version*, consists of a lock bit, a bit that marks obsolete locks, and a counter of the changes. A
//! second word counts the threads that *share* the lock. The fields of [`VersionLock`] describe both words.
//!
//! A reader gets a [`Version`] and reads the guarded words, all of which it loads as relaxed atomics. It calls
//! [`validate`](VersionLock::validate) *before* it follows a pointer or relies on a length that it read. A writer that
//! made a decision on the data of a version locks at exactly this version ([`try_lock_at`](VersionLock::try_lock_at)).
//! If it succeeds, the decision is still correct.
//!
//! **A [`Version`] is the version of a lock that was seen free.** A version word that was read while the lock was
//! locked must never be used for validation. If such a lock is still locked at the second read, the two words are
//! equal, although the data read in between may be half of a change. The types prevent this: a read that finds the lock
//! not free returns no `Version` (see [`Look`]), and there is no other way to get one.
//!
//! # Why a validated read is never torn (the seqlock argument)
//!
//! Reader: (r1) load the version, Acquire, unlocked; (r2) relaxed loads of data; (r3) `fence(Acquire)`; (r4) relaxed
//! load of the version. Writer: (w1) compare-and-exchange that locks; (w2) `fence(Release)`; (w3) relaxed stores of
//! data; (w4) Release store that unlocks.
//!
//! - *No data newer than r1's version is read undetected.* Assume that some r2 reads a value stored by w3. Then fence
//!   w2 is before this store and fence r3 is after this load, so w2 synchronizes with r3, and w1 happens before r4.
//!   Hence r4 reads w1's value or a later one. These differ from r1's value (in the lock bit, later in the counter), so
//!   validation fails. Without w2, w3's stores might become visible before the lock; without r3, r4 might run before
//!   r2.
//! - *No data older than r1's version is read.* r1 reads the version from some w4 (or later). This Release and r1's
//!   Acquire synchronize, so every earlier writer's stores happen before r2.
//!
//! [`unlock_unchanged`](VersionLock::unlock_unchanged) restores the old version. A reader that overlapped such a lock
//! may validate, which is correct, because nothing was stored.
//!
//! For the same reason, a failed validation does not imply that a later validation at the same version fails. The first
//! may have failed because of a lock that was then unlocked unchanged, and the second succeeds again. So after a failed
//! validation, a reader must not continue with substitute data and rely on a later validation to fail. It must start
//! again.
//!
//! Writers exclude each other as with any lock: w1 is an Acquire that reads the last w4, a Release. While the lock is
//! held, only the holder changes the version, so w4 is a plain store and not a read-modify-write. A locked instruction
//! would wait until all stores of w3 have reached the cache, and would delay the thread's next loads. (This would cost
//! a third of the time of an insert whose entry's line is not in the cache.)
//!
//! The counter has 30 bits. To validate wrongly, a reader would have to sleep between r1 and r4 during exactly a
//! multiple of 2^30 changes of one page. At ten million changes a second, this takes 107 seconds.
//!
//! # Sharing
//! A writer that changes only one word, with one atomic operation, need not exclude readers or other such writers. It
//! only needs the rest of the page to stay unchanged. It *shares* the lock at the version at which it found the word
//! ([`try_share_at`](VersionLock::try_share_at)).
//!
//! Readers do not see sharers or wait for them. The value that a reader reads from such a word is one that the word had
//! at some moment while the page stayed unchanged. A writer that locks waits for the sharers. So for this writer, too,
//! such words change only between locks: its Acquire loads of the number of sharers pair with the Releases of
//! [`unshare`](VersionLock::unshare).
//!
//! When a thousand threads update one popular word, sharing costs each update two locked instructions on one cache
//! line. With a lock, these threads would wait for each other, and readers would start again.
//!
//! A sharer increments the number, then reads the version. A writer locks the version, then reads the number. Each
//! write is ordered before the read that follows it ([`fence_after_rmw`]), so at least one of the two threads sees the
//! other. A sharer that sees the lock gives up; a writer that sees a sharer waits.

use archipelago_platform::atomic::{AtomicU32, Ordering, fence, fence_after_rmw};
use archipelago_platform::hint::point;
use archipelago_platform::htm::{is_quiet, refuse_in_regions};

use crate::backoff::Backoff;

const LOCKED: u32 = 1;
const OBSOLETE: u32 = 2;
const COUNT: u32 = 4;

/// A [`VersionLock`]'s version at a time when the lock was free, that is, neither locked nor obsolete. Data that was
/// read since then can be validated against it, and the lock can be taken at it. Only a read of a lock makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u32);

impl Version {
    /// Returns the version as a number. The number is different after each unlock that follows a change, until 2^30
    /// such unlocks have passed. Threads that share the lock do not change the number. Use it only for comparison with
    /// other such numbers.
    #[inline]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// The state in which a [`VersionLock`] was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The lock is free.
    Free(Version),
    /// A writer holds the lock: data that is read now cannot be validated.
    Locked,
    /// The page has left the structure and does not change any more. Search again from the root for the data that it
    /// contained.
    Obsolete,
}

impl Look {
    #[inline]
    const fn of(word: u32) -> Self {
        if word & (LOCKED | OBSOLETE) == 0 {
            Self::Free(Version(word))
        } else if word & LOCKED != 0 {
            Self::Locked
        } else {
            Self::Obsolete
        }
    }
}

/// An optimistic lock of eight bytes. See [the module](self).
///
/// ```
/// use archipelago::sync::version_lock::VersionLock;
///
/// let lock = VersionLock::new();
/// let seen = lock.read().expect("it is free");
/// assert!(lock.validate(seen) && lock.try_lock_at(seen));
/// assert_eq!(lock.read(), None);
/// lock.unlock();
/// assert!(!lock.validate(seen));
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct VersionLock {
    /// | bits | meaning |
    /// |---|---|
    /// | 0, `LOCKED` | a writer holds the lock |
    /// | 1, `OBSOLETE` | the page has left the structure: the bit is never reset, and the lock is never locked again |
    /// | 2–31, steps of `COUNT` | a count modulo 2^30, which each unlock after a change increments (the holder and transactions may increment it, too) |
    version: AtomicU32,
    /// The number of threads that share the lock, or that are testing whether they may.
    sharers: AtomicU32,
}

impl VersionLock {
    /// The name of the [`point`] that a thread passes whenever it has taken a lock.
    pub const HELD: &str = "version lock held";

    /// Makes an unlocked version lock that is not obsolete.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { version: AtomicU32::new(0), sharers: AtomicU32::new(0) }
    }

    /// Makes an unlocked version lock that is not obsolete.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { version: AtomicU32::new(0), sharers: AtomicU32::new(0) }
    }

    /// Returns the lock's state. Acquire: later reads see at least the data of the version found. Never waits.
    #[inline]
    pub fn look(&self) -> Look {
        Look::of(self.version.load(Ordering::Acquire))
    }

    /// Returns the version if the lock is free now, otherwise `None`. Same ordering as [`look`](Self::look).
    #[inline]
    pub fn read(&self) -> Option<Version> {
        match self.look() {
            Look::Free(version) => Some(version),
            Look::Locked | Look::Obsolete => None,
        }
    }

    /// Waits until no writer holds the lock and returns the version. Returns `None` if the lock is or becomes obsolete.
    #[inline]
    pub fn read_unlocked(&self) -> Option<Version> {
        self.read().or_else(|| self.wait_unlocked())
    }

    #[cold]
    fn wait_unlocked(&self) -> Option<Version> {
        let backoff = Backoff::new();
        loop {
            match self.look() {
                Look::Free(version) => return Some(version),
                Look::Obsolete => return None,
                Look::Locked => backoff.wait(),
            }
        }
    }

    /// Returns whether the lock's version is still `version`. If so, all data that was read between the look that
    /// returned `version` and this call is consistent: it was stored before that look. Words that sharers change are an
    /// exception: they may be newer.
    #[inline]
    pub fn validate(&self, version: Version) -> bool {
        // Pairs with the Release fence in `try_lock_at`; see the seqlock argument above (r3, r4).
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version.0
    }

    /// Returns whether the lock is free and at `version` now. For a hardware transaction, which needs no fence: all its
    /// reads are of one moment.
    #[inline(always)]
    pub(crate) fn is_at(&self, version: Version) -> bool {
        self.version.load(Ordering::Relaxed) == version.0
    }

    /// Returns whether threads share the lock now. For a hardware transaction that changes data on which sharers rely.
    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        self.sharers.load(Ordering::Relaxed) != 0
    }

    /// Locks if the version is still exactly `version`, then waits for the sharers. Returns whether it locked.
    #[inline]
    pub fn try_lock_at(&self, version: Version) -> bool {
        // Acquire: pairs with the Release of the previous unlock. Relaxed on failure: the caller concludes nothing from
        // a failure.
        let locked = version.0 | LOCKED;
        if self.version.compare_exchange(version.0, locked, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        fence_after_rmw();
        // Acquire: pairs with the Release of `unshare`. From now on, a thread that tries to share fails.
        if self.sharers.load(Ordering::Acquire) != 0 {
            self.wait_unshared();
        }
        // Pairs with the Acquire fence in `validate`; see the seqlock argument above (w1, w2).
        fence(Ordering::Release);
        point(Self::HELD);
        true
    }

    #[cold]
    fn wait_unshared(&self) {
        if is_quiet() {
            // The lock must not stay locked after the panic.
            self.unlock_unchanged();
            refuse_in_regions("waiting");
        }
        let backoff = Backoff::new();
        while self.sharers.load(Ordering::Acquire) != 0 {
            backoff.wait();
        }
    }

    /// Shares the lock if the version is still exactly `version`, and returns whether it did. Then no thread locks
    /// until [`unshare`](Self::unshare), which must follow soon. For a change of one word by one atomic operation with
    /// Release ordering; see the module's text.
    #[inline]
    pub fn try_share_at(&self, version: Version) -> bool {
        self.sharers.fetch_add(1, Ordering::Relaxed);
        fence_after_rmw();
        // Acquire: pairs with the Release of the last unlock, so the caller sees the page at least as of `version`.
        let shared = self.version.load(Ordering::Acquire) == version.0;
        if !shared {
            // Relaxed: this thread has stored nothing that a waiting writer would have to see.
            self.sharers.fetch_sub(1, Ordering::Relaxed);
        }
        shared
    }

    /// Ends the sharing of the lock by the calling thread.
    ///
    /// # Panics
    /// In debug builds, if no thread shares it.
    #[inline]
    pub fn unshare(&self) {
        // Release: pairs with the Acquire of the thread that locks next.
        let before = self.sharers.fetch_sub(1, Ordering::Release);
        debug_assert!(before != 0, "no thread shared the version lock");
    }

    /// Locks if the lock is free now. Returns whether it locked.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.read().is_some_and(|version| self.try_lock_at(version))
    }

    /// Waits for the lock and takes it. Returns `false`, without the lock, if the lock is or becomes obsolete.
    #[inline]
    pub fn lock(&self) -> bool {
        let backoff = Backoff::new();
        loop {
            match self.look() {
                Look::Obsolete => return false,
                Look::Free(version) if self.try_lock_at(version) => return true,
                Look::Free(_) | Look::Locked => backoff.wait(),
            }
        }
    }

    /// Unlocks after a change. Readers that overlapped the lock will fail to validate.
    ///
    /// # Panics
    /// In debug builds, if no thread holds the lock. Unlocking a lock that another thread holds is a bug.
    #[inline]
    pub fn unlock(&self) {
        self.release(COUNT);
    }

    /// Unlocks if nothing was stored: restores the version from before the lock, so that readers need not retry.
    ///
    /// # Panics
    /// In debug builds, if no thread holds the lock.
    #[inline]
    pub fn unlock_unchanged(&self) {
        self.release(0);
    }

    /// Unlocks and marks the lock obsolete for ever: from then on no thread can validate or lock it.
    ///
    /// # Panics
    /// In debug builds, if no thread holds the lock.
    #[inline]
    pub fn unlock_obsolete(&self) {
        self.retire_held();
        self.release(COUNT);
    }

    /// For the holder: marks the lock obsolete, effective when it is unlocked in any way. Returns false if it was
    /// marked before.
    #[inline]
    pub(crate) fn retire_held(&self) -> bool {
        let held = self.version.load(Ordering::Relaxed);
        debug_assert!(held & LOCKED != 0, "a change of a version lock that no thread holds");
        // Relaxed: the unlock that follows is the Release. The bit is set with OR, not by addition, so marking twice
        // does not clear it.
        self.version.store(held | OBSOLETE, Ordering::Relaxed);
        held & OBSOLETE == 0
    }

    /// For the holder: undoes [`retire_held`](Self::retire_held).
    pub(crate) fn keep_held(&self) {
        self.version.store(self.version.load(Ordering::Relaxed) & !OBSOLETE, Ordering::Relaxed);
    }

    /// For the holder: increments the version, so that even an unlock without a change ends at a new version.
    #[inline]
    pub(crate) fn bump_held(&self) {
        let held = self.version.load(Ordering::Relaxed);
        debug_assert!(held & LOCKED != 0, "a change of a version lock that no thread holds");
        // Relaxed: the unlock that follows is the Release.
        self.version.store(held.wrapping_add(COUNT), Ordering::Relaxed);
    }

    /// For a transaction that has read the lock as free. Has the effect of locking and of unlocking after a change.
    #[inline(always)]
    pub(crate) fn bump_in_transaction(&self) {
        self.version.store(self.version.load(Ordering::Relaxed).wrapping_add(COUNT), Ordering::Relaxed);
    }

    /// For a transaction that has read the lock as free. Has the effect of locking and of
    /// [`unlock_obsolete`](Self::unlock_obsolete). Returns false if the lock was obsolete before.
    #[inline(always)]
    pub(crate) fn retire_in_transaction(&self) -> bool {
        let before = self.version.load(Ordering::Relaxed);
        self.version.store(before.wrapping_add(COUNT) | OBSOLETE, Ordering::Relaxed);
        before & OBSOLETE == 0
    }

    #[inline]
    fn release(&self, change: u32) {
        let held = self.version.load(Ordering::Relaxed);
        debug_assert!(held & LOCKED != 0, "unlock of a version lock that no thread holds");
        // Release: pairs with the Acquire in `look` and in `try_lock_at` (w4).
        self.version.store((held & !LOCKED).wrapping_add(change), Ordering::Release);
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
    use archipelago_platform::atomic::AtomicU64;
    use archipelago_platform::thread;

    /// In the body of a region a thread that would wait for sharers panics, and leaves the lock as it was.
    #[test]
    #[cfg(debug_assertions)]
    fn a_thread_that_may_not_wait_for_sharers_keeps_no_lock() {
        let lock = VersionLock::new();
        let version = lock.read().unwrap();
        assert!(lock.try_share_at(version));
        let body = archipelago_platform::htm::quiet();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lock.try_lock_at(version))).is_err());
        drop(body);
        assert_eq!(lock.read(), Some(version));
        lock.unshare();
        assert!(lock.try_lock_at(version));
    }

    #[test]
    fn versions_follow_changes() {
        let lock = VersionLock::new();
        let first = lock.read().unwrap();

        assert!(lock.try_lock_at(first));
        assert!(!lock.try_lock() && !lock.try_lock_at(first) && !lock.validate(first));
        lock.unlock_unchanged();
        assert!(lock.validate(first) && lock.read() == Some(first));

        assert!(lock.lock());
        lock.unlock();
        let second = lock.read_unlocked().unwrap();
        assert!(second != first && !lock.validate(first) && !lock.try_lock_at(first));

        assert!(lock.try_lock());
        lock.unlock_obsolete();
        assert!(!lock.lock() && !lock.try_lock() && !lock.try_lock_at(second) && !lock.validate(second));
    }

    /// A locked lock's version does not change either, but proves nothing, so `look` must not return it.
    #[test]
    fn only_a_free_lock_gives_evidence() {
        let lock = VersionLock::new();
        assert_eq!(lock.look(), Look::Free(lock.read().unwrap()));
        assert!(lock.lock());
        assert_eq!((lock.look(), lock.read()), (Look::Locked, None));
        lock.unlock();
        assert_eq!(lock.look(), Look::Free(lock.read().unwrap()));
        assert!(lock.lock());
        lock.unlock_obsolete();
        assert_eq!((lock.look(), lock.read(), lock.read_unlocked()), (Look::Obsolete, None, None));
    }

    #[test]
    fn sharing_keeps_lockers_away_and_nobody_else() {
        let lock = VersionLock::new();
        let first = lock.read().unwrap();
        assert!(lock.try_share_at(first) && lock.try_share_at(lock.read().unwrap()));
        assert!(lock.validate(first) && lock.read() == Some(first));
        lock.unshare();
        lock.unshare();
        assert!(lock.try_lock_at(first) && !lock.try_share_at(first));
        lock.unlock();
        let second = lock.read().unwrap();
        assert!(!lock.try_share_at(first) && lock.try_lock_at(second));
        lock.unlock_obsolete();
        assert!(!lock.try_share_at(second) && lock.look() == Look::Obsolete);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "no thread holds")]
    fn unlock_without_lock_is_caught() {
        VersionLock::new().unlock();
    }

    #[test]
    fn one_word() {
        assert_eq!(size_of::<VersionLock>(), 8);
    }

    /// More threads than cores: additions by sharers are not lost when other threads move the count under the lock.
    #[test]
    fn many_threads_change_in_place_and_move() {
        let (threads, rounds) = if cfg!(miri) { (3, 20) } else { (8, 5_000) };
        let lock = VersionLock::new();
        // One of the two words contains the count; the other is 0.
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let place = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..threads {
                let (lock, words, place) = (&lock, &words, &place);
                scope.spawn(move || {
                    let (mut added, mut turns) = (0, 0);
                    while added < rounds {
                        turns += 1;
                        let version = lock.read_unlocked().unwrap();
                        let at = place.load(Ordering::Relaxed) as usize;
                        if thread % 4 == 0 && turns % 3 == 0 && lock.try_lock_at(version) {
                            words[1 - at].store(words[at].swap(0, Ordering::Relaxed), Ordering::Relaxed);
                            place.store(1 - at as u64, Ordering::Relaxed);
                            lock.unlock();
                        }
                        if lock.try_share_at(version) {
                            words[at].fetch_add(1, Ordering::AcqRel);
                            lock.unshare();
                            added += 1;
                        }
                    }
                });
            }
        });
        let [a, b] = words.map(AtomicU64::into_inner);
        assert_eq!((a + b, a * b), (threads * rounds, 0));
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
                        let version = lock.read_unlocked().unwrap();
                        let pair = [&words[0], &words[1]].map(|word| word.load(Ordering::Relaxed));
                        assert!(!lock.validate(version) || pair[0] == pair[1]);
                    }
                });
            }
        });
        assert_eq!(words[0].load(Ordering::Relaxed), threads * rounds);
    }
}
