//! Guards and readers protect the objects that they read, in whichever thread they are and however they end.

use super::*;

#[test]
fn a_stalled_reader_stops_reclamation_and_is_reported() {
    each_flavour(|domain| {
        let (drops, domain) = (AtomicUsize::new(0), domain().with_bag_limit(4));
        let (stalled, done) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = domain.pin();
                stalled.wait();
                done.wait();
            });
            stalled.wait();
            for _ in 0..100 {
                retire_new(&domain.pin(), &drops);
            }
            domain.collect();
            let stats = domain.stats();
            assert_eq!((stats.pending, drops.load(Ordering::Relaxed)), (100, 0));
            assert_eq!((stats.active_readers, stats.oldest_reader_lag), (1, 1));
            assert!(stats.refused_advances > 5);
            done.wait();
        });
        domain.collect();
        assert_eq!(drops.load(Ordering::Relaxed), 100);
        assert_eq!(domain.stats().refused_advances, 0);
    });
}

#[test]
fn a_quiescent_reader_protects_until_it_says_so() {
    each_flavour(|domain| {
        let (drops, domain) = (AtomicUsize::new(0), domain().with_bag_limit(1));
        let mut reader = domain.quiescent_reader();
        for round in 1..=3 {
            retire_new(reader.enter(), &drops);
            domain.collect();
            assert_eq!(drops.load(Ordering::Relaxed), round - 1);
            for _ in 0..4 {
                reader.quiescent();
                domain.collect();
            }
            assert_eq!(drops.load(Ordering::Relaxed), round);
        }
        retire_new(reader.enter(), &drops);
        reader.offline(|| {
            domain.synchronize();
            domain.collect();
            assert_eq!(drops.load(Ordering::Relaxed), 4);
        });
        assert_eq!(domain.stats().active_readers, 1);
        assert!(catch_unwind(AssertUnwindSafe(|| reader.offline(|| panic!("planted")))).is_err());
        assert_eq!(domain.stats().active_readers, 1);
        drop(reader);
        assert_eq!(domain.stats().active_readers, 0);
    });
}

#[test]
fn quiescent_readers_read_beside_writers() {
    each_flavour(|domain| {
        let (drops, domain) = (AtomicUsize::new(0), domain().with_bag_limit(4));
        let shared = AtomicPtr::new(Tracked::boxed(&drops));
        let rounds = scaled(20_000, 20);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut reader = domain.quiescent_reader();
                    for _ in 0..rounds {
                        let _guard = reader.enter();
                        // SAFETY: read from the structure inside the guard.
                        unsafe { &*shared.load(Ordering::Acquire) }.check();
                        reader.quiescent();
                    }
                });
            }
            scope.spawn(|| churn(&domain, &shared, &drops, rounds));
        });
        domain.collect();
        assert_eq!(drops.load(Ordering::Relaxed), rounds);
        // SAFETY: never retired, and no reader exists any more.
        drop(unsafe { Box::from_raw(shared.load(Ordering::Relaxed)) });
    });
}

#[test]
fn a_guard_may_outlive_its_reader_whose_record_is_then_used_again() {
    each_flavour(|domain| {
        let (drops, domain) = (AtomicUsize::new(0), domain().with_bag_limit(1));
        for round in 0..100 {
            let (guard, _inner) = {
                let reader = domain.reader();
                (reader.enter(), reader.enter())
            };
            retire_new(&guard, &drops);
            // This reader must not use the record of the guard above.
            drop(domain.reader().enter());
            domain.collect();
            assert_eq!((drops.load(Ordering::Relaxed), domain.stats().active_readers), (round, 1));
            drop(guard);
            drop(_inner);
            domain.collect();
        }
    });
}

