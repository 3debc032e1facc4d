//! Model checks of the log with loom: every interleaving (with a bounded number of preemptions) of appending,
//! replaying, recycling and growing, under the weak memory model. Operations are stored in cells in which loom detects
//! data races.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p archipelago-sync --release --lib`

use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;

use super::*;

/// Appends one operation, if the log has room after recycling or growing, and replays the entries that are filled.
/// Nothing here waits, so every schedule ends. Returns whether the operation was appended.
fn round(log: &Log<Box<u64>>, cursor: &mut Cursor<Box<u64>>, value: u64, seen: &mut Vec<u64>) -> bool {
    let mut reservation = log.reserve(1);
    if reservation.is_err() {
        log.replay(cursor, log.tail(), |_, op| seen.push(**op));
        if log.recycle() || log.grow() {
            reservation = log.reserve(1);
        }
    }
    let Ok(mut reservation) = reservation else { return false };
    reservation.fill(Box::new(value));
    let end = reservation.range().end;
    drop(reservation);
    log.replay(cursor, end, |_, op| seen.push(**op));
    if cursor.index() == end {
        log.complete(end);
    }
    true
}

/// Two combiners with one replica each; both replicas see the same order.
fn two_combiners(capacity: usize, largest: usize, rounds: u64, preemptions: usize) {
    model(preemptions, move || {
        let (log, cursors) = Log::new(2, capacity, largest);
        let log = Arc::new(log);
        let [mut one, mut two] = <[Cursor<Box<u64>>; 2]>::try_from(cursors).ok().unwrap();
        let other = {
            let log = log.clone();
            thread::spawn(move || {
                let mut seen = Vec::new();
                let appended = (0..rounds).filter(|value| round(&log, &mut one, 10 + value, &mut seen)).count();
                (one, seen, appended)
            })
        };
        let mut seen_two = Vec::new();
        let appended_two = (0..rounds).filter(|value| round(&log, &mut two, 20 + value, &mut seen_two)).count();
        let (mut one, mut seen_one, appended_one) = other.join().unwrap();
        for (cursor, seen) in [(&mut one, &mut seen_one), (&mut two, &mut seen_two)] {
            log.replay(cursor, log.tail(), |_, op| seen.push(**op));
            assert_eq!(cursor.index(), log.tail(), "everything reserved is filled");
        }
        assert_eq!(seen_one, seen_two);
        assert_eq!(seen_one.len(), appended_one + appended_two);
        assert!(appended_one + appended_two > 0 && log.completed() <= log.tail());
    });
}

#[test]
fn two_combiners_in_a_roomy_log() {
    two_combiners(4, 4, 1, 3);
}

/// A log of capacity 2 contains one operation at a time, so every second append reuses an entry.
#[test]
fn two_combiners_wrap_around() {
    two_combiners(2, 2, 2, 3);
}

#[test]
fn two_combiners_grow() {
    two_combiners(2, 4, 2, 2);
}

/// One thread shrinks the log while the other appends, and either may grow it again. The new generation uses a slot of
/// the ring that was used before.
#[test]
fn a_log_shrinks_beside_an_append() {
    model(2, || {
        let (log, cursors) = Log::new(2, 2, 4);
        let log = Arc::new(log);
        let [mut one, mut two] = <[Cursor<Box<u64>>; 2]>::try_from(cursors).ok().unwrap();
        let (mut seen_one, mut seen_two) = (Vec::new(), Vec::new());
        assert!(log.grow());
        for value in 0..4 {
            assert!(round(&log, &mut one, value, &mut seen_one));
            while two.index() < log.tail() {
                log.replay(&mut two, log.tail(), |_, op| seen_two.push(**op));
            }
            log.recycle();
        }
        let other = {
            let log = log.clone();
            thread::spawn(move || {
                log.shrink();
                round(&log, &mut one, 10, &mut seen_one);
                round(&log, &mut one, 11, &mut seen_one);
                (one, seen_one)
            })
        };
        round(&log, &mut two, 20, &mut seen_two);
        let (mut one, mut seen_one) = other.join().unwrap();
        for (cursor, seen) in [(&mut one, &mut seen_one), (&mut two, &mut seen_two)] {
            while cursor.index() < log.tail() {
                log.replay(cursor, log.tail(), |_, op| seen.push(**op));
            }
        }
        assert_eq!(seen_one, seen_two);
        assert_eq!(seen_one[..4], [0, 1, 2, 3]);
    });
}

/// A thread that finds room freed by a recycling thread fills the entry after the old operation was dropped.
#[test]
fn what_was_taken_back_is_filled_anew() {
    model(3, || {
        let (log, cursors) = Log::new(2, 4, 4);
        let log = Arc::new(log);
        let [mut one, mut two] = <[Cursor<Box<u64>>; 2]>::try_from(cursors).ok().unwrap();
        (0..3).for_each(|value| assert!(round(&log, &mut one, value, &mut Vec::new())));
        log.replay(&mut two, 3, |_, _| {});
        let filler = {
            let log = log.clone();
            // Two operations: the first uses the entry that was kept free, so only the second reuses a recycled entry.
            thread::spawn(move || log.reserve(2).map(|mut room| (0..2).for_each(|at| room.fill(Box::new(at)))).is_ok())
        };
        assert!(log.recycle());
        let filled = filler.join().unwrap();
        assert_eq!(log.tail(), if filled { 5 } else { 3 });
    });
}

/// A thread that learns that an operation was answered reads a completed tail above this operation. A replica that has
/// replayed up to the completed tail has seen the operation.
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
        // The flag is read with Relaxed, so it does not prove that `until` is 1.
        if heard == 1 && until == 1 {
            assert_eq!(seen, [7]);
        }
        writer.join().unwrap();
        assert_eq!(log.completed(), 1);
    });
}
