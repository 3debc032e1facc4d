//! One test suite for all locks: the same tests for all mutexes, and for all reader-writer locks.
#![cfg(not(loom))]

#[path = "lock/mutex.rs"]
mod mutex;
#[path = "lock/rwlock.rs"]
mod rwlock;

use archipelago_platform::thread;
use archipelago_sync::lock::{
    RawBravo, RawCboMcs, RawCna, RawCohort, RawCrwNp, RawCrwRp, RawCrwWp, RawDistributedRwLock, RawHmcs, RawMcs,
    RawShfl, RawShflRw, RawTas, RawTicket, RawTtas, RawUnqueuedRwLock,
};

/// Returns `native`, or under Miri the smaller number `miri`.
const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

/// Runs `work` in `threads` threads at the same time.
fn in_threads(threads: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for number in 0..threads {
            let work = &work;
            scope.spawn(move || work(number));
        }
    });
}

macro_rules! mutexes {
    ($($name:ident: $lock:ty),* $(,)?) => {
        $(mod $name {
            use super::*;

            #[test]
            fn counts() {
                mutex::counts::<$lock>();
            }
            #[test]
            fn try_lock() {
                mutex::try_lock::<$lock>();
            }
            #[test]
            fn come_and_go() {
                mutex::come_and_go::<$lock>();
            }
            #[test]
            fn panics() {
                mutex::panics::<$lock>();
            }
            #[test]
            fn nested_out_of_order() {
                mutex::nested_out_of_order::<$lock>();
            }
            #[test]
            fn in_last_destructors() {
                mutex::in_last_destructors::<$lock>();
            }
            #[test]
            fn unlocked_by_another_thread() {
                mutex::unlocked_by_another_thread::<$lock>();
            }
        })*
    };
}

macro_rules! rwlocks {
    ($($name:ident: $lock:ty),* $(,)?) => {
        $(mod $name {
            use super::*;

            #[test]
            fn excludes() {
                rwlock::excludes::<$lock>();
            }
            #[test]
            fn shares() {
                rwlock::shares::<$lock>();
            }
            #[test]
            fn try_locks() {
                rwlock::try_locks::<$lock>();
            }
            #[test]
            fn come_and_go() {
                rwlock::come_and_go::<$lock>();
            }
            #[test]
            fn panics() {
                rwlock::panics::<$lock>();
            }
            #[test]
            fn nested_out_of_order() {
                rwlock::nested_out_of_order::<$lock>();
            }
            #[test]
            fn in_last_destructors() {
                rwlock::in_last_destructors::<$lock>();
            }
            #[test]
            fn leaves_where_it_entered() {
                rwlock::leaves_where_it_entered::<$lock>();
            }
        })*
    };
}

mutexes! {
    tas: RawTas,
    ttas: RawTtas,
    ticket: RawTicket,
    mcs: RawMcs,
    cna: RawCna,
    hmcs: RawHmcs,
    cohort: RawCohort,
    c_bo_mcs: RawCboMcs,
    shfl: RawShfl,
}

rwlocks! {
    distributed: RawDistributedRwLock,
    unqueued: RawUnqueuedRwLock,
    crw_np: RawCrwNp,
    crw_rp: RawCrwRp,
    crw_wp: RawCrwWp,
    bravo_np: RawBravo<RawCrwNp>,
    shfl_rw: RawShflRw,
    bravo_distributed: RawBravo<RawDistributedRwLock>,
    bravo_shfl_rw: RawBravo<RawShflRw>,
}

#[test]
fn distributed_prefers_writers() {
    rwlock::prefers_writers::<RawDistributedRwLock>();
    rwlock::prefers_writers::<RawUnqueuedRwLock>();
}

#[test]
fn distributed_upgrades() {
    rwlock::upgrades::<RawDistributedRwLock>();
    rwlock::upgrades::<RawUnqueuedRwLock>();
}

#[test]
fn crw_wp_prefers_writers() {
    rwlock::prefers_writers::<RawCrwWp>();
}

#[test]
fn crw_np_lets_writers_in() {
    rwlock::prefers_writers::<RawCrwNp>();
}

#[test]
fn bravo_lets_writers_in() {
    rwlock::prefers_writers::<RawBravo<RawCrwNp>>();
}

#[test]
fn crw_rp_prefers_readers() {
    rwlock::prefers_readers::<RawCrwRp>();
}

#[test]
fn distributed_downgrades() {
    rwlock::downgrades::<RawDistributedRwLock>();
    rwlock::downgrades::<RawUnqueuedRwLock>();
}

/// In most of the runs there are more threads than reader slots, so threads share slots.
#[test]
fn distributed_shares_slots() {
    for slots in 1..4 {
        rwlock::excludes_with(|| RawDistributedRwLock::with_slots(slots));
        rwlock::excludes_with(|| RawUnqueuedRwLock::with_slots(slots));
    }
}

/// The locks' sizes are those in the table in `docs/mechanisms/locks.md`.
#[test]
fn sizes_are_as_documented() {
    assert_eq!((size_of::<RawTas>(), size_of::<RawTtas>(), size_of::<RawTicket>()), (1, 1, 8));
    assert_eq!((size_of::<RawMcs>(), size_of::<RawCna>(), size_of::<RawShfl>()), (16, 40, 16));
    assert_eq!((size_of::<RawCohort>(), size_of::<RawHmcs>(), size_of::<RawCboMcs>()), (32, 40, 32));
    assert_eq!((size_of::<RawDistributedRwLock>(), size_of::<RawCrwNp>()), (256, 56));
    assert_eq!((size_of::<RawUnqueuedRwLock>(), size_of::<RawShflRw>()), (256, 24));
    assert_eq!((size_of::<RawBravo<RawCrwNp>>(), size_of::<RawBravo<RawShflRw>>()), (256, 256));
}

/// Runs the suite again on synthetic machines. The topology is fixed for a process, so each machine needs a process of
/// its own: this test program, started again with the topology in its environment.
#[test]
#[cfg(not(miri))]
fn on_machines_of_several_nodes() {
    const VARIABLE: &str = "ARCHIPELAGO_TOPOLOGY";
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    for topology in archipelago_check::topologies::topologies() {
        let (nodes, cpus) = (topology.nodes().len(), topology.cpus().len());
        let text = format!("{nodes}x{}", cpus / nodes);
        let program = std::env::current_exe().expect("this program's path");
        let output = std::process::Command::new(program).env(VARIABLE, &text).output().expect("starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "on {text}:\n{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Many waiters (12 threads) at once. On the synthetic machines they are on several nodes. Every waiter must be served:
/// those that CNA moves to its second queue, those that wait for a cohort's hand-over, and those that the shuffling
/// mutex moves.
#[test]
fn mixed_nodes_many_waiters() {
    mutex::everybody_waits::<RawCna>();
    mutex::everybody_waits::<RawHmcs>();
    mutex::everybody_waits::<RawCohort>();
    mutex::everybody_waits::<RawCboMcs>();
    mutex::everybody_waits::<RawShfl>();
    mutex::everybody_waits::<RawMcs>();
}
