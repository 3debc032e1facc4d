//! The version lock.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sync::version_lock::{Look, VersionLock};
use loom::cell::UnsafeCell;

/// A version lock with the two words that it protects.
struct Pair {
    lock: VersionLock,
    words: [AtomicU64; 2],
}

impl Pair {
    fn new() -> Arc<Self> {
        Arc::new(Self { lock: VersionLock::new(), words: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    fn write(&self, value: u64) {
        self.words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    fn read(&self) -> [u64; 2] {
        [&self.words[0], &self.words[1]].map(|word| word.load(Ordering::Relaxed))
    }
}

#[test]
fn never_validates_a_torn_pair() {
    model(4, || {
        let pair = Pair::new();
        let first = pair.lock.read().unwrap();
        let writer = {
            let pair = pair.clone();
            thread::spawn(move || {
                assert!(pair.lock.try_lock_at(first));
                pair.write(1);
                pair.lock.unlock();
            })
        };
        if let Some(version) = pair.lock.read() {
            let words = pair.read();
            assert!(words[0] == words[1] || !pair.lock.validate(version));
        }
        writer.join().unwrap();
        let version = pair.lock.read_unlocked().unwrap();
        assert_eq!(pair.read(), [1, 1]);
        assert!(pair.lock.validate(version));
    });
}

#[test]
fn an_unchanged_unlock_keeps_versions_valid() {
    model(4, || {
        let pair = Pair::new();
        let before = pair.lock.read().unwrap();
        let writer = {
            let pair = pair.clone();
            thread::spawn(move || {
                assert!(pair.lock.lock());
                pair.lock.unlock_unchanged();
            })
        };
        assert_eq!(pair.lock.read_unlocked(), Some(before));
        writer.join().unwrap();
        assert!(pair.lock.validate(before));
    });
}

/// A plain word under a version lock: loom detects two threads that access it at the same time.
struct Guarded(VersionLock, UnsafeCell<u64>);
// SAFETY: the cell is accessed only under the lock, which the test checks.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

#[test]
fn is_exclusive() {
    fn increment(guarded: &Guarded) {
        assert!(guarded.0.lock());
        // SAFETY: this thread holds the lock.
        guarded.1.with_mut(|value| unsafe { *value += 1 });
        guarded.0.unlock();
    }
    model(4, || {
        let guarded = Arc::new(Guarded(VersionLock::new(), UnsafeCell::new(0)));
        let other = {
            let guarded = guarded.clone();
            thread::spawn(move || increment(&guarded))
        };
        increment(&guarded);
        other.join().unwrap();
        // SAFETY: the other thread has ended.
        assert_eq!(guarded.1.with(|value| unsafe { *value }), 2);
    });
}

/// One thread changes a word in place while another moves it. The change is either refused or moved with the word.
#[test]
fn a_shared_change_is_seen_by_the_next_holder() {
    model(3, || {
        let pair = Pair::new();
        let version = pair.lock.read().unwrap();
        let sharer = {
            let pair = pair.clone();
            thread::spawn(move || {
                let shared = pair.lock.try_share_at(version);
                if shared {
                    pair.words[0].store(7, Ordering::Relaxed);
                    pair.lock.unshare();
                }
                shared
            })
        };
        assert!(pair.lock.lock());
        pair.words[1].store(pair.words[0].load(Ordering::Relaxed), Ordering::Relaxed);
        pair.lock.unlock();
        assert_eq!(sharer.join().unwrap(), pair.words[1].load(Ordering::Relaxed) == 7);
        assert!(pair.lock.try_lock());
    });
}

/// A shared hold of the lock changes no version: readers validate successfully, and another thread holds the lock
/// shared at the same time.
#[test]
fn sharers_disturb_nobody() {
    model(3, || {
        let pair = Pair::new();
        let version = pair.lock.read().unwrap();
        let sharer = {
            let pair = pair.clone();
            thread::spawn(move || {
                assert!(pair.lock.try_share_at(version));
                pair.lock.unshare();
            })
        };
        assert!(pair.lock.validate(version) && pair.lock.read() == Some(version));
        assert!(pair.lock.try_share_at(version));
        pair.lock.unshare();
        sharer.join().unwrap();
        assert!(pair.lock.try_lock_at(version));
    });
}

/// An unlock without a change restores a version that another thread may have read long before. Even so, the reads of
/// the first holder under the lock must come before the writes of the next one.
#[test]
fn at_an_old_version_comes_after_the_unlock_that_restored_it() {
    model(4, || {
        let guarded = Arc::new(Guarded(VersionLock::new(), UnsafeCell::new(0)));
        let seen = guarded.0.read().unwrap();
        let other = {
            let guarded = guarded.clone();
            thread::spawn(move || {
                if guarded.0.try_lock() {
                    // SAFETY: this thread holds the lock.
                    guarded.1.with(|value| unsafe { *value });
                    guarded.0.unlock_unchanged();
                }
            })
        };
        if guarded.0.try_lock_at(seen) {
            // SAFETY: this thread holds the lock.
            guarded.1.with_mut(|value| unsafe { *value += 1 });
            guarded.0.unlock();
        }
        other.join().unwrap();
    });
}

#[test]
fn obsolete_is_seen_with_what_came_before() {
    model(4, || {
        let pair = Pair::new();
        let writer = {
            let pair = pair.clone();
            thread::spawn(move || {
                assert!(pair.lock.lock());
                pair.write(1);
                pair.lock.unlock_obsolete();
            })
        };
        if pair.lock.read_unlocked().is_none() {
            assert_eq!(pair.read(), [1, 1]);
            assert!(!pair.lock.try_lock());
        }
        if pair.lock.lock() {
            assert_eq!(pair.read(), [0, 0]);
            pair.lock.unlock();
        }
        writer.join().unwrap();
        assert!(!pair.lock.lock() && pair.lock.look() == Look::Obsolete);
    });
}
