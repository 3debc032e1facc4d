//! Power losses, ends of the process, and failures at many different calls of the disk, during a workload. Power losses
//! also happen during the recovery.
//!
//! `ARCHIPELAGO_CRASH_POINTS=N` tests about N states of the disk (some hundreds by default).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use archipelago_journal::{Call, Disk, Fault, Simulated};
use archipelago_txn::{Acknowledge, Database, Failure, Silo};

use crate::bank::Bank;

const HERE: &str = "/bank";

fn points() -> usize {
    std::env::var("ARCHIPELAGO_CRASH_POINTS").map_or(800, |text| text.parse().expect("a number of points"))
}

#[derive(Clone, Copy)]
struct Kind {
    lanes: usize,
    acknowledge: Acknowledge,
}

/// The kinds of workloads: transactions that wait for the disk, and transactions with explicit flushes at intervals.
/// (The background thread's interval is so long that it never flushes.)
fn kinds() -> [Kind; 3] {
    let later = Acknowledge::Committed { every: Duration::from_secs(100_000) };
    let durable = Acknowledge::Durable;
    [
        Kind { lanes: 1, acknowledge: durable },
        Kind { lanes: 3, acknowledge: durable },
        Kind { lanes: 3, acknowledge: later },
    ]
}

fn open(disk: &Simulated, kind: Kind) -> Result<(Database<Silo>, Bank<Silo>), Failure> {
    let opening = Database::open(HERE).disk(Arc::new(disk.clone())).lanes(kind.lanes).segment(1_500).queue(16 << 10);
    let mut opening = opening.acknowledge(kind.acknowledge).in_order(200);
    let bank = Bank::declare(&mut opening);
    Ok((opening.start()?, bank))
}

/// The progress of the workload: the number of moves (transfers) that were begun, and the number of moves that are
/// certainly durable.
#[derive(Clone, Copy, Default)]
struct Told {
    begun: u64,
    durable: u64,
}

impl Told {
    /// Makes `count` moves, or fewer if one fails. Returns `true` if none failed.
    fn moves(&mut self, db: &Database<Silo>, bank: &Bank<Silo>, kind: Kind, count: u64) -> bool {
        for _ in 0..count {
            let number = self.begun;
            self.begun += 1;
            if db.transact(|tx| bank.transfer(tx, 0, number, true)).is_err() {
                return false;
            }
            if kind.acknowledge == Acknowledge::Durable || (number % 5 == 4 && db.flush().is_ok()) {
                self.durable = self.begun;
            }
            // Removed records are freed, and their keys get new records.
            db.collect();
        }
        true
    }

    /// Opens the database twice, and makes checkpoints between moves.
    fn story(&mut self, disk: &Simulated, kind: Kind) {
        for _ in 0..2 {
            let Ok((db, bank)) = open(disk, kind) else { return };
            for _ in 0..2 {
                if !self.moves(&db, &bank, kind, 9) || db.checkpoint().is_err() {
                    return;
                }
                // A checkpoint contains all commits, so they are durable now.
                self.durable = self.begun;
            }
            if !self.moves(&db, &bank, kind, 6) || db.close().is_err() {
                return;
            }
            self.durable = self.begun;
        }
    }

    /// Checks that the disk has a prefix of the moves, which includes all durable ones. Sets the progress to the
    /// recovered moves.
    fn look(&mut self, disk: &Simulated, kind: Kind, what: &str) {
        let (db, bank) = open(disk, kind).unwrap_or_else(|failure| panic!("{what}: {failure}"));
        let there = bank.audit(&db).remove(&0).unwrap_or_default();
        let count = there.len() as u64;
        assert_eq!(there, (0..count).collect::<Vec<_>>(), "{what}: a move is missing");
        assert!(self.durable <= count && count <= self.begun, "{what}: {count} of {}..{}", self.durable, self.begun);
        (self.begun, self.durable) = (count, count);
    }
}

