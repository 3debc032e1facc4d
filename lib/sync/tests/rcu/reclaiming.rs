//! Every retired object is reclaimed once, and soon, whatever threads and reclaim functions do.

use super::*;

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
        // This thread got its slot before the other thread ended, or gets it now. In either case it continues to retire
        // objects.
        for _ in 0..4 * 40 {
            retire_new(&domain.pin(), &living);
        }
        assert_eq!(dead.load(Ordering::Relaxed), 3);
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
        // The backlog grows by bags of 8 objects. It is reported above the limit of 64 (at 72 objects), and then above
        // twice each reported number: above 144 (at 152) and above 304 (at 312).
        assert_eq!(reports.load(Ordering::Relaxed), 3 * round);
        drop(stuck);
        domain.collect();
        assert_eq!(drops.load(Ordering::Relaxed), 64 * 8 * round);
    }
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

/// Holding back ends with the closure, even if the closure panics. It ends for this thread, and for the next thread
/// with the same slot.
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

/// The sizes given for retired objects are added to the statistics and subtracted again. A bag is closed early if its
/// objects are large.
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
    /// A chain in which reclaiming one link retires the next.
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

/// One thread of the process collects idle domains for all their owners ([`Owner`]). An owner's panic in this thread
/// does not affect other owners.
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
