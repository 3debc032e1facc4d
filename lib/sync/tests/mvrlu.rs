//! MV-RLU natively: snapshots are consistent, commits are seen, and nothing leaks, whatever readers, panics and threads
//! do.
#![cfg(not(loom))]
// `Ok(*tx.lock(link)? = value)` expresses in one line what would otherwise take three.
#![allow(clippy::unit_arg)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use archipelago_platform::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use archipelago_platform::sync::Barrier;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_sync::mvrlu::{
    Abort, Builder, ClockKind, Collection, Domain, Full, Handle, Link, Stats, Tuning, Versioned,
};

const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

/// Collects at every opportunity.
fn eager() -> Builder {
    Domain::builder().tuning(Tuning { low_watermark: 1, dereference_watermark: 8, concurrent: true })
}

fn each_kind(test: impl Fn(Domain)) {
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        for builder in [Domain::builder(), eager(), eager().collection(Collection::Background)] {
            test(builder.clock(clock).build());
        }
    }
}

/// Retires objects, so that the test does not leak them.
fn retire_all<T: Versioned>(domain: &Domain, links: &[Link<T>]) {
    let mut handle = domain.register();
    // SAFETY: the links are not used any more.
    handle.update(|tx| links.iter().try_for_each(|link| unsafe { tx.retire(*link) })).unwrap();
    collect_until(domain, &mut handle, |stats| stats.versions == 0);
}

/// Collects until `enough` accepts the domain's statistics.
fn collect_until(domain: &Domain, handle: &mut Handle, enough: impl Fn(&Stats) -> bool) {
    // More than one attempt is needed only if the domain's own thread is working, too, and has lost its processor in a
    // section.
    let mut looks = 0;
    while !enough(&domain.stats()) {
        looks += 1;
        assert!(looks < 1_000, "{:?}", domain.stats());
        if looks < 100 {
            thread::yield_now()
        } else {
            thread::sleep(Duration::from_millis(1))
        }
        handle.collect();
    }
}

fn read<T: Versioned>(handle: &mut Handle, link: Link<T>) -> T {
    *handle.read().get(link)
}

#[test]
fn a_commit_is_seen_by_all_later_sections_and_by_no_earlier_one() {
    each_kind(|domain| {
        let (link, mut writer, mut reader) = (domain.alloc(0_u64), domain.register(), domain.register());
        for value in 1..=scaled(500, 20) as u64 {
            let before = reader.read();
            assert_eq!(*before.get(link), value - 1);
            writer.update(|tx| Ok(*tx.lock(link)? = value)).unwrap();
            assert_eq!(*before.get(link), value - 1);
            assert_eq!(read(&mut writer, link), value, "own commit");
            drop(before);
            assert_eq!(read(&mut reader, link), value);
        }
        assert_eq!(writer.counts().aborts, 0);
        retire_all(&domain, &[link]);
    });
}

#[test]
fn a_transaction_sees_its_own_changes() {
    each_kind(|domain| {
        let (link, mut handle) = (domain.alloc(1_u64), domain.register());
        handle
            .update(|tx| {
                *tx.lock(link)? = 2;
                assert_eq!((*tx.get(link), *tx.snapshot(link)), (2, 1));
                *tx.lock(link)? += 1;
                tx.lock_const(link)?;
                assert_eq!(*tx.get(link), 3);
                Ok(())
            })
            .unwrap();
        assert_eq!(read(&mut handle, link), 3);
        retire_all(&domain, &[link]);
    });
}

