//! Tens of thousands of sessions, iterators and guards: kept, forgotten, in thread-locals, in threads that start and
//! end. The tests bound the bytes that the allocator counts, and ratios of times that are measured in the same run.
#![allow(
    clippy::drop_non_drop,
    clippy::forget_non_drop,
    reason = "whether a session has a destructor is not for tests to know"
)]

mod common;

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::hostile::{Counting, alone};
#[cfg(target_os = "linux")]
use archipelago_check::late::at_the_very_end;
use archipelago_check::watchdog::{USUAL, watchdog};
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::map::Stats;
use archipelago_index::{Art, HydraList, OnBacklog, Refused};
use archipelago_platform::sync::Barrier;
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use archipelago_tested as _;
use common::quiet::{soon, soon_shows};
use common::sized;
use core::mem;
use core::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::cell::RefCell;

#[global_allocator]
static HEAP: Counting = Counting::new();

fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Returns the minimum time of several tries, so that a preemption in one of them has no effect.
fn least_time(mut work: impl FnMut()) -> Duration {
    let mut time = || {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..9).map(|_| time()).min().expect("several tries")
}

const ALIVE: usize = sized(50_000, 50);

/// Making a session costs about the same (less than ten times as much) beside 50,000 living sessions, and after as many
/// sessions were forgotten.
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
        pins();
        iterators();
        let (pin_alone, iterator_alone) = (least_time(pins), least_time(iterators));
        let grown = HEAP.growth(|| {
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
        // The forgotten sessions do not delay reclamation, either.
        let counter = DropCounter::new();
        let values: HydraList<u64, Counted> = HydraList::new();
        mem::forget(values.pin());
        (0..100).for_each(|n| drop(values.pin().insert(1, counter.value(n))));
        values.sync();
        drop(values);
        counter.assert_all_dropped();
    });
}

/// More iterators exist at the same time than 16 bits can count. They are used, and dropped in another order than they
/// were made.
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

/// Threads start and end. Each forgets a session and an iterator of every map.
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
                        art.insert(n, n);
                        list.remove(&n);
                        art.remove(&n);
                        mem::forget(list.iter());
                        mem::forget((list, art));
                    });
                });
            }
        };
        come_and_go(20);
        let grown = HEAP.growth(|| come_and_go(sized(2_000, 10) as u64));
        assert!(grown < 256 << 10, "{grown} bytes");
        list.check_invariants();
        art.check_invariants();
    });
}

/// Sessions are kept in thread-locals, whose destructors run when the thread has released nearly all of its state. (A
/// thread has a slot, a number that a new thread gets when this thread has ended.) Another thread may have the slot
/// already while the destructors work, and still every entry is counted.
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
                // If the other thread's slot is free by now, this thread gets it.
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

/// A destructor runs later than the destructors of all thread-locals. When it runs, its thread has given back its slot,
/// and another thread may have this slot.
#[cfg(target_os = "linux")]
#[test]
fn a_session_kept_to_the_very_end_counts_right() {
    const EACH: u64 = sized(40_000, 20) as u64;
    fn work(session: &archipelago_index::hydra::Session<'_, u64, u64>, base: u64) {
        (base..base + EACH).for_each(|key| assert!(session.insert(key, key).is_none()));
        (base..base + EACH).step_by(2).for_each(|key| assert!(session.remove(&key).is_some()));
    }
    let _alone = alone();
    watchdog(USUAL, |_| {
        for _ in 0..sized(5, 1) {
            let map: &'static HydraList<u64, u64> = leaked(HydraList::new());
            let threads = 5;
            let beside_the_next_owner = move |session: &archipelago_index::hydra::Session<'_, u64, u64>| {
                let started = Barrier::new(threads);
                thread::scope(|s| {
                    for n in 1..threads as u64 {
                        let started = &started;
                        s.spawn(move || {
                            let session = map.pin();
                            started.wait();
                            work(&session, n * EACH);
                        });
                    }
                    started.wait();
                    work(session, 0);
                });
            };
            thread::slot();
            let late = thread::spawn(move || {
                let session = map.pin();
                at_the_very_end(Box::new(move || beside_the_next_owner(&session)))
            });
            if late.join().unwrap() {
                assert_eq!(map.len() as u64, threads as u64 * EACH / 2);
                map.check_invariants();
            }
        }
    });
}

