//! RCU: sections that holders of values keep, and continue.

use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sync::rcu::{Domain, Flavour, Held, Keeper};
use loom::cell::UnsafeCell;

/// The value that the threads of the models below hold. loom detects if it is freed while a thread reads it. The value
/// counts how many times it is freed.
struct Noted(UnsafeCell<u64>, std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl Noted {
    fn look(&self) {
        self.0.with(|value| assert_eq!(unsafe { *value }, 7));
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.with_mut(|value| unsafe { *value = 0 });
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Runs a model with a domain, a held value and its keeper. Checks that the value is freed once.
fn with_held(
    preemptions: usize,
    run: impl Fn(&'static Domain, Held<'static, Noted>, Keeper<'static, Noted>) + Send + Sync + 'static,
) {
    model(preemptions, move || {
        let freed = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let domain = Box::into_raw(Box::new(Domain::with_flavour(Flavour::Epoch)));
        // SAFETY: freed below, after everything that borrows it.
        let shared: &'static Domain = unsafe { &*domain };
        let held = shared.pin_owned().keep(Noted(UnsafeCell::new(7), freed.clone()));
        let keeper = Held::keeper(&held);
        run(shared, held, keeper);
        assert_eq!(freed.load(std::sync::atomic::Ordering::Relaxed), 1, "freed once");
        assert_eq!(shared.stats().active_readers, 0);
        // SAFETY: made above.
        drop(unsafe { Box::from_raw(domain) });
    });
}

/// The last holder leaves while the keeper is dropped. One of them frees the held value, and sees the accesses of the
/// other.
#[test]
fn what_is_held_is_freed_once() {
    with_held(3, |_, held, keeper| {
        let other = held.clone();
        let threads = [held, other].map(|held| thread::spawn(move || held.look()));
        keeper.what().look();
        drop(keeper);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// The last holder leaves while the keeper makes another one. The section lasts as long as there is a holder.
#[test]
fn a_holder_comes_while_the_last_one_leaves() {
    with_held(3, |domain, held, keeper| {
        let leaves = thread::spawn(move || held.look());
        let held = keeper.hold().expect("the epoch has not moved");
        held.look();
        assert_eq!(domain.stats().active_readers, 1, "there is a holder");
        leaves.join().unwrap();
        assert_eq!(domain.stats().active_readers, 1, "there is a holder still");
        drop(held);
        assert_eq!(domain.stats().active_readers, 0);
    });
}

/// Two threads try to hold the section again after the epoch has moved, and neither succeeds. They own the record one
/// after the other.
#[test]
fn two_holders_that_may_not_come() {
    with_held(2, |domain, held, keeper| {
        drop(held);
        domain.collect();
        let keeper = Arc::new(keeper);
        let other = {
            let keeper = keeper.clone();
            thread::spawn(move || assert!(keeper.hold().is_none()))
        };
        assert!(keeper.hold().is_none());
        other.join().unwrap();
        assert_eq!(domain.stats().active_readers, 0);
    });
}

/// Two threads hold the section again at the same time, while it has no holder. One of them enters it, and the section
/// lasts as long as either of them.
#[test]
fn two_holders_come_at_once() {
    with_held(2, |domain, held, keeper| {
        drop(held);
        let keeper = Arc::new(keeper);
        let other = {
            let keeper = keeper.clone();
            thread::spawn(move || keeper.hold().expect("the epoch has not moved").look())
        };
        let held = keeper.hold().expect("the epoch has not moved");
        held.look();
        assert_eq!(domain.stats().active_readers, 1);
        other.join().unwrap();
        assert_eq!(domain.stats().active_readers, 1);
    });
}
