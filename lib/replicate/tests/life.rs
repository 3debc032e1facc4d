//! Tests lifetimes: panics, handles that outlive the structure, thousands of handles, a hundred structures. Every
//! operation is dropped once.
#![cfg(not(loom))]

mod common;

use archipelago_check::drops::DropCounter;
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_replicate::{Closures, Poisoned, Replicated, Sequential};
use common::{Change, Gate, Ledger};

fn scaled(count: u64) -> u64 {
    if cfg!(miri) { count.div_ceil(100) } else { count }
}

#[test]
fn every_operation_is_dropped_once() {
    for (replicas, capacity) in [(1, 4), (2, 2), (3, 64)] {
        let counter = DropCounter::new();
        let structure = Replicated::builder().replicas(replicas).log_capacity(capacity).build(Ledger::numbered());
        thread::scope(|scope| {
            for thread in 0..3 {
                let mut handle = structure.handle();
                scope.spawn(move || {
                    for at in 0..scaled(400) {
                        let tag = thread << 32 | at;
                        assert_eq!(handle.write(Change::Note(counter.value(tag))).unwrap().value, Some(tag));
                    }
                    let batch = (0..scaled(200)).map(|at| Change::Note(counter.value(at))).collect();
                    assert_eq!(handle.write_many(batch).unwrap().len() as u64, scaled(200));
                });
            }
        });
        structure.sync().unwrap();
        assert_eq!(counter.alive(), 0, "all replicas have passed");
        structure.handle().write(Change::Note(counter.value(0))).unwrap();
        drop(structure);
        counter.assert_all_dropped();
    }
}

/// Waits at the gate when it is dropped.
struct DropsAtGate(Arc<Gate>);

impl Drop for DropsAtGate {
    fn drop(&mut self) {
        self.0.pass();
    }
}

/// One thread drops an operation, and takes long. Another thread's `sync` brings the replicas further, and leaves no
/// operation that they have applied.
#[test]
fn sync_waits_for_another_thread_that_drops_operations() {
    watchdog(USUAL, |_| {
        let structure = Replicated::builder().replicas(2).build(|| Closures::new(0));
        let mut handle = structure.handle_on(0);
        let gate = Arc::new(Gate::default());
        let operation = DropsAtGate(gate.clone());
        handle.update(move |sum| *sum += i32::from(!operation.0.open.load(Ordering::Relaxed))).unwrap();
        thread::scope(|scope| {
            let first = scope.spawn(|| structure.sync().unwrap());
            while gate.waiting.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            handle.update(|sum| *sum += 1).unwrap();
            let second = scope.spawn(|| {
                structure.sync().unwrap();
                structure.stats().log_in_use
            });
            while structure.stats().applied < 4 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(if cfg!(miri) { 1 } else { 30 }));
            gate.open();
            first.join().unwrap();
            assert_eq!(second.join().unwrap(), 0);
        });
        assert_eq!(handle.view(|sum| *sum).unwrap(), 2);
    });
}

/// With one replica and no observer, no thread reads the log, so nothing is appended to it. A batch of any length is
/// carried out as one, and operations are dropped at once.
#[test]
fn a_replica_alone_needs_no_log() {
    let counter = DropCounter::new();
    let structure = Replicated::builder().replicas(1).log_capacity(2).largest_log(2).build(Ledger::numbered());
    let mut handle = structure.handle();
    for tag in 0..3 {
        assert_eq!(handle.write(Change::Note(counter.value(tag))).unwrap().value, Some(tag));
        assert_eq!(counter.alive(), 0);
    }
    let answers = handle.write_many((0..50).map(|at| Change::Note(counter.value(at))).collect()).unwrap();
    assert!(answers.iter().enumerate().all(|(at, answer)| answer.value == Some(at as u64)));
    counter.assert_all_dropped();
    let stats = structure.stats();
    assert_eq!((stats.writes, stats.batches, stats.applied, stats.room_waits), (53, 4, 53, 0));
    assert_eq!(stats.batch_sizes, [3, 0, 0, 0, 0, 1, 0, 0]);
}

#[test]
fn thousands_of_handles() {
    let structure = Replicated::builder().replicas(2).slots(4).build(Ledger::numbered());
    for at in 0..scaled(10_000) {
        let mut handle = structure.handle();
        assert_eq!(handle.write(Change::Insert(at % 8, at)).unwrap().number, at);
    }
    let many: Vec<_> = (0..scaled(10_000)).map(|_| structure.handle()).collect();
    drop(many);
    assert_eq!(structure.handle().read(&0).unwrap().number, scaled(10_000));
}

#[test]
fn a_hundred_structures() {
    let structures: Vec<_> = (0..scaled(100))
        .map(|_| Replicated::builder().replicas(2).helper(Duration::from_secs(3600)).build(Ledger::numbered()))
        .collect();
    let mut handles: Vec<_> = structures.iter().map(Replicated::handle).collect();
    for round in 0..20 {
        for (at, handle) in handles.iter_mut().enumerate() {
            handle.write(Change::Insert(round, at as u64)).unwrap();
        }
    }
    for (at, handle) in handles.iter_mut().enumerate() {
        assert_eq!(handle.read(&19).unwrap().value, Some(at as u64));
    }
}

