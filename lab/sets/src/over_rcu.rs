//! Structures over RCU: readers read the nodes directly, and writers hold locks.

use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_sync::lock::{self, RawHmcs};
use archipelago_sync::rcu::{Domain, Reader};

use crate::mechanism::{Change, Conflict, Mechanism, Node, Session, Update, View};
use crate::shared::{Reading, Shared, SharedLink, pointer};

/// Structures over [`rcu`](archipelago_sync::rcu), with one lock for writers per scope (a set of nodes that is updated
/// independently): a list or tree has one scope, a hash table has one per bucket.
pub type OverRcu = RcuUnder<Mutex<()>>;

/// The same as [`OverRcu`] with the hierarchical MCS lock, which is passed from thread to thread of a NUMA node while
/// other threads wait on this node, a bounded number of times.
pub type OverRcuHmcs = RcuUnder<lock::Mutex<RawHmcs, ()>>;

/// Structures over RCU with a lock of type `L` for writers.
#[derive(Default)]
pub struct RcuUnder<L> {
    domain: Domain,
    /// As many locks as the structure has scopes, or one.
    locks: Box<[L]>,
    one: bool,
}

impl<L: Default> RcuUnder<L> {
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

type RcuLink<const LINKS: usize> = SharedLink<LINKS, ()>;

impl<L: Exclusive, const LINKS: usize> Mechanism<LINKS> for RcuUnder<L> {
    type Link = RcuLink<LINKS>;
    type Session<'m> = RcuSession<'m, L>;

    fn for_scopes(self, scopes: usize) -> Self {
        let locks = if self.one { 1 } else { scopes };
        Self { locks: (0..locks).map(|_| L::default()).collect(), ..self }
    }

    fn root(&self) -> RcuLink<LINKS> {
        Shared::boxed(Node { key: 0, next: [None; LINKS], value: 0 }, ())
    }

    fn session(&self) -> RcuSession<'_, L> {
        RcuSession { over: self, reader: self.domain.reader() }
    }
}

#[doc(hidden)]
pub struct RcuSession<'m, L> {
    over: &'m RcuUnder<L>,
    reader: Reader<'m>,
}

impl<L: Exclusive> RcuSession<'_, L> {
    fn lock(&self, scope: usize) -> L::Held<'_> {
        self.over.locks[if self.over.one { 0 } else { scope }].hold()
    }

    /// Runs `body` with the locks of all the scopes held. The locks are taken in ascending order, so threads cannot
    /// deadlock.
    #[inline]
    fn locked<R>(&self, scopes: &[usize], body: impl FnOnce() -> R) -> R {
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

impl<L: Exclusive, const LINKS: usize> Session<LINKS> for RcuSession<'_, L> {
    type Link = RcuLink<LINKS>;
    type View<'s>
        = Reading<()>
    where
        Self: 's;
    type Update<'s>
        = Locked<'s>
    where
        Self: 's;

    #[inline]
    fn read<R>(&mut self, body: impl FnOnce(&Reading<()>) -> R) -> R {
        let _guard = self.reader.enter();
        body(&Reading::new())
    }

    fn read_at_once<R>(&mut self, scopes: &[usize], body: impl FnOnce(&Reading<()>) -> R) -> R {
        self.locked(scopes, || {
            let _guard = self.reader.enter();
            body(&Reading::new())
        })
    }

    /// Runs without a guard: nodes of a scope are retired only by the holder of the scope's lock.
    #[inline]
    fn update<R>(&mut self, scopes: &[usize], mut body: impl FnMut(&mut Locked<'_>) -> Result<R, Conflict>) -> R {
        self.reader.give_way();
        self.locked(scopes, || {
            let mut locked = Locked { domain: &self.over.domain, reader: &self.reader };
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
pub struct Locked<'s> {
    domain: &'s Domain,
    reader: &'s Reader<'s>,
}

impl<const LINKS: usize> View<LINKS> for Locked<'_> {
    type Link = RcuLink<LINKS>;

    #[inline]
    unsafe fn step(&self, link: RcuLink<LINKS>, side: usize) -> (u64, Option<RcuLink<LINKS>>) {
        // SAFETY: the caller's promise.
        unsafe { Reading::new().step(link, side) }
    }

    #[inline]
    unsafe fn toward(&self, link: RcuLink<LINKS>, key: u64) -> (u64, Option<RcuLink<LINKS>>) {
        // SAFETY: the caller's promise.
        unsafe { Reading::new().toward(link, key) }
    }

    #[inline]
    unsafe fn node(&self, link: RcuLink<LINKS>) -> Node<RcuLink<LINKS>, LINKS> {
        // SAFETY: the caller's promise.
        unsafe { Reading::new().node(link) }
    }
}

impl<const LINKS: usize> Update<LINKS> for Locked<'_> {
    #[inline]
    unsafe fn set_next(
        &mut self,
        link: RcuLink<LINKS>,
        side: usize,
        change: Change<RcuLink<LINKS>>,
    ) -> Result<(), Conflict> {
        // SAFETY: by the caller's promise `link` and the node to which the new link leads are alive.
        unsafe { link.shared().next[side].publish(pointer(change.to)) };
        Ok(())
    }

    #[inline]
    unsafe fn alloc(&mut self, node: Node<RcuLink<LINKS>, LINKS>) -> RcuLink<LINKS> {
        Shared::boxed(node, ())
    }

    #[inline]
    unsafe fn retire(&mut self, link: RcuLink<LINKS>, _: &Node<RcuLink<LINKS>, LINKS>) -> Result<(), Conflict> {
        // SAFETY: the node is from `Shared::boxed`. The rest is the caller's promise, since the node is unlinked
        // already.
        unsafe { self.reader.enter().retire_box(link.0.as_ptr()) };
        Ok(())
    }

    fn settle(&mut self) {
        self.domain.synchronize();
    }
}
