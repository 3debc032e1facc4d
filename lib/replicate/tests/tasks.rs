//! Tests operations as futures: under tokio and under a minimal executor, futures that are cancelled, and futures
//! beside threads that block.
#![cfg(not(loom))]

mod common;

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::task::Wake;

use archipelago_check::drops::DropCounter;
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_platform::atomic::Ordering;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread::{self, Thread};
use archipelago_platform::time::Duration;
use archipelago_replicate::Replicated;
use common::{Change, Gate, Ledger};

/// A waker that unparks the thread that runs the future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A minimal executor: it parks until it is woken, and polls only then.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// More tasks and threads than slots and replicas; every one of them completes.
#[test]
fn a_plain_executor() {
    watchdog(USUAL, |_| {
        let rounds = if cfg!(miri) { 5 } else { 2_000 };
        let structure = Replicated::builder().replicas(2).slots(3).log_capacity(4).build(Ledger::numbered());
        thread::scope(|scope| {
            for me in 0..4 {
                let mut handle = structure.handle();
                scope.spawn(move || {
                    for at in 0..rounds {
                        if me == 3 {
                            handle.write(Change::Insert(me, at)).unwrap();
                        } else {
                            block_on(handle.write_async(Change::Insert(me, at))).unwrap();
                        }
                        assert_eq!(block_on(handle.read_async(&me)).unwrap().value, Some(at));
                    }
                });
            }
        });
        assert_eq!(structure.handle().read(&0).unwrap().number, 4 * rounds);
    });
}

// Miri does not support the epoll calls that tokio needs.
#[cfg(not(miri))]
#[test]
fn tokio() {
    watchdog(USUAL, |_| {
        let structure = Replicated::builder().replicas(2).slots(4).build(Ledger::numbered());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let tasks: Vec<_> = (0..50)
            .map(|me| {
                let mut handle = structure.handle();
                runtime.spawn(async move {
                    for at in 0..100 {
                        handle.write_async(Change::Insert(me, at)).await.unwrap();
                        assert_eq!(handle.read_async(&me).await.unwrap().value, Some(at));
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(structure.handle().read(&0).unwrap().number, 5_000);
    });
}

/// A task waits for a stalled combiner. It is polled only after it is woken, and it is woken.
#[test]
fn a_waiting_task_is_woken_and_a_cancelled_one_leaves_nothing() {
    watchdog(USUAL, |_| {
        let counter = DropCounter::new();
        let structure = Replicated::builder().replicas(1).slots(2).build(Ledger::numbered());
        let gate = Arc::new(Gate::default());
        thread::scope(|scope| {
            scope.spawn(|| structure.handle().write(Change::Stall(0, gate.clone())).unwrap());
            while gate.waiting.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            let waiting = scope.spawn(|| block_on(structure.handle().write_async(Change::Note(counter.value(1)))));
            let mut handle = structure.handle();
            let mut cancelled = Box::pin(handle.write_async(Change::Note(counter.value(2))));
            let unpark = Arc::new(Unpark(thread::current()));
            let waker = Waker::from(unpark.clone());
            assert!(cancelled.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            drop((cancelled, waker));
            assert_eq!(Arc::strong_count(&unpark), 1, "no thread keeps a waker that is not needed any more");
            thread::sleep(Duration::from_millis(if cfg!(miri) { 1 } else { 20 }));
            gate.open();
            assert_eq!(waiting.join().unwrap().unwrap().value, Some(1));
        });
        assert_eq!(structure.handle().read(&0).unwrap().number, 2, "the cancelled operation was not posted any more");
        drop(structure);
        counter.assert_all_dropped();
    });
}

/// A reading task waits for its replica's stalled combiner, and is woken when the combiner continues.
#[test]
fn a_waiting_reader_is_woken() {
    watchdog(USUAL, |_| {
        let structure = Replicated::builder().replicas(2).build(Ledger::numbered());
        let gate = Arc::new(Gate::default());
        thread::scope(|scope| {
            scope.spawn(|| structure.handle_on(1).write(Change::Stall(1, gate.clone())).unwrap());
            while gate.waiting.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            assert_eq!(structure.handle_on(0).write(Change::Insert(5, 6)).unwrap().number, 1);
            let reader = scope.spawn(|| block_on(structure.handle_on(1).read_async(&5)));
            thread::sleep(Duration::from_millis(if cfg!(miri) { 1 } else { 20 }));
            assert!(!reader.is_finished());
            gate.open();
            assert_eq!(reader.join().unwrap().unwrap().value, Some(6));
        });
    });
}

/// An operation that waits at a gate, or panics with a payload whose destructor panics.
enum Fatal {
    Stall(Arc<Gate>),
    Explode(#[expect(dead_code, reason = "dropped")] archipelago_check::drops::Counted),
}

struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("as planned");
    }
}

struct Fragile;

impl archipelago_replicate::Sequential for Fragile {
    type Read = ();
    type Write = Fatal;
    type Response = ();

    fn read(&self, (): &()) {}

    fn write(&mut self, operation: &Fatal) {
        match operation {
            Fatal::Stall(gate) => gate.pass(),
            Fatal::Explode(_) => std::panic::panic_any(Payload),
        }
    }
}

/// The panic of an operation that another thread posted has a payload whose destructor panics. Every operation is
/// dropped once, and every caller gets the error.
#[test]
fn a_payload_that_panics_leaves_no_half_done_batch() {
    watchdog(USUAL, |_| {
        let counter = DropCounter::new();
        let structure = Replicated::builder().replicas(1).slots(4).build(|| Fragile);
        let gate = Arc::new(Gate::default());
        let (mut one, mut two) = (structure.handle(), structure.handle());
        let waker = Arc::new(Unpark(thread::current())).into();
        let mut context = Context::from_waker(&waker);
        let mut posted =
            [one.write_async(Fatal::Explode(counter.value(1))), two.write_async(Fatal::Explode(counter.value(2)))];
        thread::scope(|scope| {
            scope.spawn(|| structure.handle().write(Fatal::Stall(gate.clone())).unwrap());
            while gate.waiting.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            for task in &mut posted {
                assert!(core::pin::Pin::new(task).poll(&mut context).is_pending());
            }
            gate.open();
        });
        let third = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            structure.handle().write(Fatal::Explode(counter.value(3)))
        }));
        assert!(third.is_ok_and(|answer| answer.is_err()), "the error, not the payload's panic");
        for task in &mut posted {
            assert!(matches!(core::pin::Pin::new(task).poll(&mut context), Poll::Ready(Err(_))));
        }
        drop((posted, structure));
        counter.assert_all_dropped();
    });
}
