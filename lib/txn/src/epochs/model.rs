//! Loom models of the claims of `epochs.rs`: that a snapshot is one moment in the order of serialization, and that what
//! running transactions read is kept.
//!
//! The clock, the snapshots and the fences are the product's. A record is a word of the model, with the orderings of
//! `record.rs`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --profile model --target-dir target/loom -p archipelago-txn --lib`

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sync::backoff::Backoff;

use super::{Epochs, Keeps};

/// A scheme with one version per row.
struct Single;

impl Keeps for Single {
    const MANY: bool = false;
    type Kept = ();
}

/// A multi-version scheme.
struct Many;

impl Keeps for Many {
    const MANY: bool = true;
    type Kept = ();
}

/// A record that at most one commit of a model writes. The word is 0 before the commit, and then the commit's epoch.
struct Row(AtomicU64);

const LATCHED: u64 = u64::MAX;

impl Row {
    fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// As `Record::latch`.
    fn latch(&self) {
        assert!(self.0.compare_exchange(0, LATCHED, Ordering::Acquire, Ordering::Relaxed).is_ok());
    }

    /// As the drop of a `Latch`.
    fn install(&self, epoch: u64) {
        self.0.store(epoch, Ordering::Release);
    }

    /// As `Record::settled`: returns the epoch of the newest version.
    fn settled(&self) -> u64 {
        let backoff = Backoff::new();
        loop {
            match self.0.load(Ordering::Acquire) {
                LATCHED => backoff.wait(),
                epoch => return epoch,
            }
        }
    }

    /// Returns whether the row is as before the commit, and not latched.
    fn is_old(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Returns whether a snapshot sees the commit.
    fn is_seen(&self, snapshot: u64) -> bool {
        (1..=snapshot).contains(&self.settled())
    }
}

/// The state that the threads of a model share.
struct World<S: Keeps> {
    epochs: Epochs<S>,
    read: Row,
    written: Row,
}

impl<S: Keeps + 'static> World<S> {
    fn new() -> Arc<Self> {
        Arc::new(Self { epochs: Epochs::new(), read: Row::new(), written: Row::new() })
    }

    /// Commits a transaction that writes one row and reads nothing. Returns its epoch, and whether it keeps the
    /// replaced version for snapshots.
    fn write(&self, row: &Row) -> (u64, bool) {
        row.latch();
        let epoch = self.epochs.enter();
        let keeps = self.epochs.count() > 0;
        row.install(epoch);
        (epoch, keeps)
    }

    /// Commits a transaction that has read one row and writes the other one, if `holds` returns true for the row that
    /// was read and the commit's epoch. Returns whether the transaction has committed.
    fn read_and_write(&self, [read, written]: [&Row; 2], holds: impl Fn(&Row, u64) -> bool) -> bool {
        written.latch();
        let epoch = self.epochs.enter();
        let holds = holds(read, epoch);
        written.install(if holds { epoch } else { 0 });
        holds
    }
}

/// Claims 1 and 2, and that a commit after a snapshot keeps what the snapshot sees.
fn a_snapshot_beside_a_commit<S: Keeps + 'static>() {
    model(3, || {
        let world = World::<S>::new();
        let commit = {
            let world = world.clone();
            thread::spawn(move || world.write(&world.written))
        };
        let snapshot = world.epochs.open();
        let is_seen = world.written.is_seen(snapshot);
        let (epoch, keeps) = commit.join().expect("no panic");
        assert_eq!(is_seen, epoch <= snapshot, "a snapshot has all commits up to it");
        assert!(keeps || epoch <= snapshot, "a later commit keeps what the snapshot sees");
    });
}

