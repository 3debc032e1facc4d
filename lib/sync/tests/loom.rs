//! The primitives under the weak memory model, in their smallest interesting configurations.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p archipelago-sync --release --test loom`
//!
//! A test here fails if any ordering or fence of the version lock is weakened, if RCU's barriers or the Release at the
//! end of its sections are weakened, or if RCU's third epoch is removed. The remaining Acquire/Release pairs of RCU's
//! proof matter only if one thread advances the epoch while another retires and a third reads. The tests with three
//! threads explore too few schedules to detect their absence, so these pairs rely on the proof alone.
#![cfg(loom)]

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};
use archipelago_platform::model::model;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::sync::{Arc, Mutex};
use archipelago_platform::thread;
use archipelago_sync::rcu::{Domain, Flavour, Held, Keeper, OwnedGuard};
use archipelago_sync::version_lock::{Look, VersionLock};
use loom::cell::UnsafeCell;

/// loom does not try these two schedules by itself (see `archipelago_platform::atomic`): one thread's load comes before
/// the other thread's change, or after it. The test checks that both are tried.
#[test]
fn a_thread_that_loads_and_changes_is_tried_before_a_load() {
    let met = std::sync::Arc::new([const { std::sync::atomic::AtomicBool::new(false) }; 2]);
    let meets = met.clone();
    model(1, move || {
        let word = Arc::new(AtomicU64::new(0));
        let other = {
            let word = word.clone();
            thread::spawn(move || word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed))
        };
        meets[word.load(Ordering::Relaxed) as usize].store(true, std::sync::atomic::Ordering::Relaxed);
        other.join().unwrap();
    });
    assert!(met.iter().all(|met| met.load(std::sync::atomic::Ordering::Relaxed)));
}

/// The stacks of a schedule's threads are those of the next one's: see the module. A linker that preferred the system's
/// functions would only make the models slower.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn stacks_are_kept() {
    let word = || {
        let word = Arc::new(AtomicU64::new(0));
        let other = {
            let word = word.clone();
            thread::spawn(move || word.store(1, Ordering::Relaxed))
        };
        word.load(Ordering::Relaxed);
        other.join().unwrap();
    };
    model(1, word);
    assert!(archipelago_platform::model::stacks::kept() > 0);
}

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
fn version_lock_never_validates_a_torn_pair() {
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
fn version_lock_an_unchanged_unlock_keeps_versions_valid() {
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
fn version_lock_is_exclusive() {
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
fn version_lock_a_shared_change_is_seen_by_the_next_holder() {
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
fn version_lock_sharers_disturb_nobody() {
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
fn version_lock_at_an_old_version_comes_after_the_unlock_that_restored_it() {
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
fn version_lock_obsolete_is_seen_with_what_came_before() {
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

#[test]
fn per_thread_makes_each_cell_once() {
    model(3, || {
        let table = Arc::new(PerThread::new());
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                let cell: &AtomicU64 = table.get_or(1, || AtomicU64::new(7));
                cell.fetch_add(1, Ordering::Relaxed);
            })
        };
        let cell = table.get_or(1, || AtomicU64::new(7));
        cell.fetch_add(1, Ordering::Relaxed);
        other.join().unwrap();
        assert_eq!(cell.load(Ordering::Relaxed), 9);
        assert_eq!(table.iter().count(), 1);
    });
}

/// An object whose cell is a cell of loom. A read that may run at the same time as the reclaim, or after it, is an
/// error, even if it does no harm in this schedule.
struct Object(UnsafeCell<u64>);

/// One shared object in a domain.
struct Shared {
    domain: Domain,
    object: AtomicPtr<Object>,
}

// SAFETY: the object is written only by the thread that reclaims it. RCU keeps this thread apart from readers, and the
// tests check this.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(flavour: Flavour) -> Arc<Self> {
        let domain = Domain::with_flavour(flavour).with_bag_limit(1);
        Arc::new(Self { domain, object: AtomicPtr::new(Self::fresh()) })
    }

    fn fresh() -> *mut Object {
        Box::into_raw(Box::new(Object(UnsafeCell::new(1))))
    }

    fn unlink(&self) -> *mut Object {
        self.object.swap(core::ptr::null_mut(), Ordering::AcqRel)
    }

    fn retire(&self) {
        let guard = self.domain.pin();
        let old = self.unlink();
        // SAFETY: unlinked just above, by this thread alone.
        unsafe { guard.retire(old.cast(), core::ptr::null_mut(), reclaim) };
    }

    fn unlink_and_wait(&self) {
        let old = self.unlink();
        self.domain.synchronize();
        // SAFETY: unlinked, and a grace period has passed.
        unsafe { reclaim(old.cast(), core::ptr::null_mut()) };
    }

    fn read(&self) {
        let _guard = self.domain.pin();
        self.look();
    }

    fn read_after_its_reader_has_gone(&self) {
        let reader = self.domain.reader();
        let _guard = reader.enter();
        drop(reader);
        self.look();
    }

    /// Reads the object. The caller has a guard.
    fn look(&self) {
        let object = self.object.load(Ordering::Acquire);
        if !object.is_null() {
            // SAFETY: the caller's guard protects it.
            unsafe { &*object }.0.with(|value| assert_eq!(unsafe { *value }, 1));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let object = self.unlink();
        if !object.is_null() {
            // SAFETY: still linked, so never retired.
            unsafe { reclaim(object.cast(), core::ptr::null_mut()) };
        }
    }
}

unsafe fn reclaim(object: *mut (), _: *mut ()) {
    // SAFETY: made by `Shared::fresh`, reclaimed once.
    let object = unsafe { Box::from_raw(object.cast::<Object>()) };
    // SAFETY: no thread reads it any more, which loom checks.
    object.0.with_mut(|value| unsafe { *value = 0 });
}

fn each_flavour(preemptions: usize, test: fn(&Arc<Shared>)) {
    for flavour in [Flavour::Epoch, Flavour::Membarrier] {
        model(preemptions, move || test(&Shared::new(flavour)));
    }
}

#[test]
fn rcu_a_reader_never_sees_reclaimed_memory() {
    each_flavour(3, |shared| {
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || shared.read())
        };
        shared.retire();
        shared.domain.collect();
        reader.join().unwrap();
    });
}

/// The reader enters two sections, so a collector may run between them, and may see that the reader is in the second
/// one.
#[test]
fn rcu_a_reader_that_comes_back_is_waited_for() {
    each_flavour(3, |shared| {
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.read();
                drop(shared.domain.pin());
            })
        };
        shared.retire();
        shared.domain.collect();
        reader.join().unwrap();
    });
}

