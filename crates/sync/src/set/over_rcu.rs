//! Structures over RCU: readers walk the nodes themselves, writers hold locks.

use core::ptr::{self, NonNull};

use archipelago_platform::atomic::{AtomicPtr, Ordering};
use archipelago_platform::sync::{Mutex, MutexGuard};

use super::mechanism::{Conflict, Mechanism, Node, Session, Update, View};
use crate::rcu::{Domain, Guard, Reader};

/// Structures over [`rcu`](crate::rcu), with one lock for writers per scope: a list or tree has one, a hash table one per
/// bucket.
pub struct OverRcu {
    domain: Domain,
    locks: Box<[Mutex<()>]>,
}

/// A node whose links readers and writers share. Key and value are never changed.
struct Shared {
    key: u64,
    value: u64,
    next: [AtomicPtr<Shared>; 2],
}

impl Shared {
    fn boxed(node: Node<RcuLink>) -> NonNull<Self> {
        let next = node.next.map(|link| AtomicPtr::new(pointer(link)));
        let shared = Box::new(Self { key: node.key, value: node.value, next });
        NonNull::from(Box::leak(shared))
    }
}

fn pointer(link: Option<RcuLink>) -> *mut Shared {
    link.map_or(ptr::null_mut(), |link| link.0.as_ptr())
}

#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RcuLink(NonNull<Shared>);

// SAFETY: a link gives access to nothing by itself.
unsafe impl Send for RcuLink {}
// SAFETY: as above.
unsafe impl Sync for RcuLink {}

impl RcuLink {
    /// # Safety
    /// As [`View::step`].
    #[inline]
    unsafe fn shared<'a>(self) -> &'a Shared {
        // SAFETY: the caller's promise: in the section no node is freed that was reachable in it.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    /// As [`View::step`].
    #[inline]
    unsafe fn next(self, side: usize) -> Option<RcuLink> {
        // SAFETY: the caller's promise. Acquire: pairs with the Release that linked the node.
        NonNull::new(unsafe { self.shared() }.next[side].load(Ordering::Acquire)).map(RcuLink)
    }
}

impl Mechanism for OverRcu {
    type Link = RcuLink;
    type Session<'m> = RcuSession<'m>;

    fn with_scopes(scopes: usize) -> Self {
        Self { domain: Domain::new(), locks: (0..scopes).map(|_| Mutex::new(())).collect() }
    }

    fn root(&self) -> RcuLink {
        RcuLink(Shared::boxed(Node { key: 0, value: 0, next: [None; 2] }))
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

impl Session for RcuSession<'_> {
    type Link = RcuLink;
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

impl View for Guard<'_> {
    type Link = RcuLink;

    #[inline]
    unsafe fn step(&self, link: RcuLink, side: usize) -> (u64, Option<RcuLink>) {
        // SAFETY: the caller's promise.
        unsafe { (link.shared().key, link.next(side)) }
    }

    #[inline]
    unsafe fn toward(&self, link: RcuLink, key: u64) -> (u64, Option<RcuLink>) {
        // SAFETY: the caller's promise.
        let here = unsafe { link.shared() }.key;
        // SAFETY: as above.
        (here, unsafe { link.next(usize::from(key > here)) })
    }

    #[inline]
    unsafe fn node(&self, link: RcuLink) -> Node<RcuLink> {
        // SAFETY: the caller's promise.
        unsafe { node(link) }
    }
}

/// # Safety
/// As [`View::step`].
unsafe fn node(link: RcuLink) -> Node<RcuLink> {
    // SAFETY: the caller's promise.
    let (shared, next) = unsafe { (link.shared(), [link.next(0), link.next(1)]) };
    Node { key: shared.key, value: shared.value, next }
}

impl View for Locked<'_> {
    type Link = RcuLink;

    #[inline]
    unsafe fn step(&self, link: RcuLink, side: usize) -> (u64, Option<RcuLink>) {
        // SAFETY: the caller's promise.
        unsafe { (link.shared().key, link.next(side)) }
    }

    #[inline]
    unsafe fn toward(&self, link: RcuLink, key: u64) -> (u64, Option<RcuLink>) {
        // SAFETY: the caller's promise.
        let here = unsafe { link.shared() }.key;
        // SAFETY: as above.
        (here, unsafe { link.next(usize::from(key > here)) })
    }

    #[inline]
    unsafe fn node(&self, link: RcuLink) -> Node<RcuLink> {
        // SAFETY: the caller's promise.
        unsafe { node(link) }
    }
}

impl Update for Locked<'_> {
    #[inline]
    unsafe fn set_next(&mut self, link: RcuLink, side: usize, to: Option<RcuLink>) -> Result<(), Conflict> {
        // SAFETY: the caller's promise. Release: pairs with the Acquire of `RcuLink::next`.
        unsafe { link.shared() }.next[side].store(pointer(to), Ordering::Release);
        Ok(())
    }

    #[inline]
    unsafe fn alloc(&mut self, node: Node<RcuLink>) -> RcuLink {
        RcuLink(Shared::boxed(node))
    }

    #[inline]
    unsafe fn retire(&mut self, link: RcuLink) -> Result<(), Conflict> {
        // SAFETY: from `Shared::boxed`; the caller's promise, given that the node is unlinked already.
        unsafe { self.reader.enter().retire_box(link.0.as_ptr()) };
        Ok(())
    }

    fn settle(&mut self) {
        self.domain.synchronize();
    }
}