/// Readers, unlike guards, may be dropped after their domain, so that sessions may stay in scope.
#[test]
fn a_reader_may_be_dropped_after_its_domain() {
    let drops = AtomicUsize::new(0);
    let domain = Domain::new();
    let (reader, other) = (domain.reader(), domain.reader());
    retire_new(&reader.enter(), &drops);
    core::mem::forget(other.enter());
    core::mem::forget(domain.reader().enter());
    drop(domain);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn nested_guards_protect_until_the_last_ends() {
    each_flavour(|domain| {
        let (drops, domain) = (AtomicUsize::new(0), domain().with_bag_limit(1));
        let reader = domain.reader();
        let outer = reader.enter();
        let inner = reader.enter();
        retire_new(&inner, &drops);
        drop(outer);
        domain.collect();
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        assert_eq!(domain.stats().active_readers, 1);
        drop(inner);
        domain.collect();
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        assert_eq!(domain.stats().active_readers, 0);
    });
}

#[test]
fn a_forgotten_guard_only_delays() {
    let drops = AtomicUsize::new(0);
    {
        let domain = Domain::new().with_bag_limit(1);
        core::mem::forget(domain.pin());
        (0..10).for_each(|_| retire_new(&domain.pin(), &drops));
        domain.collect();
        assert_eq!(drops.load(Ordering::Relaxed), 0);
    }
    assert_eq!(drops.load(Ordering::Relaxed), 10);
}

#[test]
fn synchronize_waits_for_the_readers_before_it() {
    each_flavour(|domain| {
        let (drops, domain) = (AtomicUsize::new(0), domain());
        let shared = AtomicPtr::new(Tracked::boxed(&drops));
        let rounds = scaled(300, 2);
        let stop = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while stop.load(Ordering::Relaxed) == 0 {
                        let _guard = domain.pin();
                        // SAFETY: read from the structure inside the guard.
                        let object = unsafe { &*shared.load(Ordering::Acquire) };
                        (0..20).for_each(|_| object.check());
                    }
                });
            }
            for _ in 0..rounds {
                let old = shared.swap(Tracked::boxed(&drops), Ordering::AcqRel);
                domain.synchronize();
                // SAFETY: unlinked above, and all guards that began before have ended.
                drop(unsafe { Box::from_raw(old) });
            }
            stop.store(1, Ordering::Relaxed);
        });
        // SAFETY: no reader exists any more.
        drop(unsafe { Box::from_raw(shared.into_inner()) });
        assert_eq!(drops.load(Ordering::Relaxed), rounds + 1);
    });
}

#[test]
fn synchronize_inside_a_guard_panics() {
    let domain = Domain::new();
    let (pinned, entered, quiescent) = (domain.pin(), domain.reader().enter(), domain.quiescent_reader());
    let refused = || catch_unwind(AssertUnwindSafe(|| domain.synchronize())).is_err();
    assert!(refused());
    drop(pinned);
    assert!(refused());
    drop(entered);
    assert!(refused());
    drop(quiescent);
    domain.synchronize();
}

/// A thread that has sent its owned guard away is in no guard: it may wait for the guard's end.
#[test]
fn synchronize_waits_for_a_guard_that_was_sent_away() {
    each_flavour(|make| {
        let domain = make();
        let (guard, over) = (domain.pin_owned(), AtomicBool::new(false));
        thread::scope(|s| {
            let (domain, over) = (&domain, &over);
            s.spawn(move || {
                // The other thread has tried to advance the epoch, so it waits.
                while domain.stats().refused_advances == 0 && !over.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                drop(guard);
            });
            let outcome = catch_unwind(AssertUnwindSafe(|| domain.synchronize()));
            over.store(true, Ordering::Release);
            assert!(outcome.is_ok());
        });
        assert_eq!(domain.stats().active_readers, 0);
    });
}

/// An owned guard counts as a guard of the thread that last began or renewed it, and not of a later thread, even if
/// this one has the same memory.
#[test]
fn owned_guards_of_ended_threads_are_nobodys() {
    let domain = &Domain::new();
    let guards: Vec<_> = (0..scaled(20, 3))
        .map(|_| {
            let begin = || {
                assert!(domain.may_wait());
                let guard = domain.pin_owned();
                assert!(!domain.may_wait());
                guard
            };
            thread::scope(|s| s.spawn(begin).join().unwrap())
        })
        .collect();
    assert_eq!(domain.stats().active_readers, guards.len());
}

#[test]
fn more_guards_than_sixteen_bits_count() {
    const MANY: usize = scaled(200_000, 40);
    each_flavour(|domain| {
        let (drops, domain) = (AtomicUsize::new(0), domain().with_bag_limit(1));
        let reader = domain.reader();
        let mut guards: Vec<_> = (0..MANY).map(|_| reader.enter()).collect();
        retire_new(&guards[0], &drops);
        while guards.len() > 1 {
            guards.pop();
            if guards.len() % 1_000 == 1 {
                domain.collect();
                assert_eq!((drops.load(Ordering::Relaxed), domain.stats().active_readers), (0, 1));
                // The number of guards also rises again, in case the record's counter has reached its limit.
                guards.push(reader.enter());
                guards.pop();
            }
        }
        guards.clear();
        assert_eq!(domain.stats().active_readers, 0);
        domain.collect();
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        drop(reader.enter());
        assert_eq!(domain.stats().active_readers, 0);
    });
}

