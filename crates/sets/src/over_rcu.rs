//! Structures over RCU: readers walk the nodes themselves, writers hold locks.

use core::ptr::{self, NonNull};

use archipelago_platform::atomic::{AtomicPtr, Ordering};
use archipelago_platform::sync::{Mutex, MutexGuard};

use crate::mechanism::{Conflict, Mechanism, Node, Session, Update, View};
use archipelago_platform::watch::Watch;
use archipelago_sync::rcu::{Domain, Guard, Reader};

/// Structures over [`rcu`](archipelago_sync::rcu), with one lock for writers per scope: a list or tree has one, a hash table one per
/// bucket.
#[derive(Default)]
pub struct OverRcu {
    domain: Domain,
    /// As many as the structure has asked for.
    locks: Box<[Mutex<()>]>,
}

/// A node whose links readers and writers share. Key and value are never changed.
#[repr(C)]
struct Shared<const LINKS: usize> {
    key: u64,
    next: [AtomicPtr<Self>; LINKS],
    value: u64,
    /// Of key and value.
    watch: Watch,
}

impl<const LINKS: usize> Drop for Shared<LINKS> {
    fn drop(&mut self) {
        self.watch.write();
    }
}

impl<const LINKS: usize> Shared<LINKS> {
    fn boxed(node: Node<RcuLink<LINKS>, LINKS>) -> RcuLink<LINKS> {
        let next = node.next.map(|link| AtomicPtr::new(pointer(link)));
        let shared = Box::new(Self { key: node.key, next, value: node.value, watch: Watch::new() });
        shared.watch.write();
        RcuLink(NonNull::from(Box::leak(shared)))
    }
}

fn pointer<const LINKS: usize>(link: Option<RcuLink<LINKS>>) -> *mut Shared<LINKS> {
    link.map_or(ptr::null_mut(), |link| link.0.as_ptr())
}

#[doc(hidden)]
pub struct RcuLink<const LINKS: usize>(NonNull<Shared<LINKS>>);

impl<const LINKS: usize> Clone for RcuLink<LINKS> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<const LINKS: usize> Copy for RcuLink<LINKS> {}

impl<const LINKS: usize> PartialEq for RcuLink<LINKS> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<const LINKS: usize> Eq for RcuLink<LINKS> {}

// SAFETY: a link gives access to nothing by itself.
unsafe impl<const LINKS: usize> Send for RcuLink<LINKS> {}
// SAFETY: as above.
unsafe impl<const LINKS: usize> Sync for RcuLink<LINKS> {}

impl<const LINKS: usize> RcuLink<LINKS> {
    /// # Safety
    /// As [`View::step`].
    #[inline]
    unsafe fn shared<'a>(self) -> &'a Shared<LINKS> {
        // SAFETY: the caller's promise: in the section no node is freed that was reachable in it.
        let shared = unsafe { self.0.as_ref() };
        shared.watch.read();
        shared
    }
}

impl<const LINKS: usize> Shared<LINKS> {
    /// Acquire: pairs with the Release that linked the node.
    #[inline]
    fn next(&self, side: usize) -> Option<RcuLink<LINKS>> {
        NonNull::new(self.next[side].load(Ordering::Acquire)).map(RcuLink)
    }
}

impl<const LINKS: usize> Mechanism<LINKS> for OverRcu {
    type Link = RcuLink<LINKS>;
    type Session<'m> = RcuSession<'m>;

    fn for_scopes(self, scopes: usize) -> Self {
        Self { locks: (0..scopes).map(|_| Mutex::new(())).collect(), ..self }
    }

    fn root(&self) -> RcuLink<LINKS> {
        Shared::boxed(Node { key: 0, next: [None; LINKS], value: 0 })
    }

    fn session(&self) -> RcuSession<'_> {
        RcuSession { over: self, reader: self.domain.reader() }
    }
}

#[doc(hidden)]
pub struct RcuSession<'m> {
    over: &'m OverRcu,
    reader: Reader<'m>,
}

