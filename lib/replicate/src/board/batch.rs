//! The combiner's side of the board: the requests that it has taken, and its progress with them.

use archipelago_platform::atomic::{Ordering, fence};
use archipelago_platform::hint::prefetch_read;
use archipelago_platform::plain::Plain;

use super::{ANSWERED, Board, CANCELLED, FREE, POSTED, REFUSED, Slot, SlotId};
use archipelago_platform::panics::drop_quietly;

/// The number of combining rounds between two searches for unused slots, and the number of rounds after which a slot
/// counts as unused.
pub(super) const AGE: u32 = if cfg!(loom) {
    1
} else if cfg!(miri) {
    16
} else {
    256
};

/// Requests that a combiner has taken from one board. They are moved out and answered in the order in which they were
/// taken: `answered <= moved <= taken.len()`.
///
/// Each board has one batch, protected by the combiner's lock, so one thread at a time uses it.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    taken: Vec<Plain<SlotId>>,
    moved: usize,
    answered: usize,
}

impl Batch {
    /// Clears a batch whose requests are all answered.
    pub(crate) fn clear(&mut self) {
        debug_assert_eq!(self.left(), 0, "what was taken has an answer");
        self.taken.clear();
        (self.moved, self.answered) = (0, 0);
    }

    /// Returns the number of requests taken.
    pub(crate) fn len(&self) -> usize {
        self.taken.len()
    }

    /// Returns the number of requests without an answer.
    pub(crate) fn left(&self) -> usize {
        self.taken.len() - self.answered
    }
}

/// The combiner's operations on its batch. The caller holds the combiner's lock, and the batch belongs to the board.
impl<Q, A> Board<Q, A> {
    fn slot_of(&self, batch: &Batch, at: usize) -> &Slot<Q, A> {
        self.slot(*batch.taken[at])
    }

    /// Takes every posted request that is not taken yet.
    pub(crate) fn collect(&self, batch: &mut Batch) {
        let round = self.round.load(Ordering::Relaxed).wrapping_add(1);
        self.round.store(round, Ordering::Relaxed);
        let before = batch.taken.len();
        // The posters' cache lines are in the caches of their cores. The prefetches transfer them in parallel.
        self.active.iter().for_each(|at| prefetch_read(&raw const *self.slots[at as usize]));
        for at in self.active.iter() {
            let id = SlotId(at);
            // Acquire: pairs with the Release of `post` and `abandon`.
            match self.slot(id).state.load(Ordering::Acquire) {
                POSTED | CANCELLED if batch.taken[..before].iter().any(|taken| **taken == id) => {}
                POSTED => {
                    self.used[at as usize].store(round, Ordering::Relaxed);
                    batch.taken.push(Plain::new(id));
                }
                CANCELLED => {
                    // SAFETY: a slot that is posted or cancelled, and not taken, contains its request, which belongs to
                    // the combiner. It is read once, since the slot is freed below, before the user's destructor runs.
                    let request = self.slot(id).request.with(|cell| unsafe { (*cell).assume_init_read() });
                    self.free(id);
                    drop_quietly(request);
                }
                _ => {}
            }
        }
        if round.is_multiple_of(AGE) {
            self.age(round);
        }
    }

    /// Clears the bits of slots that no thread has used lately.
    #[cold]
    fn age(&self, round: u32) {
        for at in self.active.iter() {
            let state = &self.slot(SlotId(at)).state;
            let idle = round.wrapping_sub(self.used[at as usize].load(Ordering::Relaxed));
            if idle > AGE && state.load(Ordering::Relaxed) == FREE {
                self.active.clear(at);
                // Partner: the fence in `post`.
                fence(Ordering::SeqCst);
                if state.load(Ordering::Relaxed) != FREE {
                    self.active.set(at);
                }
            }
        }
    }

    /// Returns the request that will be moved out next, if there is one.
    pub(crate) fn next_request<'b>(&'b self, batch: &'b Batch) -> Option<&'b Q> {
        let slot = self.slot(**batch.taken.get(batch.moved)?);
        // SAFETY: a posted slot contains a request, which `collect` acquired. It is moved out only through the batch,
        // which is borrowed as long as the returned reference.
        Some(slot.request.with(|cell| unsafe { (*cell).assume_init_ref() }))
    }

    /// Moves the next request out.
    ///
    /// # Panics
    /// If all requests were moved out.
    #[inline]
    pub(crate) fn request(&self, batch: &mut Batch) -> Q {
        let slot = self.slot_of(batch, batch.moved);
        debug_assert!(matches!(slot.state.load(Ordering::Relaxed), POSTED | CANCELLED));
        batch.moved += 1;
        // SAFETY: a posted slot contains a request, `collect` acquired it, and the batch moves every request out once.
        slot.request.with(|cell| unsafe { (*cell).assume_init_read() })
    }

    /// Answers the next request.
    ///
    /// # Panics
    /// If the next request was not moved out.
    #[inline]
    pub(crate) fn reply(&self, batch: &mut Batch, answer: A) {
        assert!(batch.answered < batch.moved, "a request is carried out before it is answered");
        let slot = self.slot_of(batch, batch.answered);
        batch.answered += 1;
        // SAFETY: the cells of a posted slot belong to the combiner.
        slot.answer.with_mut(|cell| unsafe { (*cell).write(answer) });
        // Release: pairs with the Acquire of `answer`.
        slot.state.store(ANSWERED, Ordering::Release);
    }

    /// Refuses all requests that have no answer yet, including those that were posted in the meantime.
    #[cold]
    pub(crate) fn refuse(&self, batch: &mut Batch) {
        self.collect(batch);
        while batch.left() > 0 {
            let slot = self.slot_of(batch, batch.answered);
            let request = (batch.answered == batch.moved).then(|| {
                batch.moved += 1;
                // SAFETY: the slot still contains its request, which belongs to the combiner.
                slot.request.with(|cell| unsafe { (*cell).assume_init_read() })
            });
            batch.answered += 1;
            slot.state.store(REFUSED, Ordering::Release);
            drop_quietly(request);
        }
    }
}
