//! Handles: the replicas that they use, and the effect of leaking handles and their futures.
#![cfg(not(any(loom, archipelago_sim)))]

mod common;

use core::future::Future;
use core::task::{Context, Poll, Waker};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::Wake;
use std::thread;
use std::time::Duration;

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_platform::thread::slot;
use archipelago_platform::topology::Topology;
use archipelago_replicate::{Builder, Handle, Replicated};
use common::{Change, Gate, Ledger};

fn ledger() -> Builder<Ledger> {
    Replicated::builder()
}

/// Polls a future once.
fn poll_once<F: Future>(mut future: core::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a future once and leaks it.
fn poll_and_forget<F: Future>(future: F) {
    let mut future = Box::pin(future);
    let _ = poll_once(future.as_mut());
    std::mem::forget(future);
}

/// Handles are made by one thread and used by others, on synthetic machines: each uses the replica of its thread's
/// node.
#[test]
fn a_handle_belongs_to_the_thread_that_uses_it_first() {
    for nodes in [1, 2, 4, 8] {
        let topology = Topology::synthetic(nodes, 2);
        let replicated = ledger().topology(topology.clone()).build(Ledger::numbered());
        let threads = 2 * nodes;
        let all_there = Barrier::new(threads);
        thread::scope(|scope| {
            let spawn = |way: usize| {
                let (mut handle, topology, all_there) = (replicated.handle(), &topology, &all_there);
                assert_eq!(handle.replica(), None);
                scope.spawn(move || {
                    // The numbers of threads (thread slots) are reused when threads end, so all threads must be alive
                    // at the same time.
                    all_there.wait();
                    match way % 4 {
                        0 => drop(handle.write(Change::Insert(1, 1)).unwrap()),
                        1 => drop(handle.read(&1).unwrap()),
                        2 => drop(handle.write_many(vec![Change::Insert(1, 1)]).unwrap()),
                        _ => drop(poll_once(Box::pin(handle.write_async(Change::Remove(1))).as_mut())),
                    }
                    // Threads of other tests have numbers, too, so the numbers of these threads vary.
                    let (here, used) = (slot().index % nodes, (handle.replica(), topology.node_of_current()));
                    all_there.wait();
                    assert_eq!(used, (Some(here), here), "way {way}");
                })
            };
            (0..threads).for_each(|way| _ = spawn(way));
        });
        // A bound handle keeps its replica, wherever it is used.
        let mut handle = replicated.handle();
        handle.read(&1).unwrap();
        let bound = handle.replica();
        let handle = thread::spawn(move || {
            handle.write(Change::Insert(2, 2)).unwrap();
            handle
        });
        assert_eq!(handle.join().unwrap().replica(), bound);
    }
}

/// If the replicas are given by number, without a topology, handles are assigned to them in turn.
#[test]
fn handles_are_dealt_out_to_replicas_in_turn() {
    let replicated = ledger().replicas(3).build(Ledger::numbered());
    let mut handles: Vec<_> = (0..6).map(|_| replicated.handle()).collect();
    // The assignment follows the order in which the handles are first used.
    let mut used = |at: usize| {
        handles[at].read(&0).unwrap();
        handles[at].replica().unwrap()
    };
    assert_eq!([5, 0, 3, 1, 2, 4].map(&mut used), [0, 1, 2, 0, 1, 2]);
    assert_eq!([5, 0, 3, 1, 2, 4].map(&mut used), [0, 1, 2, 0, 1, 2]);
}

/// Counts how many times it is woken.
#[derive(Default)]
struct Bell(AtomicU64);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls `meanwhile` while the combiner of replica 1 is stalled and this replica is not up to date.
fn while_replica_1_stands_still(replicated: &Replicated<Ledger>, meanwhile: impl FnOnce()) {
    let gate = archipelago_platform::sync::Arc::new(Gate::default());
    /// Opens the gate when it is dropped, also by a failed assertion.
    struct Open<'g>(&'g Gate);
    impl Drop for Open<'_> {
        fn drop(&mut self) {
            self.0.open();
        }
    }
    thread::scope(|scope| {
        let opening = Open(&gate);
        let stalled = scope.spawn(|| replicated.handle_on(1).write(Change::Stall(1, gate.clone())).unwrap());
        while gate.waiting.load(archipelago_platform::atomic::Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        replicated.handle_on(0).write(Change::Insert(5, 6)).unwrap();
        meanwhile();
        drop(opening);
        stalled.join().unwrap();
    });
}

