//! A change that waits for readers is prepared meanwhile; one that does not wait is not.
#![cfg(not(loom))]

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_replicate::{Combined, Replicated, Sequential};

/// A reader stays inside until a change was prepared.
#[derive(Clone, Default)]
struct Patient(Arc<Seen>);

#[derive(Default)]
struct Seen {
    reader_is_in: AtomicBool,
    prepared: AtomicU64,
}

impl Seen {
    /// Waits until `ready`, or so long that it will not come to that.
    fn wait(ready: impl Fn() -> bool) -> bool {
        (0..if cfg!(miri) { 10_000 } else { 1_000_000 }).any(|_| {
            thread::yield_now();
            ready()
        })
    }
}

impl Sequential for Patient {
    type Read = ();
    type Write = u64;
    type Response = bool;

    fn read(&self, (): &()) -> bool {
        self.0.reader_is_in.store(true, Ordering::Relaxed);
        Seen::wait(|| self.0.prepared.load(Ordering::Relaxed) > 0)
    }

    fn write(&mut self, operation: &u64) -> bool {
        self.0.prepared.load(Ordering::Relaxed) == *operation
    }

    fn prepare(&self, operation: &u64) {
        self.0.prepared.store(*operation, Ordering::Relaxed);
    }
}

/// `write` and `read` are of two handles that share a replica.
fn check(seen: &Seen, mut write: impl FnMut(u64) -> bool, read: impl FnOnce() -> bool + Send) {
    watchdog(USUAL, |_| {
        assert!(write(0), "nobody to wait for, so nothing to prepare");
        thread::scope(|scope| {
            let reader = scope.spawn(read);
            assert!(Seen::wait(|| seen.reader_is_in.load(Ordering::Relaxed)), "readers get in");
            assert!(write(7), "prepared while the reader was in");
            assert!(reader.join().unwrap(), "the reader saw it");
        });
        assert!(write(7), "nothing was prepared since");
    });
}

#[test]
fn node_replication_prepares() {
    for replicas in [1, 2] {
        let structure = Patient::default();
        let replicated = Replicated::builder().replicas(replicas).build(|| structure.clone());
        let (mut writer, mut reader) = (replicated.handle_on(0), replicated.handle_on(0));
        check(&structure.0, |operation| writer.write(operation).unwrap(), || reader.read(&()).unwrap());
    }
}

#[test]
fn combining_prepares() {
    let structure = Patient::default();
    let combined = Combined::new(structure.clone());
    let (mut writer, mut reader) = (combined.handle(), combined.handle());
    check(&structure.0, |operation| writer.write(operation).unwrap(), || reader.read(&()).unwrap());
}
