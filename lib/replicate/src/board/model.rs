//! Model checks of the slots with loom: no thread's request is lost or carried out twice, and no wake-up is lost.

use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;

use archipelago_platform::atomic::AtomicBool;

use super::*;

/// A waker that notifies. (Loom loses an `unpark` if the thread waits for a mutex at that moment.)
struct Bell(loom::sync::Notify);

impl std::task::Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.notify();
    }
}

/// A combined counter: the smallest structure with a board.
struct Counter {
    locked: AtomicBool,
    board: Board<u32, u32>,
    sum: RaceCell<u32>,
}

impl Counter {
    fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self { locked: AtomicBool::new(false), board: Board::new(slots, 2), sum: RaceCell::new(0) })
    }

    /// Combines if no thread does.
    fn combine(&self) -> bool {
        // Not `swap`: loom permits a swap to read an old value although it is the last write.
        if self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        let mut batch = Batch::default();
        self.board.collect(&mut batch);
        while batch.left() > 0 {
            let request = self.board.request(&mut batch);
            // SAFETY: this thread holds `locked`.
            let sum = self.sum.with_mut(|sum| unsafe {
                *sum += request;
                *sum
            });
            self.board.reply(&mut batch, sum);
        }
        self.locked.store(false, Ordering::Release);
        self.board.wake_sleepers();
        true
    }

    /// As `slot_or`, but waits for a bell.
    fn slot(&self, preferred: SlotId) -> SlotId {
        if !self.board.has_line()
            && let Some(id) = self.board.claim(preferred)
        {
            return id;
        }
        let bell = std::sync::Arc::new(Bell(loom::sync::Notify::new()));
        let place = self.board.line_up(Sleeper::Task(bell.clone().into()));
        loop {
            if self.board.is_first(place) {
                if let Some(id) = self.board.claim(preferred) {
                    self.board.leave_line();
                    return id;
                }
                if self.combine() {
                    // Another thread has claimed the slot and not posted yet.
                    thread::yield_now();
                    continue;
                }
            }
            bell.0.wait();
        }
    }

    fn add(&self, value: u32, slot: SlotId) -> u32 {
        let id = self.slot(slot);
        self.board.post(id, value);
        let bell = std::sync::Arc::new(Bell(loom::sync::Notify::new()));
        loop {
            self.combine();
            if let Some(answer) = self.board.answer(id) {
                return answer.unwrap();
            }
            self.board.sleep(id, Sleeper::Task(bell.clone().into()));
            if self.board.answer_is_there(id) || self.combine() {
                continue;
            }
            bell.0.wait();
        }
    }
}

/// The combiner that takes a request answers it, and sleepers are woken: otherwise loom detects a deadlock.
#[test]
fn every_request_is_answered_once() {
    model(2, || {
        let counter = Counter::new(2);
        let other = {
            let counter = counter.clone();
            thread::spawn(move || counter.add(1, SlotId(0)))
        };
        let mine = counter.add(2, SlotId(1));
        let theirs = other.join().unwrap();
        assert!((mine, theirs) == (2, 3) || (mine, theirs) == (3, 1), "{mine} {theirs}");
        assert_eq!(counter.board.asleep.iter().count(), 0);
    });
}

/// A thread that claims a slot finds no state of the previous owner in it.
#[test]
fn threads_share_a_slot() {
    model(2, || {
        let counter = Counter::new(1);
        let other = {
            let counter = counter.clone();
            thread::spawn(move || counter.add(1, SlotId(0)))
        };
        let mine = counter.add(2, SlotId(0));
        assert!(matches!((mine, other.join().unwrap()), (2, 3) | (3, 1)));
    });
}

/// The bit of a slot is cleared while the slot's owner posts again.
#[test]
fn a_request_is_not_lost_to_ageing() {
    model(2, || {
        let counter = Counter::new(2);
        // Slot 0 was not used in the last rounds.
        counter.add(1, SlotId(0));
        counter.add(1, SlotId(1));
        let other = {
            let counter = counter.clone();
            thread::spawn(move || {
                counter.combine();
                counter.combine();
            })
        };
        counter.add(1, SlotId(0));
        other.join().unwrap();
        assert_eq!(counter.add(1, SlotId(1)), 4);
    });
}

/// The poster that abandons a request and the combiner that answers it agree on which of them frees the slot. The slot
/// is free before it is claimed again.
#[test]
fn an_abandoned_request_frees_its_slot() {
    model(3, || {
        let counter = Counter::new(1);
        let id = counter.board.claim(SlotId(0)).unwrap();
        counter.board.post(id, 5);
        let other = {
            let counter = counter.clone();
            thread::spawn(move || counter.combine())
        };
        counter.board.abandon(id);
        other.join().unwrap();
        counter.combine();
        // SAFETY: only this thread is left.
        assert!(matches!(counter.sum.with(|sum| unsafe { *sum }), 0 | 5));
        assert_eq!(counter.board.asleep.iter().count(), 0);
        assert_eq!(counter.board.claim(SlotId(0)), Some(SlotId(0)), "the slot is free again");
    });
}
