//! RCU natively: every retired object is reclaimed once and not too early, whatever threads, guards and panics do.
#![cfg(not(loom))]

use core::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(target_os = "linux")]
use archipelago_check::late::at_the_very_end;
use archipelago_check::watchdog::watchdog;
use archipelago_platform::atomic::{AtomicPtr, AtomicUsize, Ordering};
use archipelago_platform::sync::{Arc, Barrier, Weak};
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use archipelago_sync::rcu::{Domain, Flavour, Guard, Held, Owner, Reader};

const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

fn each_flavour(test: impl Fn(&dyn Fn() -> Domain)) {
    for flavour in [Flavour::Epoch, Flavour::Membarrier] {
        test(&|| Domain::with_flavour(flavour));
    }
}

/// An object that reads as alive until it is dropped, and counts its drops.
struct Tracked<'c> {
    alive: AtomicUsize,
    drops: &'c AtomicUsize,
}

const ALIVE: usize = 0x600D;

impl<'c> Tracked<'c> {
    fn boxed(drops: &'c AtomicUsize) -> *mut Self {
        Box::into_raw(Box::new(Self { alive: AtomicUsize::new(ALIVE), drops }))
    }

    fn check(&self) {
        assert_eq!(self.alive.load(Ordering::Relaxed), ALIVE, "read after it was reclaimed");
    }
}

impl Drop for Tracked<'_> {
    fn drop(&mut self) {
        assert_eq!(self.alive.swap(0xDEAD, Ordering::Relaxed), ALIVE, "reclaimed twice");
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn retire_new(guard: &Guard<'_>, drops: &AtomicUsize) {
    // SAFETY: never linked anywhere; `drops` outlives the domain in every test here.
    unsafe { guard.retire_box(Tracked::boxed(drops)) }
}

/// Replaces the shared object `rounds` times and reads it each time, under a guard.
fn churn(domain: &Domain, shared: &AtomicPtr<Tracked<'_>>, drops: &AtomicUsize, rounds: usize) {
    let reader = domain.reader();
    for _ in 0..rounds {
        let guard = reader.enter();
        // SAFETY: read from the structure inside the guard.
        unsafe { &*shared.load(Ordering::Acquire) }.check();
        let fresh = Tracked { alive: AtomicUsize::new(ALIVE), drops };
        // The cast shortens or stretches nothing: `drops` outlives the domain in every test here.
        let old = shared.swap(Box::into_raw(Box::new(fresh)).cast(), Ordering::AcqRel);
        // SAFETY: the swap unlinked it, so this thread alone retires it.
        unsafe { guard.retire_box(old) };
        // SAFETY: this guard began before the object was retired.
        unsafe { &*old }.check();
    }
}

fn churn_with_threads(domain: Domain, threads: usize, rounds: usize) {
    let drops = AtomicUsize::new(0);
    let shared = AtomicPtr::new(Tracked::boxed(&drops));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| churn(&domain, &shared, &drops, rounds));
        }
    });
    let pending = domain.stats().pending;
    assert_eq!(drops.load(Ordering::Relaxed) + pending, threads * rounds);
    domain.collect();
    assert_eq!(domain.stats().pending, 0);
    assert_eq!(drops.load(Ordering::Relaxed), threads * rounds);
    drop(domain);
    // SAFETY: the last object was never retired.
    drop(unsafe { Box::from_raw(shared.into_inner()) });
    assert_eq!(drops.load(Ordering::Relaxed), threads * rounds + 1);
}

#[test]
fn one_thread_holds_a_few_bags_back() {
    each_flavour(|domain| {
        let (drops, domain) = (AtomicUsize::new(0), domain().with_bag_limit(8));
        for _ in 0..scaled(1_000, 60) {
            retire_new(&domain.pin(), &drops);
            assert!(domain.stats().pending <= 8 * 5);
        }
    });
}

#[test]
fn few_threads() {
    each_flavour(|domain| churn_with_threads(domain(), 2, scaled(20_000, 20)));
    each_flavour(|domain| churn_with_threads(domain().with_bag_limit(1), 4, scaled(5_000, 6)));
}