#[test]
fn what_is_locked_or_newer_conflicts() {
    let domain = Domain::new();
    let (link, mut one, mut two) = (domain.alloc(0_u64), domain.register(), domain.register());
    let conflict = one.try_update(|tx| {
        tx.lock_const(link)?;
        assert_eq!(two.try_update(|tx| tx.lock(link).map(|_| ())), Err(Abort::Conflict));
        assert_eq!(two.try_update(|tx| tx.lock_const(link)), Err(Abort::Conflict));
        Ok(())
    });
    assert_eq!(conflict, Ok(()));
    let stale = one.try_update(|tx| {
        two.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
        tx.lock(link).map(|_| ())
    });
    assert_eq!(stale, Err(Abort::Conflict));
    assert_eq!((one.counts().commits, one.counts().aborts, two.counts().aborts), (1, 1, 2));
    retire_all(&domain, &[link]);
}

/// Each transaction writes the same number to eight objects. No thread may ever see two different numbers.
fn torn(domain: &Domain, writers: usize, readers: usize, rounds: usize) {
    let links: Vec<Link<u64>> = (0..8).map(|_| domain.alloc(0)).collect();
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let writing: Vec<_> = (0..writers)
            .map(|_| {
                scope.spawn(|| {
                    let mut handle = domain.register();
                    for _ in 0..rounds {
                        let value = next.fetch_add(1, Ordering::Relaxed) + 1;
                        handle.update(|tx| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? = value))).unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..readers {
            scope.spawn(|| {
                let mut handle = domain.register();
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = handle.read();
                    let first = *snapshot.get(links[0]);
                    assert!(links.iter().all(|link| *snapshot.get(*link) == first), "torn");
                    assert!(links.iter().rev().all(|link| *snapshot.get(*link) == first), "torn at a second look");
                }
            });
        }
        writing.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    retire_all(domain, &links);
}

#[test]
fn snapshots_are_never_torn() {
    each_kind(|domain| torn(&domain, 1, 1, scaled(8_000, 15)));
    each_kind(|domain| torn(&domain, 2, 2, scaled(2_000, 6)));
}

#[test]
fn more_threads_than_cores() {
    each_kind(|domain| torn(&domain, scaled(6, 2), scaled(6, 2), scaled(300, 3)));
}

/// Two accounts. Either may be overdrawn as long as their sum is not negative: the standard example of write skew.
fn skew(serializable: bool, constant: bool) -> i64 {
    let domain = Domain::new();
    let (a, b) = (domain.alloc(50_i64), domain.alloc(50_i64));
    let (mut one, mut two) = (domain.register(), domain.register());
    let withdraw = |tx: &mut archipelago_sync::mvrlu::Tx<'_>, from: Link<i64>, other: Link<i64>| {
        let both = *tx.get(from) + *tx.get(other);
        if constant {
            tx.lock_const(other)?;
        }
        if both >= 100 {
            *tx.lock(from)? -= 100;
        }
        Ok(())
    };
    // The second transaction runs as a whole inside the first one's first attempt.
    let mut first_attempt = true;
    let mut body = |tx: &mut archipelago_sync::mvrlu::Tx<'_>| {
        withdraw(tx, a, b)?;
        if core::mem::take(&mut first_attempt) {
            let inner = |tx: &mut archipelago_sync::mvrlu::Tx<'_>| withdraw(tx, b, a);
            // If `constant`, the first transaction has locked the object that it only read, so the second transaction
            // cannot commit now.
            if serializable {
                two.update_serializable_once(inner);
            } else {
                let _ = two.try_update(inner);
            }
        }
        Ok(())
    };
    if serializable { one.update_serializable(&mut body) } else { one.update(&mut body) }.unwrap();
    let sum = read(&mut one, a) + read(&mut one, b);
    retire_all(&domain, &[a, b]);
    sum
}

