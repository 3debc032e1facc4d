use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::watchdog::watchdog;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;

use super::batch::AGE;
use super::*;
use crate::wait::slot_or;

/// Answers each posted request with its tag.
fn combine(board: &Board<Counted, u64>) -> usize {
    let mut batch = Batch::default();
    board.collect(&mut batch);
    while batch.left() > 0 {
        let tag = board.request(&mut batch).tag();
        board.reply(&mut batch, tag);
    }
    batch.len()
}

#[test]
fn handles_spread_over_the_slots_and_share_them() {
    let board = Board::<u64, u64>::new(3, 2);
    let joined: Vec<SlotId> = (0..7).map(|_| board.join()).collect();
    assert_eq!(joined.iter().map(|id| id.0).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
    board.leave(joined[2]);
    board.leave(joined[5]);
    assert_eq!(board.join(), SlotId(2));
}

#[test]
fn a_busy_slot_is_passed_over() {
    let board = Board::<u64, u64>::new(2, 2);
    assert_eq!(board.claim(SlotId(1)), Some(SlotId(1)));
    assert_eq!(board.claim(SlotId(1)), Some(SlotId(0)));
    assert_eq!(board.claim(SlotId(1)), None);
    board.free(SlotId(0));
    assert_eq!(board.claim(SlotId(1)), Some(SlotId(0)));
}

#[test]
fn unused_slots_are_not_looked_at_until_they_come_back() {
    let counter = DropCounter::new();
    let board = Board::new(4, 2);
    for at in 0..4 {
        let id = board.claim(SlotId(at)).unwrap();
        board.post(id, counter.value(u64::from(at)));
    }
    assert_eq!(combine(&board), 4);
    for at in 0..4 {
        assert_eq!(board.answer(SlotId(at)), Some(Ok(u64::from(at))));
    }
    for _ in 0..AGE {
        assert_eq!(combine(&board), 0);
    }
    assert_eq!(board.active.iter().count(), 4, "they may be used again");
    for _ in 0..2 * AGE {
        assert_eq!(combine(&board), 0);
    }
    assert_eq!(board.active.iter().count(), 0);
    for at in 0..4 {
        let id = board.claim(SlotId(at)).unwrap();
        board.post(id, counter.value(7));
    }
    assert_eq!(board.active.iter().count(), 4);
    assert_eq!(combine(&board), 4);
    counter.assert_all_dropped();
}

#[test]
fn whatever_becomes_of_a_request_it_is_dropped_once() {
    let counter = DropCounter::new();
    let board = Board::<Counted, Counted>::new(4, 2);
    let post = |at| {
        let id = board.claim(SlotId(at)).unwrap();
        board.post(id, counter.value(u64::from(at)));
        id
    };
    let mut batch = Batch::default();
    // One request is refused after it was moved out, one before, and one that was posted while the combiner worked on
    // others.
    let (one, two) = (post(1), post(2));
    board.collect(&mut batch);
    assert_eq!(batch.len(), 2);
    drop(board.request(&mut batch));
    let three = post(3);
    board.refuse(&mut batch);
    assert_eq!(counter.alive(), 0, "who was refused keeps nothing");
    for id in [one, two, three] {
        assert_eq!(board.answer(id), Some(Err(Refused)));
    }
    // One request is abandoned before it is taken, one while it is carried out, and one after it is answered.
    batch.clear();
    let zero = post(0);
    board.abandon(zero);
    assert_eq!(counter.alive(), 1);
    let (one, two) = (post(1), post(2));
    board.collect(&mut batch);
    assert_eq!((counter.alive(), batch.len()), (2, 2), "no thread carries out what was cancelled before");
    board.abandon(one);
    for _ in 0..2 {
        let request = board.request(&mut batch);
        board.reply(&mut batch, request);
    }
    board.abandon(two);
    board.wake_sleepers();
    for at in 0..3 {
        assert_eq!(board.claim(SlotId(at)), Some(SlotId(at)), "whichever thread cleans up, the slot is free");
        board.free(SlotId(at));
    }
    assert_eq!(counter.alive(), 0);
    // One request is never collected, and one answer is never fetched.
    post(0);
    let one = post(1);
    batch.clear();
    board.collect(&mut batch);
    for _ in 0..2 {
        let request = board.request(&mut batch);
        board.reply(&mut batch, request);
    }
    assert!(board.answer_is_there(one));
    post(2);
    drop(board);
    counter.assert_all_dropped();
}

/// Claims a slot as a thread does that finds an active combiner.
fn claim_in_order(board: &Board<u64, u64>) -> SlotId {
    slot_or(board, SlotId(0), || None::<()>).unwrap()
}

#[test]
fn those_that_find_no_slot_get_one_in_the_order_in_which_they_came() {
    let board = Board::<u64, u64>::new(1, 2);
    let order = Mutex::new(Vec::new());
    let slot = board.claim(SlotId(0)).unwrap();
    watchdog(Duration::from_secs(20), |_| {
        thread::scope(|scope| {
            for me in 0..6 {
                if me == 5 {
                    // The slot is free, but it is reserved for the first thread in line.
                    board.free(slot);
                }
                let (board, order) = (&board, &order);
                scope.spawn(move || {
                    let slot = claim_in_order(board);
                    order.lock().unwrap().push(me);
                    board.free(slot);
                    board.wake_sleepers();
                });
                // A thread that does not join the line has got a slot.
                while board.waiting() <= me && order.lock().unwrap().is_empty() {
                    thread::yield_now();
                }
            }
            board.wake_sleepers();
        })
    });
    assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert!(!board.has_line() && board.claim(SlotId(0)).is_some());
}

#[test]
fn a_combiner_that_leaves_several_slots_free_lets_as_many_in() {
    let board = Board::<u64, u64>::new(3, 2);
    let slots: Vec<SlotId> = (0..3).map(|at| board.claim(SlotId(at)).unwrap()).collect();
    watchdog(Duration::from_secs(20), |_| {
        thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(|| claim_in_order(&board))));
            while board.waiting() < 3 {
                thread::yield_now();
            }
            slots.into_iter().for_each(|slot| board.free(slot));
            // Only one wake-up: the test passes if all threads can be joined.
            board.wake_sleepers();
        })
    });
    assert_eq!(board.claim(SlotId(0)), None);
}
