//! A change that waits for readers is prepared while it waits; a change that does not wait is not. A panic in `prepare`
//! poisons.
#![cfg(not(loom))]

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use archipelago_replicate::{Combined, Poisoned, Replicated, Sequential};

/// A structure whose reader stays inside until a change is prepared.
#[derive(Clone, Default)]
struct Patient(Arc<Seen>);

#[derive(Default)]
struct Seen {
    reader_is_in: AtomicBool,
    prepared: AtomicU64,
}

impl Seen {
    /// Waits for `ready`. Returns false after 10,000 attempts, natively not before 20 seconds.
    fn wait(ready: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        (0..).take_while(|n| *n < 10_000 || !cfg!(miri) && begun.elapsed() < Duration::from_secs(20)).any(|_| {
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
        assert_ne!(*operation, FATAL, "planted");
    }
}

/// `prepare` panics for this operation.
const FATAL: u64 = 13;

type Outcome = Result<bool, Poisoned>;

/// Runs the checks. `write` and `read` use two handles that share a replica.
fn check(seen: &Seen, mut write: impl FnMut(u64) -> Outcome + Send, mut read: impl FnMut() -> Outcome + Send) {
    watchdog(USUAL, |_| {
        assert_eq!(write(0), Ok(true), "no thread to wait for, so nothing to prepare");
        let mut write_beside_a_reader = |operation| {
            seen.reader_is_in.store(false, Ordering::Relaxed);
            thread::scope(|scope| {
                let reader = scope.spawn(&mut read);
                assert!(Seen::wait(|| seen.reader_is_in.load(Ordering::Relaxed)), "readers get in");
                let written = write(operation);
                assert_eq!(reader.join().unwrap(), Ok(true), "prepared while the reader was in");
                written
            })
        };
        assert_eq!(write_beside_a_reader(7), Ok(true));
        seen.prepared.store(0, Ordering::Relaxed);
        assert!(write_beside_a_reader(FATAL).unwrap_err().message().contains("planted"));
        assert!(write(1).is_err() && read().is_err(), "poisoned");
    });
}

#[test]
fn node_replication_prepares() {
    for replicas in [1, 2] {
        let structure = Patient::default();
        let replicated = Replicated::builder().replicas(replicas).build(|| structure.clone());
        let (mut writer, mut reader) = (replicated.handle_on(0), replicated.handle_on(0));
        check(&structure.0, |operation| writer.write(operation), || reader.read(&()));
    }
}

#[test]
fn combining_prepares() {
    let structure = Patient::default();
    let combined = Combined::new(structure.clone());
    let (mut writer, mut reader) = (combined.handle(), combined.handle());
    check(&structure.0, |operation| writer.write(operation), || reader.read(&()));
}
