//! RCU: readers, retiring threads and grace periods.

use archipelago_platform::atomic::{AtomicPtr, Ordering};
use archipelago_platform::model::model;
use archipelago_platform::sync::{Arc, Mutex};
use archipelago_platform::thread;
use archipelago_sync::rcu::{Domain, Flavour, Held, OwnedGuard};
use loom::cell::UnsafeCell;

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
fn a_reader_never_sees_reclaimed_memory() {
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
fn a_reader_that_comes_back_is_waited_for() {
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
fn another_thread_reclaims_for_one_that_ended() {
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
fn synchronize_waits_for_readers() {
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
fn an_advance_under_way_does_not_shorten_the_grace_period() {
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
fn a_reader_of_the_next_epoch_may_see_the_object_too() {
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
fn nothing_is_reclaimed_by_a_thread_that_holds_back() {
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
fn a_guard_outlives_its_reader() {
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
fn a_claimed_record_passes_on() {
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
fn a_quiescent_reader_is_waited_for() {
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
fn an_owned_guard_protects_where_it_has_gone() {
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
fn what_is_held_goes_on_or_says_so() {
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
