use archipelago_check::drops::{Counted, DropCounter};
use archipelago_platform::sync::Mutex;
use archipelago_platform::thread;

use super::*;

/// Appends operations; recycles and grows the log if it is full.
fn append<Op: Send + Sync>(log: &Log<Op>, ops: Vec<Op>) -> Range<u64> {
    loop {
        if let Ok(mut reservation) = log.reserve(ops.len()) {
            let range = reservation.range();
            ops.into_iter().for_each(|op| reservation.fill(op));
            return range;
        }
        if !log.recycle() && !log.grow() {
            thread::yield_now();
        }
    }
}

/// Replays up to the tail and returns the operations that the cursor's replica saw.
fn replayed(log: &Log<Counted>, cursor: &mut Cursor<Counted>) -> Vec<(u64, u64)> {
    let mut seen = Vec::new();
    log.replay(cursor, log.tail(), |index, op| seen.push((index, op.tag())));
    seen
}

#[test]
fn packs_and_unpacks_the_tail() {
    for tail in [
        Tail { index: 0, generation: 0, moving: false },
        Tail { index: (1 << INDEX_BITS) - 1, generation: GENERATIONS - 1, moving: true },
        Tail { index: 77, generation: 5, moving: false },
    ] {
        assert_eq!(Tail::unpack(tail.pack()), tail);
    }
}

#[test]
fn operations_are_dropped_when_the_last_replica_has_passed() {
    let counter = DropCounter::new();
    let (log, mut cursors) = Log::new(2, 4, 4);
    let mut next = 0;
    for _ in 0..20 {
        append(&log, vec![counter.value(next), counter.value(next + 1)]);
        assert_eq!(replayed(&log, &mut cursors[0]), [(next, next), (next + 1, next + 1)]);
        assert!(!log.recycle(), "replica 1 has not passed");
        assert_eq!(counter.alive(), 2);
        assert_eq!(replayed(&log, &mut cursors[1]).len(), 2);
        assert!(log.recycle());
        assert_eq!(counter.alive(), 0);
        next += 2;
    }
    counter.assert_all_dropped();
}

#[test]
fn a_full_log_grows_up_to_its_limit_and_keeps_the_order() {
    let counter = DropCounter::new();
    let (log, mut cursors) = Log::new(2, 2, 8);
    // A segment of two entries holds one operation and the mark. The segments of four and eight entries keep one entry
    // free in the same way.
    let mut expected = Vec::new();
    for tag in 0..1 + 3 + 7 {
        let range = append(&log, vec![counter.value(tag)]);
        expected.push((range.start, tag));
    }
    assert_eq!(log.reserve(1).err(), Some(Full));
    assert!(!log.grow());
    assert_eq!((log.growths(), log.capacity(), log.longest_batch()), (2, 8, 7));
    for cursor in &mut cursors {
        let mut seen = Vec::new();
        while cursor.index() < log.tail() {
            let until = log.filled_until(cursor, log.tail());
            log.replay(cursor, until, |index, op| seen.push((index, op.tag())));
        }
        assert_eq!(seen, expected);
    }
    assert!(log.recycle());
    assert_eq!(counter.alive(), 0);
    // The old segments are freed, and the new one wraps around.
    assert_eq!(log.bytes(), segment::Segment::<Counted>::bytes(8));
    for round in 0..5 {
        append(&log, (0..7).map(|at| counter.value(at)).collect());
        assert_eq!(log.reserve(1).err(), Some(Full), "round {round}");
        cursors.iter_mut().for_each(|cursor| assert_eq!(replayed(&log, cursor).len(), 7));
        log.recycle();
    }
    counter.assert_all_dropped();
}

/// Appends `count` operations that no thread replays.
fn fill(log: &Log<u64>, count: u64) {
    for value in 0..count {
        append(log, vec![value]);
    }
}

/// Appends `count` operations. After each append, all replicas replay, and recycle, everything except the last `lag`
/// operations.
fn churn(log: &Log<u64>, cursors: &mut [Cursor<u64>], count: u64, lag: u64) {
    for value in 0..count {
        append(log, vec![value]);
        let until = log.tail().saturating_sub(lag);
        cursors.iter_mut().for_each(|cursor| {
            while cursor.index() < until.min(log.filled_until(cursor, until)) {
                log.replay(cursor, until, |_, _| {});
            }
        });
        log.recycle();
        log.shrink();
    }
}

