//! What a method of `bench nr` must offer, to be measured on its workloads; and a lock-free skip list, which is one.

use core::hint::black_box;

use archipelago_sets::{FraserSession, FraserSkipList, Set, SetSession};
use archipelago_sync::rcu;

/// A generic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Look at something.
    Read(u64),
    /// Put something in (for the sorted set: raise a score).
    Add(u64),
    /// Take something out (for the sorted set: raise a score).
    Remove(u64),
}

/// A method with a structure in it.
pub trait Method: Sync {
    /// One thread's access.
    type Session<'m>: Session
    where
        Self: 'm;

    /// Access for a thread, which calls this itself.
    fn session(&self) -> Self::Session<'_>;
}

/// One thread's access.
pub trait Session {
    /// Carries out an operation.
    fn execute(&mut self, op: Op);
}

/// `LF`: a lock-free skip list. `QUEUE`: as a priority queue, else as a dictionary. `FREES`: what is removed is freed
/// when no thread can see it any more; else, as in the paper, nothing is freed as long as any session lasts.
pub struct LockFree<const QUEUE: bool, const FREES: bool>(FraserSkipList);

/// Access to a [`LockFree`], which holds up its freeing if there is to be none.
pub struct LockFreeSession<'m, const QUEUE: bool> {
    list: FraserSession<'m>,
    _no_freeing: Option<rcu::Guard<'m>>,
}

impl<const QUEUE: bool, const FREES: bool> FromIterator<(u64, u64)> for LockFree<QUEUE, FREES> {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(items: I) -> Self {
        let list = FraserSkipList::default();
        let mut session = list.session();
        items.into_iter().for_each(|(key, value)| _ = session.insert(key, value));
        Self(list)
    }
}

impl<const QUEUE: bool, const FREES: bool> Method for LockFree<QUEUE, FREES> {
    type Session<'m> = LockFreeSession<'m, QUEUE>;

    fn session(&self) -> LockFreeSession<'_, QUEUE> {
        LockFreeSession { list: self.0.session(), _no_freeing: (!FREES).then(|| self.0.guard()) }
    }
}

impl<const QUEUE: bool> Session for LockFreeSession<'_, QUEUE> {
    #[inline]
    fn execute(&mut self, op: Op) {
        let list = &mut self.list;
        black_box(match op {
            Op::Read(_) if QUEUE => list.first(),
            Op::Read(key) => list.get(key),
            Op::Add(key) => list.insert(key, !key).then_some(key),
            Op::Remove(_) if QUEUE => list.pop_first().map(|(key, _)| key),
            Op::Remove(key) => list.remove(key),
        });
    }
}
