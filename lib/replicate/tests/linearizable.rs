//! Recorded histories of replicated structures are linearizable: with different numbers of replicas and handles, logs
//! so small that they wrap around and grow, stalled combiners and replicas, and short-lived handles.
#![cfg(not(loom))]

mod common;

use archipelago_check::history::Recorder;
use archipelago_check::topologies::topologies;
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_replicate::{Builder, Observer, Replicated};
use common::{Answer, Change, Gate, KEYS, Ledger, Op, check, check_poisoned, work, work_until_panic};

fn scaled(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(40).min(12) } else { count }
}

/// Runs `handles` threads. Checks the history, and that the replicas are equal at the end.
fn run(structure: &Replicated<Ledger>, handles: usize, operations: usize, updates: u64) {
    let recorder = Recorder::new();
    thread::scope(|scope| {
        for seed in 0..handles as u64 {
            let recorder = &recorder;
            scope.spawn(move || work(&mut structure.handle(), &mut recorder.log(), seed, operations, updates));
        }
    });
    check(recorder.finish());
    let first = structure.inspect(0, Ledger::content).unwrap();
    for replica in 1..structure.replicas() {
        assert_eq!(structure.inspect(replica, Ledger::content).unwrap(), first, "replica {replica}");
    }
}

fn builder() -> Builder<Ledger> {
    Replicated::builder()
}

#[test]
fn every_number_of_replicas() {
    watchdog(USUAL, |notes| {
        for replicas in [1, 2, 3, 8] {
            for updates in [10, 100] {
                notes.note(format!("{replicas} replicas, {updates} %"));
                run(&builder().replicas(replicas).build(Ledger::numbered()), 4, scaled(800), updates);
            }
        }
    });
}

#[test]
fn logs_that_wrap_all_the_time() {
    watchdog(USUAL, |_| {
        for (capacity, largest) in [(2, 2), (4, 4), (8, 8)] {
            let structure = builder().replicas(3).log_capacity(capacity).largest_log(largest).build(Ledger::numbered());
            // A batch of three does not fit in a log of two entries and would be split. So with this capacity there are
            // single operations only.
            run(&structure, 4, scaled(500), if capacity == 2 { 0 } else { 60 });
            if capacity == 2 {
                thread::scope(|scope| {
                    for _ in 0..4 {
                        let mut handle = structure.handle();
                        scope.spawn(move || {
                            for at in 0..scaled(300) as u64 {
                                handle.write(Change::Insert(at % KEYS, at)).unwrap();
                            }
                        });
                    }
                });
                assert_eq!(structure.inspect(1, |ledger| ledger.number).unwrap(), 4 * scaled(300) as u64);
            }
            assert_eq!(structure.stats().log_growths, 0);
        }
    });
}

#[test]
fn logs_that_grow() {
    watchdog(USUAL, |_| {
        let structure = builder().replicas(4).log_capacity(2).build(Ledger::numbered());
        run(&structure, 6, scaled(500), 70);
        assert!(structure.stats().log_growths > 0);
    });
}

#[test]
fn a_batch_longer_than_the_log() {
    let structure = builder().replicas(2).log_capacity(4).largest_log(8).build(Ledger::numbered());
    let mut handle = structure.handle();
    let answers = handle.write_many((0..100).map(|at| Change::Insert(at, at)).collect()).unwrap();
    assert!(answers.iter().enumerate().all(|(at, answer)| answer.number == at as u64));
    assert_eq!(handle.write_many(Vec::new()).unwrap(), []);
    assert_eq!(structure.handle_on(1).read(&99).unwrap(), Answer { number: 100, value: Some(99) });
}

#[test]
fn more_threads_than_slots() {
    watchdog(USUAL, |_| {
        let structure = builder().replicas(2).slots(2).build(Ledger::numbered());
        run(&structure, if cfg!(miri) { 4 } else { 64 }, scaled(60), 50);
    });
}

#[test]
fn every_topology() {
    watchdog(USUAL, |_| {
        for topology in topologies() {
            let nodes = topology.nodes().len();
            let structure = builder().topology(topology).build(Ledger::numbered());
            assert_eq!(structure.replicas(), nodes);
            run(&structure, 3, scaled(300), 50);
        }
    });
}

