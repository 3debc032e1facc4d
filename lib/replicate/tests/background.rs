//! Background threads: the helper brings idle replicas up to date; dedicated combiners combine, rest and are woken.
#![cfg(not(any(loom, miri, archipelago_sim)))]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use archipelago_check::drops::DropCounter;
#[cfg(unix)]
use archipelago_check::forked::in_child;
use archipelago_check::watchdog::watchdog;
use archipelago_replicate::{Builder, FromFns, Replicated};
use common::{Change, Ledger};

/// Much longer than any of these lasts.
const LIMIT: Duration = Duration::from_secs(30);

/// One test at a time: they look at the process's threads.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn dedicated() -> Builder<Ledger> {
    Replicated::builder().replicas(2).log_capacity(64).dedicated_combiners()
}

fn wait_until(what: impl Fn() -> bool) {
    while !what() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// No thread works on any replica any more, and still all of them get everything and operations are dropped.
#[test]
fn the_helper_brings_idle_replicas_up_to_date() {
    let _alone = alone();
    watchdog(LIMIT, |_| {
        let counter = DropCounter::new();
        let replicated = Replicated::builder().replicas(3).helper(Duration::from_millis(1)).build(Ledger::numbered());
        replicated.handle_on(0).write(Change::Note(counter.value(1))).unwrap();
        wait_until(|| replicated.stats().applied == 3 && counter.alive() == 0);
        // Beside a reader that stays it goes on with the others, and ends when it is to.
        let applied = replicated.inspect(1, |_| {
            thread::scope(|scope| {
                scope.spawn(|| replicated.handle_on(0).write(Change::Note(counter.value(2))).unwrap());
            });
            wait_until(|| replicated.stats().applied == 5);
            replicated.stats().slowest_replica
        });
        assert_eq!(applied, Ok(1));
        wait_until(|| replicated.stats().applied == 6);
    });
}

/// `sync` leaves a replica with a reader that stays to itself.
#[test]
fn sync_passes_readers_by() {
    let _alone = alone();
    watchdog(LIMIT, |_| {
        let replicated = Replicated::builder().replicas(3).build(Ledger::numbered());
        replicated.handle_on(0).write(Change::Insert(1, 1)).unwrap();
        let stats = replicated.inspect(0, |_| {
            // A read brought replica 0 up to date; write behind it.
            let write = || replicated.handle_on(1).write(Change::Insert(1, 2)).unwrap();
            thread::scope(|scope| {
                let sync = || {
                    write();
                    replicated.sync()
                };
                scope.spawn(sync).join().unwrap().unwrap();
            });
            replicated.stats()
        });
        let stats = stats.unwrap();
        assert_eq!(
            (stats.applied, stats.log_in_use, stats.slowest_replica, stats.passed_by),
            (5, 1, 0, 1),
            "{stats:?}"
        );
        replicated.sync().unwrap();
        assert_eq!((replicated.stats().applied, replicated.stats().log_in_use), (6, 0));
    });
}

/// Changes are carried out by the thread that is there for it, with luck; it is tried until it had some.
#[test]
fn dedicated_combiners_combine() {
    let _alone = alone();
    watchdog(LIMIT, |_| {
        let by_combiners = Arc::new(AtomicU64::new(0));
        let seen = by_combiners.clone();
        let write = move |(): &mut (), (): &()| {
            if thread::current().name() == Some("nr-combiner") {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            // Its poster has time to find that the combiner is at it.
            thread::yield_now();
        };
        // One replica: what its combiner carries out was posted.
        let init = || FromFns::new((), |(): &(), (): &()| (), write.clone());
        let replicated = Replicated::builder().replicas(1).dedicated_combiners().build(init);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut handle = replicated.handle();
                    while by_combiners.load(Ordering::Relaxed) < 10 {
                        handle.write(()).unwrap();
                    }
                });
            }
        });
    });
}

/// How often the threads of this name went to sleep of their own accord, and how many there are.
#[cfg(target_os = "linux")]
fn sleeps(name: &str) -> (u64, usize) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let of_name =
        tasks.filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name));
    let counts = of_name.filter_map(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    });
    counts.fold((0, 0), |(sum, threads), count| (sum + count, threads + 1))
}

/// Dedicated combiners of structures at rest sleep until there is something to do. (They used to look every two
/// milliseconds.)
#[cfg(target_os = "linux")]
#[test]
fn idle_combiners_rest() {
    let _alone = alone();
    watchdog(LIMIT, |_| {
        let structures: Vec<_> = (0..20).map(|_| dedicated().build(Ledger::numbered())).collect();
        let naps = || structures.iter().map(|structure| structure.stats().naps).sum::<u64>();
        wait_until(|| naps() >= 40);
        // The last of them may be on their way.
        thread::sleep(Duration::from_millis(20));
        let (before, naps_before) = (sleeps("nr-combiner"), naps());
        thread::sleep(Duration::from_millis(200));
        let (after, naps_after) = (sleeps("nr-combiner"), naps());
        assert_eq!((before.1, after.1), (40, 40));
        assert!(after.0 - before.0 < 40 && naps_after - naps_before < 10, "slept {before:?}, then {after:?} times");
    });
}

/// They wake up for what is posted to them, and when their replica lags by much of the log.
#[test]
fn resting_combiners_are_woken() {
    let _alone = alone();
    watchdog(LIMIT, |_| {
        let replicated = dedicated().build(Ledger::numbered());
        let naps = || replicated.stats().naps;
        wait_until(|| naps() == 2);
        // Posted: replica 0's combiner wakes up, and rests again.
        replicated.handle_on(0).write(Change::Insert(1, 1)).unwrap();
        wait_until(|| naps() == 3);
        // A batch of one's own is not posted; and no other thread need be woken for the first of them.
        let mut handle = replicated.handle_on(0);
        let mut batch = || drop(handle.write_many(vec![Change::Insert(1, 1)]).unwrap());
        batch();
        assert_eq!(naps(), 3);
        (0..64).for_each(|_| batch());
        wait_until(|| naps() > 3);
    });
}

/// The child has none of the threads, whatever they were doing when the process forked.
#[cfg(unix)]
#[test]
fn a_child_process_waits_for_no_thread_of_its_parent() {
    let _alone = alone();
    watchdog(LIMIT, |_| {
        for round in 0..20 {
            let counter = DropCounter::new();
            for has_combiners in [false, true] {
                let builder = if has_combiners { dedicated() } else { Replicated::builder().replicas(2) };
                let replicated = builder.helper(Duration::from_micros(200)).build(Ledger::numbered());
                let note = |replicated: &Replicated<Ledger>| {
                    replicated.handle_on(0).write(Change::Note(counter.value(1))).unwrap();
                };
                (0..30).for_each(|_| note(&replicated));
                thread::sleep(Duration::from_micros(50 * round));
                let replicated = std::cell::Cell::new(Some(replicated));
                let child = || {
                    let replicated = replicated.take().expect("it was put there");
                    if !has_combiners {
                        (0..100).for_each(|_| note(&replicated));
                        replicated.sync().unwrap();
                    }
                    drop(replicated);
                };
                assert_eq!(in_child(child), 0, "the child of round {round}");
                drop(replicated.take());
                counter.assert_all_dropped();
            }
        }
    });
}
