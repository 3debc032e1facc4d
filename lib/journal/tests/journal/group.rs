//! Threads that share syncs, and the times at which the journal reports records as durable.

use crate::common::{HERE, open, record, small};
use archipelago_journal::{Call, Error, Fault, Journal, Options, Policy, Position, Simulated};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

fn threaded() -> Options {
    Options { queue: 64 << 10, background: true, ..small() }
}

fn syncs(disk: &Simulated) -> usize {
    disk.calls().iter().filter(|&&call| call == Call::Sync).count()
}

/// Waits until `what` returns true, through another thread's action.
fn until(what: impl Fn() -> bool) {
    while !what() {
        thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn threads_share_syncs_and_nothing_is_durable_before() {
    for background in [false, true] {
        let disk = Simulated::new();
        let (journal, ..) = open(&disk, &Options { background, segment: 1 << 20, ..threaded() }).unwrap();
        let before = syncs(&disk);
        disk.hold(Call::Sync);
        let (appended, returned) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..32 {
                let (journal, appended, returned) = (&journal, &appended, &returned);
                scope.spawn(move || {
                    let position = journal.append(0, 0, &record(0, number)).unwrap();
                    assert!(!journal.is_durable(position).unwrap());
                    appended.fetch_add(1, Ordering::SeqCst);
                    journal.wait(position).unwrap();
                    returned.fetch_add(1, Ordering::SeqCst);
                    assert!(journal.is_durable(position).unwrap());
                });
            }
            // All threads have appended. None may return before the disk has synced.
            until(|| appended.load(Ordering::SeqCst) == 32);
            assert_eq!(returned.load(Ordering::SeqCst), 0);
            assert_eq!(open(&disk.power_loss(0), &threaded()).unwrap().2[0].len(), 0);
            disk.release();
        });
        assert!(syncs(&disk) - before <= 2, "{} syncs for 32 threads", syncs(&disk) - before);
        let (.., delivered) = open(&disk.power_loss(0), &threaded()).unwrap();
        assert_eq!(delivered[0].len(), 32);
    }
}

#[test]
fn many_threads_keep_their_orders() {
    const THREADS: usize = 48;
    const EACH: usize = 60;
    for policy in [Policy::Always, Policy::Every(Duration::from_millis(1)), Policy::Never] {
        let disk = Simulated::new();
        let (journal, ..) = open(&disk, &Options { policy, queue: 4096, ..threaded() }).unwrap();
        thread::scope(|scope| {
            for number in 0..THREADS {
                let journal = &journal;
                scope.spawn(move || {
                    for each in 0..EACH {
                        let bytes = [&[number as u8, each as u8][..], &vec![7; each * 5]].concat();
                        let position = journal.append(0, 0, &bytes).unwrap();
                        if each % 4 == number % 4 {
                            journal.wait(position).unwrap();
                            assert!(journal.durable(0) >= position.place);
                        }
                    }
                });
            }
        });
        journal.sync().unwrap();
        let (.., delivered) = open(&disk.power_loss(0), &threaded()).unwrap();
        let mut next = BTreeMap::new();
        for (_, bytes) in &delivered[0] {
            let next = next.entry(bytes[0]).or_insert(0);
            assert_eq!(bytes[1], *next, "thread {}", bytes[0]);
            assert_eq!(bytes.len(), 2 + 5 * usize::from(bytes[1]));
            *next += 1;
        }
        assert_eq!(delivered[0].len(), THREADS * EACH);
    }
}

#[test]
fn event_loops_ask_and_are_told() {
    let (told, hears) = mpsc::channel();
    let observer: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        let _ = told.send(());
        std::panic::resume_unwind(Box::new("the observer's own business"));
    });
    let disk = Simulated::new();
    let (journal, ..) = open(&disk, &Options { observer: Some(observer), ..threaded() }).unwrap();
    for number in 0..20 {
        let position = journal.append(0, 0, &record(0, number)).unwrap();
        journal.ask(0);
        while !journal.is_durable(position).unwrap() {
            hears.recv().unwrap();
        }
        assert!(open(&disk.power_loss(0), &threaded()).unwrap().2[0].len() > number);
    }
}

#[test]
fn an_interval_syncs_by_itself_and_for_those_who_wait() {
    let disk = Simulated::new();
    let long = Options { policy: Policy::Every(Duration::from_secs(3600)), ..threaded() };
    let (journal, ..) = open(&disk, &long).unwrap();
    let before = syncs(&disk);
    let position = journal.append(0, 0, b"one").unwrap();
    journal.ask(0);
    until(|| journal.queued(0) == 0);
    assert_eq!((syncs(&disk), journal.is_durable(position).unwrap()), (before, false));
    drop(journal);
    let disk = Simulated::new();
    let short = Options { policy: Policy::Every(Duration::from_millis(3)), ..threaded() };
    let (journal, ..) = open(&disk, &short).unwrap();
    let position = journal.append(0, 0, b"one").unwrap();
    until(|| journal.is_durable(position).unwrap());
    assert_eq!(open(&disk.power_loss(0), &threaded()).unwrap().2[0].len(), 1);
    let position = journal.append(0, 0, b"two").unwrap();
    journal.wait(position).unwrap();
    assert_eq!(open(&disk.power_loss(0), &threaded()).unwrap().2[0].len(), 2);
}