#[test]
fn large_batches_helper_and_dedicated_combiners() {
    watchdog(USUAL, |notes| {
        notes.note("min_batch");
        let structure = builder().replicas(2).min_batch(4).build(Ledger::numbered());
        // A batch waits for at most as many operations as there are handles. These two handles stay idle.
        let _idle = [0, 1].map(|replica| structure.handle_on(replica));
        run(&structure, 6, scaled(300), 60);
        let stats = structure.stats();
        assert!(stats.batch_waits > 0 && stats.batches <= stats.writes, "{stats:?}");
        notes.note("dedicated");
        let dedicated = builder().replicas(2).dedicated_combiners().helper(Duration::from_micros(300));
        run(&dedicated.build(Ledger::numbered()), 4, scaled(300), 60);
    });
}

#[test]
fn handles_that_come_and_go() {
    watchdog(USUAL, |_| {
        let structure = builder().replicas(2).log_capacity(4).slots(2).build(Ledger::numbered());
        let recorder = Recorder::new();
        thread::scope(|scope| {
            for thread in 0..4 {
                let (structure, recorder) = (&structure, &recorder);
                scope.spawn(move || {
                    let mut log = recorder.log();
                    for round in 0..scaled(200) as u64 {
                        work(&mut structure.handle(), &mut log, thread << 32 | round, 3, 60);
                    }
                });
            }
        });
        check(recorder.finish());
    });
}

/// Calls `meanwhile` while the combiner of replica 0 is stalled in the middle of replaying.
fn while_stalled(structure: &Replicated<Ledger>, meanwhile: impl FnOnce(&Recorder<Op, Answer>)) {
    let gate = Arc::new(Gate::default());
    let recorder = Recorder::new();
    thread::scope(|scope| {
        let stalled = scope.spawn(|| {
            let stall = Change::Stall(0, gate.clone());
            recorder.log().record(Op::Stall, |_| structure.handle_on(0).write(stall).unwrap());
        });
        while gate.waiting.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        // These threads wait behind the stalled operation until they park. Some of them are readers.
        let waiting: Vec<_> = (0..4)
            .map(|seed| {
                let recorder = &recorder;
                scope.spawn(move || {
                    work(&mut structure.handle_on(0), &mut recorder.log(), 77 + seed, scaled(50), 80);
                })
            })
            .collect();
        meanwhile(&recorder);
        thread::sleep(Duration::from_millis(if cfg!(miri) { 1 } else { 20 }));
        assert!(!stalled.is_finished() && !waiting.iter().all(|thread| thread.is_finished()));
        gate.open();
    });
    check(recorder.finish());
    let contents: Vec<_> =
        (0..structure.replicas()).map(|at| structure.inspect(at, Ledger::content).unwrap()).collect();
    assert!(contents.windows(2).all(|pair| pair[0] == pair[1]));
}

/// The stalled replica's own threads wait, asleep, and continue when the combiner does.
#[test]
fn a_stalled_combiner() {
    watchdog(USUAL, |_| {
        for replicas in [1, 2] {
            while_stalled(&builder().replicas(replicas).log_capacity(4).slots(2).build(Ledger::numbered()), |_| {});
        }
    });
}

/// Replica 1 continues, and the log grows.
#[test]
fn a_stalled_replica_does_not_hold_up_the_others() {
    watchdog(USUAL, |_| {
        let structure = builder().replicas(2).log_capacity(4).build(Ledger::numbered());
        while_stalled(&structure, |recorder| {
            // Replica 1 also replays the stalled operation, but does not stall at it. The operation is not completed,
            // so a read need not see it.
            let answer = recorder.log().record(Op::Get(0), |_| structure.handle_on(1).read(&0).unwrap()).clone();
            assert_eq!(answer.number, 0, "a reader waits for what is completed, and no longer");
            thread::scope(|scope| {
                for seed in 0..2 {
                    let structure = &structure;
                    scope.spawn(move || work(&mut structure.handle_on(1), &mut recorder.log(), seed, scaled(200), 80));
                }
            });
            assert!(structure.stats().log_growths > 0);
        });
    });
}

