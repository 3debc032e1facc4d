//! The line: a queue of threads that found no free slot. They are served in the order of their arrival.
//!
//! Only the first thread in line searches for a slot, or for the right to combine; the others sleep. They sleep rather
//! than yield the processor: if threads outnumber processors, each yield lasts until all other threads have run, so a
//! thread that yields until it finds a slot may find none for seconds.
//!
//! # No thread stays in line for ever
//! While the line is not empty, its bit is set among the sleepers' bits, so every combiner that leaves wakes the first
//! thread in line. This first thread sleeps only if it has seen an active combiner after its bit was set: the protocol
//! of [`Board::sleep`]. The others need not check: each thread that leaves the line wakes the next one.

use std::collections::VecDeque;

use archipelago_platform::atomic::{Ordering, fence};
use archipelago_platform::sync::MutexGuard;

use super::{Board, Sleeper};

/// The waiting threads, in order.
#[derive(Default)]
pub(super) struct Line {
    /// The number of threads that have left the line.
    served: u64,
    waiting: VecDeque<Sleeper>,
}

/// A position in line: the number of threads that are served before this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

impl<Q, A> Board<Q, A> {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the number of the line's bit among the sleepers' bits. It follows those of the slots.
    pub(super) fn line_bit(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns whether a thread waits in line. If so, arriving threads should join the line.
    pub(crate) fn has_line(&self) -> bool {
        self.asleep.has(self.line_bit())
    }

    /// Joins the line at its end.
    pub(crate) fn line_up(&self, sleeper: Sleeper) -> Ticket {
        let mut line = self.line();
        line.waiting.push_back(sleeper);
        let place = Ticket(line.served + line.waiting.len() as u64 - 1);
        self.asleep.set(self.line_bit());
        drop(line);
        // Partner: the fence in `wake_sleepers`.
        fence(Ordering::SeqCst);
        place
    }

    /// Returns whether all threads that arrived before have left.
    pub(crate) fn is_first(&self, Ticket(before): Ticket) -> bool {
        self.line().served == before
    }

    /// Removes the first thread from the line and wakes the next one. Called by the first thread.
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

    /// Returns the number of threads in line.
    #[cfg(all(test, not(loom)))]
    pub(super) fn waiting(&self) -> usize {
        self.line().waiting.len()
    }

    /// Wakes the first thread in line.
    pub(super) fn wake_first(&self) {
        let first = self.line().waiting.front().cloned();
        first.into_iter().for_each(Sleeper::wake);
    }
}
