//! Loom models of a row's lock: exclusion, orderings, and that the lock is free in the end.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --profile model --target-dir target/loom -p archipelago-txn --lib`

use archipelago_platform::cell::RaceCell;
use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;

use super::Mode;

/// The interface of a lock that the models use.
pub(crate) trait Locks: Default + Send + Sync + 'static {
    /// Requests the lock. Returns whether it was granted; otherwise the transaction has to give up.
    fn take(&self, mode: Mode, held: Option<Mode>, arrival: u64) -> bool;
    fn release(&self, held: Mode, arrival: u64);
    fn is_free(&self) -> bool;
}

/// A row, whose accesses loom checks, with its lock.
struct Row<L> {
    lock: L,
    value: RaceCell<u64>,
}

// SAFETY: loom ends the run when accesses to the value are not ordered.
unsafe impl<L: Sync> Sync for Row<L> {}

impl<L: Locks> Row<L> {
    fn read(&self) -> u64 {
        // SAFETY: loom ends the run if another thread writes concurrently.
        self.value.with(|value| unsafe { *value })
    }

    fn add(&self) {
        // SAFETY: loom ends the run if another thread reads or writes concurrently.
        self.value.with_mut(|value| unsafe { *value += 1 })
    }

    /// Runs a transaction that adds one. If `reads_first`, it first locks the row as a reader. Returns whether it has
    /// added one.
    fn transact(&self, reads_first: bool, arrival: u64) -> bool {
        let mut held = None;
        let mut before = None;
        if reads_first {
            if !self.lock.take(Mode::Share, None, arrival) {
                return false;
            }
            (held, before) = (Some(Mode::Share), Some(self.read()));
        }
        let writes = self.lock.take(Mode::Exclude, held, arrival);
        if writes {
            assert!(before.is_none_or(|before| before == self.read()), "another wrote what this one had locked");
            self.add();
            held = Some(Mode::Exclude);
        }
        if let Some(held) = held {
            self.lock.release(held, arrival);
        }
        writes
    }

    /// Runs a transaction that reads twice. Returns whether it got the lock.
    fn look(&self, arrival: u64) -> bool {
        let takes = self.lock.take(Mode::Share, None, arrival);
        if takes {
            assert_eq!(self.read(), self.read());
            self.lock.release(Mode::Share, arrival);
        }
        takes
    }
}

/// Runs transactions concurrently, each once. In the end the row's value is the number of transactions that wrote, and
/// the lock is free.
pub(crate) fn beside<L: Locks>(others: &'static [fn(&Beside<L>, u64) -> bool]) {
    model(3, move || {
        let row = Arc::new(Row { lock: L::default(), value: RaceCell::new(0) });
        let run = |at: usize, row: Arc<Row<L>>| move || others[at](&Beside(row), at as u64 + 1);
        let threads: Vec<_> = (1..others.len()).map(|at| thread::spawn(run(at, row.clone()))).collect();
        let mut wrote = u64::from(run(0, row.clone())());
        for thread in threads {
            wrote += u64::from(thread.join().expect("no panic"));
        }
        assert!(row.lock.is_free(), "a lock is left");
        assert!(row.lock.take(Mode::Exclude, None, 9), "it can be had");
        assert_eq!(row.read(), wrote);
    });
}

/// One transaction's access to the row.
pub(crate) struct Beside<L>(Arc<Row<L>>);

impl<L: Locks> Beside<L> {
    pub(crate) fn writes(&self, arrival: u64) -> bool {
        self.0.transact(false, arrival)
    }

    pub(crate) fn upgrades(&self, arrival: u64) -> bool {
        self.0.transact(true, arrival)
    }

    /// Returns `false`, since nothing is written.
    pub(crate) fn reads(&self, arrival: u64) -> bool {
        self.0.look(arrival);
        false
    }
}

/// Defines the models of a lock.
macro_rules! all_or_nothing {
    ($lock:ty) => {
        use crate::locks::model::{Beside, beside};

        #[test]
        fn two_that_write() {
            beside::<$lock>(&[Beside::writes, Beside::writes]);
        }

        #[test]
        fn two_that_read_and_then_write() {
            beside::<$lock>(&[Beside::upgrades, Beside::upgrades]);
        }

        #[test]
        fn one_that_writes_beside_two_that_read() {
            beside::<$lock>(&[Beside::reads, Beside::writes, Beside::reads]);
        }
    };
}
pub(crate) use all_or_nothing;