/// Makes one attempt, whatever its result.
trait Once {
    fn update_serializable_once(&mut self, body: impl FnMut(&mut archipelago_sync::mvrlu::Tx<'_>) -> Result<(), Abort>);
}

impl Once for Handle {
    fn update_serializable_once(
        &mut self,
        mut body: impl FnMut(&mut archipelago_sync::mvrlu::Tx<'_>) -> Result<(), Abort>,
    ) {
        let mut first = true;
        self.update_serializable(|tx| if core::mem::take(&mut first) { body(tx) } else { Ok(()) }).unwrap();
    }
}

#[test]
fn write_skew_happens_and_is_prevented() {
    assert_eq!(skew(false, false), -100, "snapshot isolation allows it");
    assert_eq!(skew(false, true), 0, "locked reads prevent it");
    assert_eq!(skew(true, false), 0, "checked reads prevent it");
}

#[test]
fn serializable_transactions_under_contention_never_overdraw() {
    each_kind(|domain| {
        let links = [domain.alloc(0_i64), domain.alloc(0_i64), domain.alloc(0_i64)];
        let rounds = scaled(2_000, 8);
        thread::scope(|scope| {
            for me in 0..3 {
                let (domain, links) = (&domain, &links);
                scope.spawn(move || {
                    let mut handle = domain.register();
                    for round in 0..rounds {
                        // Each thread sets its own object if all objects are 0, and otherwise clears its own. So two
                        // objects are never set at the same time.
                        handle
                            .update_serializable(|tx| {
                                let sum: i64 = links.iter().map(|link| *tx.get(*link)).sum();
                                if sum == 0 {
                                    *tx.lock(links[me])? = 1;
                                } else if *tx.get(links[me]) == 1 {
                                    *tx.lock(links[me])? = 0;
                                }
                                Ok(())
                            })
                            .unwrap();
                        let snapshot = handle.read();
                        let sum: i64 = links.iter().map(|link| *snapshot.get(*link)).sum();
                        assert!(sum <= 1, "round {round}: {sum}");
                    }
                });
            }
        });
        retire_all(&domain, &links);
    });
}

#[test]
fn aborts_undo_everything() {
    each_kind(|domain| {
        let (link, mut handle) = (domain.alloc(7_u64), domain.register());
        let mut attempt = |fail: &dyn Fn() -> Result<(), Abort>| {
            catch_unwind(AssertUnwindSafe(|| {
                handle.try_update(|tx| {
                    *tx.lock(link)? = 8;
                    // SAFETY: the link is not used.
                    unsafe { tx.alloc([0_u64; 100]) };
                    // SAFETY: the transaction aborts.
                    unsafe { tx.retire(link) }?;
                    fail()
                })
            }))
        };
        assert_eq!(attempt(&|| Err(Abort::Conflict)).unwrap(), Err(Abort::Conflict));
        assert!(attempt(&|| panic!("planted")).is_err());
        assert_eq!(handle.counts().aborts, 2);
        assert_eq!(read(&mut domain.register(), link), 7);
        domain.register().update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
        assert_eq!(read(&mut handle, link), 8);
        retire_all(&domain, &[link]);
    });
}

#[test]
fn a_stuck_reader_stops_no_writer_and_costs_one_version_per_object() {
    // All three domains are tested at the same time, because a writer whose versions wait for a reader mostly sleeps.
    thread::scope(|scope| {
        for collection in [Collection::Cooperative, Collection::Background] {
            let builder = Domain::builder().collection(collection);
            scope.spawn(move || written_beside_a_stuck_reader(builder.build(), collection));
        }
        scope.spawn(|| written_beside_a_stuck_reader(eager().build(), Collection::Cooperative));
    });
}

fn written_beside_a_stuck_reader(domain: Domain, collection: Collection) {
    let (objects, rounds) = (scaled(1_000, 4), scaled(200_000, 60));
    let links: Vec<Link<[u64; 3]>> = (0..objects).map(|number| domain.alloc([number as u64; 3])).collect();
    let (mut writer, mut stuck) = (domain.register(), domain.register());
    let change = |writer: &mut Handle, number: usize| {
        writer.update(|tx| Ok(tx.lock(links[number % objects])?[0] += 1)).unwrap();
    };
    (0..objects).for_each(|number| change(&mut writer, number * 7));
    let snapshot = stuck.read();
    let seen: Vec<u64> = links.iter().map(|link| snapshot.get(*link)[0]).collect();
    (0..rounds).for_each(|number| change(&mut writer, number * 7));
    writer.collect();
    if !cfg!(miri) {
        // For each object the version of the stuck reader and the newest version, and some versions that wait for the
        // next scan.
        let most = 2 * objects + objects / 2 + 4_096;
        let is_bounded = |stats: &Stats| stats.versions <= most;
        match collection {
            Collection::Background => collect_until(&domain, &mut writer, is_bounded),
            _ => assert!(is_bounded(&domain.stats()), "{:?} of {objects} objects", domain.stats()),
        }
    }
    let again: Vec<u64> = links.iter().map(|link| snapshot.get(*link)[0]).collect();
    assert_eq!(seen, again);
    drop(snapshot);
    assert_eq!(read(&mut stuck, links[0])[1], 0);
    retire_all(&domain, &links);
}

/// Two writers run beside a snapshot that is held; 80 % of their sections are updates. When they have ended, the memory
/// of all copies, including free blocks, decreases to at most the size of the live set plus one version per object.
#[test]
#[cfg(not(miri))]
fn a_stuck_reader_costs_no_more_than_a_second_live_set_and_a_version_per_object() {
    type Object = [u64; 8];
    const OBJECTS: usize = 60_000;
    // An object's header, domain and value; and a version's header and value, in whole cache lines.
    let (live, versions) = (OBJECTS * (16 + size_of::<Object>()), OBJECTS * 128);
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        let domain = Domain::builder().clock(clock).build();
        let links: Vec<Link<Object>> = (0..OBJECTS).map(|number| domain.alloc([number as u64; 8])).collect();
        let (mut stuck, written) = (domain.register(), AtomicUsize::new(0));
        let write = |seed: u64, rounds: usize| {
            let (mut handle, mut random) = (domain.register(), seed);
            for _ in 0..rounds {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let link = links[(random >> 33) as usize % OBJECTS];
                if random >> 32 & 0xFF < 205 {
                    handle.update(|tx| Ok(tx.lock(link)?[1] += 1)).unwrap();
                } else {
                    assert!(handle.read().get(link)[0] < OBJECTS as u64);
                }
                written.fetch_add(1, Ordering::Relaxed);
            }
        };
        write(1, OBJECTS);
        let snapshot = stuck.read();
        let sum = || links.iter().map(|link| snapshot.get(*link)[1]).fold(0, u64::wrapping_add);
        let (before, mut most) = (sum(), 0);
        thread::scope(|scope| {
            let writers = [2, 3].map(|seed| {
                let write = &write;
                scope.spawn(move || write(seed, 4 * OBJECTS))
            });
            while written.load(Ordering::Relaxed) < 9 * OBJECTS && !writers.iter().all(|writer| writer.is_finished()) {
                most = most.max(domain.stats().bytes);
                thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(sum(), before);
        // While the writers run, a thread that loses its processor inside an operation can delay pruning (the removal
        // of versions that no snapshot needs) for any length of time. So the bound is checked after the writers have
        // ended, while the reader still holds its snapshot.
        let mut sweeper = domain.register();
        (0..8).for_each(|_| sweeper.collect());
        let left = domain.stats().bytes;
        println!("at most {most}, {left} left, of {}", live + versions);
        assert!(left <= live + versions, "{left} bytes of copies beside {live} of objects");
        drop(snapshot);
        retire_all(&domain, &links);
    }
}

/// Requests for statistics, the pruning of versions that no snapshot needs, and the registration of handles run at the
/// same time. They must not wait for each other in a cycle.
#[test]
fn statistics_beside_pruners_and_new_handles() {
    let domain = eager().build();
    let links: Vec<Link<u64>> = (0..4).map(|_| domain.alloc(0)).collect();
    let (mut stuck, stop) = (domain.register(), AtomicBool::new(false));
    let snapshot = stuck.read();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut handle = domain.register();
                while !stop.load(Ordering::Relaxed) {
                    handle.update(|tx| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? += 1))).unwrap();
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(domain.stats().handles > 0);
            }
        });
        // All handles are alive at the same time, so each needs a new record (the data by which collectors find the
        // handle's sections).
        let handles: Vec<_> = (0..scaled(2_000, 5)).map(|_| domain.register()).collect();
        stop.store(true, Ordering::Relaxed);
        drop(handles);
    });
    drop(snapshot);
    retire_all(&domain, &links);
}