/// Waits until most of 5,000 replaced values are freed. While any guard of the map is held, no value is freed.
#[track_caller]
fn most_are_freed(counter: DropCounter, otherwise: &str) {
    soon(|| match counter.alive() {
        ..2_000 => Ok(()),
        alive => Err(format!("{alive} values wait for {otherwise}")),
    });
}

/// An iterator in a thread-local, which is dropped when the thread ends, delays no reclamation afterwards.
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
            drop(art.pin().insert(n % 9, counter.value(n)));
        }
        most_are_freed(counter, "a reader that is gone");
    });
}

/// The caller may take a long time to make a value for a map. Reclamation does not wait for the caller.
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
            most_are_freed(counter, "`make` to return");
            counter.value(100)
        });
    }
    watchdog(USUAL, |_| {
        let list: HydraList<u64, Counted> = HydraList::new();
        let replace = |key, value| drop(list.pin().insert(key, value));
        reclaims_meanwhile(replace, |make| drop(list.pin().get_or_insert_with(100, make)));
        let art: Art<u64, Counted> = Art::new();
        let replace = |key, value| drop(art.pin().insert(key, value));
        reclaims_meanwhile(replace, |make| drop(art.pin().get_or_insert_with(100, make)));
    });
}

/// A reader does not end while another thread overwrites values of a kilobyte. `stats` and `bytes` show the memory that
/// waits for the reader.
#[test]
fn what_a_stuck_reader_holds_up_is_shown() {
    let _alone = alone();
    type Kilobyte = [u8; 1_000];
    let rounds = sized(3_000, 40);
    let shown = |garbage: archipelago_index::Garbage| {
        assert!(garbage.objects >= rounds && garbage.bytes >= rounds * 1_000, "{garbage:?}");
        assert!(garbage.readers >= 1 && (garbage.refused > 0 || cfg!(miri)), "{garbage:?}");
    };
    // The thread for idle maps may be another reader for a moment.
    let one_reads = |stats: &Stats| stats.garbage.readers == 1;
    watchdog(USUAL, |_| {
        let list: HydraList<u64, Kilobyte> = (0..9).map(|key| (key, [0; 1_000])).collect();
        let before = list.bytes();
        assert!(before >= 9_000 && list.stats().entries == 9 && list.stats().pages == 1);
        let session = list.pin();
        session.get_with(&1, |_| {
            let grown = HEAP.growth(|| (0..rounds as u64).for_each(|n| assert!(session.upsert(&(n % 9), [1; 1_000]))));
            shown(list.stats().garbage);
            soon_shows(&list, one_reads);
            let said = list.bytes() - before;
            assert!((said as isize - grown).abs() <= grown / 4, "{said} bytes said, {grown} taken");
        });
        list.sync();
        soon_shows(&list, |stats| stats.garbage.bytes == 0 && stats.bytes <= before);

        let art: Art<u64, Kilobyte> = (0..9).map(|key| (key, [0; 1_000])).collect();
        let session = art.pin();
        session.get_with(&1, |_| {
            (0..rounds as u64).for_each(|n| assert!(session.insert(n % 9, [1; 1_000]).is_some()));
            shown(art.stats().garbage);
            soon_shows(&art, one_reads);
        });
        assert_eq!(art.stats().entries, 9);
    });
}

/// A reader does not end while a writer changes a map with a limit. The heap grows by at most one and a half times the
/// limit, and the writer continues when the reader has ended.
fn bounded<S>(
    limit: usize,
    read: impl FnOnce(&dyn Fn()) + Send,
    session: impl Fn() -> S + Sync,
    write: impl Fn(&S, u64) -> Result<(), Refused> + Sync,
    waits: bool,
) {
    const WRITES: u64 = sized(40_000, 200) as u64;
    let (reading, written) = (Barrier::new(2), AtomicIsize::new(0));
    let (refused, left) = (AtomicIsize::new(0), AtomicIsize::new(0));
    let before = HEAP.bytes();
    thread::scope(|s| {
        s.spawn(|| {
            read(&|| {
                reading.wait();
                // Waits until nothing is written any more, and the writer is near the limit or has been refused. So a
                // writer that is only preempted, far from the limit, does not count as stopped. If nothing stops the
                // writer, the loop ends after the writer's last write.
                let grown = || HEAP.bytes().saturating_sub(before);
                let is_near = || if waits { grown() > limit / 2 } else { refused.load(Relaxed) > 0 };
                let mut last = -1;
                while last < WRITES as isize && (last != written.load(Relaxed) || !is_near()) {
                    last = written.load(Relaxed);
                    thread::sleep(Duration::from_millis(100));
                }
                let grown = grown();
                assert!(grown <= limit * 3 / 2, "{grown} bytes, {limit} allowed");
                assert!(last < WRITES as isize, "nothing stopped the writer");
                left.store(1, Relaxed);
            });
        });
        reading.wait();
        let session = session();
        for n in 0..WRITES {
            while write(&session, n).is_err() {
                refused.fetch_add(1, Relaxed);
                thread::yield_now();
            }
            written.fetch_add(1, Relaxed);
        }
        assert_eq!(left.load(Relaxed), 1, "done before the reader was");
    });
    assert_eq!(refused.load(Relaxed) == 0, waits);
}