impl RcuSession<'_> {
    fn lock(&self, scope: usize) -> MutexGuard<'_, ()> {
        // Poisoned by a panic of a debug assertion at most.
        self.over.locks[scope].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs `body` with all the scopes' locks held. They are taken in rising order, so nobody waits in a circle.
    #[inline]
    fn locked<R>(&self, scopes: &[usize], body: impl FnOnce() -> R) -> R {
        match scopes {
            [one] => {
                let _lock = self.lock(*one);
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

impl<const LINKS: usize> Session<LINKS> for RcuSession<'_> {
    type Link = RcuLink<LINKS>;
    type View<'s>
        = Guard<'s>
    where
        Self: 's;
    type Update<'s>
        = Locked<'s>
    where
        Self: 's;

    #[inline]
    fn read<R>(&mut self, body: impl FnOnce(&Guard<'_>) -> R) -> R {
        body(&self.reader.enter())
    }

    fn read_at_once<R>(&mut self, scopes: &[usize], body: impl FnOnce(&Guard<'_>) -> R) -> R {
        self.locked(scopes, || body(&self.reader.enter()))
    }

    /// Without a guard: nodes of a scope are retired by who holds its lock only.
    #[inline]
    fn update<R>(&mut self, scopes: &[usize], mut body: impl FnMut(&mut Locked<'_>) -> Result<R, Conflict>) -> R {
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

/// An update, with the locks held.
#[doc(hidden)]
pub struct Locked<'s> {
    domain: &'s Domain,
    reader: &'s Reader<'s>,
}

/// A guard and an update see nodes by the same words.
macro_rules! view {
    ($type:ty) => {
        impl<const LINKS: usize> View<LINKS> for $type {
            type Link = RcuLink<LINKS>;

            #[inline]
            unsafe fn step(&self, link: RcuLink<LINKS>, side: usize) -> (u64, Option<RcuLink<LINKS>>) {
                // SAFETY: the caller's promise.
                let shared = unsafe { link.shared() };
                (shared.key, shared.next(side))
            }

            #[inline]
            unsafe fn toward(&self, link: RcuLink<LINKS>, key: u64) -> (u64, Option<RcuLink<LINKS>>) {
                // SAFETY: the caller's promise.
                let shared = unsafe { link.shared() };
                (shared.key, shared.next(usize::from(key > shared.key)))
            }

            #[inline]
            unsafe fn node(&self, link: RcuLink<LINKS>) -> Node<RcuLink<LINKS>, LINKS> {
                // SAFETY: the caller's promise.
                let shared = unsafe { link.shared() };
                Node { key: shared.key, next: core::array::from_fn(|side| shared.next(side)), value: shared.value }
            }
        }
    };
}

view!(Guard<'_>);
view!(Locked<'_>);

impl<const LINKS: usize> Update<LINKS> for Locked<'_> {
    #[inline]
    unsafe fn set_next(
        &mut self,
        link: RcuLink<LINKS>,
        side: usize,
        to: Option<RcuLink<LINKS>>,
    ) -> Result<(), Conflict> {
        // SAFETY: the caller's promise. Release: pairs with the Acquire of `Shared::next`.
        unsafe { link.shared() }.next[side].store(pointer(to), Ordering::Release);
        Ok(())
    }

    #[inline]
    unsafe fn alloc(&mut self, node: Node<RcuLink<LINKS>, LINKS>) -> RcuLink<LINKS> {
        Shared::boxed(node)
    }

    #[inline]
    unsafe fn retire(&mut self, link: RcuLink<LINKS>) -> Result<(), Conflict> {
        // SAFETY: from `Shared::boxed`; the caller's promise, given that the node is unlinked already.
        unsafe { self.reader.enter().retire_box(link.0.as_ptr()) };
        Ok(())
    }

    fn settle(&mut self) {
        self.domain.synchronize();
    }
}