#[test]
fn pruning_beside_readers_of_all_ages() {
    let domain = eager().build();
    let links: Vec<Link<[u64; 2]>> = (0..4).map(|_| domain.alloc([0, 0])).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for age in [1, 7, 50, 400] {
            let (domain, links, stop) = (&domain, &links, &stop);
            scope.spawn(move || {
                let mut handle = domain.register();
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = handle.read();
                    let first = snapshot.get(links[0])[0];
                    for _ in 0..age {
                        for link in links {
                            assert_eq!(*snapshot.get(*link), [first, first]);
                        }
                        thread::yield_now();
                    }
                }
            });
        }
        let mut handle = domain.register();
        for value in 1..=scaled(20_000, 30) as u64 {
            handle.update(|tx| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? = [value; 2]))).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    retire_all(&domain, &links);
}

/// The memory of a retired object is freed once, when no thread can reach the object any more.
#[test]
fn objects_come_and_go() {
    #[derive(Clone, Copy)]
    struct Root(Link<[u64; 4]>);
    each_kind(|domain| {
        let root = domain.alloc(Root(domain.alloc([1; 4])));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut handle = domain.register();
                    for round in 0..scaled(2_000, 10) as u64 {
                        handle
                            .update(|tx| {
                                let old = tx.get(root).0;
                                // SAFETY: not used after an abort.
                                let new = unsafe { tx.alloc([round; 4]) };
                                tx.lock(root)?.0 = new;
                                // SAFETY: only the root has a link to it.
                                unsafe { tx.retire(old) }
                            })
                            .unwrap();
                        let snapshot = handle.read();
                        let object = snapshot.get(snapshot.get(root).0);
                        assert!(object.iter().all(|word| *word == object[0]));
                    }
                });
            }
        });
        let last = read(&mut domain.register(), root).0;
        retire_all(&domain, &[last]);
        retire_all(&domain, &[root]);
    });
}

