//! Loom models of a row's lock: exclusion, orderings, that the lock is free in the end, and that a locked record is not
//! unlinked unnoticed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --profile model --target-dir target/loom -p archipelago-txn --lib`

use core::ops::Deref;

use archipelago_platform::cell::RaceCell;
use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;

use super::Mode;
use crate::words::head::{Latch, Words};

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

/// A record of an absent key.
struct Absent<L> {
    words: Words<u64>,
    lock: L,
}

impl<L> Deref for Absent<L> {
    type Target = Words<u64>;

    fn deref(&self) -> &Words<u64> {
        &self.words
    }
}

impl<L: Locks> Absent<L> {
    /// Returns a record that no transaction holds.
    fn new() -> Arc<Self> {
        // The address of a version, which the model does not dereference.
        let words = Words::held(core::ptr::without_provenance_mut(1 << 4));
        words.let_go();
        Arc::new(Self { words, lock: L::default() })
    }

    /// Returns whether the call has unlinked the record.
    fn unlink(&self) -> bool {
        Latch::to_unlink(self, |_| self.lock.is_free()).map(Latch::kill).is_some()
    }
}

/// A transaction locks a record and loads its head, beside a thread that unlinks the record.
pub(crate) fn beside_unlinking<L: Locks>(mode: Mode) {
    model(3, move || {
        let record = Absent::<L>::new();
        let unlinks = {
            let record = record.clone();
            thread::spawn(move || record.unlink())
        };
        assert!(record.lock.take(mode, None, 1), "no other transaction has it");
        let is_dead = record.settled().is_dead();
        assert_eq!(unlinks.join().expect("no panic"), is_dead, "a locked record was unlinked unnoticed");
    });
}

/// Defines the models of a lock.
macro_rules! all_or_nothing {
    ($lock:ty) => {
        use crate::locks::model::{Beside, beside, beside_unlinking};

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

        #[test]
        fn one_that_reads_beside_unlinking() {
            beside_unlinking::<$lock>(Mode::Share);
        }

        #[test]
        fn one_that_writes_beside_unlinking() {
            beside_unlinking::<$lock>(Mode::Exclude);
        }
    };
}
pub(crate) use all_or_nothing;