#[test]
fn more_threads_than_cores() {
    each_flavour(|domain| churn_with_threads(domain(), scaled(32, 5), scaled(2_000, 6)));
}

#[test]
fn threads_that_come_and_go_strand_nothing() {
    each_flavour(|domain| {
        let (drops, domain) = (AtomicUsize::new(0), domain().with_bag_limit(4));
        let threads = scaled(1_000, 8);
        for _ in 0..threads / 4 {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let guard = domain.pin();
                        (0..3).for_each(|_| retire_new(&guard, &drops));
                    });
                }
            });
        }
        domain.collect();
        assert_eq!(drops.load(Ordering::Relaxed), threads * 3);
        assert_eq!(domain.stats().pending, 0);
    });
}

#[test]
fn the_living_reclaim_for_the_dead_without_being_asked() {
    each_flavour(|domain| {
        let (dead, living) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let domain = domain().with_bag_limit(4);
        thread::scope(|scope| {
            scope.spawn(|| (0..3).for_each(|_| retire_new(&domain.pin(), &dead)));
        });
        // This thread has its slot since before the other ended, or has it now; either way it goes on retiring.
        for _ in 0..4 * 40 {
            retire_new(&domain.pin(), &living);
        }
        assert_eq!(dead.load(Ordering::Relaxed), 3);
    });
}

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
fn a_backlog_over_its_limit_is_reported_at_each_doubling() {
    let (drops, reports) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = reports.clone();
    let domain = Domain::with_flavour(Flavour::Epoch).with_bag_limit(8).with_backlog_limit(64, move |stats| {
        assert!(stats.pending > 64 && stats.active_readers >= 1);
        seen.fetch_add(1, Ordering::Relaxed);
    });
    for round in 1..=2 {
        let stuck = domain.reader().enter();
        (0..64 * 8).for_each(|_| retire_new(&domain.pin(), &drops));
        // Above 64 at 72, above 144 at 152, above 304 at 312.
        assert_eq!(reports.load(Ordering::Relaxed), 3 * round);
        drop(stuck);
        domain.collect();
        assert_eq!(drops.load(Ordering::Relaxed), 64 * 8 * round);
    }
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
        // SAFETY: never retired, and no reader is left.
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
            // Must not take the record of the guard above.
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
                // SAFETY: unlinked above, and all guards from before that have ended.
                drop(unsafe { Box::from_raw(old) });
            }
            stop.store(1, Ordering::Relaxed);
        });
        // SAFETY: no reader is left.
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

#[test]
fn a_panicking_reclaim_loses_and_repeats_nothing() {
    unsafe fn count_then_panic(count: *mut (), every_third: *mut ()) {
        // SAFETY: both are counters that outlive the domain.
        let (count, third) = unsafe { (&*count.cast::<AtomicUsize>(), &*every_third.cast::<AtomicUsize>()) };
        count.fetch_add(1, Ordering::Relaxed);
        if third.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            panic!("planted");
        }
    }
    each_flavour(|domain| {
        let counts: Vec<_> = (0..scaled(50, 14)).map(|_| AtomicUsize::new(0)).collect();
        let third = AtomicUsize::new(0);
        let retire_all = |domain: &Domain| {
            let mut panics = 0;
            for count in &counts {
                let guard = domain.pin();
                let (count, third) = (core::ptr::from_ref(count).cast_mut(), core::ptr::from_ref(&third).cast_mut());
                let retired = catch_unwind(AssertUnwindSafe(|| {
                    // SAFETY: the counters outlive the domain and are atomics.
                    unsafe { guard.retire(count.cast(), third.cast(), count_then_panic) }
                }));
                panics += usize::from(retired.is_err());
            }
            panics
        };
        let exactly = |times| assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == times));

        let first = domain().with_bag_limit(4);
        assert!(retire_all(&first) > 0);
        assert!(catch_unwind(AssertUnwindSafe(|| first.collect())).is_err());
        exactly(1);
        let second = domain();
        assert_eq!(retire_all(&second), 0);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(second))).is_err());
        exactly(2);
    });
}

