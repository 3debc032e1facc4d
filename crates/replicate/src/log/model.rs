//! The log in the model world: every interleaving (with a bounded number of preemptions) of appending, replaying,
//! recycling and growing, under the weak memory model. Operations sit in cells that loom watches for races.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p archipelago-replicate --release --lib`

use archipelago_platform::sync::Arc;
use archipelago_platform::thread;

use super::*;

fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

/// One combiner's round: append one operation, replay up to it.
fn round(log: &Log<Box<u64>>, cursor: &mut Cursor<Box<u64>>, value: u64, seen: &mut Vec<u64>) {
    let mut reservation = loop {
        if let Ok(reservation) = log.reserve(1) {
            break reservation;
        }
        log.replay(cursor, log.tail(), |_, op| seen.push(**op));
        if !log.recycle() && !log.grow() {
            thread::yield_now();
        }
    };
    reservation.fill(Box::new(value));
    let end = reservation.range().end;
    drop(reservation);
    while cursor.index() < end {
        log.replay(cursor, end, |_, op| seen.push(**op));
        if cursor.index() < end {
            thread::yield_now();
        }
    }
    log.complete(end);
}

/// Two combiners with a replica each; both replicas see the same order.
fn two_combiners(capacity: usize, largest: usize, rounds: u64, preemptions: usize) {
    model(preemptions, move || {
        let (log, cursors) = Log::new(2, capacity, largest);
        let log = Arc::new(log);
        let [mut one, mut two] = <[Cursor<Box<u64>>; 2]>::try_from(cursors).ok().unwrap();
        let other = {
            let log = log.clone();
            thread::spawn(move || {
                let mut seen = Vec::new();
                (0..rounds).for_each(|value| round(&log, &mut one, 10 + value, &mut seen));
                (one, seen)
            })
        };
        let mut seen_two = Vec::new();
        round(&log, &mut two, 20, &mut seen_two);
        // The other may wait for this replica to make room.
        while two.index() < rounds + 1 {
            log.replay(&mut two, log.tail(), |_, op| seen_two.push(**op));
            if two.index() < rounds + 1 {
                thread::yield_now();
            }
        }
        let (mut one, mut seen_one) = other.join().unwrap();
        while one.index() < log.tail() {
            log.replay(&mut one, log.tail(), |_, op| seen_one.push(**op));
        }
        while two.index() < log.tail() {
            log.replay(&mut two, log.tail(), |_, op| seen_two.push(**op));
        }
        assert_eq!(seen_one, seen_two);
        assert_eq!(seen_one.len() as u64, rounds + 1);
        assert!(log.completed() <= log.tail());
    });
}

#[test]
fn two_combiners_in_a_roomy_log() {
    two_combiners(4, 4, 1, 3);
}

/// Capacity 2 holds one operation at a time: every second append reuses an entry.
#[test]
fn two_combiners_wrap_around() {
    two_combiners(2, 2, 2, 2);
}

#[test]
fn two_combiners_grow() {
    two_combiners(2, 4, 2, 2);
}

/// An operation that a thread heard was answered is below the completed tail it reads, and a replica brought up to
/// there has it.
#[test]
fn a_reader_finds_what_was_completed() {
    model(3, || {
        let (log, cursors) = Log::new(2, 4, 4);
        let log = Arc::new(log);
        let [mut writers, mut readers] = <[Cursor<Box<u64>>; 2]>::try_from(cursors).ok().unwrap();
        let answered = Arc::new(AtomicU64::new(0));
        let writer = {
            let (log, answered) = (log.clone(), answered.clone());
            thread::spawn(move || {
                round(&log, &mut writers, 7, &mut Vec::new());
                answered.store(1, Ordering::Relaxed);
            })
        };
        let heard = answered.load(Ordering::Relaxed);
        let until = log.completed();
        let mut seen = Vec::new();
        log.replay(&mut readers, until, |_, op| seen.push(**op));
        assert_eq!(readers.index(), until, "everything completed is filled");
        // Relaxed, and still: the completed tail was raised by a read-modify-write before.
        if heard == 1 && until == 1 {
            assert_eq!(seen, [7]);
        }
        writer.join().unwrap();
        assert_eq!(log.completed(), 1);
    });
}