#[test]
fn without_syncs_waits_survive_the_process_and_a_sync_covers_all_segments() {
    let disk = Simulated::new();
    let options = Options { policy: Policy::Never, ..small() };
    let (journal, ..) = open(&disk, &options).unwrap();
    let before = syncs(&disk);
    let mut last = None;
    for number in 0..20 {
        let position = journal.append(0, 0, &record(0, number)).unwrap();
        journal.wait(position).unwrap();
        last = Some(position);
    }
    let creations = disk.calls().iter().filter(|&&call| call == Call::Create).count();
    assert!(syncs(&disk) - before < creations, "only new segments are synced");
    assert_eq!(open(&disk.restarted(), &options).unwrap().2[0].len(), 20);
    assert_eq!(open(&disk.power_loss(0), &options).unwrap().2[0].len(), 0);
    journal.sync().unwrap();
    assert!(journal.is_durable(last.unwrap()).unwrap());
    assert_eq!(open(&disk.power_loss(0), &options).unwrap().2[0].len(), 20);
}

#[test]
fn a_full_queue_blocks_or_refuses_and_goes_on() {
    let disk = Simulated::new();
    let options = Options { queue: 4096, ..threaded() };
    let (journal, ..) = open(&disk, &options).unwrap();
    disk.hold(Call::Write);
    let mut appended = 0;
    let full = loop {
        match journal.try_append(0, 0, &[1; 100]) {
            Ok(_) => appended += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full), "{full}");
    assert!(journal.queued(0) <= 4096 && appended >= 20, "{appended} in {}", journal.queued(0));
    thread::scope(|scope| {
        let blocked: Vec<_> = (0..20).map(|_| scope.spawn(|| journal.append(0, 0, &[1; 100]).unwrap())).collect();
        thread::sleep(Duration::from_millis(20));
        assert!(blocked.iter().all(|thread| !thread.is_finished()) && journal.queued(0) <= 4096);
        disk.release();
    });
    journal.close().unwrap();
    assert_eq!(open(&disk, &options).unwrap().2[0].len(), appended + 20);
}

/// Threads that wait for an epoch that is never closed delay no other thread.
#[test]
fn waiters_of_an_epoch_that_stays_open_delay_nobody() {
    let disk = Simulated::new();
    let options = Options { lanes: 2, epochs: true, ..threaded() };
    let (journal, recovery, _) = open(&disk, &options).unwrap();
    let first = recovery.next_epoch;
    let never = journal.append(0, first + 1000, b"never").unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..8).map(|_| scope.spawn(|| journal.wait(never))).collect();
        for epoch in first..first + 200 {
            let position = journal.append(1, epoch, &[3; 200]).unwrap();
            journal.close_epoch(epoch).unwrap();
            journal.wait(position).unwrap();
        }
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        journal.close_epoch(first + 1000).unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap().unwrap());
    });
    assert!(journal.durable_epoch() == first + 1000);
}

#[test]
fn epochs_count_when_all_lanes_have_them() {
    let disk = Simulated::new();
    let options = Options { lanes: 3, epochs: true, ..small() };
    let (journal, recovery, _) = open(&disk, &options).unwrap();
    let epoch = recovery.next_epoch;
    let one = journal.append(0, epoch, b"one").unwrap();
    journal.append(1, epoch + 1, b"later").unwrap();
    journal.sync().unwrap();
    assert!(!journal.is_durable(one).unwrap(), "its epoch is open");
    assert!(open(&disk.power_loss(1), &options).unwrap().2.iter().all(Vec::is_empty));
    journal.close_epoch(epoch).unwrap();
    assert!(journal.is_durable(one).unwrap());
    let refused = journal.append(2, epoch, b"late").unwrap_err();
    assert!(matches!(refused, Error::EpochClosed { .. }), "{refused}");
    let (_, recovery, delivered) = open(&disk.power_loss(0), &options).unwrap();
    assert_eq!((recovery.epoch, recovery.discarded, recovery.next_epoch), (epoch, 1, epoch + 2));
    assert_eq!(delivered[0], [(one, b"one".to_vec())]);
}