#[test]
fn rcu_another_thread_reclaims_for_one_that_ended() {
    each_flavour(3, |shared| {
        let retirer = {
            let shared = shared.clone();
            thread::spawn(move || shared.retire())
        };
        shared.domain.collect();
        shared.read();
        retirer.join().unwrap();
        shared.domain.collect();
        assert_eq!(shared.domain.stats().pending, 0);
    });
}

#[test]
fn rcu_synchronize_waits_for_readers() {
    each_flavour(3, |shared| {
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || shared.read())
        };
        shared.unlink_and_wait();
        reader.join().unwrap();
    });
}

/// Three threads: one retires, one reads, and one advances the epoch at the same time. The third epoch is needed for
/// this case.
#[test]
fn rcu_an_advance_under_way_does_not_shorten_the_grace_period() {
    each_flavour(1, |shared| {
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || shared.read())
        };
        let collector = {
            let shared = shared.clone();
            thread::spawn(move || shared.domain.collect())
        };
        shared.retire();
        shared.domain.collect();
        reader.join().unwrap();
        collector.join().unwrap();
    });
}

/// The reason why a bag waits for three epochs instead of two. The retiring thread entered at epoch 0. It still reads 0
/// when it seals its bag, although another thread has moved the epoch to 1 in the meantime. A reader that entered at 1
/// may have found the object, but does not keep the epoch from moving to 2.
///
/// The reader yields at the point where this schedule requires it. (The retiring thread must not yield: in loom, a
/// thread that has yielded does not read an old value again.)
#[test]
fn rcu_a_reader_of_the_next_epoch_may_see_the_object_too() {
    model(2, || {
        let shared = Shared::new(Flavour::Epoch);
        let guard = shared.domain.pin();
        let advancer = {
            let shared = shared.clone();
            thread::spawn(move || shared.domain.collect())
        };
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let _guard = shared.domain.pin();
                let object = shared.object.load(Ordering::Acquire);
                thread::yield_now();
                if !object.is_null() {
                    // SAFETY: the guard protects it.
                    unsafe { &*object }.0.with(|value| assert_eq!(unsafe { *value }, 1));
                }
            })
        };
        let old = shared.unlink();
        // SAFETY: unlinked just above, by this thread alone.
        unsafe { guard.retire(old.cast(), core::ptr::null_mut(), reclaim) };
        drop(guard);
        shared.domain.collect();
        advancer.join().unwrap();
        reader.join().unwrap();
    });
}

