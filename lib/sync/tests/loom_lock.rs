//! The locks under the weak memory model, in their smallest interesting configurations.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p archipelago-sync --release --test loom_lock`
//!
//! The value under a lock is a cell in which loom checks every access. Two threads in the critical section at once, or
//! an entry that is not ordered after the previous exit, are an error in any schedule that permits them.
//!
//! `RawTas` is only tested with `try_lock`. loom may place the write of a failed attempt after the unlock in the word's
//! history, so that the lock seems to be held for ever. For a similar reason, no model has two threads that wait by
//! read-modify-writes.
#![cfg(loom)]

use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sync::lock::{
    Mutex, RawBravo, RawCboMcs, RawCna, RawCohort, RawCrwNp, RawCrwRp, RawCrwWp, RawDistributedRwLock, RawHmcs, RawMcs,
    RawShfl, RawShflRw, RawTas, RawTicket, RawTtas, RawUnqueuedRwLock, RwLock, RwLockUpgradableReadGuard,
    RwLockWriteGuard, be_on_node,
};
use lock_api::{RawMutex, RawRwLock, RawRwLockDowngrade, RawRwLockUpgrade};
use loom::cell::UnsafeCell;

/// Runs `work` in the calling thread and in `others` further threads, each with its number.
fn in_threads<T: Send + Sync + 'static>(others: usize, shared: &Arc<T>, work: fn(usize, &T)) {
    let running: Vec<_> = (1..=others)
        .map(|number| {
            let shared = shared.clone();
            thread::spawn(move || work(number, &shared))
        })
        .collect();
    work(0, shared);
    running.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A counter that only one thread may access at a time.
struct Cell(UnsafeCell<usize>);

// SAFETY: the locks under test must order the accesses, and loom checks this.
unsafe impl Sync for Cell {}
// SAFETY: as above.
unsafe impl Send for Cell {}

impl Cell {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn increment(&self) {
        // SAFETY: the caller holds the lock for writing.
        self.0.with_mut(|count| unsafe { *count += 1 });
    }

    fn get(&self) -> usize {
        // SAFETY: the caller holds the lock.
        self.0.with(|count| unsafe { *count })
    }
}

/// `others` + 1 threads take the lock; the first of them takes it `times` times.
fn counts<R: RawMutex + Default + Send + Sync + 'static>(preemptions: usize, others: usize, times: usize) {
    model(preemptions, move || {
        let count = Arc::new((Mutex::from_raw(R::default(), Cell::new()), times));
        in_threads(others, &count, |number, (count, times)| {
            let times = if number == 0 { *times } else { 1 };
            (0..times).for_each(|_| count.lock().increment());
        });
        assert_eq!(count.0.lock().get(), others + times);
    });
}

/// The holder is on node 0, and the waiters are on the nodes `waiters`. They arrive in any order.
fn across<R: RawMutex + Default + Send + Sync + 'static>(preemptions: usize, waiters: &'static [usize]) {
    model(preemptions, move || {
        let count = Arc::new(Mutex::from_raw(R::default(), Cell::new()));
        let held = count.lock();
        let running: Vec<_> = waiters
            .iter()
            .map(|node| {
                let count = count.clone();
                thread::spawn(move || {
                    be_on_node(*node);
                    count.lock().increment();
                })
            })
            .collect();
        held.increment();
        drop(held);
        running.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(count.lock().get(), waiters.len() + 1);
    });
}

/// Two threads call `lock`; the third calls only `try_lock`.
fn tries<R: RawMutex + Default + Send + Sync + 'static>() {
    model(2, || {
        let count = Arc::new(Mutex::from_raw(R::default(), Cell::new()));
        in_threads(2, &count, |number, count: &Mutex<R, Cell>| {
            if number < 2 {
                count.lock().increment();
            } else if let Some(count) = count.try_lock() {
                count.increment();
            }
        });
        assert!(matches!(count.try_lock().expect("free").get(), 2 | 3));
    });
}

fn mutex<R: RawMutex + Default + Send + Sync + 'static>() {
    counts::<R>(3, 1, 2);
    tries::<R>();
}

/// A writer and a reader, each of which takes the lock twice.
fn reader_and_writer<R: RawRwLock + Default + Send + Sync + 'static>() {
    model(3, || {
        let count = Arc::new(RwLock::from_raw(R::default(), Cell::new()));
        in_threads(1, &count, |number, count: &RwLock<R, Cell>| {
            for _ in 0..2 {
                match number {
                    0 => count.write().increment(),
                    _ => assert!(count.read().get() <= 2),
                }
            }
        });
        assert_eq!(count.read().get(), 2);
    });
}

/// As [`reader_and_writer`], and also two writers with a reader.
fn rwlock<R: RawRwLock + Default + Send + Sync + 'static>() {
    reader_and_writer::<R>();
    model(2, || {
        let count = Arc::new(RwLock::from_raw(R::default(), Cell::new()));
        in_threads(2, &count, |number, count: &RwLock<R, Cell>| match number {
            0 => assert!(count.read().get() <= 2),
            _ => count.write().increment(),
        });
        assert_eq!(count.read().get(), 2);
    });
}

