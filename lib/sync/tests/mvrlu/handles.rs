//! Handles, and their threads.

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::sync::Barrier;
use archipelago_platform::thread;
use archipelago_sync::mvrlu::{Domain, Handle};

use super::{each_kind, eager, read, retire_all, scaled};

#[test]
fn threads_that_come_and_go_strand_nothing() {
    each_kind(|domain| {
        let (link, cycles) = (domain.alloc(0_u64), scaled(2_000, 8));
        for _ in 0..cycles / 4 {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| domain.register().update(|tx| Ok(*tx.lock(link)? += 1)).unwrap());
                }
            });
        }
        assert_eq!(read(&mut domain.register(), link), cycles as u64);
        assert!(domain.stats().handles == 0);
        retire_all(&domain, &[link]);
    });
}

#[test]
fn many_handles_alive() {
    let domain = eager().build();
    let link = domain.alloc(0_u64);
    let mut handles: Vec<Handle> = (0..scaled(300, 10)).map(|_| domain.register()).collect();
    for handle in &mut handles {
        handle.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
    }
    assert_eq!(read(&mut handles[0], link), handles.len() as u64);
    assert_eq!(domain.stats().handles, handles.len());
    drop(handles);
    retire_all(&domain, &[link]);
}

#[test]
fn handles_may_travel() {
    let domain = Domain::new();
    let link = domain.alloc(0_u64);
    let mut handle = domain.register();
    let barrier = Barrier::new(2);
    let seen = AtomicUsize::new(0);
    for _ in 0..scaled(50, 3) {
        handle = thread::scope(|scope| {
            let travelled = scope.spawn(|| {
                handle.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
                barrier.wait();
                handle
            });
            barrier.wait();
            seen.store(read(&mut domain.register(), link) as usize, Ordering::Relaxed);
            travelled.join().unwrap()
        });
        assert_eq!(read(&mut handle, link), seen.load(Ordering::Relaxed) as u64);
    }
    drop(handle);
    retire_all(&domain, &[link]);
}