/// A thread holds back reclamation while it retires under a lock. It runs no reclaim function that takes this lock,
/// even if another thread makes objects ready for reclamation. These objects are reclaimed later.
#[test]
fn rcu_nothing_is_reclaimed_by_a_thread_that_holds_back() {
    struct Locked {
        domain: Domain,
        reclaimed: Mutex<usize>,
    }
    unsafe fn reclaim(locked: *mut (), _: *mut ()) {
        // SAFETY: alive until its domain is dropped. A thread that holds the lock would wait for itself.
        *unsafe { &*locked.cast::<Locked>() }.reclaimed.lock().unwrap() += 1;
    }
    model(2, || {
        let domain = Domain::with_flavour(Flavour::Epoch).with_bag_limit(1);
        let locked = Arc::new(Locked { domain, reclaimed: Mutex::new(0) });
        let retire = |locked: &Arc<Locked>| {
            let object = Arc::as_ptr(locked).cast_mut().cast();
            // SAFETY: nothing has to be unlinked. The last reclamation is below, before the end of the test.
            unsafe { locked.domain.pin().retire(object, core::ptr::null_mut(), reclaim) };
        };
        retire(&locked);
        let other = {
            let locked = locked.clone();
            thread::spawn(move || locked.domain.collect())
        };
        locked.domain.pin().hold_back(|| {
            let reclaimed = locked.reclaimed.lock().unwrap();
            retire(&locked);
            drop(reclaimed);
        });
        other.join().unwrap();
        (0..3).for_each(|_| locked.domain.collect());
        assert_eq!(*locked.reclaimed.lock().unwrap(), 2);
    });
}

/// A guard continues to protect after the reader that made it was dropped.
#[test]
fn rcu_a_guard_outlives_its_reader() {
    each_flavour(2, |shared| {
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.read_after_its_reader_has_gone();
                shared.read_after_its_reader_has_gone();
            })
        };
        shared.retire();
        shared.domain.collect();
        reader.join().unwrap();
    });
}

/// A record is the word in which a reader publishes its sections. When a reader is dropped, its record is reused by
/// another thread's quiescent reader. Grace periods wait for this reader as for the first one.
#[test]
fn rcu_a_claimed_record_passes_on() {
    each_flavour(2, |shared| {
        let look = |shared: &Shared| {
            let reader = shared.domain.quiescent_reader();
            let _guard = reader.enter();
            shared.look();
        };
        look(shared);
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || look(&shared))
        };
        shared.retire();
        shared.domain.collect();
        reader.join().unwrap();
    });
}

#[test]
fn rcu_a_quiescent_reader_is_waited_for() {
    each_flavour(2, |shared| {
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut reader = shared.domain.quiescent_reader();
                for _ in 0..2 {
                    let _guard = reader.enter();
                    let object = shared.object.load(Ordering::Acquire);
                    // The drop of a second guard does not end the section.
                    let _inner = reader.enter();
                    if !object.is_null() {
                        // SAFETY: the guard protects it.
                        unsafe { &*object }.0.with(|value| assert_eq!(unsafe { *value }, 1));
                    }
                    reader.quiescent();
                }
            })
        };
        shared.retire();
        shared.domain.collect();
        reader.join().unwrap();
    });
}

/// A guard that was begun in this thread protects the reads of another thread, and ends in that thread.
#[test]
fn rcu_an_owned_guard_protects_where_it_has_gone() {
    each_flavour(2, |shared| {
        let guard = shared.domain.pin_owned();
        // SAFETY: changes only the lifetime; the thread is joined before the domain is dropped.
        let guard: OwnedGuard<'static> = unsafe { core::mem::transmute(guard) };
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut guard = guard;
                shared.look();
                guard.renew();
                shared.look();
                drop(guard);
                drop(shared);
            })
        };
        shared.retire();
        shared.domain.collect();
        reader.join().unwrap();
    });
}

