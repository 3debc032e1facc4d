//! The tests that every reader-writer lock must pass, and those for locks that prefer one side, or can be downgraded or
//! upgraded.

use core::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_platform::atomic::{AtomicBool, AtomicUsize, Ordering};
use archipelago_platform::sync::Barrier;
use archipelago_platform::thread::{self, bind_current};
use archipelago_platform::topology::Topology;
use archipelago_sync::lock::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use lock_api::{RawRwLock, RawRwLockDowngrade, RawRwLockUpgrade};

use super::{in_threads, scaled};

/// Two plain words that are equal whenever no writer is in the critical section.
type Pair<R> = RwLock<R, [usize; 2]>;

/// Adds one to both words, sometimes with a pause in between, in which a second thread in the section would be
/// detected.
fn write(pair: &mut [usize; 2]) {
    let before = pair[1];
    pair[0] += 1;
    pause(before);
    pair[1] = before + 1;
}

/// Checks both words, sometimes with a pause in between.
fn read(pair: &[usize; 2]) {
    let first = pair[0];
    pause(first);
    assert_eq!(first, pair[1]);
}

fn pause(at: usize) {
    if at.is_multiple_of(64) {
        thread::yield_now();
    }
}

/// Writers exclude writers and readers, with few threads and with more threads than cores.
pub fn excludes<R: RawRwLock + Send + Sync>() {
    excludes_with(|| R::INIT);
}

pub fn excludes_with<R: RawRwLock + Send + Sync>(make: impl Fn() -> R) {
    for (threads, writes_in_4) in [(2, 2), (4, 1), (scaled(16, 4), 1), (3, 4)] {
        let rounds = scaled(12_000, 40) / threads;
        let pair = Pair::from_raw(make(), [0; 2]);
        let writes = AtomicUsize::new(0);
        let work = |number| {
            for round in 0..rounds {
                if (round + number) % 4 < writes_in_4 {
                    write(&mut pair.write());
                    writes.fetch_add(1, Ordering::Relaxed);
                } else {
                    read(&pair.read());
                }
            }
        };
        watchdog(USUAL, |_| in_threads(threads, work));
        assert_eq!(pair.into_inner(), [writes.into_inner(); 2]);
    }
}

/// Readers share the lock, and exclude a writer.
pub fn shares<R: RawRwLock + Send + Sync>() {
    let readers = 4;
    let (pair, all_in) = (Pair::<R>::new([0; 2]), Barrier::new(readers));
    watchdog(USUAL, |_| {
        in_threads(readers, |_| {
            let guard = pair.read();
            all_in.wait();
            assert!(pair.is_locked() && !pair.is_locked_exclusive());
            // The threads wait at a barrier first, because a `try_write` that is about to fail may look like a writer
            // to other threads.
            all_in.wait();
            assert!(pair.try_write().is_none());
            all_in.wait();
            drop(guard);
        });
    });
    assert!(!pair.is_locked());
    assert!(pair.try_write().is_some());
}

pub fn try_locks<R: RawRwLock + Send + Sync>() {
    let pair = Pair::<R>::new([0; 2]);
    drop(pair.try_read().expect("free"));
    {
        // Tests locks with a reader bias, which the read above has enabled. After a writer's failed attempt, the next
        // writer must still respect the reader that entered by the bias.
        let _one = pair.try_read().expect("free");
        in_threads(1, |_| (0..3).for_each(|_| assert!(pair.try_write().is_none())));
    }
    {
        let _one = pair.try_read().expect("free");
        let _two = pair.try_read().expect("readers share");
        in_threads(1, |_| assert!(pair.try_read().is_some() && pair.try_write().is_none()));
        assert!(pair.try_write().is_none());
    }
    {
        let _only = pair.try_write().expect("free");
        assert!(pair.is_locked() && pair.is_locked_exclusive());
        assert!(pair.try_read().is_none() && pair.try_write().is_none());
        in_threads(1, |_| assert!(pair.try_read().is_none() && pair.try_write().is_none()));
    }
    let (rounds, writes) = (scaled(2_000, 20), AtomicUsize::new(0));
    let work = |number| {
        for _ in 0..rounds {
            if let Some(mut pair) = (number == 0).then(|| pair.try_write()).flatten() {
                write(&mut pair);
                writes.fetch_add(1, Ordering::Relaxed);
            }
            pair.try_read().inspect(|pair| read(pair));
            write(&mut pair.write());
        }
    };
    watchdog(USUAL, |_| in_threads(3, work));
    assert_eq!(pair.into_inner(), [writes.into_inner() + 3 * rounds; 2]);
}

