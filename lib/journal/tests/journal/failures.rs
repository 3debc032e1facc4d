//! The errors that the journal returns after a write or a sync has failed, and when the disk is full.

use crate::common::{open, record, small};
use archipelago_journal::{Call, Error, Fault, Journal, Options, Policy, Position, Simulated};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

fn append(journal: &Journal, number: usize) -> Result<Position, Error> {
    journal.append(0, 0, &record(0, number))
}

fn assert_poisoned<T>(result: Result<T, Error>, call: &str) {
    let error = result.err().expect("an error");
    let Error::Poisoned { call: found, .. } = &error else { panic!("{error}") };
    assert_eq!(*found, call);
    assert!(error.to_string().contains("nothing is acknowledged any more"), "{error}");
}

#[test]
fn nothing_is_acknowledged_after_a_failed_write_or_sync() {
    for (call, fault, name) in
        [(Call::Write, Fault::Io, "write"), (Call::Sync, Fault::Io, "sync"), (Call::Sync, Fault::NoSpace, "sync")]
    {
        for policy in [Policy::Always, Policy::Never] {
            let disk = Simulated::new();
            let (journal, ..) = open(&disk, &Options { lanes: 2, policy, ..small() }).unwrap();
            let safe = append(&journal, 0).unwrap();
            journal.sync().unwrap();
            let lost = append(&journal, 1).unwrap();
            disk.fail_next(call, fault);
            assert_poisoned(journal.sync(), name);
            // The error is permanent. The disk works again, so a sync would succeed, but without the lost bytes.
            for _ in 0..3 {
                assert_poisoned(journal.wait(lost), name);
                assert_poisoned(journal.wait(safe), name);
                assert_poisoned(journal.is_durable(safe), name);
                assert_poisoned(append(&journal, 2), name);
                assert_poisoned(journal.append(1, 0, b"another lane"), name);
                assert_poisoned(journal.sync(), name);
                assert_poisoned(journal.retire_before(safe), name);
            }
            assert_poisoned(journal.close(), name);
            let (.., delivered) = open(&disk.power_loss(1), &Options { lanes: 2, ..small() }).unwrap();
            assert!(delivered[0].contains(&(safe, record(0, 0))));
        }
    }
}

#[test]
fn a_failure_wakes_all_who_wait() {
    let disk = Simulated::new();
    let options = Options { lanes: 2, epochs: true, background: true, ..small() };
    let (journal, recovery, _) = open(&disk, &options).unwrap();
    let epoch = recovery.next_epoch;
    disk.hold(Call::Write);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| journal.wait_epoch(epoch))).collect();
        let blocked: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| -> Result<(), Error> {
                    loop {
                        journal.append(0, epoch + 1, &[1; 300])?;
                    }
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(10));
        disk.fail_next(Call::Write, Fault::Io);
        disk.release();
        waiters.into_iter().chain(blocked).for_each(|thread| assert_poisoned(thread.join().unwrap(), "write"));
    });
}

