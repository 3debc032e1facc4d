//! Sessions, iterators and guards by the ten thousand: kept, forgotten, in thread-locals, in threads that come and go.
//! Bounds are in bytes of heap, counted by the allocator, and in ratios within one run.

mod common;

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_index::{Art, HydraList};
use archipelago_platform::sync::Barrier;
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use common::sized;
use core::alloc::{GlobalAlloc, Layout};
use core::mem;
use core::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::alloc::System;
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Counting;

static HEAP: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator, with a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP.fetch_add(layout.size() as isize, Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HEAP.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The tests of this file look at the whole process's heap and at the time things take: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By how many bytes the heap grows during `work`.
fn growth(work: impl FnOnce()) -> isize {
    let before = HEAP.load(Relaxed);
    work();
    HEAP.load(Relaxed) - before
}

fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// The least time of several tries, so that a preemption in one of them counts for nothing.
fn least_time(mut work: impl FnMut()) -> Duration {
    let mut time = || {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..9).map(|_| time()).min().expect("several tries")
}

const ALIVE: usize = sized(50_000, 50);

/// Making a session costs the same beside 50,000 that are alive, and after as many were forgotten.
#[test]
fn a_session_costs_the_same_beside_fifty_thousand() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        let (list, art): (HydraList<u64, u64>, Art<u64, u64>) = (HydraList::new(), Art::new());
        let pins = || {
            for key in 0..500 {
                list.pin().get(&key);
                art.pin().get(&key);
            }
        };
        let iterators = || {
            for key in 0..50 {
                assert!(list.pin().range(key..).next().is_none() && art.pin().range(key..).next().is_none());
            }
        };
        let first = (list.pin(), art.pin());
        (pins(), iterators());
        let (pin_alone, iterator_alone) = (least_time(pins), least_time(iterators));
        let grown = growth(|| {
            let mut alive = Vec::with_capacity(2 * ALIVE);
            let mut make_some = || alive.extend((0..ALIVE / 100).map(|_| (list.pin(), art.pin())));
            let first_made = least_time(&mut make_some);
            (0..90).for_each(|_| make_some());
            let last_made = least_time(make_some);
            let iterator_beside = least_time(iterators);
            if !cfg!(miri) {
                assert!(last_made < first_made * 10, "{last_made:?} beside others, {first_made:?} alone");
                assert!(iterator_beside < iterator_alone * 10, "{iterator_beside:?}, {iterator_alone:?} alone");
            }
            alive.iter().for_each(|(list, art)| assert!(list.get(&1).is_none() && art.get(&1).is_none()));
            alive.into_iter().for_each(mem::forget);
        });
        drop(first);
        assert!(grown < 64 << 10, "{grown} bytes are left of {ALIVE} forgotten sessions of each map");
        let pin_after = least_time(pins);
        assert!(cfg!(miri) || pin_after < pin_alone * 10, "{pin_after:?} after forgotten ones, {pin_alone:?} before");
        // Nor do they hold up reclamation.
        let counter = DropCounter::new();
        let values: HydraList<u64, Counted> = HydraList::new();
        mem::forget(values.pin());
        (0..100).for_each(|n| drop(values.pin().insert(1, counter.value(n))));
        values.sync();
        drop(values);
        counter.assert_all_dropped();
    });
}

/// Of iterators and the guards in them.
#[test]
fn more_iterators_than_sixteen_bits_count() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        let counter = DropCounter::new();
        let art: Art<u64, Counted> = (0..4).map(|key| (key, counter.value(key))).collect();
        let session = art.pin();
        let many = sized(70_000, 40);
        let mut iterators: Vec<_> = (0..many).map(|_| session.range(1..)).collect();
        drop(session.remove(&2));
        assert!(iterators.iter_mut().all(|all| all.next().is_some_and(|(key, _)| key == 1)));
        // Not in the order they were made in.
        while iterators.len() > 2 {
            iterators.swap_remove(iterators.len() / 3);
        }
        assert_eq!(iterators[1].next().map(|(key, _)| key), Some(3));
        drop(iterators);
        drop(session);
        drop(art);
        counter.assert_all_dropped();
        let list: HydraList<u64, u64> = (0..4).map(|key| (key, key)).collect();
        let mut iterators: Vec<_> = (0..many).map(|_| list.pin().range(1..)).collect();
        assert!(iterators.iter_mut().all(|all| all.next() == Some((1, 1))));
    });
}

