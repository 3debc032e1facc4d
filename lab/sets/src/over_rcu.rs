//! Structures over RCU: readers read the nodes directly, and writers hold locks.

use core::marker::PhantomData;

use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_sync::lock::{self, RawHmcs};
use archipelago_sync::rcu::{Domain, Reader};

use crate::mechanism::{Change, Conflict, Mechanism, Node, Session, Update, View};
use crate::room::{Kilobyte, Room, Snug};
use crate::shared::{Reading, Shared, SharedLink, pointer};

/// Structures over [`rcu`](archipelago_sync::rcu), with one lock for writers per scope (a set of nodes that is updated
/// independently): a list or tree has one scope, a hash table has one per bucket.
pub type OverRcu = RcuUnder<Mutex<()>>;

/// The same as [`OverRcu`] with the hierarchical MCS lock, which is passed from thread to thread of a NUMA node while
/// other threads wait on this node, a bounded number of times.
pub type OverRcuHmcs = RcuUnder<lock::Mutex<RawHmcs, ()>>;

/// The same as [`OverRcu`] with nodes of 1,024 bytes, as in the program with which RCX was measured.
pub type OverRcuKilobyte = RcuUnder<Mutex<()>, Kilobyte>;

/// Structures over RCU with a lock of type `L` for writers, and nodes that take the room `R`.
#[derive(Default)]
pub struct RcuUnder<L, R = Snug> {
    domain: Domain,
    /// As many locks as the structure has scopes, or one.
    locks: Box<[L]>,
    one: bool,
    room: PhantomData<R>,
}

impl<L: Default, R: Default> RcuUnder<L, R> {
    /// Makes the mechanism with one lock for a whole structure, even for a hash table.
    pub fn with_one_lock() -> Self {
        Self { one: true, ..Self::default() }
    }
}

/// A lock for writers.
#[doc(hidden)]
pub trait Exclusive: Default + Send + Sync + 'static {
    type Held<'l>;

    fn hold(&self) -> Self::Held<'_>;
}

impl Exclusive for Mutex<()> {
    type Held<'l> = MutexGuard<'l, ()>;

    fn hold(&self) -> MutexGuard<'_, ()> {
        // Only a panic of a debug assertion can have poisoned the lock.
        self.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Exclusive for lock::Mutex<RawHmcs, ()> {
    type Held<'l> = lock::MutexGuard<'l, RawHmcs, ()>;

    fn hold(&self) -> Self::Held<'_> {
        self.lock()
    }
}

impl<L: Exclusive, R: Room, const LINKS: usize> Mechanism<LINKS> for RcuUnder<L, R> {
    type Link = SharedLink<LINKS, R>;
    type Session<'m> = RcuSession<'m, L, R>;

    fn for_scopes(self, scopes: usize) -> Self {
        let locks = if self.one { 1 } else { scopes };
        Self { locks: (0..locks).map(|_| L::default()).collect(), ..self }
    }

    fn root(&self) -> SharedLink<LINKS, R> {
        Shared::boxed(Node { key: 0, next: [None; LINKS], value: 0 }, R::default())
    }

    fn session(&self) -> RcuSession<'_, L, R> {
        RcuSession { over: self, reader: self.domain.reader() }
    }
}

#[doc(hidden)]
pub struct RcuSession<'m, L, R> {
    over: &'m RcuUnder<L, R>,
    reader: Reader<'m>,
}

impl<L: Exclusive, R> RcuSession<'_, L, R> {
    fn lock(&self, scope: usize) -> L::Held<'_> {
        self.over.locks[if self.over.one { 0 } else { scope }].hold()
    }

    /// Runs `body` with the locks of all the scopes held. The locks are taken in ascending order, so threads cannot
    /// deadlock.
    #[inline]
    fn locked<T>(&self, scopes: &[usize], body: impl FnOnce() -> T) -> T {
        match scopes {
            [one] => {
                let _lock = self.lock(*one);
                body()
            }
            _ if self.over.one => {
                let _lock = self.lock(0);
                body()
            }
            many => {
                debug_assert!(many.is_sorted_by(|a, b| a < b));
                let _locks: Vec<_> = many.iter().map(|scope| self.lock(*scope)).collect();
                body()
            }
        }
    }
}