/// The operations that were answered before a panic, and those that were not, form a legal history.
#[test]
fn histories_that_a_panic_ends() {
    watchdog(USUAL, |notes| {
        for round in 0..if cfg!(miri) { 3 } else { 60 } {
            notes.note(format!("round {round}"));
            let (replicas, capacity) = (1 + round % 3, if round % 2 == 0 { 2 } else { 64 });
            let structure = builder().replicas(replicas).log_capacity(capacity).slots(2).build(Ledger::numbered());
            let recorder = Recorder::new();
            thread::scope(|scope| {
                for me in 0..4 {
                    let (structure, recorder) = (&structure, &recorder);
                    scope.spawn(move || {
                        let panics_at = (me == 0).then_some(scaled(2 * round));
                        let seed = me << 32 | round as u64;
                        work_until_panic(&mut structure.handle(), &mut recorder.log(), seed, scaled(400), panics_at);
                    });
                }
            });
            check_poisoned(recorder.finish());
        }
    });
}

/// No thread uses replica 1. The thread that appends helps this replica before the log is full.
#[test]
fn an_inactive_replica_is_helped() {
    watchdog(USUAL / 4, |_| {
        let structure = builder().replicas(2).log_capacity(8).largest_log(8).build(Ledger::numbered());
        let mut handle = structure.handle_on(0);
        for at in 0..100 {
            handle.write(Change::Insert(at, at)).unwrap();
        }
        let stats = structure.stats();
        assert!(stats.combiner_helps > 0 && stats.room_waits == 0, "{stats:?}");
        // `sync` also brings it up to date.
        structure.sync().unwrap();
        assert_eq!(structure.stats().applied, 200);
    });
}

#[derive(Clone, Default)]
struct Journal {
    seen: Arc<AtomicU64>,
    committed: Arc<AtomicU64>,
    next: u64,
}

impl Observer<Change> for Journal {
    fn operation(&mut self, index: u64, change: &Change) {
        assert!(index >= self.next);
        self.next = index + 1;
        if let Change::Panic = change {
            panic!("the disk is full");
        }
        self.seen.fetch_add(1, Ordering::Relaxed);
    }

    fn commit(&mut self, end: u64) {
        assert!(end >= self.next);
        self.committed.store(self.seen.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// Every operation that can be read was committed before.
#[test]
fn the_observer_sees_everything_first() {
    watchdog(USUAL, |_| {
        let journal = Journal::default();
        let structure = builder().replicas(3).log_capacity(8).observer(journal.clone()).build(Ledger::numbered());
        let recorder = Recorder::new();
        thread::scope(|scope| {
            for seed in 0..4 {
                let (structure, recorder, journal) = (&structure, &recorder, &journal);
                scope.spawn(move || {
                    let mut handle = structure.handle();
                    for round in 0..scaled(100) as u64 {
                        work(&mut handle, &mut recorder.log(), seed << 32 | round, 2, 60);
                        let read = handle.read(&0).unwrap().number;
                        assert!(read <= journal.committed.load(Ordering::Acquire));
                    }
                });
            }
        });
        check(recorder.finish());
        assert_eq!(journal.committed.load(Ordering::Relaxed), structure.stats().writes);
        // A refused operation was applied to no replica, and is not applied later.
        structure.sync().unwrap();
        let before = structure.stats().applied;
        let error = structure.handle().write(Change::Panic).unwrap_err();
        assert_eq!(error.message(), "the disk is full");
        assert_eq!(structure.stats().applied, before);
        assert!(structure.handle_on(1).read(&0).is_err());
    });
}

/// An observer that stalls while it makes an operation durable.
struct Slow(Arc<Gate>);

impl Observer<Change> for Slow {
    fn operation(&mut self, _: u64, _: &Change) {
        self.0.pass();
    }

    fn commit(&mut self, _: u64) {}
}

/// No thread helps a replica to apply operations that the observer has not committed.
#[test]
fn nothing_is_applied_before_it_is_committed() {
    watchdog(USUAL / 4, |_| {
        let gate = Arc::new(Gate::default());
        let structure = builder().replicas(2).observer(Slow(gate.clone())).build(Ledger::numbered());
        thread::scope(|scope| {
            scope.spawn(|| structure.handle_on(0).write(Change::Insert(1, 1)).unwrap());
            while gate.waiting.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            structure.sync().unwrap();
            let read = structure.handle_on(1).read(&1).unwrap();
            let applied = structure.stats().applied;
            gate.open();
            assert_eq!((read.value, applied), (None, 0));
        });
        assert_eq!(structure.handle_on(1).read(&1).unwrap().value, Some(1));
    });
}