#[test]
fn held_back_reclamation_comes_later() {
    each_flavour(|make| {
        let (domain, drops) = (make().with_bag_limit(1), AtomicUsize::new(0));
        let reader = domain.reader();
        let retire = || (0..20).for_each(|_| retire_new(&reader.enter(), &drops));
        reader.enter().hold_back(|| {
            reader.enter().hold_back(retire);
            retire();
            assert_eq!(drops.load(Ordering::Relaxed), 0, "reclaimed although it was held back");
        });
        retire();
        assert!(drops.load(Ordering::Relaxed) >= 40, "reclamation did not go on");
        drop(domain);
        assert_eq!(drops.load(Ordering::Relaxed), 60);
    });
}

/// Holding back ends with the closure, however that ends; for this thread, and for the next one with its slot.
#[test]
fn holding_back_does_not_outlive_its_panic() {
    each_flavour(|make| {
        let (domain, drops) = (make().with_bag_limit(1), AtomicUsize::new(0));
        let retire = || (0..20).for_each(|_| retire_new(&domain.pin(), &drops));
        for round in 1..=2 {
            thread::scope(|scope| {
                let held_back = scope.spawn(|| {
                    domain.pin().hold_back(|| {
                        retire();
                        panic!("planted");
                    })
                });
                assert!(held_back.join().is_err());
            });
            thread::scope(|scope| {
                scope.spawn(retire);
            });
            retire();
            let left = 60 * round - drops.load(Ordering::Relaxed);
            assert!(left <= 20, "{left} objects wait for a thread that is gone");
        }
    });
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
                // And up again, across whatever boundary there is.
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

/// Claims for quiescent readers take the same time beside ten thousand others.
#[test]
fn a_quiescent_reader_costs_the_same_beside_many() {
    let domain = Domain::with_flavour(Flavour::Epoch);
    let mut readers = Vec::new();
    let mut make_some = || {
        // One that is free lies behind all those that are not.
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

/// Sizes are told, summed and forgotten, and large objects don't wait for a bag of many.
#[test]
fn bytes_are_counted_and_fill_bags() {
    each_flavour(|domain| {
        let (drops, domain) = (AtomicUsize::new(0), domain().with_bag_bytes(1_000));
        let retire = |guard: &Guard<'_>, bytes| {
            let object = Tracked::boxed(&drops);
            // SAFETY: never linked anywhere; `drops` outlives the domain.
            unsafe { guard.retire_box_sized(object, bytes) }
        };
        let guard = domain.pin();
        (0..10).for_each(|_| retire(&guard, 99));
        assert_eq!((domain.stats().pending_bytes, domain.sealed_bytes()), (990, 0));
        retire(&guard, 10);
        assert_eq!((domain.stats().pending_bytes, domain.sealed_bytes()), (1_000, 1_000));
        retire_new(&guard, &drops);
        assert_eq!(domain.stats().pending_bytes, 1_000 + size_of::<Tracked<'_>>());
        assert!(!domain.may_wait());
        drop(guard);
        assert!(domain.may_wait());
        for _ in 0..scaled(1_000, 40) {
            retire(&domain.pin(), 600);
            assert!(domain.stats().pending_bytes <= 7 * 1_200, "{:?}", domain.stats());
        }
        domain.collect();
        let stats = domain.stats();
        assert_eq!((stats.pending, stats.pending_bytes, domain.sealed_bytes()), (0, 0, 0));
    });
}

#[test]
fn reclaim_functions_may_retire() {
    const LINKS: usize = scaled(100, 8);
    /// A chain: reclaiming one link retires the next.
    struct Link<'c> {
        domain: *const Domain,
        left: usize,
        drops: &'c AtomicUsize,
    }
    unsafe fn next(link: *mut (), _: *mut ()) {
        // SAFETY: made by `Box::into_raw` below, retired once.
        let mut link = unsafe { Box::from_raw(link.cast::<Link<'_>>()) };
        link.drops.fetch_add(1, Ordering::Relaxed);
        if link.left > 0 {
            link.left -= 1;
            // SAFETY: the test collects until the chain ends, before it drops the domain.
            let domain = unsafe { &*link.domain };
            // SAFETY: never linked anywhere; `next` frees it.
            unsafe { domain.pin().retire(Box::into_raw(link).cast(), core::ptr::null_mut(), next) };
            domain.collect();
        }
    }
    each_flavour(|domain| {
        let (drops, domain) = (AtomicUsize::new(0), domain().with_bag_limit(1));
        let first = Box::into_raw(Box::new(Link { domain: &domain, left: LINKS, drops: &drops }));
        // SAFETY: as in `next`.
        unsafe { domain.pin().retire(first.cast(), core::ptr::null_mut(), next) };
        while domain.stats().pending > 0 {
            domain.collect();
        }
        assert_eq!(drops.load(Ordering::Relaxed), LINKS + 1);
    });
}

#[test]
fn many_short_domains() {
    let drops = AtomicUsize::new(0);
    let domains = scaled(10_000, 12);
    for number in 0..domains {
        let mut domain = Domain::new();
        if number % 2 == 0 {
            retire_new(&domain.pin(), &drops);
        }
        if number % 4 == 0 {
            domain.drain_all();
            assert_eq!(domain.stats().pending, 0);
        }
    }
    assert_eq!(drops.load(Ordering::Relaxed), domains / 2);
    assert!(size_of::<Domain>() <= 512, "{}", size_of::<Domain>());
}

/// A guard that a thread-local keeps is ended with its thread, however early the thread-local was registered.
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
        // The thread-local is registered before the slot, so its destructor would run after one of the slot's.
        thread::spawn(move || LATE.with(|late| *late.borrow_mut() = Some(shared.pin()))).join().unwrap();
        assert_eq!(shared.stats().active_readers, 0);
    }
    // SAFETY: the threads have ended.
    drop(unsafe { Box::from_raw(domain) });
}

/// A reader that is kept past the end of the thread's slot must not disturb the slot's next owner.
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
            // They take the smallest free slots: one of them that which the late thread gave back.
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
    // So that the slot's last moment is settled before the test's.
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

/// Begun in one thread, used in a second, renewed and ended in a third; records go from one to the next.
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

/// What has no holder holds nothing back; it goes on only if nothing can have been reclaimed meanwhile.
#[test]
fn what_is_held_is_let_go_of_and_goes_on() {
    each_flavour(|make| {
        let domain = make().with_bag_limit(1);
        let drops = AtomicUsize::new(0);
        let readers = || domain.stats().active_readers;
        let held = domain.pin_owned().keep(7);
        let (keeper, other) = (Held::keeper(&held), held.clone());
        assert_eq!((readers(), domain.may_wait(), *held, *other), (1, false, 7, 7));
        drop(held);
        assert_eq!((readers(), domain.may_wait()), (1, false));
        drop(other);
        assert_eq!((readers(), domain.may_wait()), (0, true));
        for _ in 0..3 {
            let held = keeper.hold();
            assert!(held.is_some() && readers() == 1, "no time has passed");
            let another = keeper.hold();
            drop(held);
            assert!(another.is_some() && readers() == 1);
        }
        // Retired while there is no holder: it protects again, unless the epoch has moved.
        let object = Tracked::boxed(&drops);
        // SAFETY: unlinked from the start, for guards that begin later; `drops` outlives the domain.
        unsafe { domain.pin().retire_box(object) };
        if let Some(_held) = keeper.hold() {
            (0..4).for_each(|_| domain.collect());
            // SAFETY: the section has gone on, and is older than the retirement.
            unsafe { &*object }.check();
        }
        (0..4).for_each(|_| domain.collect());
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        for _ in 0..3 {
            assert!(keeper.hold().is_none() && readers() == 0, "it may not go on, however often it is asked");
        }
        let (guard, what) = keeper.into_parts().expect("there is no holder");
        assert_eq!((readers(), what), (1, 7));
        let held = guard.keep(8);
        let keeper = Held::keeper(&held);
        thread::scope(|s| _ = s.spawn(|| drop(held)));
        assert!(readers() == 0 && keeper.hold().is_some_and(|held| *held == 8));
        drop(keeper);
        assert_eq!(readers(), 0);
    });
}

/// Whoever ends last frees it, once; and there is one keeper.
#[test]
fn what_is_held_ends_with_the_last() {
    each_flavour(|make| {
        let domain = make();
        let (drops, readers) = (AtomicUsize::new(0), || domain.stats().active_readers);
        let boxed = || Tracked::boxed(&drops);
        // SAFETY: from a box, once.
        let held = || domain.pin_owned().keep(unsafe { Box::from_raw(boxed()) });
        let ended = || drops.swap(0, Ordering::Relaxed);
        drop(held());
        assert_eq!((ended(), readers()), (1, 0));
        let (first, keeper) = {
            let held = held();
            let keeper = Held::keeper(&held);
            (held, keeper)
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Held::keeper(&first))).is_err());
        drop(keeper);
        assert_eq!((ended(), readers()), (0, 1));
        let second = first.clone();
        drop(first);
        second.check();
        drop(second);
        assert_eq!((ended(), readers()), (1, 0));
        let held = held();
        let keeper = Held::keeper(&held);
        assert!(keeper.into_parts().is_none());
        assert_eq!((ended(), readers()), (0, 1));
        drop(held);
        assert_eq!((ended(), readers()), (1, 0));
    });
}

