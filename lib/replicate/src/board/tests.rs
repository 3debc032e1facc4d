use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_platform::thread;

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
    watchdog(USUAL, |_| {
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
    watchdog(USUAL, |_| {
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

/// A value whose destructor panics. The value inside counts the destructor's runs.
#[derive(Debug)]
struct Bomb(#[expect(dead_code, reason = "dropped")] Counted);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("as planned");
    }
}

fn panics(f: impl FnOnce()) -> bool {
    std::panic::catch_unwind(core::panic::AssertUnwindSafe(f)).is_err()
}

#[test]
fn destructors_that_panic_run_once_and_stop_no_combiner() {
    let counter = DropCounter::new();
    let board = Board::<Bomb, Bomb>::new(4, 2);
    let post = |at| {
        let id = board.claim(SlotId(at)).unwrap();
        board.post(id, Bomb(counter.value(u64::from(at))));
        id
    };
    let mut batch = Batch::default();
    // An abandoned request is dropped by the combiner, and so are refused ones.
    board.abandon(post(0));
    let (one, two) = (post(1), post(2));
    board.collect(&mut batch);
    assert_eq!((batch.len(), counter.alive()), (2, 2));
    board.refuse(&mut batch);
    assert_eq!((batch.left(), counter.alive()), (0, 0));
    for id in [one, two] {
        assert!(board.answer(id).is_some_and(|answer| answer.is_err()));
    }
    // An answer that its poster abandons is dropped by the poster, or by the combiner that leaves.
    batch.clear();
    let (zero, one) = (post(0), post(1));
    board.collect(&mut batch);
    board.abandon(one);
    for _ in 0..2 {
        let request = board.request(&mut batch);
        board.reply(&mut batch, request);
    }
    assert!(panics(|| board.abandon(zero)), "the poster's own answer");
    board.wake_sleepers();
    for at in 0..4 {
        assert_eq!(board.claim(SlotId(at)), Some(SlotId(at)), "the slots are free");
    }
    counter.assert_all_dropped();
}

/// A waker that panics when it wakes, and whose destructor looks at all sleepers of a board and panics.
struct Rude<'b>(&'b Board<Counted, Counted>);

impl std::task::Wake for Rude<'static> {
    fn wake(self: std::sync::Arc<Self>) {
        panic!("as planned");
    }
}

impl Drop for Rude<'_> {
    fn drop(&mut self) {
        self.0.wake_sleepers();
        assert!(thread::panicking(), "as planned");
    }
}

#[test]
fn wakers_that_panic_stop_nothing() {
    watchdog(USUAL, |_| {
        let counter = DropCounter::new();
        let board: &'static Board<Counted, Counted> = Box::leak(Box::new(Board::new(3, 2)));
        let rude = || Sleeper::Task(std::sync::Arc::new(Rude(board)).into());
        let mut batch = Batch::default();
        let slots: Vec<SlotId> = (0..3).map(|at| board.claim(SlotId(at)).unwrap()).collect();
        for &id in &slots {
            board.post(id, counter.value(u64::from(id.0)));
        }
        board.sleep(slots[0], rude());
        board.sleep(slots[0], rude());
        board.collect(&mut batch);
        // The thread's sleeper comes after the waker that panics, and is woken nevertheless.
        let sleeping = thread::spawn(move || {
            board.sleep(slots[1], Sleeper::Thread(thread::current()));
            while !board.answer_is_there(slots[1]) {
                thread::park();
            }
        });
        while !board.asleep.has(1) {
            thread::yield_now();
        }
        board.sleep(SlotId(0), rude());
        while batch.left() > 0 {
            let request = board.request(&mut batch);
            board.reply(&mut batch, request);
        }
        board.wake_sleepers();
        sleeping.join().unwrap();
        // An answer that is taken while a waker is stored: the waker is dropped, the answer is read once.
        board.sleep(SlotId(0), rude());
        for at in 0..3 {
            assert_eq!(board.answer(SlotId(at)).map(|answer| answer.unwrap().tag()), Some(u64::from(at)));
            assert!(board.is(SlotId(at), FREE));
        }
        counter.assert_all_dropped();
    });
}