#[test]
fn threads_that_come_and_go_strand_nothing() {
    each_kind(|domain| {
        let (link, cycles) = (domain.alloc(0_u64), scaled(2_000, 8));
        for _ in 0..cycles / 4 {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| domain.register().update(|tx| Ok(*tx.lock(link)? += 1)).unwrap());
                }
            });
        }
        assert_eq!(read(&mut domain.register(), link), cycles as u64);
        assert!(domain.stats().handles == 0);
        retire_all(&domain, &[link]);
    });
}

#[test]
fn statistics_never_count_the_domains_own_handle() {
    let domain = eager().collection(Collection::Background).build();
    let link = domain.alloc(0_u64);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut handle = domain.register();
        let is_done = &is_done;
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                handle.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
            }
        });
        for _ in 0..scaled(5_000_000, 100) {
            if domain.stats().handles != 1 {
                is_done.store(true, Ordering::Relaxed);
            }
        }
        assert!(!is_done.swap(true, Ordering::Relaxed), "the domain's own handle was counted");
    });
    retire_all(&domain, &[link]);
}

#[test]
fn many_handles_alive() {
    let domain = eager().build();
    let link = domain.alloc(0_u64);
    let mut handles: Vec<Handle> = (0..scaled(300, 10)).map(|_| domain.register()).collect();
    for handle in &mut handles {
        handle.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
    }
    assert_eq!(read(&mut handles[0], link), handles.len() as u64);
    assert_eq!(domain.stats().handles, handles.len());
    drop(handles);
    retire_all(&domain, &[link]);
}

