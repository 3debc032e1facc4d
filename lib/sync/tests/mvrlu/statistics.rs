//! A domain's statistics.

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::thread;
use archipelago_sync::mvrlu::{Collection, Link};

use super::{eager, retire_all, scaled};

/// Requests for statistics, the pruning of versions that no snapshot needs, and the registration of handles run at the
/// same time. They must not wait for each other in a cycle.
#[test]
fn statistics_beside_pruners_and_new_handles() {
    let domain = eager().build();
    let links: Vec<Link<u64>> = (0..4).map(|_| domain.alloc(0)).collect();
    let (mut stuck, stop) = (domain.register(), AtomicBool::new(false));
    let snapshot = stuck.read();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut handle = domain.register();
                while !stop.load(Ordering::Relaxed) {
                    handle.update(|tx| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? += 1))).unwrap();
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(domain.stats().handles > 0);
            }
        });
        // All handles are alive at the same time, so each needs a new record (the data by which collectors find the
        // handle's sections).
        let handles: Vec<_> = (0..scaled(2_000, 5)).map(|_| domain.register()).collect();
        stop.store(true, Ordering::Relaxed);
        drop(handles);
    });
    drop(snapshot);
    retire_all(&domain, &links);
}

#[test]
fn statistics_never_count_the_domains_own_handle() {
    let domain = eager().collection(Collection::Background).build();
    let link = domain.alloc(0_u64);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut handle = domain.register();
        let is_done = &is_done;
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                handle.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
            }
        });
        for _ in 0..scaled(5_000_000, 100) {
            if domain.stats().handles != 1 {
                is_done.store(true, Ordering::Relaxed);
            }
        }
        assert!(!is_done.swap(true, Ordering::Relaxed), "the domain's own handle was counted");
    });
    retire_all(&domain, &[link]);
}
