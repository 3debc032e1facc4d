use archipelago_check::drops::{Counted, DropCounter};

use super::*;

/// Answers what is posted with the request's tag.
fn combine(board: &Board<Counted, u64>) -> usize {
    let mut taken = Vec::new();
    board.collect(&mut taken);
    for &id in &taken {
        let tag = board.request(id).tag();
        board.prepare(id, tag);
        board.reply(id, false);
    }
    taken.len()
}

#[test]
fn handles_spread_over_the_slots_and_share_them() {
    let board = Board::<u64, u64>::new(3);
    let joined: Vec<SlotId> = (0..7).map(|_| board.join()).collect();
    assert_eq!(joined.iter().map(|id| id.0).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
    board.leave(joined[2]);
    board.leave(joined[5]);
    assert_eq!(board.join(), SlotId(2));
}

#[test]
fn a_busy_slot_is_passed_over() {
    let board = Board::<u64, u64>::new(2);
    assert_eq!(board.claim(SlotId(1)), Some(SlotId(1)));
    assert_eq!(board.claim(SlotId(1)), Some(SlotId(0)));
    assert_eq!(board.claim(SlotId(1)), None);
    board.free(SlotId(0));
    assert_eq!(board.claim(SlotId(1)), Some(SlotId(0)));
}

#[test]
fn unused_slots_leave_the_list_and_come_back() {
    let counter = DropCounter::new();
    let board = Board::new(4);
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
    assert_eq!(board.listed().count(), 4, "they may be used again");
    for _ in 0..2 * AGE {
        assert_eq!(combine(&board), 0);
    }
    assert_eq!(board.listed().count(), 1, "the head stays");
    for at in 0..4 {
        let id = board.claim(SlotId(at)).unwrap();
        board.post(id, counter.value(7));
    }
    assert_eq!(board.listed().count(), 4);
    assert_eq!(combine(&board), 4);
    counter.assert_all_dropped();
}

#[test]
fn whatever_becomes_of_a_request_it_is_dropped_once() {
    let counter = DropCounter::new();
    let board = Board::<Counted, Counted>::new(4);
    let post = |at| {
        let id = board.claim(SlotId(at)).unwrap();
        board.post(id, counter.value(u64::from(at)));
        id
    };
    // Taken back.
    let id = post(0);
    assert_eq!(board.retract(id).unwrap().tag(), 0);
    // Refused: before its request was moved out, and after its answer was prepared.
    let (one, two) = (post(1), post(2));
    let mut taken = Vec::new();
    board.collect(&mut taken);
    assert_eq!(taken.len(), 2);
    let request = board.request(one);
    board.prepare(one, request);
    board.reply(one, true);
    board.reply(two, true);
    assert_eq!(counter.alive(), 0, "who was refused keeps nothing");
    assert_eq!(board.answer(one), Some(Err(Refused)));
    assert_eq!(board.answer(two), Some(Err(Refused)));
    // Abandoned while it was carried out, and after.
    let three = post(3);
    taken.clear();
    board.collect(&mut taken);
    assert_eq!(board.retract(three), None);
    board.abandon(three);
    let request = board.request(three);
    board.prepare(three, request);
    board.reply(three, false);
    assert_eq!(board.claim(three), Some(three));
    board.free(three);
    // Never collected.
    post(0);
    drop(board);
    counter.assert_all_dropped();
}