#[test]
fn a_large_write_set() {
    each_kind(|domain| {
        let links: Vec<Link<u64>> = (0..scaled(100_000, 50)).map(|_| domain.alloc(1)).collect();
        let mut handle = domain.register();
        handle.update(|tx| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? += 1))).unwrap();
        let snapshot = handle.read();
        assert!(links.iter().all(|link| *snapshot.get(*link) == 2));
        drop(snapshot);
        handle.collect();
        retire_all(&domain, &links);
    });
}

fn objects_of<const BYTES: usize>(domain: &Domain) {
    let link = domain.alloc([1_u8; BYTES]);
    let mut handle = domain.register();
    for value in 2..10 {
        handle.update(|tx| Ok(tx.lock(link)?.fill(value))).unwrap();
        assert!(handle.read().get(link).iter().all(|byte| *byte == value));
    }
    retire_all(domain, &[link]);
}

#[test]
fn objects_of_all_sizes() {
    each_kind(|domain| {
        objects_of::<0>(&domain);
        objects_of::<1>(&domain);
        objects_of::<8>(&domain);
        objects_of::<33>(&domain);
        objects_of::<{ 1 << 10 }>(&domain);
        #[cfg(not(miri))]
        objects_of::<{ 1 << 16 }>(&domain);
        #[cfg(not(miri))]
        objects_of::<{ 1 << 18 }>(&domain);
    });
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(256))]
    struct Wide(u8);
    let domain = eager().build();
    let link = domain.alloc(Wide(1));
    let mut handle = domain.register();
    handle.update(|tx| Ok(tx.lock(link)?.0 = 2)).unwrap();
    assert_eq!(*handle.read().get(link), Wide(2));
    retire_all(&domain, &[link]);
}

#[test]
#[cfg(not(miri))]
fn objects_of_a_mebibyte() {
    // Runs on a thread with a large stack, because values are passed by value.
    let thread = thread::Builder::new().stack_size(64 << 20).spawn(|| objects_of::<{ 1 << 20 }>(&Domain::new()));
    thread.unwrap().join().unwrap();
}

#[test]
fn forgotten_snapshots_only_delay() {
    let domain = eager().build();
    let link = domain.alloc(0_u64);
    let (mut writer, mut forgetful) = (domain.register(), domain.register());
    core::mem::forget(forgetful.read());
    for _ in 0..100 {
        writer.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
    }
    assert_eq!(domain.stats().active_sections, 1);
    assert_eq!(read(&mut forgetful, link), 100);
    assert_eq!(domain.stats().active_sections, 0);
    core::mem::forget(forgetful.read());
    drop(forgetful);
    drop(writer);
    retire_all(&domain, &[link]);
}

#[test]
fn the_memory_cap_is_an_error_and_passes() {
    let domain = eager().memory_cap(64 * 1024).build();
    let links: Vec<Link<u64>> = (0..2_000).map(|_| domain.alloc(0)).collect();
    let mut handle = domain.register();
    let all = |handle: &mut Handle| handle.update(|tx| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? += 1)));
    assert_eq!(all(&mut handle), Err(Full));
    assert!(domain.stats().bytes <= 64 * 1024);
    for link in &links {
        handle.update(|tx| Ok(*tx.lock(*link)? += 1)).unwrap();
    }
    assert_eq!(read(&mut handle, links[1_999]), 1);
    for links in links.chunks(100) {
        retire_all(&domain, links);
    }
}

