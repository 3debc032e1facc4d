//! Tests both variants of flat combining: their histories, panics in operations, and that every operation is dropped.
#![cfg(not(loom))]

mod common;

use archipelago_check::drops::DropCounter;
use archipelago_check::history::Recorder;
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_platform::atomic::Ordering;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_replicate::Combined;
use common::{Change, Gate, Ledger, Op, check};

fn both() -> [Combined<Ledger>; 2] {
    [Combined::new(Ledger::default()), Combined::flat(Ledger::default())]
}

#[test]
fn histories_are_linearizable() {
    watchdog(USUAL, |_| {
        for (handles, operations) in if cfg!(miri) { [(2, 10), (3, 4)] } else { [(4, 1000), (40, 50)] } {
            both().iter().for_each(|combined| run(combined, handles, operations));
        }
    });
}

fn run(combined: &Combined<Ledger>, handles: u64, operations: u64) {
    let recorder = Recorder::new();
    thread::scope(|scope| {
        for me in 0..handles {
            let recorder = &recorder;
            scope.spawn(move || {
                let (mut handle, mut log) = (combined.handle(), recorder.log());
                for at in 0..operations {
                    let key = (at * 7 + me) % 3;
                    let op = match (at * 5 + me * 3) % 4 {
                        0 => Op::Insert(key, at),
                        1 => Op::Remove(key),
                        _ => Op::Get(key),
                    };
                    log.record(op, |op| match (op.change(), op) {
                        (Some(change), _) => handle.write(change).unwrap(),
                        (None, Op::Get(key)) => handle.read(key).unwrap(),
                        _ => unreachable!(),
                    });
                }
            });
        }
    });
    check(recorder.finish());
}

#[test]
fn operations_are_dropped_once_and_a_panic_reaches_everyone() {
    watchdog(USUAL, |_| {
        for combined in both() {
            let counter = DropCounter::new();
            thread::scope(|scope| {
                for me in 0..4 {
                    let mut handle = combined.handle();
                    scope.spawn(move || {
                        for at in 0_u64.. {
                            let change =
                                if me == 0 && at == 30 { Change::Panic } else { Change::Note(counter.value(at)) };
                            if handle.write(change).is_err() || handle.read(&0).is_err() {
                                return;
                            }
                        }
                    });
                }
            });
            let error = combined.handle().read(&0).unwrap_err();
            assert_eq!(error.message(), "as planned");
            drop(combined);
            counter.assert_all_dropped();
        }
    });
}

/// After an operation has panicked, each posted request that has no answer yet gets the error, whether its thread
/// sleeps or not.
#[test]
fn a_panic_refuses_those_who_wait() {
    watchdog(USUAL / 4, |_| {
        for combined in both() {
            let gate = Arc::new(Gate::default());
            let refused = thread::scope(|scope| {
                scope.spawn(|| combined.handle().write(Change::Stall(0, gate.clone())).unwrap());
                while gate.waiting.load(Ordering::Acquire) == 0 {
                    thread::yield_now();
                }
                let post = |change: Change| scope.spawn(|| combined.handle().write(change).is_err());
                let waiting =
                    (0..6).map(|at| if at % 2 == 0 { Change::Panic } else { Change::Insert(at, at) }).map(post);
                let waiting: Vec<_> = waiting.collect();
                thread::sleep(Duration::from_millis(if cfg!(miri) { 1 } else { 20 }));
                gate.open();
                waiting.into_iter().map(|thread| thread.join().unwrap()).filter(|&error| error).count()
            });
            assert!(refused >= 3, "all that panic, and those behind the first of them");
        }
    });
}

/// In the body of a region (here: while the value of `htm::quiet` exists) waiting is forbidden. A read that would have
/// to wait there panics, and leaves no request behind. Such a request would refer to a stack frame that is gone.
#[test]
#[cfg(debug_assertions)]
fn a_read_that_is_refused_is_not_posted() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use archipelago_platform::atomic::AtomicUsize;
    use archipelago_platform::htm::quiet;
    use archipelago_replicate::FromFns;

    watchdog(USUAL, |_| {
        let (reads, gate) = (AtomicUsize::new(0), Gate::default());
        let (reads, gate): (&_, &Gate) = (Box::leak(Box::new(reads)), Box::leak(Box::new(gate)));
        let read = |(): &(), (): &()| _ = reads.fetch_add(1, Ordering::Relaxed);
        let write = |(): &mut (), stalls: &bool| {
            if *stalls {
                gate.pass();
            }
        };
        let combined = Combined::flat(FromFns::new((), read, write));
        thread::scope(|scope| {
            scope.spawn(|| combined.handle().write(true).unwrap());
            while gate.waiting.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            let mut handle = combined.handle();
            let body = quiet();
            let outcome = catch_unwind(AssertUnwindSafe(|| handle.read(&())));
            drop(body);
            gate.open();
            let panic = outcome.unwrap_err();
            let text = panic.downcast_ref::<String>().expect("a message");
            assert!(text.contains("waiting in the body of a region"), "{text}");
        });
        combined.handle().write(false).unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), 0, "the read was carried out after its call");
    });
}