/// Claim 3: if a commit has read what another one overwrites, no snapshot has the second one without the first one.
/// The reader calls `begin` when it begins, and commits if `holds` returns true for the row, the result of `begin` and
/// the commit's epoch.
fn a_snapshot_beside_a_reader_and_a_writer<S: Keeps + 'static>(
    begin: fn(&Epochs<S>) -> u64,
    holds: fn(&Row, u64, u64) -> bool,
) {
    model(3, move || {
        let world = World::<S>::new();
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                let started = begin(&world.epochs);
                let rows = [&world.read, &world.written];
                world.read.is_old() && world.read_and_write(rows, |read, epoch| holds(read, started, epoch))
            })
        };
        let writer = {
            let world = world.clone();
            thread::spawn(move || world.write(&world.read))
        };
        let snapshot = world.epochs.open();
        let sees_writer = world.read.is_seen(snapshot);
        let sees_reader = world.written.is_seen(snapshot);
        let committed = reader.join().expect("no panic");
        writer.join().expect("no panic");
        assert!(sees_reader || !sees_writer || !committed, "a snapshot without a transaction that precedes it");
    });
}

#[test]
fn a_snapshot_has_all_commits_up_to_it() {
    a_snapshot_beside_a_commit::<Single>();
}

#[test]
fn a_snapshot_has_all_stamps_up_to_it() {
    a_snapshot_beside_a_commit::<Many>();
}

/// A transaction of a multi-version scheme is such a snapshot, without a place in the table.
#[test]
fn a_transaction_sees_all_stamps_up_to_its_moment() {
    model(3, || {
        let world = World::<Many>::new();
        let commit = {
            let world = world.clone();
            thread::spawn(move || world.write(&world.written))
        };
        let moment = world.epochs.begin();
        let is_seen = world.written.is_seen(moment);
        let (stamp, _) = commit.join().expect("no panic");
        assert_eq!(is_seen, stamp <= moment);
    });
}

/// Silo: what was read is validated after the load of the clock.
#[test]
fn a_snapshot_has_what_was_read_before() {
    a_snapshot_beside_a_reader_and_a_writer::<Single>(|_| 0, |read, _, _| read.is_old());
}

/// Hekaton: the same with stamps.
#[test]
fn a_snapshot_has_what_was_read_before_by_stamps() {
    a_snapshot_beside_a_reader_and_a_writer::<Many>(|_| 0, |read, _, _| read.is_old());
}

/// TicToc: what was read may have been replaced since, if the clock has not moved since the transaction began.
#[test]
fn a_snapshot_has_what_was_read_and_replaced_since() {
    a_snapshot_beside_a_reader_and_a_writer::<Single>(Epochs::settled_now, |_, started, epoch| started == epoch);
}

/// Two transactions each read what the other one writes. (`tree.rs`: each inserts into a gap of the other one.)
fn two_that_read_what_the_other_writes<S: Keeps + 'static>() {
    model(3, || {
        let world = World::<S>::new();
        let other = {
            let world = world.clone();
            thread::spawn(move || world.read_and_write([&world.written, &world.read], |read, _| read.is_old()))
        };
        let one = world.read_and_write([&world.read, &world.written], |read, _| read.is_old());
        let other = other.join().expect("no panic");
        assert!(!(one && other), "each has missed the other's latch");
    });
}

#[test]
fn of_two_that_read_what_the_other_writes_one_fails() {
    two_that_read_what_the_other_writes::<Single>();
}

#[test]
fn of_two_that_read_what_the_other_writes_one_fails_by_stamps() {
    two_that_read_what_the_other_writes::<Many>();
}

/// A transaction begins beside a commit that replaces a version and then prunes what no moment needs.
fn a_beginning_beside_pruning(runs_before: bool) {
    model(3, move || {
        let world = World::<Many>::new();
        if runs_before {
            world.epochs.begin();
            world.epochs.end();
        }
        let prune = {
            let world = world.clone();
            thread::spawn(move || {
                let stamp = world.epochs.draw();
                (stamp, world.epochs.needs().lie_in(1, stamp))
            })
        };
        let moment = world.epochs.begin();
        let (stamp, keeps) = prune.join().expect("no panic");
        assert!(keeps || stamp <= moment, "the version that the transaction reads was pruned");
    });
}

#[test]
fn what_a_first_transaction_reads_is_kept() {
    a_beginning_beside_pruning(false);
}

#[test]
fn what_a_later_transaction_reads_is_kept() {
    a_beginning_beside_pruning(true);
}