/// The log halves after each pass in which at most half of the segment was in use, down to its first size.
#[test]
fn a_log_that_is_not_full_any_more_shrinks() {
    let (log, mut cursors) = Log::new(2, 4, 64);
    fill(&log, 40);
    assert_eq!((log.capacity(), log.growths()), (32, 3));
    churn(&log, &mut cursors, 31, 0);
    assert_eq!(log.capacity(), 32, "not a whole pass yet");
    fill(&log, 20);
    log.recycle();
    churn(&log, &mut cursors, 1 + 31, 0);
    assert_eq!(log.capacity(), 32, "not a whole pass since it was more than half full");
    churn(&log, &mut cursors, 1, 0);
    assert_eq!(log.capacity(), 16);
    // A whole pass is over, but more than half of the segment is in use, and no thread has recycled since then.
    churn(&log, &mut cursors, 8, 0);
    fill(&log, 12);
    log.shrink();
    assert_eq!(log.capacity(), 16);
    churn(&log, &mut cursors, 100, 1);
    assert_eq!((log.capacity(), log.growths(), log.in_use()), (4, 3, 1));
    assert_eq!(log.bytes(), segment::Segment::<u64>::bytes(4), "the others are gone");
}

/// The log can grow and shrink any number of times. Each operation is replayed once, in order, and the generations'
/// slots are reused.
#[test]
fn a_log_grows_and_shrinks_for_ever() {
    let counter = DropCounter::new();
    let (log, mut cursors) = Log::new(2, 2, 16);
    let (mut next, mut expected) = (0, [0, 0]);
    let mut run = |count: u64, replays: bool| {
        for _ in 0..count {
            append(&log, vec![counter.value(next)]);
            next += 1;
            for (cursor, expected) in cursors.iter_mut().zip(&mut expected).filter(|_| replays) {
                while cursor.index() < log.tail() {
                    log.replay(cursor, log.tail(), |_, op| {
                        assert_eq!(op.tag(), *expected);
                        *expected += 1;
                    });
                }
            }
            log.recycle();
            log.shrink();
        }
    };
    for _ in 0..if cfg!(miri) { 30 } else { 1000 } {
        run(12, false);
        run(60, true);
    }
    assert!(log.growths() > 64 / 2 && log.capacity() == 2);
    drop(log);
    counter.assert_all_dropped();
}

/// A replica that stops keeps alive at most two and a half times the entries of the largest segment.
#[test]
fn segments_behind_a_replica_that_stays_are_bounded() {
    for before in 0..200 {
        let (log, mut cursors) = Log::new(2, 2, 64);
        // The log has grown and is shrinking again when one replica stops.
        fill(&log, 40);
        churn(&log, &mut cursors, before, 0);
        churn(&log, &mut cursors[..1], 50, 0);
        while let Ok(mut reservation) = log.reserve(1).or_else(|Full| {
            log.grow();
            log.reserve(1)
        }) {
            reservation.fill(0);
            drop(reservation);
            log.recycle();
            log.shrink();
        }
        assert!(log.bytes() <= segment::Segment::<u64>::bytes(64 * 5 / 2), "{before}: {}", log.bytes());
    }
}

#[test]
fn a_segment_is_never_longer_than_memory_blocks_may_be() {
    let (log, _) = Log::<[u64; 1 << 10]>::new(1, 2, usize::MAX >> 1);
    assert_eq!(log.longest_batch(), (1 << 15) - 1, "of 8 KiB and a bit each, in 512 MiB");
}

#[test]
fn a_dropped_log_drops_what_it_holds_across_segments() {
    let counter = DropCounter::new();
    let (log, mut cursors) = Log::new(2, 2, 1 << 10);
    for tag in 0..100 {
        append(&log, vec![counter.value(tag)]);
        if tag % 3 == 0 {
            replayed(&log, &mut cursors[0]);
        }
    }
    drop(log.reserve(3));
    assert_eq!(counter.alive(), 100);
    drop(log);
    counter.assert_all_dropped();
}