/// Every thread uses only the functions that do not wait (`try_…`).
fn rwlock_tries<R: RawRwLock + Default + Send + Sync + 'static>() {
    model(3, || {
        let count = Arc::new(RwLock::from_raw(R::default(), Cell::new()));
        in_threads(1, &count, |number, count: &RwLock<R, Cell>| {
            if number == 0 {
                count.try_write().inspect(|count| count.increment());
            } else {
                count.try_read().inspect(|count| assert!(count.get() <= 1));
            }
        });
        assert!(count.try_write().expect("free").get() <= 1);
    });
}

fn downgrades<R: RawRwLockDowngrade + Default + Send + Sync + 'static>() {
    model(3, || {
        let count = Arc::new(RwLock::from_raw(R::default(), Cell::new()));
        in_threads(1, &count, |_, count: &RwLock<R, Cell>| {
            let guard = count.write();
            guard.increment();
            let mine = guard.get();
            assert_eq!(RwLockWriteGuard::downgrade(guard).get(), mine);
        });
        assert_eq!(count.read().get(), 2);
    });
}

/// Two threads read first and then write the value plus one, beside a reader. In a second model, all three threads use
/// only the functions that do not wait.
fn upgrades<R: RawRwLockUpgrade + Default + Send + Sync + 'static>() {
    model(2, || {
        let count = Arc::new(RwLock::from_raw(R::default(), Cell::new()));
        in_threads(2, &count, |number, count: &RwLock<R, Cell>| match number {
            0 => assert!(count.read().get() <= 2),
            _ => {
                let guard = count.upgradable_read();
                let before = guard.get();
                let guard = RwLockUpgradableReadGuard::upgrade(guard);
                assert_eq!(guard.get(), before);
                guard.increment();
            }
        });
        assert_eq!(count.read().get(), 2);
    });
    model(2, || {
        let count = Arc::new(RwLock::from_raw(R::default(), Cell::new()));
        in_threads(2, &count, |number, count: &RwLock<R, Cell>| match number {
            0 => _ = count.try_read().inspect(|count| assert!(count.get() <= 2)),
            _ => {
                let guard = count.try_upgradable_read();
                let guard = guard.and_then(|guard| RwLockUpgradableReadGuard::try_upgrade(guard).ok());
                guard.inspect(|count| count.increment());
            }
        });
        assert!(count.try_write().expect("free").get() <= 2);
    });
}

/// Every thread calls only `try_lock`, twice, and no thread takes the lock afterwards.
#[test]
fn tas() {
    model(3, || {
        let count = Arc::new(Mutex::<RawTas, Cell>::from_raw(RawTas::default(), Cell::new()));
        in_threads(1, &count, |_, count| {
            for _ in 0..2 {
                count.try_lock().inspect(|count| count.increment());
            }
        });
    });
}

#[test]
fn ttas() {
    mutex::<RawTtas>();
}

#[test]
fn ticket() {
    mutex::<RawTicket>();
}

#[test]
fn mcs() {
    mutex::<RawMcs>();
    counts::<RawMcs>(2, 2, 1);
}

#[test]
fn cna() {
    mutex::<RawCna>();
    counts::<RawCna>(2, 2, 1);
}

#[test]
fn cna_across_nodes() {
    across::<RawCna>(1, &[1, 0]);
}

#[test]
fn hmcs() {
    mutex::<RawHmcs>();
}

#[test]
fn hmcs_across_nodes() {
    across::<RawHmcs>(2, &[1, 0]);
    across::<RawHmcs>(1, &[1, 1]);
}

#[test]
fn cohort() {
    mutex::<RawCohort>();
}

#[test]
fn cohort_across_nodes() {
    across::<RawCohort>(1, &[1, 0]);
    across::<RawCohort>(1, &[1, 1]);
}

#[test]
fn c_bo_mcs() {
    mutex::<RawCboMcs>();
}

#[test]
fn c_bo_mcs_across_nodes() {
    across::<RawCboMcs>(1, &[1, 0]);
    across::<RawCboMcs>(1, &[1, 1]);
}

#[test]
fn shfl() {
    mutex::<RawShfl>();
    counts::<RawShfl>(2, 2, 1);
}

#[test]
fn shfl_across_nodes() {
    across::<RawShfl>(2, &[1, 0]);
    across::<RawShfl>(1, &[1, 0, 0]);
}

#[test]
fn crw_np() {
    reader_and_writer::<RawCrwNp>();
    rwlock_tries::<RawCrwNp>();
}

#[test]
fn crw_rp() {
    rwlock::<RawCrwRp>();
    rwlock_tries::<RawCrwRp>();
}

#[test]
fn crw_wp() {
    rwlock::<RawCrwWp>();
    rwlock_tries::<RawCrwWp>();
}

#[test]
fn bravo() {
    rwlock::<RawBravo<RawDistributedRwLock>>();
    rwlock_tries::<RawBravo<RawDistributedRwLock>>();
}

#[test]
fn distributed() {
    rwlock::<RawDistributedRwLock>();
    rwlock_tries::<RawDistributedRwLock>();
    downgrades::<RawDistributedRwLock>();
    upgrades::<RawDistributedRwLock>();
}

#[test]
fn unqueued() {
    rwlock::<RawUnqueuedRwLock>();
    rwlock_tries::<RawUnqueuedRwLock>();
    downgrades::<RawUnqueuedRwLock>();
    upgrades::<RawUnqueuedRwLock>();
}

#[test]
fn shfl_rw() {
    rwlock::<RawShflRw>();
    rwlock_tries::<RawShflRw>();
}
