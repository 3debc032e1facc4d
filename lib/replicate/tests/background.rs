//! Tests the background threads. Helpers bring idle replicas up to date. Dedicated combiners carry out requests,
//! rest, and are woken.
#![cfg(not(any(loom, miri, archipelago_sim)))]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use archipelago_check::drops::DropCounter;
#[cfg(unix)]
use archipelago_check::forked::in_child;
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_replicate::{Builder, FromFns, Replicated};
use common::{Change, Ledger};

/// Serializes the tests, because they inspect the process's threads.
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

/// No thread uses the replicas any more, but all replicas apply all operations, and the operations are dropped.
#[test]
fn helpers_bring_idle_replicas_up_to_date() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        let counter = DropCounter::new();
        let replicated = Replicated::builder().replicas(3).helper(Duration::from_millis(1)).build(Ledger::numbered());
        replicated.handle_on(0).write(Change::Note(counter.value(1))).unwrap();
        wait_until(|| replicated.stats().applied == 3 && counter.alive() == 0);
        // While a reader stays inside one replica, the helpers of the others continue, and its own stops when it is
        // told to.
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

/// The interval never passes in this test, so only the threads that append can wake the helpers, and only the drop of
/// the structure can end them.
#[cfg(target_os = "linux")]
#[test]
fn helpers_are_woken_by_lag_and_end_with_the_structure() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        let builder = Replicated::builder().replicas(3).log_capacity(64).helper(Duration::from_secs(3600));
        let replicated = builder.build(Ledger::numbered());
        let mut handle = replicated.handle_on(0);
        while replicated.stats().helper_runs < 20 {
            handle.write(Change::Insert(1, 1)).unwrap();
        }
        // A helper that was woken last may get a processor late.
        let after = |time| {
            thread::sleep(Duration::from_millis(time));
            sleeps("nr-helper")
        };
        wait_until(|| after(0) == after(20));
        let before = after(0);
        assert_eq!((after(100), before.1), (before, 3), "idle helpers sleep");
        drop((handle, replicated));
        wait_until(|| sleeps("nr-helper").1 == 0);
    });
}

/// A single replica is always up to date, and gets no helper.
#[cfg(target_os = "linux")]
#[test]
fn a_single_replica_has_no_helper() {
    let _alone = alone();
    // A thread of another test that was joined may still be in the list.
    wait_until(|| sleeps("nr-helper").1 == 0);
    let replicated = Replicated::builder().replicas(1).helper(Duration::from_millis(1)).build(Ledger::numbered());
    assert_eq!(replicated.handle().write(Change::Insert(1, 1)).unwrap().number, 0);
    assert_eq!(sleeps("nr-helper").1, 0);
}

/// A reader stays inside a replica that lags far behind. The replica's helper tries again at its interval, although
/// each change tells it that there is work.
#[test]
fn a_helper_that_is_held_up_does_not_spin() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        let builder = Replicated::builder().replicas(2).log_capacity(64).helper(Duration::from_millis(10));
        let replicated = builder.build(Ledger::numbered());
        let began = Instant::now();
        let passed_by = replicated.inspect(1, |_| {
            thread::scope(|scope| {
                let write = || _ = replicated.handle_on(0).write(Change::Insert(1, 1)).unwrap();
                scope.spawn(move || (0..30).for_each(|_| write()));
            });
            wait_until(|| replicated.stats().passed_by > 0);
            thread::sleep(Duration::from_millis(100));
            replicated.stats().passed_by
        });
        let (passed_by, intervals) = (passed_by.unwrap(), began.elapsed().as_millis() as u64 / 10);
        assert!(passed_by > 0 && passed_by < 20 + intervals, "{passed_by} attempts in {intervals} intervals");
    });
}

/// `sync` skips a replica in which a reader stays.
#[test]
fn sync_passes_readers_by() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        let replicated = Replicated::builder().replicas(3).build(Ledger::numbered());
        replicated.handle_on(0).write(Change::Insert(1, 1)).unwrap();
        let stats = replicated.inspect(0, |_| {
            // The read has brought replica 0 up to date. This change comes after it.
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

/// Changes are carried out by the dedicated combiner. Whether the combiner carries out a change depends on the
/// schedule, so the test continues until it has done so ten times.
#[test]
fn dedicated_combiners_combine() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        let by_combiners = Arc::new(AtomicU64::new(0));
        let seen = by_combiners.clone();
        let write = move |(): &mut (), (): &()| {
            if thread::current().name() == Some("nr-combiner") {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            // The poster gets time to notice that the combiner has taken its request.
            thread::yield_now();
        };
        // With one replica, the combiner carries out posted requests only.
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

/// Returns how many times the threads with this name went to sleep voluntarily, and the number of these threads.
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

/// Dedicated combiners of idle structures sleep until there is work. (An earlier version polled every two
/// milliseconds.)
#[cfg(target_os = "linux")]
#[test]
fn idle_combiners_rest() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        let structures: Vec<_> = (0..20).map(|_| dedicated().build(Ledger::numbered())).collect();
        let naps = || structures.iter().map(|structure| structure.stats().naps).sum::<u64>();
        wait_until(|| naps() >= 40);
        // Waits for the combiners that are not asleep yet.
        thread::sleep(Duration::from_millis(20));
        let (before, naps_before) = (sleeps("nr-combiner"), naps());
        thread::sleep(Duration::from_millis(200));
        let (after, naps_after) = (sleeps("nr-combiner"), naps());
        assert_eq!((before.1, after.1), (40, 40));
        assert!(after.0 - before.0 < 40 && naps_after - naps_before < 10, "slept {before:?}, then {after:?} times");
    });
}

/// Dedicated combiners wake up when a request is posted to them, and when their replica lags far behind in the log.
#[test]
fn resting_combiners_are_woken() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        let replicated = dedicated().build(Ledger::numbered());
        let naps = || replicated.stats().naps;
        wait_until(|| naps() == 2);
        // A posted request wakes replica 0's combiner, which then rests again.
        replicated.handle_on(0).write(Change::Insert(1, 1)).unwrap();
        wait_until(|| naps() == 3);
        // A batch from `write_many` is not posted. The first of these batches need not wake any other thread.
        let mut handle = replicated.handle_on(0);
        let mut batch = || drop(handle.write_many(vec![Change::Insert(1, 1)]).unwrap());
        batch();
        assert_eq!(naps(), 3);
        (0..64).for_each(|_| batch());
        wait_until(|| naps() > 3);
    });
}

/// The child process has none of the threads, whatever they were doing when the process forked.
#[cfg(unix)]
#[test]
fn a_child_process_waits_for_no_thread_of_its_parent() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        for round in 0..20 {
            let counter = DropCounter::new();
            for has_combiners in [false, true] {
                // The child fills the log, and has no helper that makes room in it.
                let bare = || Replicated::builder().replicas(2).log_capacity(64).largest_log(64);
                let builder = if has_combiners { dedicated() } else { bare() };
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