#[test]
fn replicas_stop_at_an_entry_that_is_not_filled() {
    let counter = DropCounter::new();
    let (log, mut cursors) = Log::new(1, 8, 8);
    append(&log, vec![counter.value(0)]);
    let mut slow = log.reserve(2).unwrap();
    append(&log, vec![counter.value(3)]);
    assert_eq!(replayed(&log, &mut cursors[0]), [(0, 0)]);
    slow.fill(counter.value(1));
    assert_eq!(log.filled_until(&cursors[0], log.tail()), 2);
    assert_eq!(replayed(&log, &mut cursors[0]), [(1, 1)]);
    // A thread that drops its reservation leaves no entry for which replicas would wait.
    drop(slow);
    assert_eq!(replayed(&log, &mut cursors[0]), [(3, 3)]);
    drop(log);
    counter.assert_all_dropped();
}

#[test]
fn a_destructor_that_panics_is_called_once() {
    struct Bomb<'a>(&'a AtomicU64);
    impl Drop for Bomb<'_> {
        fn drop(&mut self) {
            assert!(self.0.fetch_add(1, Ordering::Relaxed) != 1, "as planned");
        }
    }
    let drops = AtomicU64::new(0);
    let (log, mut cursors) = Log::new(1, 8, 8);
    append(&log, (0..4).map(|_| Bomb(&drops)).collect());
    log.replay(&mut cursors[0], 4, |_, _| {});
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.recycle())).is_err());
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    assert!(log.recycle());
    assert_eq!(drops.load(Ordering::Relaxed), 4);
}

/// Combiners append their batches while the batches of others are half filled. All replicas see the same order, in
/// which every operation occurs once.
#[test]
fn all_replicas_see_one_order() {
    let (threads, batches) = if cfg!(miri) { (2, 12) } else { (4, 2_000) };
    for (capacity, largest) in [(2, 2), (4, 64), (1 << 12, 1 << 12)] {
        let counter = DropCounter::new();
        let (log, cursors) = Log::new(threads, capacity, largest);
        let longest = log.longest_batch().min(5) as u64;
        let orders = Mutex::new(Vec::new());
        let left = AtomicU64::new(threads as u64);
        thread::scope(|scope| {
            for (me, mut cursor) in cursors.into_iter().enumerate() {
                let (log, orders, left) = (&log, &orders, &left);
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    let mut catch_up = |cursor: &mut Cursor<Counted>| {
                        log.replay(cursor, log.tail(), |index, op| seen.push((index, op.tag())));
                    };
                    for batch in 0..batches {
                        let count = 1 + batch % longest;
                        let mut reservation = loop {
                            match log.reserve(count as usize) {
                                Ok(reservation) => break reservation,
                                Err(Full) => catch_up(&mut cursor),
                            }
                            if !log.recycle() && !log.grow() {
                                thread::yield_now();
                            }
                        };
                        for at in 0..count {
                            reservation.fill(counter.value((me as u64) << 32 | batch << 8 | at));
                        }
                        let end = reservation.range().end;
                        while cursor.index() < end {
                            catch_up(&mut cursor);
                        }
                        log.complete(end);
                    }
                    left.fetch_sub(1, Ordering::AcqRel);
                    while left.load(Ordering::Acquire) > 0 || cursor.index() < log.tail() {
                        catch_up(&mut cursor);
                        thread::yield_now();
                    }
                    orders.lock().unwrap().push(seen);
                });
            }
        });
        assert_eq!(log.completed(), log.tail());
        drop(log);
        counter.assert_all_dropped();
        let orders = orders.into_inner().unwrap();
        assert!(orders.iter().all(|order| *order == orders[0]));
        for me in 0..threads as u64 {
            let mine = orders[0].iter().map(|&(_, tag)| tag).filter(|tag| tag >> 32 == me);
            let expected = (0..batches).flat_map(|batch| (0..1 + batch % longest).map(move |at| batch << 8 | at));
            assert!(mine.map(|tag| tag & 0xFFFF_FFFF).eq(expected), "operations of thread {me}");
        }
    }
}

#[test]
fn a_reservation_that_cannot_be_is_full() {
    let (log, _cursors) = Log::<u64>::new(1, 8, 8);
    log.reserve(3).unwrap().fill(0);
    for count in [8, usize::MAX - 2, usize::MAX] {
        assert!(log.reserve(count).is_err(), "{count}");
    }
    assert_eq!(log.tail(), 3);
}

#[test]
#[should_panic(expected = "at least one entry")]
fn an_empty_reservation_is_refused() {
    let (log, _cursors) = Log::<u64>::new(1, 8, 8);
    let _ = log.reserve(0);
}

#[test]
#[should_panic(expected = "at least one reader")]
fn a_log_without_readers_is_refused() {
    let _ = Log::<u64>::new(0, 8, 8);
}
