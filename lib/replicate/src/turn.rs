//! The right to combine: a lock that is only tried, never waited for. Its release wakes the threads that fell asleep
//! while it was held.

use core::ops::{Deref, DerefMut};

use archipelago_platform::pad::CachePadded;
use archipelago_platform::touch_mut;
use archipelago_sync::lock::{Mutex, MutexGuard, RawTtas};

use crate::board::Board;
use crate::reentry::{self, Identity, Inside};

/// The combiner's lock, with the data that it protects.
pub(crate) type CombinerLock<C> = CachePadded<Mutex<RawTtas, C>>;

/// The held combiner's lock.
pub(crate) struct Turn<'s, C, Q, A> {
    board: &'s Board<Q, A>,
    inside: Option<Inside>,
    /// `None` only while the turn is being dropped.
    guard: Option<MutexGuard<'s, RawTtas, C>>,
}

impl<'s, C, Q, A> Turn<'s, C, Q, A> {
    /// Returns the right to combine for `board`, a board of `structure`, if no thread has it.
    #[inline]
    pub(crate) fn try_take(lock: &'s CombinerLock<C>, board: &'s Board<Q, A>, structure: Identity) -> Option<Self> {
        let guard = lock.try_lock()?;
        // The data that the lock protects is now accessed by this thread alone, with plain accesses. In a simulation,
        // this call accounts for them.
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
        // A woken task may run here, inside `wake_sleepers`, and use the structure. So this thread is no longer counted
        // as inside.
        self.inside = None;
        self.board.wake_sleepers();
    }
}