/// Short-lived threads lock while others contend.
pub fn come_and_go<R: RawRwLock + Send + Sync>() {
    let (lines, threads, rounds) = (4, scaled(60, 4), 10);
    let pair = Pair::<R>::new([0; 2]);
    let short = || {
        for _ in 0..rounds {
            read(&pair.read());
            write(&mut pair.write());
        }
    };
    let line = |_| (0..threads).for_each(|_| thread::scope(|scope| scope.spawn(short).join().expect("no panic")));
    watchdog(USUAL, |_| in_threads(lines, line));
    assert_eq!(pair.into_inner(), [lines * threads * rounds; 2]);
}

/// Readers and writers that panic unlock, while others wait.
pub fn panics<R: RawRwLock + Send + Sync>() {
    let pair = Pair::<R>::new([0; 2]);
    let rounds = scaled(200, 10);
    let work = |number| {
        for round in 0..rounds {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _read = ((round + number) % 2 == 0).then(|| pair.read());
                if (round + number) % 2 == 1 {
                    write(&mut pair.write());
                    let _held = pair.write();
                    std::panic::resume_unwind(Box::new("planted"));
                }
                std::panic::resume_unwind(Box::new("planted"));
            }));
            assert!(panicked.is_err());
        }
    };
    watchdog(USUAL, |_| in_threads(4, work));
    assert_eq!(pair.into_inner(), [2 * rounds; 2]);
}