/// Making a quiescent reader takes the same time beside ten thousand others.
#[test]
fn a_quiescent_reader_costs_the_same_beside_many() {
    let domain = Domain::with_flavour(Flavour::Epoch);
    let mut readers = Vec::new();
    let mut make_some = || {
        // Leaves one free record beside those in use.
        drop(domain.quiescent_reader());
        let start = Instant::now();
        readers.extend((0..scaled(100, 4)).map(|_| domain.quiescent_reader()));
        start.elapsed()
    };
    let mut least = |times: usize| (0..times).map(|_| make_some()).min().unwrap();
    let first = least(9);
    least(scaled(200, 2));
    let last = least(9);
    assert!(cfg!(miri) || last < first * 10, "{last:?} beside many, {first:?} alone");
    assert_eq!(domain.stats().active_readers, readers.len());
    readers.clear();
    assert_eq!(domain.stats().active_readers, 0);
}

/// A guard in a thread-local ends with its thread, however early the thread-local was registered.
#[cfg(unix)]
#[test]
fn a_guard_in_a_thread_local_ends_with_its_thread() {
    archipelago_platform::thread::thread_local! {
        static LATE: RefCell<Option<Guard<'static>>> = const { RefCell::new(None) };
    }
    let domain: *mut Domain = Box::into_raw(Box::new(Domain::new()));
    // SAFETY: freed below, when the threads that use it have ended.
    let shared: &'static Domain = unsafe { &*domain };
    for _ in 0..scaled(50, 3) {
        // The thread-local is registered before the slot, so its destructor would run after a destructor of the slot.
        thread::spawn(move || LATE.with(|late| *late.borrow_mut() = Some(shared.pin()))).join().unwrap();
        assert_eq!(shared.stats().active_readers, 0);
    }
    // SAFETY: the threads have ended.
    drop(unsafe { Box::from_raw(domain) });
}

/// A reader that is kept beyond the end of its thread's slot must not disturb the slot's next owner.
#[cfg(target_os = "linux")]
#[test]
fn a_reader_kept_to_the_very_end_leaves_the_next_owner_alone() {
    const ROUNDS: usize = scaled(400_000, 10);
    fn churn(reader: &Reader<'_>) {
        (0..ROUNDS).for_each(|_| drop(reader.enter()));
    }
    fn beside_the_next_owner(domain: &Domain, late: &Reader<'_>) {
        assert!(!late.is_mine(), "the slot was given back before");
        let started = Barrier::new(5);
        thread::scope(|scope| {
            // These threads take the smallest free slots, one of which is the slot that the late thread gave back.
            for _ in 0..4 {
                scope.spawn(|| {
                    let reader = domain.reader();
                    started.wait();
                    churn(&reader);
                });
            }
            started.wait();
            churn(late);
        });
    }
    let domain: *mut Domain = Box::into_raw(Box::new(Domain::new()));
    // SAFETY: freed below, when the threads that use it have ended.
    let shared: &'static Domain = unsafe { &*domain };
    // Creates the key of slots here, before the test's key, so that a slot is given back before the test's last
    // destructor runs.
    thread::slot();
    let late = thread::spawn(move || {
        let reader = shared.reader();
        at_the_very_end(Box::new(move || beside_the_next_owner(shared, &reader)))
    });
    late.join().unwrap();
    assert_eq!(shared.stats().active_readers, 0);
    // SAFETY: the threads have ended.
    drop(unsafe { Box::from_raw(domain) });
}

/// A guard is begun in one thread, used in a second, and renewed and ended in a third. Its record is passed along.
#[test]
fn owned_guards_protect_wherever_they_are() {
    each_flavour(|make| {
        let domain = make().with_bag_limit(1);
        let drops = AtomicUsize::new(0);
        for round in 0..scaled(200, 4) {
            let object = Tracked::boxed(&drops);
            let guard = domain.pin_owned();
            // SAFETY: unlinked from the start, for guards that begin later; `drops` outlives the domain.
            unsafe { domain.pin().retire_box(object) };
            let address = object.expose_provenance();
            let guard = thread::scope(|s| {
                let other = s.spawn(|| {
                    (0..20).for_each(|_| retire_new(&domain.pin(), &drops));
                    (0..4).for_each(|_| domain.collect());
                    // SAFETY: retired after the guard began, which has not ended.
                    unsafe { &*core::ptr::with_exposed_provenance::<Tracked<'_>>(address) }.check();
                    guard
                });
                other.join().unwrap()
            });
            assert_eq!((domain.stats().active_readers, domain.may_wait()), (1, false));
            thread::scope(|s| {
                s.spawn(|| {
                    let mut guard = guard;
                    assert!(domain.may_wait(), "it is another thread's, as far as this one knows");
                    guard.renew();
                    assert!(!domain.may_wait());
                    (0..4).for_each(|_| domain.collect());
                    drop(guard);
                    assert!(domain.may_wait());
                });
            });
            (0..4).for_each(|_| domain.collect());
            assert_eq!(drops.load(Ordering::Relaxed), 21 * (round + 1));
            assert_eq!(domain.stats().active_readers, 0);
        }
    });
}
