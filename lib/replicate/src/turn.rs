//! The right to combine: a lock that no thread waits for, whose release wakes those who fell asleep while it was held.

use core::ops::{Deref, DerefMut};

use archipelago_platform::pad::CachePadded;
use archipelago_platform::touch_mut;
use archipelago_sync::lock::{Mutex, MutexGuard, RawTtas};

use crate::board::Board;
use crate::reentry::{self, Identity, Inside};

/// The combiner's lock, with what it guards besides the right to combine.
pub(crate) type CombinerLock<C> = CachePadded<Mutex<RawTtas, C>>;

/// The combiner's lock, held.
pub(crate) struct Turn<'s, C, Q, A> {
    board: &'s Board<Q, A>,
    inside: Option<Inside>,
    /// `None` only while it is dropped.
    guard: Option<MutexGuard<'s, RawTtas, C>>,
}

impl<'s, C, Q, A> Turn<'s, C, Q, A> {
    /// The right to combine for `board`, a board of `structure`, if no thread has it.
    #[inline]
    pub(crate) fn try_take(lock: &'s CombinerLock<C>, board: &'s Board<Q, A>, structure: Identity) -> Option<Self> {
        let guard = lock.try_lock()?;
        // What the lock guards is this thread's now, plainly.
        touch_mut(&raw const *guard, size_of::<C>());
        Some(Self { board, inside: Some(reentry::enter(structure)), guard: Some(guard) })
    }
}

impl<C, Q, A> Deref for Turn<'_, C, Q, A> {
    type Target = C;

    #[inline]
    fn deref(&self) -> &C {
        self.guard.as_ref().expect("held until the turn is over")
    }
}

impl<C, Q, A> DerefMut for Turn<'_, C, Q, A> {
    #[inline]
    fn deref_mut(&mut self) -> &mut C {
        self.guard.as_mut().expect("held until the turn is over")
    }
}

impl<C, Q, A> Drop for Turn<'_, C, Q, A> {
    #[inline]
    fn drop(&mut self) {
        self.guard = None;
        // Who is woken may run here and now, and use the structure.
        self.inside = None;
        self.board.wake_sleepers();
    }
}
