//! Nodes whose links readers and updaters share, and how RCU's readers read them. The data of the mechanism's updaters
//! is at the end of each node, after the fields that readers read. So readers do the same with every mechanism over
//! RCU.

use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use archipelago_platform::plain::Plain;
use archipelago_platform::watch::Watch;
use archipelago_sync::region;

use crate::mechanism::{Node, View};
use crate::room::{Aside, Room};

/// A node, whose key and value never change.
#[repr(C)]
pub struct Shared<const LINKS: usize, X: Aside> {
    _line: [<X::Room as Room>::Line; 0],
    pub(super) key: Plain<u64>,
    pub(super) next: [region::Link<Self>; LINKS],
    pub(super) value: Plain<u64>,
    /// Checks accesses to key and value in tests.
    watch: Watch,
    /// The data of the updaters.
    pub(super) beside: X,
    _fill: <X::Room as Room>::Fill,
}

impl<const LINKS: usize, X: Aside> Drop for Shared<LINKS, X> {
    fn drop(&mut self) {
        self.watch.write();
    }
}

impl<const LINKS: usize, X: Aside> Shared<LINKS, X> {
    pub(super) fn boxed(node: Node<SharedLink<LINKS, X>, LINKS>, beside: X) -> SharedLink<LINKS, X> {
        // SAFETY: the pointer is a node of the structure, or null. The callers of the views promise that nodes stay
        // while they are seen.
        let next = node.next.map(|link| unsafe { region::Link::new(pointer(link)) });
        let (key, value) = (Plain::new(node.key), Plain::new(node.value));
        let shared = Box::new(Self { key, next, value, watch: Watch::new(), beside, _line: [], _fill: X::Room::FILL });
        shared.watch.write();
        SharedLink(NonNull::from(Box::leak(shared)))
    }

    /// Returns the next node. Acquire: pairs with the Release that linked the node.
    #[inline]
    pub(super) fn next(&self, side: usize) -> Option<SharedLink<LINKS, X>> {
        NonNull::new(self.next[side].load()).map(SharedLink)
    }
}

/// Returns a link as the pointer that is stored in a node.
#[inline]
pub(super) fn pointer<const LINKS: usize, X: Aside>(link: Option<SharedLink<LINKS, X>>) -> *mut Shared<LINKS, X> {
    link.map_or(ptr::null_mut(), |link| link.0.as_ptr())
}

#[doc(hidden)]
pub struct SharedLink<const LINKS: usize, X: Aside>(pub(super) NonNull<Shared<LINKS, X>>);

impl<const LINKS: usize, X: Aside> Clone for SharedLink<LINKS, X> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<const LINKS: usize, X: Aside> Copy for SharedLink<LINKS, X> {}

impl<const LINKS: usize, X: Aside> PartialEq for SharedLink<LINKS, X> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<const LINKS: usize, X: Aside> Eq for SharedLink<LINKS, X> {}

// SAFETY: a link by itself gives no access to anything.
unsafe impl<const LINKS: usize, X: Aside> Send for SharedLink<LINKS, X> {}
// SAFETY: as above.
unsafe impl<const LINKS: usize, X: Aside> Sync for SharedLink<LINKS, X> {}

impl<const LINKS: usize, X: Aside> SharedLink<LINKS, X> {
    /// Returns the node.
    ///
    /// # Safety
    /// As [`View::step`].
    #[inline]
    pub(super) unsafe fn shared<'a>(self) -> &'a Shared<LINKS, X> {
        // SAFETY: the caller's promise: in the section, no node is freed that was reachable in it.
        let shared = unsafe { self.0.as_ref() };
        shared.watch.read();
        shared
    }
}

/// An RCU reader's view of the nodes.
#[doc(hidden)]
pub struct Reading<X: Aside>(PhantomData<fn() -> X>);

impl<X: Aside> Reading<X> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<const LINKS: usize, X: Aside> View<LINKS> for Reading<X> {
    type Link = SharedLink<LINKS, X>;

    #[inline]
    unsafe fn step(&self, link: Self::Link, side: usize) -> (u64, Option<Self::Link>) {
        // SAFETY: the caller's promise.
        let shared = unsafe { link.shared() };
        (*shared.key, shared.next(side))
    }

    #[inline]
    unsafe fn toward(&self, link: Self::Link, key: u64) -> (u64, Option<Self::Link>) {
        // SAFETY: the caller's promise.
        let shared = unsafe { link.shared() };
        let here = *shared.key;
        (here, shared.next(usize::from(key > here)))
    }

    #[inline]
    unsafe fn node(&self, link: Self::Link) -> Node<Self::Link, LINKS> {
        // SAFETY: the caller's promise.
        let shared = unsafe { link.shared() };
        let (key, value) = (*shared.key, *shared.value);
        Node { key, next: core::array::from_fn(|side| shared.next(side)), value }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::room::{Kilobyte, Snug};

    #[test]
    fn nodes_have_the_room_that_is_said() {
        assert_eq!((size_of::<Shared<1, Snug>>(), size_of::<Shared<2, Snug>>()), (24, 32));
        assert_eq!((size_of::<Shared<1, Kilobyte>>(), align_of::<Shared<1, Kilobyte>>()), (1_024, 64));
        assert_eq!((size_of::<Shared<2, Kilobyte>>(), align_of::<Shared<2, Kilobyte>>()), (1_024, 64));
    }
}