/// If a future is leaked while it waits, the handle's next future, or the handle's drop, frees its slot.
#[test]
fn forgotten_futures_leave_their_slots() {
    watchdog(USUAL, |notes| {
        for reads in [false, true] {
            notes.note(format!("reads: {reads}"));
            let replicated = ledger().replicas(2).slots(2).build(Ledger::numbered());
            while_replica_1_stands_still(&replicated, || {
                for mut handle in [1; 4].map(|replica| replicated.handle_on(replica)) {
                    for _ in 0..3 {
                        if reads {
                            poll_and_forget(handle.read_async(&5));
                        } else {
                            poll_and_forget(handle.write_async(Change::Insert(5, 7)));
                        }
                    }
                }
            });
            // A later change on replica 1 handles the requests that were cancelled.
            replicated.handle_on(1).write(Change::Remove(5)).unwrap();
            while_replica_1_stands_still(&replicated, || {
                let [mut one, mut two] = [1; 2].map(|replica| replicated.handle_on(replica));
                let bell = Arc::new(Bell::default());
                let mut futures =
                    [Box::pin(one.write_async(Change::Remove(1))), Box::pin(two.write_async(Change::Remove(2)))];
                for future in &mut futures {
                    let waker = Waker::from(bell.clone());
                    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                }
                assert_eq!(bell.0.load(Ordering::Relaxed), 0, "the thread that finds no slot asks to be polled again");
            });
        }
    });
}

/// A reader that is cancelled while it waits leaves no waker behind, although no thread wakes it.
#[test]
fn cancelled_reads_leave_nothing() {
    watchdog(USUAL, |_| {
        let replicated = ledger().replicas(2).build(Ledger::numbered());
        while_replica_1_stands_still(&replicated, || {
            let mut handle = replicated.handle_on(1);
            let bell = Arc::new(Bell::default());
            let waker = Waker::from(bell.clone());
            let mut future = Box::pin(handle.read_async(&5));
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            drop((future, waker));
            assert_eq!(Arc::strong_count(&bell), 1);
        });
    });
}

/// Handles, bound or not, and their futures are all leaked. Other handles continue to work.
#[test]
fn forgotten_handles_stop_nobody() {
    watchdog(USUAL, |_| {
        let replicated = ledger().replicas(2).slots(2).log_capacity(8).build(Ledger::numbered());
        for at in 0..200 {
            let mut handle = replicated.handle();
            match at % 4 {
                0 => poll_and_forget(handle.write_async(Change::Insert(at % 8, at))),
                1 => poll_and_forget(handle.read_async(&at)),
                2 => _ = handle.write(Change::Insert(at % 8, at)).unwrap(),
                _ => {}
            }
            std::mem::forget(handle);
        }
        thread::scope(|scope| {
            for replica in 0..8 {
                let mut handle = replicated.handle_on(replica % 2);
                scope.spawn(move || {
                    (0..200).for_each(|at| {
                        handle.write(Change::Insert(at % 8, at)).unwrap();
                    })
                });
            }
        });
        assert_eq!(replicated.handle().read(&0).unwrap().number, 1700);
    });
}

/// The last handle is dropped in a thread's last destructors, and with it the structure and its background threads.
#[test]
fn a_thread_local_owns_the_structure() {
    thread_local! {
        static OWNER: core::cell::RefCell<Option<Handle<Ledger>>> = const { core::cell::RefCell::new(None) };
    }
    watchdog(USUAL, |_| {
        for _ in 0..20 {
            let replicated = ledger().replicas(2).helper(Duration::from_millis(1)).dedicated_combiners();
            let replicated = replicated.build(Ledger::numbered());
            let thread = thread::spawn(move || {
                OWNER.with_borrow_mut(|owner| owner.insert(replicated.handle()).write(Change::Insert(1, 1)).unwrap());
            });
            thread.join().unwrap();
        }
    });
}
