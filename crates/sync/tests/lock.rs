//! Every lock through one suite: the same text for all mutexes, and for all reader-writer locks.
#![cfg(not(loom))]

#[path = "lock/mutex.rs"]
mod mutex;
#[path = "lock/rwlock.rs"]
mod rwlock;

use archipelago_platform::thread;
use archipelago_sync::lock::{RawDistributedRwLock, RawTas, RawTtas};

/// As many as asked for, fewer where each step is interpreted.
const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

/// Runs `work` in `threads` threads at once.
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
        })*
    };
}

mutexes! {
    tas: RawTas,
    ttas: RawTtas,
}

rwlocks! {
    distributed: RawDistributedRwLock,
}

#[test]
fn distributed_prefers_writers() {
    rwlock::prefers_writers::<RawDistributedRwLock>();
}

#[test]
fn distributed_downgrades() {
    rwlock::downgrades::<RawDistributedRwLock>();
}

/// More reading threads than slots.
#[test]
fn distributed_shares_slots() {
    for slots in 1..4 {
        rwlock::excludes_with(|| RawDistributedRwLock::with_slots(slots));
    }
}