/// After a failed sync the system returns bytes that the disk does not have. Recovery must not treat these bytes as
/// durable.
#[test]
fn what_a_failed_sync_lost_is_written_again_by_recovery() {
    let disk = Simulated::new();
    let (journal, ..) = open(&disk, &small()).unwrap();
    append(&journal, 4).unwrap();
    disk.fail_next(Call::Sync, Fault::Io);
    assert_poisoned(journal.sync(), "sync");
    drop(journal);
    let disk = disk.restarted();
    let (journal, _, delivered) = open(&disk, &small()).unwrap();
    assert_eq!(delivered[0].len(), 1, "the system shows it");
    let position = append(&journal, 5).unwrap();
    journal.wait(position).unwrap();
    let (.., delivered) = open(&disk.power_loss(0), &small()).unwrap();
    assert_eq!(delivered[0].len(), 2);
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    for background in [false, true] {
        for policy in [Policy::Always, Policy::Every(Duration::from_millis(1)), Policy::Never] {
            let disk = Simulated::new();
            let options = Options { background, policy, ..small() };
            let (journal, ..) = open(&disk, &options).unwrap();
            let mut kept = Vec::new();
            let mut acknowledged = 0;
            for round in 1..4 {
                disk.set_capacity(Some(disk.used() + 2000));
                let full = loop {
                    assert!(kept.len() < 500, "the disk is never full");
                    let bytes = record(0, kept.len());
                    let position = match journal.append(0, 0, &bytes) {
                        Ok(position) => position,
                        Err(error) => break error,
                    };
                    kept.push((position, bytes));
                    match journal.wait(position) {
                        Ok(()) => acknowledged = kept.len(),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(full, Error::NoSpace { .. }) && full.to_string().contains("no space"), "{full}");
                assert!(acknowledged >= 4 * round, "{acknowledged}");
                // Appends are refused repeatedly. The disk's records are whole, and include all acknowledged ones.
                for _ in 0..3 {
                    assert!(matches!(append(&journal, 0), Err(Error::NoSpace { .. })));
                }
                assert!(matches!(journal.sync(), Err(Error::NoSpace { .. })));
                let seeds = if policy == Policy::Never { 1..2 } else { 0..6 };
                for seed in seeds {
                    let (_, recovery, delivered) = open(&disk.power_loss(seed), &small()).unwrap();
                    assert_eq!(delivered[0], kept[..delivered[0].len()]);
                    assert!(delivered[0].len() >= acknowledged, "{recovery:?}");
                }
                // A background thread tries again all the time, and its attempt's pieces are on the disk until it cuts them.
                let is_whole = |_| open(&disk.restarted(), &small()).unwrap().1.cuts.is_empty();
                assert!((0..if background { 100 } else { 1 }).any(is_whole), "a record was left in pieces");
                disk.set_capacity(None);
                journal.sync().unwrap();
                acknowledged = kept.len();
            }
            let position = append(&journal, kept.len()).unwrap();
            kept.push((position, record(0, kept.len())));
            journal.wait(position).unwrap();
            journal.close().unwrap();
            assert_eq!(open(&disk, &small()).unwrap().2[0], kept);
        }
    }
}

/// Once there is room again, appends succeed; no other call is needed.
#[test]
fn appends_find_room_again() {
    for background in [false, true] {
        let disk = Simulated::new();
        let (journal, ..) = open(&disk, &Options { background, ..small() }).unwrap();
        disk.set_capacity(Some(disk.used()));
        let first = append(&journal, 6).unwrap();
        assert!(matches!(journal.wait(first), Err(Error::NoSpace { .. })));
        assert!(append(&journal, 7).is_err());
        disk.set_capacity(None);
        let position = loop {
            match append(&journal, 7) {
                Ok(position) => break position,
                Err(Error::NoSpace { .. }) if background => thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
        };
        journal.wait(position).unwrap();
        assert!(journal.is_durable(first).unwrap());
    }
}

/// Returns the result of a wait, or panics if the wait does not end.
fn ended(journal: &Arc<Journal>, position: Position) -> Result<(), Error> {
    let (sender, receiver) = mpsc::channel();
    let journal = journal.clone();
    thread::spawn(move || sender.send(journal.wait(position)));
    receiver.recv_timeout(Duration::from_secs(20)).expect("the wait ends")
}

/// Appends a record, as soon as there is room for it.
fn append_at_last(journal: &Journal, epoch: u64) {
    while let Err(error) = journal.append(0, epoch, b"later") {
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// An append causes the next attempt to write, and asks for no sync.
#[test]
fn a_sync_that_found_no_space_is_owed() {
    for in_flight in [false, true] {
        let disk = Simulated::new();
        let options = Options { epochs: true, background: true, ..small() };
        let (journal, recovery, _) = open(&disk, &options).unwrap();
        let (journal, epoch) = (Arc::new(journal), recovery.next_epoch);
        let used = disk.used();
        if in_flight {
            // The closing mark is appended while its records are written, and stays behind them.
            disk.hold(Call::Write);
        } else {
            disk.set_capacity(Some(used));
        }
        let position = journal.append(0, epoch, b"record").unwrap();
        if in_flight {
            journal.ask(0);
            thread::sleep(Duration::from_millis(20));
        }
        journal.close_epoch(epoch).unwrap();
        disk.set_capacity(Some(used));
        disk.release();
        assert!(matches!(ended(&journal, position), Err(Error::NoSpace { .. })));
        thread::sleep(Duration::from_millis(20));
        disk.set_capacity(None);
        append_at_last(&journal, epoch + 1);
        ended(&journal, position).unwrap();
        assert!(journal.is_durable(position).unwrap());
    }
}

/// A repeated wait causes another attempt to write; no other call is needed.
#[test]
fn a_repeated_wait_for_an_epoch_asks_again() {
    let disk = Simulated::new();
    let (journal, recovery, _) = open(&disk, &Options { epochs: true, background: true, ..small() }).unwrap();
    let (journal, epoch) = (Arc::new(journal), recovery.next_epoch);
    let position = journal.append(0, epoch, b"record").unwrap();
    disk.set_capacity(Some(disk.used()));
    journal.close_epoch(epoch).unwrap();
    assert!(matches!(ended(&journal, position), Err(Error::NoSpace { .. })));
    disk.set_capacity(None);
    let told = (0..5_000).map(|_| {
        thread::sleep(Duration::from_millis(1));
        ended(&journal, position)
    });
    assert!({ told }.any(|told| told.is_ok()));
}

/// When the disk is full, records that were written before are still synced for the threads that wait for them.
#[test]
fn a_full_disk_syncs_what_it_has() {
    let disk = Simulated::new();
    let (journal, ..) = open(&disk, &Options { segment: 1 << 20, ..small() }).unwrap();
    let mut positions = Vec::new();
    // When the queue is full, threads that append write it, but do not sync it.
    while journal.end(0).place < 6000 {
        positions.push(journal.append(0, 0, &[5; 500]).unwrap());
    }
    assert!(journal.queued(0) > 0 && !journal.is_durable(positions[0]).unwrap());
    disk.set_capacity(Some(disk.used()));
    journal.wait(positions[0]).unwrap();
    assert!(matches!(journal.wait(*positions.last().unwrap()), Err(Error::NoSpace { .. })));
}

/// A lane that finds no space keeps no other lane from the disk, neither in a sync nor at the end.
#[test]
fn a_lane_without_space_stops_no_other_lane() {
    for closes in [false, true] {
        let disk = Simulated::new();
        let options = Options { lanes: 3, ..small() };
        let (journal, ..) = open(&disk, &options).unwrap();
        for lane in 0..3 {
            journal.append(lane, 0, b"record").unwrap();
        }
        disk.fail_at(disk.calls().len(), Fault::NoSpace);
        let outcome = if closes { journal.close() } else { journal.sync() };
        assert!(matches!(outcome, Err(Error::NoSpace { .. })), "{outcome:?}");
        let (_, _, delivered) = open(&disk.power_loss(0), &options).unwrap();
        assert_eq!(delivered.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 1]);
    }
}

/// With `Never`, a sync opens all segments since the last one. Meanwhile a checkpoint may retire them.
#[test]
fn a_sync_passes_over_segments_that_are_retired_meanwhile() {
    for _ in 0..20 {
        let disk = Simulated::new();
        let (journal, ..) = open(&disk, &Options { policy: Policy::Never, ..small() }).unwrap();
        for number in 0..200 {
            journal.wait(append(&journal, number).unwrap()).unwrap();
        }
        // Both threads stop at their first sync: one after it has opened a segment, the other while it writes the
        // manifest.
        disk.hold(Call::Sync);
        thread::scope(|scope| {
            let sync = scope.spawn(|| journal.sync());
            let retire = scope.spawn(|| journal.retire_before(journal.end(0)));
            thread::sleep(Duration::from_millis(1));
            disk.release();
            retire.join().unwrap().unwrap();
            sync.join().unwrap().unwrap();
        });
        journal.wait(append(&journal, 200).unwrap()).unwrap();
    }
}
