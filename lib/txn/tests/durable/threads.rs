//! Concurrent threads and checkpoints, and a power loss at an arbitrary moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_journal::{Disk, Fault, Simulated};
use archipelago_txn::{Acknowledge, Database, Hekaton, MvRlu, NoWait, Scheme, Silo, TicToc, WaitDie};

use crate::bank::Bank;

const HERE: &str = "/bank";
const TELLERS: u64 = 4;

fn open<S: Scheme>(disk: &Simulated, acknowledge: Acknowledge) -> (Database<S>, Bank<S>) {
    let opening = Database::open(HERE).disk(Arc::new(disk.clone())).lanes(3).segment(20_000).acknowledge(acknowledge);
    let mut opening = opening;
    let bank = Bank::declare(&mut opening);
    (opening.start().unwrap_or_else(|failure| panic!("{failure}")), bank)
}

/// Runs tellers until the disk fails. Returns, for each teller, how many of its moves were acknowledged and how many
/// were begun.
fn tellers<S: Scheme>(db: &Database<S>, bank: &Bank<S>, first: &BTreeMap<u64, Vec<u64>>) -> BTreeMap<u64, (u64, u64)> {
    let over = AtomicBool::new(false);
    let told: Vec<_> = (0..TELLERS).map(|_| (AtomicU64::new(0), AtomicU64::new(0))).collect();
    thread::scope(|scope| {
        for teller in 0..TELLERS {
            let (over, (durable, begun)) = (&over, &told[teller as usize]);
            let first = first.get(&teller).map_or(0, |moves| moves.len() as u64);
            durable.store(first, Ordering::Relaxed);
            begun.store(first, Ordering::Relaxed);
            scope.spawn(move || {
                for number in first.. {
                    begun.store(number + 1, Ordering::Relaxed);
                    if db.transact(|tx| bank.transfer(tx, teller, number, false)).is_err() {
                        return over.store(true, Ordering::Relaxed);
                    }
                    durable.store(number + 1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = db.checkpoint();
                bank.audit(db);
            }
        });
    });
    let told = told.into_iter().map(|(durable, begun)| (durable.into_inner(), begun.into_inner()));
    (0..TELLERS).zip(told).collect()
}

fn power_losses<S: Scheme>(acknowledge: Acknowledge) {
    watchdog(USUAL, |_| {
        for seed in 0..6 {
            let mut disk = Simulated::new();
            let mut told: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            for life in 0..4 {
                let (db, bank) = open::<S>(&disk, acknowledge);
                let there = bank.audit(&db);
                for (teller, &(durable, begun)) in &told {
                    let moves = there.get(teller).cloned().unwrap_or_default();
                    let count = moves.len() as u64;
                    assert_eq!(moves, (0..count).collect::<Vec<_>>(), "teller {teller}");
                    let certain = if acknowledge == Acknowledge::Durable { durable } else { 0 };
                    assert!(certain <= count && count <= begun, "teller {teller}: {count} of {durable}..{begun}");
                }
                disk.fail_at(disk.calls().len() + 40 + (seed * 37 + life * 11) as usize % 150, Fault::PowerLoss);
                told = tellers(&db, &bank, &there);
                disk = disk.power_loss(seed * 4 + life);
                assert!(Disk::create_directory(&disk, Path::new(HERE)).is_ok());
            }
        }
    });
}

#[test]
fn no_transaction_is_lost_and_none_is_there_without_those_that_it_read_silo() {
    power_losses::<Silo>(Acknowledge::Durable);
}

#[test]
fn no_transaction_is_lost_and_none_is_there_without_those_that_it_read_tictoc() {
    power_losses::<TicToc>(Acknowledge::Durable);
}

#[test]
fn no_transaction_is_lost_and_none_is_there_without_those_that_it_read_no_wait() {
    power_losses::<NoWait>(Acknowledge::Durable);
}

#[test]
fn no_transaction_is_lost_and_none_is_there_without_those_that_it_read_wait_die() {
    power_losses::<WaitDie>(Acknowledge::Durable);
}

#[test]
fn what_is_not_waited_for_is_a_beginning() {
    power_losses::<Silo>(Acknowledge::Committed { every: Duration::from_millis(1) });
}

#[test]
fn no_transaction_is_lost_and_none_is_there_without_those_that_it_read_hekaton() {
    power_losses::<Hekaton>(Acknowledge::Durable);
}

#[test]
fn no_transaction_is_lost_and_none_is_there_without_those_that_it_read_mvrlu() {
    power_losses::<MvRlu>(Acknowledge::Durable);
}