#[test]
fn an_epoch_that_one_lane_lacks_is_not_durable() {
    let disk = Simulated::new();
    let options = Options { lanes: 3, epochs: true, ..small() };
    let (journal, recovery, _) = open(&disk, &options).unwrap();
    let epoch = recovery.next_epoch;
    let one = journal.append(0, epoch, b"one").unwrap();
    // The first lane writes and syncs; the second has no space.
    disk.fail_at(disk.calls().len() + 2, Fault::NoSpace);
    let full = journal.close_epoch(epoch).unwrap_err();
    assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    assert!(journal.durable(0) >= one.place && journal.durable(1) == 0);
    assert!(!journal.is_durable(one).unwrap() && journal.durable_epoch() < epoch);
    assert!(matches!(journal.wait(one), Err(Error::NoSpace { .. })));
    journal.sync().unwrap();
    journal.close_epoch(epoch).unwrap();
    journal.wait(one).unwrap();
    assert_eq!(journal.durable_epoch(), epoch);
}

/// Records of discarded epochs are never delivered later, since the journal uses other epochs after the next opening.
#[test]
fn discarded_epochs_stay_discarded() {
    let mut disk = Simulated::new();
    let options = Options { lanes: 2, epochs: true, ..small() };
    for life in 0..5 {
        let (journal, recovery, delivered) = open(&disk, &options).unwrap();
        assert_eq!(delivered.iter().map(Vec::len).sum::<usize>(), life, "{recovery:?}");
        journal.append(0, recovery.next_epoch, b"counts").unwrap();
        journal.close_epoch(recovery.next_epoch).unwrap();
        journal.append(0, recovery.next_epoch + 1, b"is discarded").unwrap();
        journal.append(1, recovery.next_epoch + 2, b"is discarded").unwrap();
        journal.sync().unwrap();
        disk = disk.power_loss(0);
    }
}

#[test]
fn a_directory_has_one_journal() {
    let disk = Simulated::new();
    let journal = open(&disk, &small()).unwrap();
    let refused = open(&disk, &small()).err().unwrap();
    assert!(matches!(refused, Error::Locked { .. }) && refused.to_string().contains("another directory"), "{refused}");
    drop(journal);
    open(&disk, &small()).unwrap();
    for (options, what) in [
        (Options { lanes: 2, ..small() }, "1 lanes"),
        (Options { epochs: true, ..small() }, "epochs: false"),
        (Options { lanes: 0, ..small() }, "1 to 1,000"),
        (Options { queue: 100, ..small() }, "4 KiB"),
        (Options { policy: Policy::Every(Duration::ZERO), ..small() }, "Always"),
    ] {
        let refused = open(&disk, &options).err().unwrap();
        assert!(matches!(refused, Error::Options { .. }) && refused.to_string().contains(what), "{refused}");
    }
}

#[test]
fn records_of_no_bytes_and_of_the_most() {
    let disk = Simulated::new();
    let (journal, ..) = open(&disk, &small()).unwrap();
    let longest = vec![9; 4096 - 24 - 32];
    for record in [&[][..], &longest, &[], &longest, &longest] {
        journal.append(0, 5, record).unwrap();
    }
    let refused = journal.append(0, 5, &[longest.as_slice(), &[9]].concat()).unwrap_err();
    assert!(matches!(refused, Error::TooLong { length: 4041, limit: 4040 }), "{refused}");
    journal.close().unwrap();
    let (_, _, delivered) = open(&disk, &small()).unwrap();
    assert_eq!(delivered[0].iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [0, 4040, 0, 4040, 4040]);
}

#[test]
fn segments_come_and_are_retired_and_those_of_idle_openings_do_not_gather() {
    let disk = Simulated::new();
    let files = || segments(&disk);
    for _ in 0..10 {
        open(&disk, &small()).unwrap();
    }
    assert_eq!(files(), 1);
    let (journal, ..) = open(&disk, &small()).unwrap();
    let positions: Vec<Position> = (0..40).map(|number| appended(&journal, number)).collect();
    let before = files();
    assert!(before > 8, "{before}");
    journal.retire_before(positions[20]).unwrap();
    assert!(files() < before && files() > 3);
    drop(journal);
    let (journal, _, delivered) = open(&disk.power_loss(0), &small()).unwrap();
    assert!(delivered[0][0].0 <= positions[20] && delivered[0].len() >= 19 && delivered[0].len() < 40);
    journal.retire_before(journal.end(0)).unwrap();
    drop(journal);
    let (journal, _, delivered) = open(&disk, &small()).unwrap();
    assert!(delivered[0].len() < 40);
    assert!(journal.end(0).place > positions[39].place, "places go on");
}

fn appended(journal: &Journal, number: usize) -> Position {
    let position = journal.append(0, 0, &record(0, number)).unwrap();
    journal.wait(position).unwrap();
    position
}

fn segments(disk: &Simulated) -> usize {
    let names = archipelago_journal::Disk::list(disk, std::path::Path::new(HERE)).unwrap();
    names.iter().filter(|name| name.ends_with(".segment")).count()
}
