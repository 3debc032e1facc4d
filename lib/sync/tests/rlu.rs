//! RLU natively: the guarantees of MV-RLU, with two versions and waits.
#![cfg(not(loom))]
// `Ok(*tx.lock(link)? = value)` expresses in one line what would otherwise take three.
#![allow(clippy::unit_arg)]

use std::sync::mpsc;

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_sync::mvrlu::{Abort, ClockKind, Link};
use archipelago_sync::rlu::Domain;

const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

fn each_kind(test: impl Fn(Domain)) {
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        for deferred in [0, 1, 10] {
            test(Domain::new(clock, deferred));
        }
    }
}

fn retire_all(domain: &Domain, links: &[Link<u64>]) {
    // SAFETY: the test doesn't use the links any more.
    domain.register().update(|tx| links.iter().try_for_each(|link| unsafe { tx.retire(*link) })).unwrap();
}

#[test]
fn commits_are_seen_at_once_and_not_by_older_snapshots() {
    each_kind(|domain| {
        let (link, mut writer, mut reader) = (domain.alloc(0_u64), domain.register(), domain.register());
        for value in 1..=scaled(200, 10) as u64 {
            writer.update(|tx| Ok(*tx.lock(link)? = value)).unwrap();
            assert_eq!(*writer.read().get(link), value);
            assert_eq!(*reader.read().get(link), value);
        }
        retire_all(&domain, &[link]);
    });
}

/// A commit waits for a reader that began before it; the reader sees the old value until its end.
#[test]
fn a_commit_waits_for_older_readers() {
    let domain = Domain::new(ClockKind::Logical, 0);
    let (link, mut reader) = (domain.alloc(1_u64), domain.register());
    let committed = AtomicBool::new(false);
    thread::scope(|scope| {
        let snapshot = reader.read();
        scope.spawn(|| {
            domain.register().update(|tx| Ok(*tx.lock(link)? = 2)).unwrap();
            committed.store(true, Ordering::Relaxed);
        });
        let mut other = domain.register();
        while *other.read().get(link) == 1 {
            thread::yield_now();
        }
        for _ in 0..scaled(100, 3) {
            thread::yield_now();
            assert_eq!(*snapshot.get(link), 1);
            assert!(!committed.load(Ordering::Relaxed));
        }
        drop(snapshot);
    });
    assert!(committed.into_inner());
    retire_all(&domain, &[link]);
}

#[test]
fn snapshots_are_never_torn() {
    each_kind(|domain| {
        let links: Vec<Link<u64>> = (0..8).map(|_| domain.alloc(0)).collect();
        let (next, left) = (AtomicU64::new(0), AtomicU64::new(2));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut handle = domain.register();
                    for _ in 0..scaled(10_000, 5) {
                        let value = next.fetch_add(1, Ordering::Relaxed) + 1;
                        handle.update(|tx| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? = value))).unwrap();
                    }
                    left.fetch_sub(1, Ordering::Relaxed);
                });
                scope.spawn(|| {
                    let mut handle = domain.register();
                    while left.load(Ordering::Relaxed) > 0 {
                        let snapshot = handle.read();
                        let first = *snapshot.get(links[0]);
                        assert!(links.iter().all(|link| *snapshot.get(*link) == first), "torn");
                        drop(snapshot);
                        thread::yield_now();
                    }
                });
            }
        });
        retire_all(&domain, &links);
    });
}

#[test]
fn checked_reads_conflict_here_too() {
    each_kind(|domain| {
        let links = [domain.alloc(0_u64), domain.alloc(0_u64)];
        thread::scope(|scope| {
            for me in 0..2 {
                let (domain, links) = (&domain, &links);
                scope.spawn(move || {
                    let mut handle = domain.register();
                    for _ in 0..scaled(500, 5) {
                        handle
                            .update_serializable(|tx| {
                                if *tx.get(links[1 - me]) == 0 {
                                    *tx.lock(links[me])? ^= 1;
                                }
                                Ok(())
                            })
                            .unwrap();
                        let snapshot = handle.read();
                        assert!(*snapshot.get(links[0]) + *snapshot.get(links[1]) <= 1);
                    }
                });
            }
        });
        retire_all(&domain, &links);
    });
}

/// A thread requests statistics while it holds a snapshot for whose end a commit waits. The request takes no lock that
/// the committing thread holds.
#[test]
fn statistics_in_a_snapshot_beside_a_committer() {
    let domain = Domain::new(ClockKind::Logical, 0);
    let (link, mut reader) = (domain.alloc(1_u64), domain.register());
    let committed = AtomicBool::new(false);
    thread::scope(|scope| {
        let snapshot = reader.read();
        scope.spawn(|| {
            domain.register().update(|tx| Ok(*tx.lock(link)? = 2)).unwrap();
            committed.store(true, Ordering::Relaxed);
        });
        let mut other = domain.register();
        while *other.read().get(link) == 1 {
            thread::yield_now();
        }
        for _ in 0..scaled(100, 3) {
            assert!(domain.stats().active_sections > 0);
            thread::yield_now();
        }
        assert!(!committed.load(Ordering::Relaxed) && *snapshot.get(link) == 1);
        drop(snapshot);
    });
    retire_all(&domain, &[link]);
}

