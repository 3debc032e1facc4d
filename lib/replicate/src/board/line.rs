//! The line of those that found no free slot: they are served in the order in which they came.
//!
//! Only the first looks for a slot, or for the right to combine; the others sleep. They do not yield the processor
//! instead, since where threads outnumber processors each yield costs a turn of all others: a thread that yields until it
//! finds a slot finds none for seconds.
//!
//! # No thread stays in it
//! While anyone stands in line a bit is set among the sleepers, so that every combiner that leaves wakes the first. The
//! first sleeps only if it then saw a combiner: the handshake at [`Board::sleep`]. The others need not look: the first
//! wakes the second when it goes.

use std::collections::VecDeque;

use archipelago_platform::atomic::{Ordering, fence};
use archipelago_platform::sync::MutexGuard;

use super::{Board, Sleeper};

/// Those in line, in order.
#[derive(Default)]
pub(super) struct Line {
    /// How many have left.
    served: u64,
    waiting: VecDeque<Sleeper>,
}

/// A place in line: how many were served before this one is first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(u64);

impl<Q, A> Board<Q, A> {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The line's number among the sleepers, behind those of the slots.
    pub(super) fn line_bit(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Whether anyone stands in line. Those that come now had better join.
    pub(crate) fn has_line(&self) -> bool {
        self.asleep.has(self.line_bit())
    }

    /// Joins the line, at its end.
    pub(crate) fn line_up(&self, sleeper: Sleeper) -> Place {
        let mut line = self.line();
        line.waiting.push_back(sleeper);
        let place = Place(line.served + line.waiting.len() as u64 - 1);
        self.asleep.set(self.line_bit());
        drop(line);
        // Partner: the fence in `wake_sleepers`.
        fence(Ordering::SeqCst);
        place
    }

    /// Whether all that came before have left.
    pub(crate) fn is_first(&self, Place(before): Place) -> bool {
        self.line().served == before
    }

    /// The first leaves the line and wakes the next.
    pub(crate) fn leave_line(&self) {
        let mut line = self.line();
        let gone = line.waiting.pop_front();
        debug_assert!(gone.is_some(), "only those leave that stand in line");
        line.served += 1;
        if line.waiting.is_empty() {
            self.asleep.clear(self.line_bit());
        }
        drop(line);
        self.wake_first();
    }

    /// How many stand in line.
    #[cfg(all(test, not(loom)))]
    pub(super) fn waiting(&self) -> usize {
        self.line().waiting.len()
    }

    /// Wakes the first in line.
    pub(super) fn wake_first(&self) {
        let first = self.line().waiting.front().cloned();
        first.into_iter().for_each(Sleeper::wake);
    }
}