/// After all holders have released a section, `hold` either holds the same section again, so that it still protects its
/// objects, or returns `None`.
#[test]
fn rcu_what_is_held_goes_on_or_says_so() {
    static MET: [std::sync::atomic::AtomicBool; 2] = [const { std::sync::atomic::AtomicBool::new(false) }; 2];
    each_flavour(3, |shared| {
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let guard = shared.domain.pin_owned();
                let held = guard.keep(shared.object.load(Ordering::Acquire));
                let keeper = Held::keeper(&held);
                drop(held);
                let again = keeper.hold();
                MET[usize::from(again.is_some())].store(true, std::sync::atomic::Ordering::Relaxed);
                if let Some(object) = again
                    && !object.is_null()
                {
                    // SAFETY: read in the section, which has continued.
                    unsafe { &**object }.0.with(|value| assert_eq!(unsafe { *value }, 1));
                }
            })
        };
        shared.retire();
        shared.domain.collect();
        reader.join().unwrap();
    });
    assert!(MET.iter().all(|met| met.load(std::sync::atomic::Ordering::Relaxed)), "each is met");
}

/// The value that the threads of the models below hold. loom detects if it is freed while a thread reads it. The value
/// counts how many times it is freed.
struct Noted(UnsafeCell<u64>, std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl Noted {
    fn look(&self) {
        self.0.with(|value| assert_eq!(unsafe { *value }, 7));
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.with_mut(|value| unsafe { *value = 0 });
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Runs a model with a domain, a held value and its keeper. Checks that the value is freed once.
fn with_held(
    preemptions: usize,
    run: impl Fn(&'static Domain, Held<'static, Noted>, Keeper<'static, Noted>) + Send + Sync + 'static,
) {
    model(preemptions, move || {
        let freed = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let domain = Box::into_raw(Box::new(Domain::with_flavour(Flavour::Epoch)));
        // SAFETY: freed below, after everything that borrows it.
        let shared: &'static Domain = unsafe { &*domain };
        let held = shared.pin_owned().keep(Noted(UnsafeCell::new(7), freed.clone()));
        let keeper = Held::keeper(&held);
        run(shared, held, keeper);
        assert_eq!(freed.load(std::sync::atomic::Ordering::Relaxed), 1, "freed once");
        assert_eq!(shared.stats().active_readers, 0);
        // SAFETY: made above.
        drop(unsafe { Box::from_raw(domain) });
    });
}

/// The last holder leaves while the keeper is dropped. One of them frees the held value, and sees the accesses of the
/// other.
#[test]
fn rcu_what_is_held_is_freed_once() {
    with_held(3, |_, held, keeper| {
        let other = held.clone();
        let threads = [held, other].map(|held| thread::spawn(move || held.look()));
        keeper.what().look();
        drop(keeper);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// The last holder leaves while the keeper makes another one. The section lasts as long as there is a holder.
#[test]
fn rcu_a_holder_comes_while_the_last_one_leaves() {
    with_held(3, |domain, held, keeper| {
        let leaves = thread::spawn(move || held.look());
        let held = keeper.hold().expect("the epoch has not moved");
        held.look();
        assert_eq!(domain.stats().active_readers, 1, "there is a holder");
        leaves.join().unwrap();
        assert_eq!(domain.stats().active_readers, 1, "there is a holder still");
        drop(held);
        assert_eq!(domain.stats().active_readers, 0);
    });
}

/// Two threads try to hold the section again after the epoch has moved, and neither succeeds. They own the record one
/// after the other.
#[test]
fn rcu_two_holders_that_may_not_come() {
    with_held(2, |domain, held, keeper| {
        drop(held);
        domain.collect();
        let keeper = Arc::new(keeper);
        let other = {
            let keeper = keeper.clone();
            thread::spawn(move || assert!(keeper.hold().is_none()))
        };
        assert!(keeper.hold().is_none());
        other.join().unwrap();
        assert_eq!(domain.stats().active_readers, 0);
    });
}

/// Two threads hold the section again at the same time, while it has no holder. One of them enters it, and the section
/// lasts as long as either of them.
#[test]
fn rcu_two_holders_come_at_once() {
    with_held(2, |domain, held, keeper| {
        drop(held);
        let keeper = Arc::new(keeper);
        let other = {
            let keeper = keeper.clone();
            thread::spawn(move || keeper.hold().expect("the epoch has not moved").look())
        };
        let held = keeper.hold().expect("the epoch has not moved");
        held.look();
        assert_eq!(domain.stats().active_readers, 1);
        other.join().unwrap();
        assert_eq!(domain.stats().active_readers, 1);
    });
}
