//! The version lock: eight bytes that let writers exclude each other and let readers find out that they raced.
//!
//! | bits of the version | meaning |
//! |---|---|
//! | 0 | locked |
//! | 1 | obsolete: the page this lock guards has left the structure; never set back, never locked again |
//! | 2–31 | counter, +1 at every unlock that follows a change |
//!
//! Beside it, the number of threads that *share* the lock, or are finding out that they can't.
//!
//! A reader takes a [`Version`], reads the guarded words (all of them relaxed atomics), and calls
//! [`validate`](VersionLock::validate) *before* it follows a pointer or trusts a length that it read. A writer that
//! decided something on a read version locks at exactly that version ([`try_lock_at`](VersionLock::try_lock_at)), so
//! that what it decided on still holds.
//!
//! **A [`Version`] is a version that was seen free.** A lock that was locked when it was looked at, and still is, has
//! the same version word both times, and what was read in between is half of a change. So such a word must never be
//! compared with anything: a look that finds no free lock gives no `Version` ([`Look`]), and there is no other way to
//! get one.
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
//! For the same reason a validation that fails proves nothing about one that follows: it may have met such a lock, and
//! the next one holds again. So a reader that may not follow a pointer must not put a guess in its place and validate
//! that later: it looks again from the start.
//!
//! Writers exclude each other as with any lock: w1 is an Acquire that reads the last w4, a Release. Only the holder
//! changes the version, so w4 is a store: a locked instruction would wait until all of w3 has reached the cache, and the
//! thread's next loads with it (a third of the time of an insert whose entry's line is not in the cache). The counter has
//! 30 bits: a reader would have to sleep between r1 and r4 through exactly a multiple of 2^30 changes of one page, a
//! minute and a half at ten million a second, to be fooled.
//!
//! # Sharing
//! A writer that changes nothing but one word, with one atomic operation, need not keep readers or its like away: it
//! only needs the page to stay as it is. It *shares* the lock at the version on which it found the word
//! ([`try_share_at`](VersionLock::try_share_at)). Readers neither see nor wait for it. What they read of that word is
//! what it was at some moment while the page stayed the same. A writer that locks waits for the sharers, so for it
//! too such words change only between locks: its Acquire loads of the number of sharers meet the Releases of
//! [`unshare`](VersionLock::unshare). Under a thousand updates of one popular word this is two locked instructions on
//! one line for each, where a lock would have threads wait for each other and readers start again.
//!
//! A sharer adds itself, then looks at the version; a writer locks, then looks at the number. Each change is ordered
//! before the look that follows ([`fence_after_rmw`]), so one of the two sees the other: a sharer that sees the lock
//! goes again, and a writer that sees a sharer waits.

use archipelago_platform::atomic::{AtomicU32, Ordering, fence, fence_after_rmw};
use archipelago_platform::hint::point;

use crate::backoff::Backoff;

const LOCKED: u32 = 1;
const OBSOLETE: u32 = 2;
const COUNT: u32 = 4;

/// A [`VersionLock`]'s version when it was seen free, that is neither locked nor obsolete: the evidence on which what
/// was read since may be validated, and at which the lock can be taken. Only a look at a lock makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u32);

impl Version {
    /// The version as a number: another for each change of what is guarded, until 2^30 of them have passed. For notes of what was
    /// seen, to be compared with such numbers only.
    #[inline]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// What a look at a [`VersionLock`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The lock is free.
    Free(Version),
    /// A writer holds the lock: what one reads now is evidence of nothing.
    Locked,
    /// The page has left the structure and changes no more: look its content up again from the root.
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

/// An optimistic lock of eight bytes. See the module's text.
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
    version: AtomicU32,
    sharers: AtomicU32,
}

impl VersionLock {
    /// The name of the [`point`] that is passed whenever a lock has been taken.
    pub const HELD: &str = "version lock held";