/// Several locks are held at once, some for reading, and released in a different order than they were taken.
pub fn nested_out_of_order<R: RawRwLock + Send + Sync>() {
    enum Held<'l, R: RawRwLock> {
        Read(RwLockReadGuard<'l, R, [usize; 2]>),
        Write(RwLockWriteGuard<'l, R, [usize; 2]>),
    }
    let pairs: [Pair<R>; 8] = core::array::from_fn(|_| Pair::new([0; 2]));
    let writes = AtomicUsize::new(0);
    let work = |number: usize| {
        for round in 0..scaled(400, 6) {
            let take = |(at, pair)| match (at + round + number) % 3 {
                0 => Some(Held::Write(RwLock::write(pair))),
                _ => Some(Held::Read(RwLock::read(pair))),
            };
            let mut held: Vec<Option<Held<'_, R>>> = pairs.iter().enumerate().map(take).collect();
            for step in 0..held.len() {
                // 3 has no common divisor with the number of locks, so every guard is dropped once.
                let at = (step * 3 + round + number) % held.len();
                match held[at].take().expect("each once") {
                    Held::Read(pair) => read(&pair),
                    Held::Write(mut pair) => {
                        write(&mut pair);
                        writes.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    };
    watchdog(USUAL, |_| in_threads(4, work));
    let written: usize = pairs.into_iter().map(|pair| pair.into_inner()[0]).sum();
    assert_eq!(written, writes.into_inner());
}

/// A read guard is stored in a thread-local that was registered before any thread-local of the lock, and is dropped
/// after them. The unlock must find the reader slot that the guard uses, although the thread's number may belong to
/// another thread by then.
pub fn in_last_destructors<R: RawRwLock + Send + Sync + 'static>() {
    struct Last(Option<Box<dyn FnOnce()>>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.take().expect("set below")();
        }
    }
    thread::thread_local! {
        static LAST: RefCell<Last> = const { RefCell::new(Last(None)) };
    }
    let leaked: *mut Pair<R> = Box::into_raw(Box::new(Pair::new([0; 2])));
    // SAFETY: freed below, when the threads that use it have ended.
    let pair: &'static Pair<R> = unsafe { &*leaked };
    let work = move || {
        LAST.with(|last| last.borrow_mut().0 = Some(Box::new(|| ())));
        let guard = pair.read();
        let at_last = move || {
            // This new thread takes the first thread's number, which is free by now.
            thread::scope(|scope| scope.spawn(|| drop(pair.try_read())).join().expect("no panic"));
            assert_eq!(guard[0], guard[1]);
            drop(guard);
            write(&mut pair.write());
        };
        LAST.with(|last| last.borrow_mut().0 = Some(Box::new(at_last)));
    };
    let (threads, rounds) = (3, scaled(30, 2));
    watchdog(USUAL, |_| {
        for _ in 0..rounds {
            let running: Vec<_> = (0..threads).map(|_| thread::spawn(work)).collect();
            running.into_iter().for_each(|thread| thread.join().expect("no panic"));
        }
    });
    assert_eq!(*pair.read(), [threads * rounds; 2]);
    // SAFETY: made above, and all threads that knew it have ended.
    drop(unsafe { Box::from_raw(leaked) });
}

/// A reader that moves to another node while it holds the lock departs from the node at which it arrived. It does so
/// even if it took other locks after the move and releases these other locks last. The test has an effect only on
/// machines of several nodes, including synthetic ones.
pub fn leaves_where_it_entered<R: RawRwLock + Send + Sync>() {
    let topology = Topology::current();
    let nodes = topology.nodes();
    let (first, second) = (Pair::<R>::new([0; 2]), Pair::<R>::new([0; 2]));
    // A failure to move is not an error: the system may forbid it.
    let go = |node: usize| {
        if nodes.len() > 1 {
            drop(bind_current(topology, nodes[node % nodes.len()].id));
        }
    };
    let work = |_| {
        for node in 0..nodes.len() * 2 {
            go(node);
            let one = first.read();
            go(node + 1);
            let two = second.read();
            go(node + 2);
            drop(one);
            assert!(first.try_write().is_some() && second.try_write().is_none());
            drop(two);
            assert!(!first.is_locked() && !second.is_locked());
        }
    };
    watchdog(USUAL, |_| in_threads(1, work));
}

/// Once a writer waits for a reader inside, no new reader enters before this writer.
pub fn prefers_writers<R: RawRwLock + Send + Sync>() {
    let pair = Pair::<R>::new([0; 2]);
    watchdog(USUAL, |_| {
        thread::scope(|scope| {
            // The second read uses the reader bias, if the lock has one.
            drop(pair.read());
            let inside = pair.read();
            scope.spawn(|| write(&mut pair.write()));
            // Loops until the writer waits. With a lock that always admits readers, this loop would not end.
            while pair.try_read().is_some() {
                thread::yield_now();
            }
            let reader = scope.spawn(|| *pair.read());
            assert_eq!(inside[0], 0);
            drop(inside);
            assert_eq!(reader.join().expect("no panic"), [1, 1]);
        });
    });
}

/// Readers enter while a writer waits for a reader inside.
pub fn prefers_readers<R: RawRwLock + Send + Sync>() {
    let (pair, written) = (Pair::<R>::new([0; 2]), AtomicBool::new(false));
    watchdog(USUAL, |_| {
        thread::scope(|scope| {
            let inside = pair.read();
            scope.spawn(|| {
                write(&mut pair.write());
                written.store(true, Ordering::Relaxed);
            });
            for _ in 0..scaled(200, 10) {
                thread::yield_now();
                // Reads in another thread, because a second read of the same thread might be admitted because of its
                // first.
                scope.spawn(|| assert_eq!(*pair.read(), [0, 0])).join().expect("no panic");
            }
            assert!(!written.load(Ordering::Relaxed));
            drop(inside);
        });
    });
    assert_eq!(pair.into_inner(), [1, 1]);
}

/// A writer that downgrades to a reader admits readers, and no writer enters in between.
pub fn downgrades<R: RawRwLockDowngrade + Send + Sync>() {
    let pair = Pair::<R>::new([0; 2]);
    let rounds = scaled(500, 10);
    watchdog(USUAL, |_| {
        in_threads(3, |_| {
            for _ in 0..rounds {
                let mut guard = pair.write();
                write(&mut guard);
                let mine = guard[0];
                let guard = RwLockWriteGuard::downgrade(guard);
                assert_eq!(*guard, [mine; 2]);
            }
        });
    });
    let guard = RwLockWriteGuard::downgrade(pair.write());
    in_threads(1, |_| assert!(pair.try_read().is_some() && pair.try_write().is_none()));
    drop(guard);
    assert_eq!(pair.into_inner(), [3 * rounds; 2]);
}

/// An upgradable lock shares the lock with the readers that it finds, excludes all other threads, and becomes exclusive
/// when these readers have left.
pub fn upgrades<R: RawRwLockUpgrade + Send + Sync>() {
    let pair = Pair::<R>::new([0; 2]);
    let reader = pair.read();
    let upgradable = pair.try_upgradable_read().expect("readers share");
    in_threads(1, |_| assert!(pair.try_write().is_none() && pair.try_upgradable_read().is_none()));
    let upgradable = RwLockUpgradableReadGuard::try_upgrade(upgradable).expect_err("a reader is in");
    drop(reader);
    drop(RwLockUpgradableReadGuard::try_upgrade(upgradable).expect("no other thread is in"));
    drop(pair.upgradable_read());
    assert!(!pair.is_locked());

    let (rounds, threads) = (scaled(3_000, 20), 3);
    let work = |_| {
        for _ in 0..rounds {
            read(&pair.read());
            let upgradable = pair.upgradable_read();
            let before = *upgradable;
            let mut exclusive = RwLockUpgradableReadGuard::upgrade(upgradable);
            assert_eq!(before, *exclusive, "no thread comes in between");
            write(&mut exclusive);
        }
    };
    watchdog(USUAL, |_| in_threads(threads, work));
    assert_eq!(pair.into_inner(), [rounds * threads; 2]);
}