/// Holders that come and go in several threads beside the keeper: the section lasts while there is one, and no longer.
#[test]
fn holders_come_and_go_together() {
    each_flavour(|make| {
        let domain = make().with_bag_limit(1);
        let drops = AtomicUsize::new(0);
        let object = AtomicPtr::new(Tracked::boxed(&drops));
        let rounds = scaled(300, 3);
        for _ in 0..rounds {
            let guard = domain.pin_owned();
            // SAFETY: looked at only while there is a holder.
            let held = guard.keep(unsafe { &*object.load(Ordering::Acquire) });
            let keeper = Held::keeper(&held);
            let look = |held: &Held<'_, &Tracked<'_>>| held.check();
            let work = || {
                for turn in 0..scaled(20, 2) {
                    let Some(held) = keeper.hold() else { return };
                    look(&held);
                    let again = (turn % 2 == 0).then(|| held.clone());
                    drop(held);
                    again.iter().for_each(look);
                }
            };
            thread::scope(|s| {
                s.spawn(work);
                s.spawn(work);
                s.spawn(|| drop(held));
                let old = object.swap(Tracked::boxed(&drops), Ordering::AcqRel);
                // SAFETY: unlinked just now, once; `drops` outlives the domain.
                unsafe { domain.pin().retire_box(old) };
                domain.collect();
            });
            assert_eq!(domain.stats().active_readers, 0);
        }
        (0..4).for_each(|_| domain.collect());
        assert_eq!(drops.load(Ordering::Relaxed), rounds);
        // SAFETY: the last one, linked nowhere else.
        drop(unsafe { Box::from_raw(object.into_inner()) });
    });
}