    /// An unlocked, live version lock.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { version: AtomicU32::new(0), sharers: AtomicU32::new(0) }
    }

    /// An unlocked, live version lock.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { version: AtomicU32::new(0), sharers: AtomicU32::new(0) }
    }

    /// What the lock is now. Acquire: reads that follow see at least what the version found stands for. Never waits.
    #[inline]
    pub fn look(&self) -> Look {
        Look::of(self.version.load(Ordering::Acquire))
    }

    /// The version, if the lock is free now. As [`look`](Self::look) otherwise.
    #[inline]
    pub fn read(&self) -> Option<Version> {
        match self.look() {
            Look::Free(version) => Some(version),
            Look::Locked | Look::Obsolete => None,
        }
    }

    /// The version as soon as no writer holds the lock; `None` if the lock is or becomes obsolete.
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

    /// Whether it still is `version`: then everything read between the look that gave it and this call was stored
    /// before that look, and belongs together.
    #[inline]
    pub fn validate(&self, version: Version) -> bool {
        // Pairs with the Release fence in `try_lock_at`; see the seqlock argument above (r3, r4).
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version.0
    }

    /// Whether it is free and at `version` now, for a transaction, which needs no more: what it reads is of one moment.
    #[inline(always)]
    pub(crate) fn is_at(&self, version: Version) -> bool {
        self.version.load(Ordering::Relaxed) == version.0
    }

    /// Whether threads share it now, for a transaction that changes what they rely on.
    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        self.sharers.load(Ordering::Relaxed) != 0
    }

    /// Locks if the version is still exactly `version`, and says whether it did; then waits for the
    /// sharers.
    #[inline]
    pub fn try_lock_at(&self, version: Version) -> bool {
        // Acquire pairs with the Release of the unlock before. Relaxed on failure: nothing is concluded from it.
        let locked = version.0 | LOCKED;
        if self.version.compare_exchange(version.0, locked, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        fence_after_rmw();
        // Acquire pairs with the Release of `unshare`. From now on a thread that comes to share goes again.
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
        let backoff = Backoff::new();
        while self.sharers.load(Ordering::Acquire) != 0 {
            backoff.wait();
        }
    }

    /// Shares the lock if the version is still exactly `version`, and says whether it did: no thread locks until
    /// [`unshare`](Self::unshare), which must follow soon. For a change of one word by one atomic operation with Release
    /// ordering; see the module's text.
    #[inline]
    pub fn try_share_at(&self, version: Version) -> bool {
        self.sharers.fetch_add(1, Ordering::Relaxed);
        fence_after_rmw();
        // Acquire pairs with the Release of the last unlock: the caller sees the page at least as of `version`.
        let shared = self.version.load(Ordering::Acquire) == version.0;
        if !shared {
            // Nothing was stored that a thread that waits for us would have to see.
            self.sharers.fetch_sub(1, Ordering::Relaxed);
        }
        shared
    }

    /// Shares the lock no longer.
    ///
    /// # Panics
    /// In debug builds, if no thread shares it.
    #[inline]
    pub fn unshare(&self) {
        // Release pairs with the Acquire of the thread that locks next.
        let before = self.sharers.fetch_sub(1, Ordering::Release);
        debug_assert!(before != 0, "no thread shared the version lock");
    }

    /// Locks if the lock is free right now; says whether it did.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.read().is_some_and(|version| self.try_lock_at(version))
    }

    /// Waits for the lock. `false`, without the lock, if it is or becomes obsolete.
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

    /// Unlocks after a change: readers that overlapped the lock will not validate.
    ///
    /// # Panics
    /// In debug builds, if no thread holds the lock. To unlock another's lock is a bug.
    #[inline]
    pub fn unlock(&self) {
        self.release(COUNT);
    }

    /// Unlocks after nothing was stored: puts the version from before the lock back, so that readers need not retry.
    ///
    /// # Panics
    /// In debug builds, if no thread holds the lock.
    #[inline]
    pub fn unlock_unchanged(&self) {
        self.release(0);
    }

    /// Unlocks and marks the lock obsolete for ever: no thread validates or locks it again.
    ///
    /// # Panics
    /// In debug builds, if no thread holds the lock.
    #[inline]
    pub fn unlock_obsolete(&self) {
        self.retire_held();
        self.release(COUNT);
    }

    /// For the holder: the lock is obsolete from its unlocking on, whatever way it unlocks; false if that was settled before.
    #[inline]
    pub(crate) fn retire_held(&self) -> bool {
        let held = self.version.load(Ordering::Relaxed);
        debug_assert!(held & LOCKED != 0, "a change of a version lock that no thread holds");
        // Relaxed: the unlock that follows is the Release. A bit is set, and not added: so the lock does not come back.
        self.version.store(held | OBSOLETE, Ordering::Relaxed);
        held & OBSOLETE == 0
    }

    /// For the holder: takes [`retire_held`](Self::retire_held) back.
    pub(crate) fn keep_held(&self) {
        self.version.store(self.version.load(Ordering::Relaxed) & !OBSOLETE, Ordering::Relaxed);
    }

    /// For the holder: makes the version a new one already, whatever way it unlocks.
    #[inline]
    pub(crate) fn bump_held(&self) {
        let held = self.version.load(Ordering::Relaxed);
        debug_assert!(held & LOCKED != 0, "a change of a version lock that no thread holds");
        // Relaxed: the unlock that follows is the Release.
        self.version.store(held.wrapping_add(COUNT), Ordering::Relaxed);
    }

    /// For a transaction that has read the lock as free: as if it had locked it, and now unlocks after a change.
    #[inline(always)]
    pub(crate) fn bump_in_transaction(&self) {
        self.version.store(self.version.load(Ordering::Relaxed).wrapping_add(COUNT), Ordering::Relaxed);
    }

    /// For a transaction that has read the lock as free: as [`unlock_obsolete`](Self::unlock_obsolete); false if the lock was
    /// obsolete before.
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
        // Release pairs with the Acquire in `read` and in `try_lock_at` (w4).
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

    /// A locked lock's version does not change either, and proves nothing: there must be none to compare with.
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

    /// More threads than cores: what sharers add in place is not lost to those who move it.
    #[test]
    fn many_threads_change_in_place_and_move() {
        let (threads, rounds) = if cfg!(miri) { (3, 20) } else { (8, 5_000) };
        let lock = VersionLock::new();
        // The count lies in one of the two, the other is 0.
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