#[test]
fn one_attempt_after_another_gets_past_a_deferred_commit() {
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        let domain = Domain::new(clock, 10);
        let (link, mut holder, mut other) = (domain.alloc(0_u64), domain.register(), domain.register());
        for round in 0..20 {
            holder.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
            let attempts = (0..3).take_while(|_| other.try_update(|tx| Ok(*tx.lock(link)? += 1)).is_err()).count();
            assert!(attempts < 3, "round {round}: held by a commit that no thread writes back");
        }
        assert_eq!(*other.read().get(link), 40);
        retire_all(&domain, &[link]);
    }
}

#[test]
fn one_thread_is_not_aborted_by_what_it_has_put_off() {
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        let domain = Domain::new(clock, 10);
        let (links, mut handle) = ([domain.alloc(0_u64), domain.alloc(0)], domain.register());
        for round in 0..scaled(100, 10) as u64 {
            handle.update(|tx| Ok(*tx.lock(links[0])? += 1)).unwrap();
            handle
                .update_serializable(|tx| {
                    let value = *tx.get(links[0]);
                    tx.lock_const(links[1])?;
                    assert_eq!(value, round + 1);
                    Ok(*tx.lock(links[1])? = value)
                })
                .unwrap();
        }
        assert_eq!(handle.counts().aborts, 0);
        retire_all(&domain, &links);
    }
}

/// Collecting writes back deferred commits, as far as sections permit: a value that a held snapshot must not see is not
/// written back.
#[test]
fn collecting_writes_back_what_was_put_off() {
    let domain = Domain::new(ClockKind::Logical, 10);
    let (link, mut holder, mut other) = (domain.alloc(0_u64), domain.register(), domain.register());
    holder.update(|tx| Ok(*tx.lock(link)? = 1)).unwrap();
    holder.collect();
    assert_eq!(other.try_update(|tx| Ok(*tx.lock(link)? = 2)), Ok(()));
    assert_eq!(other.counts().aborts, 0);
    let snapshot = holder.read();
    domain.register().collect();
    assert_eq!(*snapshot.get(link), 2);
    other.try_update(|tx| Ok(*tx.lock(link)? = 3)).unwrap();
    domain.register().collect();
    assert_eq!(*snapshot.get(link), 2);
    drop(snapshot);
    retire_all(&domain, &[link]);
}

/// A handle also collects the logs of other handles after aborted attempts. It must leave their deferred commits in a
/// state in which they are still written back. Otherwise the commits' objects would stay locked for ever.
#[test]
fn aborted_attempts_do_not_lock_what_was_put_off() {
    let domain = Domain::new(ClockKind::Logical, 1000);
    let links = [domain.alloc(0_u64), domain.alloc(0)];
    let (mut holder, mut other) = (domain.register(), domain.register());
    holder.update(|tx| Ok(*tx.lock(links[0])? = 1)).unwrap();
    for _ in 0..scaled(1000, 300) {
        let aborted = other.try_update(|tx| tx.lock(links[1]).map(|_| ()).and(Err::<(), _>(Abort::Conflict)));
        assert_eq!(aborted, Err(Abort::Conflict));
    }
    let changed = (0..10).any(|_| other.try_update(|tx| Ok(*tx.lock(links[0])? = 2)).is_ok());
    assert!(changed, "the object is still locked");
    drop((holder, other));
    retire_all(&domain, &links);
}

/// A thread has deferred a commit by one handle, and is in a snapshot of another handle. A second thread waits for the
/// end of this snapshot, to write the commit back. Meanwhile the first thread can use the first handle for everything
/// that needs no write-back, and then end the snapshot.
#[test]
fn handles_wait_for_no_stranger_that_waits_for_a_section() {
    let domain = Domain::new(ClockKind::Logical, 10);
    let (x, y) = (domain.alloc(0_u64), domain.alloc(0_u64));
    let (mut older, mut handle) = (domain.register(), domain.register());
    let snapshot = older.read();
    handle.update(|tx| tx.lock(x).map(|x| *x += 1)).unwrap();
    let stranger = {
        let domain = domain.clone();
        thread::spawn(move || domain.register().update(|tx| tx.lock(x).map(|x| *x += 1)).unwrap())
    };
    // Gives the stranger time to begin its wait. If it has not begun to wait by then, the test passes.
    thread::sleep(Duration::from_millis(50));
    let (done, is_done) = mpsc::channel();
    let work = thread::spawn(move || {
        let aborted = handle.try_update(|tx| tx.lock(y).and(Err::<(), _>(Abort::Conflict)));
        assert_eq!(aborted, Err(Abort::Conflict));
        handle.collect();
        drop(handle);
        done.send(()).unwrap();
    });
    let in_time = is_done.recv_timeout(Duration::from_secs(20));
    assert_eq!(*snapshot.get(x), 0);
    drop(snapshot);
    work.join().unwrap();
    stranger.join().unwrap();
    assert_eq!(in_time, Ok(()), "the handle waits for the stranger, which waits for the snapshot");
    assert_eq!(*older.read().get(x), 2);
    // SAFETY: not used any more.
    older.update(|tx| unsafe { tx.retire(x).and_then(|()| tx.retire(y)) }).unwrap();
}
