//! One attempt to lock a set of objects: first the bytes, then the words, and everything back if either takes too long.

use archipelago_platform::hint::{pause, point};

use super::handle::Handle;
use super::{Locks, Rcx, points};

/// Steps of a wait, of 1, 2, 4, … turns of a spin loop: 63 turns in all.
const STEPS: u32 = if cfg!(loom) { 1 } else { 6 };

/// Where [`Rcx::lock`] begins again after it has yielded: it spins 56 turns more. A thread that yields is registered at no byte, so
/// hand-over needs one that spins now and then.
const AFTER_YIELD: u32 = if cfg!(loom) { 0 } else { 3 };

/// What an attempt may still wait, for all its objects together. It counts turns that spin: the processor is never given away.
pub(super) struct Patience(u32);

impl Patience {
    #[inline]
    pub(super) fn new() -> Self {
        Self(0)
    }

    pub(super) fn after_yield() -> Self {
        Self(AFTER_YIELD)
    }

    /// Waits one step, twice as long as the last; false if there was none left.
    pub(super) fn wait(&mut self) -> bool {
        if self.0 == STEPS {
            return false;
        }
        pause(1 << self.0);
        self.0 += 1;
        true
    }
}

/// A set of objects, as a thread of a node locks them.
pub(super) struct Set<'a, 'o, L: Locks> {
    pub(super) rcx: &'o Rcx<L>,
    /// In order.
    pub(super) handles: &'a [Handle<'o, L>],
    pub(super) node: usize,
}

impl<'o, L: Locks> Set<'_, 'o, L> {
    /// Returns whether the set is locked now; if not, nothing of it is.
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

    /// Gives the bytes of objects up that do not come to be held, and words that had been left to the node: a thread that gave up
    /// the byte alone would leave the word to a node of which no thread may wait.
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