fn calls(kind: Kind) -> usize {
    let disk = Simulated::new();
    let mut told = Told::default();
    told.story(&disk, kind);
    assert_eq!((told.begun, told.durable), (48, 48));
    let (db, bank) = open(&disk, kind).unwrap();
    assert_eq!(bank.audit(&db)[&0].len(), 48);
    assert!(disk.calls().iter().filter(|&&call| call == Call::Create).count() > 20, "too few files");
    disk.calls().len()
}

/// Runs the workload with a fault at a call of the disk.
fn with_fault(kind: Kind, at: usize, fault: Fault) -> (Simulated, Told) {
    let disk = Simulated::new();
    disk.fail_at(at, fault);
    let mut told = Told::default();
    told.story(&disk, kind);
    (disk, told)
}

fn exists(disk: &Simulated) -> bool {
    Disk::create_directory(disk, Path::new(HERE)).is_ok()
}

#[test]
fn power_losses_lose_nothing_that_was_acknowledged() {
    let kinds = kinds().map(|kind| (kind, calls(kind)));
    let all: usize = kinds.iter().map(|(_, calls)| calls).sum();
    // The distance between two calls with a fault, and the number of disk states that are tested for each.
    let step = (2 * all / points()).max(1);
    let seeds = points().div_ceil(all / step).max(2) as u64 + 1;
    let mut looked = 0;
    for (kind, calls) in kinds {
        for at in (0..=calls).step_by(step) {
            let (disk, told) = with_fault(kind, at, Fault::PowerLoss);
            for seed in 0..seeds {
                let salt = seed + seeds * at as u64;
                let after = disk.power_loss(if seed == 0 { 0 } else { salt });
                if !exists(&after) {
                    continue;
                }
                looked += 1;
                let what = format!("{} lanes, call {at}, seed {seed}", kind.lanes);
                let mut told = told;
                // The recovery also loses power at some call.
                after.fail_at((salt % 90) as usize, Fault::PowerLoss);
                let crashed = match open(&after, kind) {
                    Ok((db, bank)) => {
                        bank.audit(&db);
                        !told.moves(&db, &bank, kind, 0)
                    }
                    Err(_) => true,
                };
                let after = if crashed { after.power_loss(salt) } else { after.restarted() };
                if !exists(&after) {
                    continue;
                }
                told.look(&after, kind, &what);
                let (db, bank) = open(&after.restarted(), kind).unwrap();
                assert!(told.moves(&db, &bank, kind, 3));
                drop((db, bank));
            }
        }
    }
    println!("{looked} crash points");
    assert!(looked * 3 > points() * 2, "{looked}");
}

#[test]
fn going_on_after_a_power_loss_loses_nothing() {
    for kind in kinds() {
        let calls = calls(kind);
        for at in (0..=calls).step_by(13) {
            let (disk, mut told) = with_fault(kind, at, Fault::PowerLoss);
            let mut disk = disk.power_loss(at as u64);
            for life in 0..3 {
                if !exists(&disk) {
                    break;
                }
                told.look(&disk, kind, &format!("call {at}, life {life}"));
                let here = disk.restarted();
                let (db, bank) = open(&here, kind).unwrap();
                assert!(told.moves(&db, &bank, kind, 5));
                if life == 1 {
                    db.checkpoint().unwrap();
                    told.durable = told.begun;
                }
                disk = here.power_loss(at as u64 + life);
                drop((db, bank));
            }
        }
    }
}

#[test]
fn ends_of_the_process_and_failed_calls_lose_nothing_that_was_acknowledged() {
    for kind in kinds() {
        let calls = calls(kind);
        for fault in [Fault::PowerLoss, Fault::Io, Fault::NoSpace, Fault::Short] {
            for at in (0..=calls).step_by(11) {
                let (disk, told) = with_fault(kind, at, fault);
                let what = format!("{} lanes, call {at}, {fault:?}", kind.lanes);
                told.clone().look(&disk.restarted(), kind, &what);
                let after = disk.power_loss(at as u64);
                if exists(&after) {
                    told.clone().look(&after, kind, &what);
                }
            }
        }
    }
}