/// The thread that looks after domains at rest is the whole process's: an owner that panics in it is its own affair.
#[test]
fn an_owner_that_panics_ends_nothing_for_others() {
    static LOOKED: AtomicUsize = AtomicUsize::new(0);
    struct Panics(Domain);
    impl Owner for Panics {
        fn domain(&self) -> &Domain {
            LOOKED.fetch_add(1, Ordering::Relaxed);
            panic!("in the thread that looks after domains at rest");
        }
    }
    let drops = AtomicUsize::new(0);
    let until = |what: &dyn Fn() -> bool| {
        watchdog(Duration::from_secs(30), |_| {
            while !what() {
                thread::yield_now();
            }
        })
    };
    let (first, second) = (Domain::new(), Domain::new());
    let panics = Arc::new_cyclic(|this: &Weak<Panics>| Panics(first.tended_by(this.clone())));
    let rests = Arc::new_cyclic(|this: &Weak<Domain>| second.tended_by(this.clone()));
    retire_new(&panics.0.pin(), &drops);
    until(&|| LOOKED.load(Ordering::Relaxed) > 0);
    retire_new(&rests.pin(), &drops);
    until(&|| drops.load(Ordering::Relaxed) > 0);
    panics.0.stop_tending();
    rests.stop_tending();
}