/// Counts its own drops.
struct Counting {
    drops: Arc<AtomicU64>,
    sum: u64,
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

impl Sequential for Counting {
    type Read = ();
    type Write = u64;
    type Response = u64;

    fn read(&self, (): &()) -> u64 {
        self.sum
    }

    fn write(&mut self, more: &u64) -> u64 {
        self.sum += more;
        self.sum
    }
}

#[test]
fn handles_outlive_the_structure() {
    watchdog(USUAL, |_| {
        let drops = Arc::new(AtomicU64::new(0));
        let init = || Counting { drops: drops.clone(), sum: 0 };
        let structure =
            Replicated::builder().replicas(2).helper(Duration::from_millis(1)).dedicated_combiners().build(init);
        let mut handles: Vec<_> = (0..8).map(|_| structure.handle()).collect();
        handles.truncate(4);
        let threads: Vec<_> = handles
            .into_iter()
            .map(|mut handle| thread::spawn(move || (0..scaled(200)).map(|_| handle.write(1).unwrap()).max()))
            .collect();
        drop(structure);
        threads.into_iter().for_each(|thread| assert!(thread.join().unwrap().is_some()));
        assert_eq!(drops.load(Ordering::Relaxed), 2, "the last handle took both replicas with it");
    });
}

#[test]
fn a_handle_works_on_another_thread() {
    let structure = Replicated::builder().replicas(2).build(Ledger::numbered());
    let mut handle = structure.handle_on(1);
    let mut handle = thread::spawn(move || {
        handle.write(Change::Insert(1, 2)).unwrap();
        handle
    })
    .join()
    .unwrap();
    assert_eq!((handle.replica(), handle.read(&1).unwrap().value), (Some(1), Some(2)));
}

/// One operation panics while threads of all replicas wait, read and write. All threads get the error, no thread hangs,
/// and nothing is leaked or dropped twice.
#[test]
fn a_panic_reaches_everyone() {
    watchdog(USUAL, |notes| {
        for round in 0..if cfg!(miri) { 2 } else { 40 } {
            notes.note(format!("round {round}"));
            let counter = DropCounter::new();
            let capacity = if round % 2 == 0 { 4 } else { 256 };
            let replicas = if round % 3 == 0 { 1 } else { 3 };
            let builder = Replicated::builder().replicas(replicas).log_capacity(capacity).slots(2);
            let structure = builder.build(Ledger::numbered());
            thread::scope(|scope| {
                for thread in 0..6 {
                    let mut handle = structure.handle();
                    scope.spawn(move || {
                        let mut last = None;
                        for at in 0..scaled(100_000) * 1000 {
                            let result = match at % 4 {
                                0 => handle.read(&0),
                                1 if thread == 0 && at > round * 20 => handle.write(Change::Panic),
                                2 => handle
                                    .write_many(vec![Change::Note(counter.value(at))])
                                    .map(|mut all| all.remove(0)),
                                _ => handle.write(Change::Note(counter.value(at))),
                            };
                            if let Err(error) = result {
                                last = Some(error);
                                break;
                            }
                        }
                        let error: Poisoned = last.expect("the panic reaches every thread");
                        assert!(error.to_string().contains("panicked while it was carried out"), "{error}");
                    });
                }
            });
            assert_eq!(structure.handle().write(Change::Remove(0)).unwrap_err().message(), "as planned");
            assert_eq!(structure.inspect(0, |_| ()).unwrap_err().message(), "as planned");
            assert!(structure.sync().is_err());
            drop(structure);
            counter.assert_all_dropped();
        }
    });
}

/// Threads that are parked because the combiner is stalled also get the error of a panic.
#[test]
fn a_panic_wakes_the_parked() {
    watchdog(USUAL, |_| {
        let structure = Replicated::builder().replicas(2).build(Ledger::numbered());
        let gate = Arc::new(Gate::default());
        thread::scope(|scope| {
            let stalled = scope.spawn(|| structure.handle_on(0).write(Change::Stall(0, gate.clone())));
            while gate.waiting.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            let parked: Vec<_> = (0..3)
                .map(|at| {
                    let mut handle = structure.handle_on(0);
                    scope.spawn(move || handle.write(Change::Insert(at, at)))
                })
                .collect();
            thread::sleep(Duration::from_millis(if cfg!(miri) { 1 } else { 30 }));
            assert!(structure.handle_on(1).write(Change::Panic).is_err());
            for thread in parked {
                assert_eq!(thread.join().unwrap().unwrap_err().message(), "as planned");
            }
            gate.open();
            // The stalled thread's operation precedes the one that panicked. Whether the operation is still answered
            // depends on the schedule.
            let _ = stalled.join().unwrap();
        });
        assert!(structure.handle_on(0).read(&0).is_err());
    });
}

/// A panic in a read affects only the reader.
#[test]
fn a_panicking_read_poisons_nothing() {
    let structure = Replicated::builder().replicas(1).build(Ledger::numbered());
    let look = std::panic::AssertUnwindSafe(|| structure.inspect(0, |_| panic!("as planned")));
    assert!(std::panic::catch_unwind(look).is_err());
    assert_eq!(structure.handle().write(Change::Insert(1, 1)).unwrap().number, 0);
}