#[test]
#[should_panic(expected = "a link of another domain")]
fn links_of_other_domains_are_refused() {
    let (one, other) = (Domain::new(), Domain::new());
    let link = one.alloc(1_u64);
    struct Retire<'d>(&'d Domain, Link<u64>);
    impl Drop for Retire<'_> {
        fn drop(&mut self) {
            retire_all(self.0, &[self.1]);
        }
    }
    let _retire = Retire(&one, link);
    other.register().read().get(link);
}

/// A new domain often gets the memory of one that was dropped.
#[test]
fn links_of_a_dropped_domain_are_refused() {
    let make = || {
        let domain = Domain::new();
        let link = domain.alloc(1_u64);
        (domain, link)
    };
    let mut last = make();
    for _ in 0..scaled(20, 2) {
        let (domain, link) = core::mem::replace(&mut last, make());
        drop(domain);
        let (next, own) = make();
        let refused = catch_unwind(AssertUnwindSafe(|| *next.register().read().get(link)));
        assert!(refused.is_err(), "a link of another domain");
        assert_eq!(*next.register().read().get(own), 1);
        retire_all(&next, &[own]);
    }
    retire_all(&last.0, &[last.1]);
}

/// An object that one transaction makes and retires is freed once, by the abort or after the commit.
#[test]
fn what_one_transaction_makes_and_retires_is_freed() {
    each_kind(|domain| {
        let (before, mut handle) = (domain.stats().objects, domain.register());
        for outcome in [Err(Abort::Conflict), Ok(()), Err(Abort::Conflict)] {
            let done = handle.try_update(|tx| {
                // SAFETY: the link is used only here.
                unsafe {
                    let made = tx.alloc([7_u64; 4]);
                    tx.lock(made)?[0] = 8;
                    tx.retire(made)?;
                }
                outcome
            });
            assert_eq!(done, outcome);
        }
        handle.collect();
        drop(handle);
        collect_until(&domain, &mut domain.register(), |stats| (stats.objects, stats.versions) == (before, 0));
    });
}

/// Tunings at their limits, with which nothing is collected except on request.
#[test]
fn watermarks_that_are_never_reached() {
    let tuning = Tuning { low_watermark: usize::MAX, dereference_watermark: u32::MAX, concurrent: true };
    for collection in [Collection::Cooperative, Collection::Background] {
        let domain = Domain::builder().tuning(tuning).collection(collection).build();
        let link = domain.alloc(0_u64);
        let mut handle = domain.register();
        for _ in 0..scaled(10_000, 200) {
            handle.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
        }
        assert!(domain.stats().versions > scaled(5_000, 100));
        handle.collect();
        assert_eq!(domain.stats().versions, 0);
        assert_eq!(*handle.read().get(link), scaled(10_000, 200) as u64);
        retire_all(&domain, &[link]);
    }
}

#[test]
fn objects_outlive_their_domain_whole() {
    let domain = Domain::new();
    let link = domain.alloc(1_u64);
    domain.register().update(|tx| Ok(*tx.lock(link)? = 2)).unwrap();
    let handle = domain.register();
    drop(domain);
    // The handle keeps the domain alive.
    let mut handle = handle;
    assert_eq!(read(&mut handle, link), 2);
    // SAFETY: the link is not used any more.
    handle.update(|tx| unsafe { tx.retire(link) }).unwrap();
}

#[test]
fn handles_may_travel() {
    let domain = Domain::new();
    let link = domain.alloc(0_u64);
    let mut handle = domain.register();
    let barrier = Barrier::new(2);
    let seen = AtomicUsize::new(0);
    for _ in 0..scaled(50, 3) {
        handle = thread::scope(|scope| {
            let travelled = scope.spawn(|| {
                handle.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
                barrier.wait();
                handle
            });
            barrier.wait();
            seen.store(read(&mut domain.register(), link) as usize, Ordering::Relaxed);
            travelled.join().unwrap()
        });
        assert_eq!(read(&mut handle, link), seen.load(Ordering::Relaxed) as u64);
    }
    drop(handle);
    retire_all(&domain, &[link]);
}