impl<L: Exclusive, R: Room, const LINKS: usize> Session<LINKS> for RcuSession<'_, L, R> {
    type Link = SharedLink<LINKS, R>;
    type View<'s>
        = Reading<R>
    where
        Self: 's;
    type Update<'s>
        = Locked<'s, R>
    where
        Self: 's;

    #[inline]
    fn read<T>(&mut self, body: impl FnOnce(&Reading<R>) -> T) -> T {
        let _guard = self.reader.enter();
        body(&Reading::new())
    }

    fn read_at_once<T>(&mut self, scopes: &[usize], body: impl FnOnce(&Reading<R>) -> T) -> T {
        self.locked(scopes, || {
            let _guard = self.reader.enter();
            body(&Reading::new())
        })
    }

    /// Runs without a guard: nodes of a scope are retired only by the holder of the scope's lock.
    #[inline]
    fn update<T>(&mut self, scopes: &[usize], mut body: impl FnMut(&mut Locked<'_, R>) -> Result<T, Conflict>) -> T {
        self.reader.give_way();
        self.locked(scopes, || {
            let mut locked = Locked { domain: &self.over.domain, reader: &self.reader, room: PhantomData };
            let Ok(result) = body(&mut locked) else { unreachable!("nothing conflicts under the locks") };
            result
        })
    }

    fn aborts(&self) -> u64 {
        0
    }
}

/// An update, which holds the locks.
#[doc(hidden)]
pub struct Locked<'s, R> {
    domain: &'s Domain,
    reader: &'s Reader<'s>,
    room: PhantomData<R>,
}

impl<R: Room, const LINKS: usize> View<LINKS> for Locked<'_, R> {
    type Link = SharedLink<LINKS, R>;

    #[inline]
    unsafe fn step(&self, link: SharedLink<LINKS, R>, side: usize) -> (u64, Option<SharedLink<LINKS, R>>) {
        // SAFETY: the caller's promise.
        unsafe { Reading::new().step(link, side) }
    }

    #[inline]
    unsafe fn toward(&self, link: SharedLink<LINKS, R>, key: u64) -> (u64, Option<SharedLink<LINKS, R>>) {
        // SAFETY: the caller's promise.
        unsafe { Reading::new().toward(link, key) }
    }

    #[inline]
    unsafe fn node(&self, link: SharedLink<LINKS, R>) -> Node<SharedLink<LINKS, R>, LINKS> {
        // SAFETY: the caller's promise.
        unsafe { Reading::new().node(link) }
    }
}

impl<R: Room, const LINKS: usize> Update<LINKS> for Locked<'_, R> {
    #[inline]
    unsafe fn set_next(
        &mut self,
        link: SharedLink<LINKS, R>,
        side: usize,
        change: Change<SharedLink<LINKS, R>>,
    ) -> Result<(), Conflict> {
        // SAFETY: by the caller's promise `link` and the node to which the new link leads are alive.
        unsafe { link.shared().next[side].publish(pointer(change.to)) };
        Ok(())
    }

    #[inline]
    unsafe fn alloc(&mut self, node: Node<SharedLink<LINKS, R>, LINKS>) -> SharedLink<LINKS, R> {
        Shared::boxed(node, R::default())
    }

    #[inline]
    unsafe fn retire(
        &mut self,
        link: SharedLink<LINKS, R>,
        _: &Node<SharedLink<LINKS, R>, LINKS>,
    ) -> Result<(), Conflict> {
        // SAFETY: the node is from `Shared::boxed`. The rest is the caller's promise, since the node is unlinked
        // already.
        unsafe { self.reader.enter().retire_box(link.0.as_ptr()) };
        Ok(())
    }

    fn settle(&mut self) {
        self.domain.synchronize();
    }
}
