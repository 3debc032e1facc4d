//! The operations that a method of `bench nr` must offer to be measured, and a lock-free skip list as a method.

use core::hint::black_box;

use archipelago_sets::{Set, SetSession, SkipList, SkipListSession};
use archipelago_sync::rcu;

/// An operation of any workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads an item.
    Read(u64),
    /// Adds an item (in a sorted set: raises a score).
    Add(u64),
    /// Removes an item (in a sorted set: raises a score).
    Remove(u64),
}

/// A method of sharing a structure, with the structure that it shares.
pub trait Method: Sync {
    /// One thread's access.
    type Session<'m>: Session
    where
        Self: 'm;

    /// Returns a thread's access. The thread itself must call this.
    fn session(&self) -> Self::Session<'_>;
}

/// One thread's access.
pub trait Session {
    /// Carries out an operation.
    fn execute(&mut self, op: Op);
}

/// `LF`: a lock-free skip list, as a priority queue if `QUEUE` and else as a dictionary. If `FREES`, a removed node is
/// freed when no thread can see it any more. Otherwise, as in the paper, nothing is freed while any session lasts.
/// `SHARED`: that of flat combining's benchmark, a [`SharedSeedSkipList`](archipelago_sets::SharedSeedSkipList).
pub struct LockFree<const QUEUE: bool, const FREES: bool, const SHARED: bool>(SkipList<SHARED>);

/// Access to a [`LockFree`]. If nothing is to be freed, the session holds a guard that prevents freeing.
pub struct LockFreeSession<'m, const QUEUE: bool, const SHARED: bool> {
    list: SkipListSession<'m, SHARED>,
    _no_freeing: Option<rcu::Guard<'m>>,
}

impl<const QUEUE: bool, const FREES: bool, const SHARED: bool> FromIterator<(u64, u64)>
    for LockFree<QUEUE, FREES, SHARED>
{
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(items: I) -> Self {
        let list = SkipList::default();
        let mut session = list.session();
        items.into_iter().for_each(|(key, value)| _ = session.insert(key, value));
        Self(list)
    }
}

impl<const QUEUE: bool, const FREES: bool, const SHARED: bool> Method for LockFree<QUEUE, FREES, SHARED> {
    type Session<'m> = LockFreeSession<'m, QUEUE, SHARED>;

    fn session(&self) -> LockFreeSession<'_, QUEUE, SHARED> {
        LockFreeSession { list: self.0.session(), _no_freeing: (!FREES).then(|| self.0.guard()) }
    }
}

impl<const QUEUE: bool, const SHARED: bool> Session for LockFreeSession<'_, QUEUE, SHARED> {
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