/// Threads that come and go; each forgets a session and an iterator of every map.
#[test]
fn what_ended_threads_forgot_costs_nothing_for_good() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        let list: HydraList<u64, u64> = HydraList::new();
        let art: Art<u64, u64> = Art::new();
        let come_and_go = |threads: u64| {
            for n in 0..threads {
                thread::scope(|s| {
                    s.spawn(|| {
                        let (list, art) = (list.pin(), art.pin());
                        list.insert(n, n);
                        art.insert(&n, n);
                        list.remove(&n);
                        art.remove(&n);
                        mem::forget(list.iter());
                        mem::forget((list, art));
                    });
                });
            }
        };
        come_and_go(20);
        let grown = growth(|| come_and_go(sized(2_000, 10) as u64));
        assert!(grown < 256 << 10, "{grown} bytes");
        list.check_invariants();
        art.check_invariants();
    });
}

/// Sessions kept in thread-locals, whose destructors run when the thread has given back nearly everything it had: they
/// work beside the threads that came after theirs, and every entry is counted.
#[test]
fn sessions_in_thread_locals_count_right() {
    const EACH: u64 = sized(40_000, 20) as u64;
    type Kept = (&'static Barrier, archipelago_index::hydra::Session<'static, u64, u64>, u64);
    struct Late(Option<Kept>);

    fn work(session: &archipelago_index::hydra::Session<'_, u64, u64>, base: u64) {
        for key in base..base + EACH {
            session.insert(key, key);
            if key % 2 == 0 {
                session.remove(&key);
            }
        }
    }

    impl Drop for Late {
        fn drop(&mut self) {
            let Some((start, session, base)) = self.0.take() else { return };
            start.wait();
            work(&session, base);
        }
    }

    thread::thread_local! {
        static LATE: RefCell<Late> = const { RefCell::new(Late(None)) };
    }
    let _alone = alone();
    watchdog(USUAL, |_| {
        for _ in 0..sized(10, 2) {
            let map: &'static HydraList<u64, u64> = leaked(HydraList::new());
            let start: &'static Barrier = leaked(Barrier::new(2));
            let late = thread::spawn(move || {
                LATE.with(|late| late.borrow_mut().0 = Some((start, map.pin(), 0)));
            });
            let next = thread::spawn(move || {
                // If the other's slot is free by now, this thread gets it.
                thread::sleep(Duration::from_millis(2));
                let session = map.pin();
                start.wait();
                work(&session, EACH);
            });
            late.join().unwrap();
            next.join().unwrap();
            assert_eq!(map.len() as u64, EACH);
            map.check_invariants();
        }
    });
}

/// An iterator holds a guard; one that a thread-local drops last of all ends it all the same.
#[test]
fn iterators_in_thread_locals_let_go() {
    thread::thread_local! {
        static LATE: RefCell<Option<archipelago_index::art::Range<'static, u64, Counted>>> = const { RefCell::new(None) };
    }
    let _alone = alone();
    watchdog(USUAL, |_| {
        let counter = DropCounter::new();
        let art: &'static Art<u64, Counted> = leaked((0..9).map(|key| (key, counter.value(key))).collect());
        let late = move || LATE.with(|late| *late.borrow_mut() = Some(art.pin().iter()));
        thread::spawn(late).join().unwrap();
        let replaced = 5_000;
        for n in 0..replaced {
            drop(art.pin().insert(&(n % 9), counter.value(n)));
        }
        assert!(counter.alive() < 2_000, "{} values wait for a reader that is gone", counter.alive());
    });
}

/// What the caller makes for a map may take its time: nothing waits for it to be reclaimed.
#[test]
fn no_guard_is_held_while_a_value_is_made() {
    let _alone = alone();
    fn reclaims_meanwhile(replace: impl Fn(u64, Counted) + Sync, insert_with: impl FnOnce(&dyn Fn() -> Counted)) {
        let counter = DropCounter::new();
        insert_with(&|| {
            thread::scope(|s| {
                let other = s.spawn(|| {
                    (0..5_000).for_each(|n| replace(n % 9, counter.value(n)));
                });
                other.join().unwrap();
            });
            assert!(counter.alive() < 2_000, "{} values wait for `make` to return", counter.alive());
            counter.value(100)
        });
    }
    watchdog(USUAL, |_| {
        let list: HydraList<u64, Counted> = HydraList::new();
        let replace = |key, value| drop(list.pin().insert(key, value));
        reclaims_meanwhile(replace, |make| drop(list.pin().get_or_insert_with(100, make)));
        let art: Art<u64, Counted> = Art::new();
        let replace = |key, value| drop(art.pin().insert(&key, value));
        reclaims_meanwhile(replace, |make| drop(art.pin().get_or_insert_with(&100, make)));
    });
}