#[test]
fn a_backlog_limit_holds_and_lets_go() {
    type Kilobyte = [u8; 1_000];
    const LIMIT: usize = sized(8 << 20, 64 << 10);
    let _alone = alone();
    watchdog(USUAL, |_| {
        for then in [OnBacklog::Wait, OnBacklog::Proceed] {
            let waits = then == OnBacklog::Wait;
            let list = HydraList::<u64, Kilobyte>::builder().backlog_limit(LIMIT, then).build();
            list.pin().insert(1, [0; 1_000]);
            let read = |stay: &dyn Fn()| assert!(list.pin().get_with(&1, |_| stay()).is_some());
            let write = |session: &archipelago_index::hydra::Session<'_, u64, Kilobyte>, n: u64| match n % 4 {
                _ if waits => {
                    session.insert(n % 9, [1; 1_000]);
                    Ok(())
                }
                0 => session.try_remove(&(n % 9)).map(|_| ()),
                1 => session.try_replace(&(n % 9), [2; 1_000]).map_or(Err(Refused::Backlogged(())), |_| Ok(())),
                _ => session.try_insert(n % 9, [3; 1_000]).map_or(Err(Refused::Backlogged(())), |_| Ok(())),
            };
            bounded(LIMIT, read, || list.pin(), write, waits);
            list.check_invariants();

            let art = Art::<u64, Kilobyte>::builder().backlog_limit(LIMIT, then).build();
            art.pin().insert(1, [0; 1_000]);
            let read = |stay: &dyn Fn()| assert!(art.pin().get_with(&1, |_| stay()).is_some());
            let write = |session: &archipelago_index::art::ArtSession<'_, u64, Kilobyte>, n: u64| match n % 4 {
                _ if waits => {
                    session.insert(n % 9, [1; 1_000]);
                    Ok(())
                }
                0 => session.try_remove(&(n % 9)).map(|_| ()),
                1 => session.try_replace(&(n % 9), [2; 1_000]).map_or(Err(Refused::Backlogged(())), |_| Ok(())),
                _ => session.try_insert(n % 9, [3; 1_000]).map_or(Err(Refused::Backlogged(())), |_| Ok(())),
            };
            bounded(LIMIT, read, || art.pin(), write, waits);
            art.check_invariants();
        }
    });
}

/// A thread that reads the map would wait for itself if it waited at the backlog limit. So it does not wait.
#[test]
fn a_reader_that_writes_does_not_wait_for_itself() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        let list = HydraList::<u64, String>::builder().backlog_limit(100, OnBacklog::Wait).build();
        let session = list.pin();
        session.insert(1, "one".into());
        session.get_with(&1, |_| (0..1_000).for_each(|n| assert!(session.upsert(&1, n.to_string()))));
        session.update(&1, |old| {
            session.insert(2, "two".into());
            old.clone()
        });
        // The thread for idle maps may be reading just now, so garbage waits for it.
        soon(|| session.try_insert(1, "again".into()).map_err(|refused| format!("{refused:?}")));
        let art = Art::<u64, String>::builder().backlog_limit(100, OnBacklog::Wait).build();
        let session = art.pin();
        session.insert(1, "one".into());
        for _ in session.iter() {
            (0..1_000).for_each(|n| assert!(session.insert(1, n.to_string()).is_some()));
        }
        soon(|| session.try_insert(1, "again".into()).map_err(|refused| format!("{refused:?}")));
    });
}
