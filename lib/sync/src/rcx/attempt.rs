//! One attempt to lock a set of objects: first the bytes, then the words. If either takes too long, everything is
//! undone.

use archipelago_platform::hint::{pause, point};

use super::handle::Handle;
use super::{Locks, Rcx, points};

/// The number of steps of a wait. The steps spin for 1, 2, 4, … turns of a loop: 63 turns in all.
const STEPS: u32 = if cfg!(loom) { 1 } else { 6 };

/// The step at which [`Rcx::lock`] begins again after it has yielded: it then spins for 56 turns. A thread that yields
/// is not registered at any byte. Hand-over needs registered threads, so `lock` spins from time to time.
const AFTER_YIELD: u32 = if cfg!(loom) { 0 } else { 3 };

/// The number of steps that an attempt has waited, for all its objects together. A step spins; the processor is never
/// yielded.
pub(super) struct Patience(u32);

impl Patience {
    #[inline]
    pub(super) fn new() -> Self {
        Self(0)
    }

    pub(super) fn after_yield() -> Self {
        Self(AFTER_YIELD)
    }

    /// Waits for one step, twice as long as the step before. Returns false if no step was left.
    pub(super) fn wait(&mut self) -> bool {
        if self.0 == STEPS {
            return false;
        }
        pause(1 << self.0);
        self.0 += 1;
        true
    }
}

/// A set of objects that a thread of a node locks.
pub(super) struct Set<'a, 'o, L: Locks> {
    pub(super) rcx: &'o Rcx<L>,
    /// Sorted, as in [`InOrder`](super::InOrder).
    pub(super) handles: &'a [Handle<'o, L>],
    pub(super) node: usize,
}

impl<'o, L: Locks> Set<'_, 'o, L> {
    /// Returns whether the set is now locked. If not, none of its objects is.
    #[inline]
    pub(super) fn lock(&self, patience: &mut Patience) -> bool {
        if !self.admit(patience) {
            return false;
        }
        point(points::ADMITTED);
        if self.rcx.nodes > 1 && !self.take_words(patience) {
            self.give_up(self.handles);
            return false;
        }
        point(points::HELD);
        true
    }

    /// Gives up the bytes of objects that this thread will not hold, and the words of these objects that were left to
    /// the node. If it gave up only the byte, the word would stay with a node at which perhaps no thread waits.
    #[cold]
    pub(super) fn give_up(&self, handles: &[Handle<'o, L>]) {
        for handle in handles {
            if self.rcx.passes > 0 {
                self.give_up_left(*handle);
            }
            self.release_local(*handle);
        }
    }

    #[inline]
    pub(super) fn unlock(&self) {
        match self.rcx {
            Rcx { nodes: 1, .. } => self.handles.iter().for_each(|handle| self.release_local(*handle)),
            Rcx { passes: 0, .. } => self.handles.iter().rev().for_each(|handle| self.release(*handle)),
            _ => self.handles.iter().rev().for_each(|handle| self.release_or_leave(*handle)),
        }
    }
}
