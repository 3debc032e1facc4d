//! Nodes whose links readers and updaters share, and how RCU's readers see them. Beside each node lies what its
//! mechanism's updaters need, behind what readers look at: so readers do the same whatever the mechanism.

use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use archipelago_platform::plain::Plain;
use archipelago_platform::watch::Watch;
use archipelago_sync::region;

use crate::mechanism::{Node, View};

/// A node. Key and value are never changed.
#[repr(C)]
pub struct Shared<const LINKS: usize, X> {
    pub(super) key: Plain<u64>,
    pub(super) next: [region::Link<Self>; LINKS],
    pub(super) value: Plain<u64>,
    /// Of key and value.
    watch: Watch,
    /// The updaters'.
    pub(super) beside: X,
}

impl<const LINKS: usize, X> Drop for Shared<LINKS, X> {
    fn drop(&mut self) {
        self.watch.write();
    }
}

impl<const LINKS: usize, X> Shared<LINKS, X> {
    pub(super) fn boxed(node: Node<SharedLink<LINKS, X>, LINKS>, beside: X) -> SharedLink<LINKS, X> {
        // SAFETY: a node of the structure, or none; the views' callers promise that nodes stay while they are seen.
        let next = node.next.map(|link| unsafe { region::Link::new(pointer(link)) });
        let (key, value) = (Plain::new(node.key), Plain::new(node.value));
        let shared = Box::new(Self { key, next, value, watch: Watch::new(), beside });
        shared.watch.write();
        SharedLink(NonNull::from(Box::leak(shared)))
    }

    /// Acquire: pairs with the Release that linked the node.
    #[inline]
    pub(super) fn next(&self, side: usize) -> Option<SharedLink<LINKS, X>> {
        NonNull::new(self.next[side].load()).map(SharedLink)
    }
}

/// As a link's word.
#[inline]
pub(super) fn pointer<const LINKS: usize, X>(link: Option<SharedLink<LINKS, X>>) -> *mut Shared<LINKS, X> {
    link.map_or(ptr::null_mut(), |link| link.0.as_ptr())
}

#[doc(hidden)]
pub struct SharedLink<const LINKS: usize, X>(pub(super) NonNull<Shared<LINKS, X>>);

impl<const LINKS: usize, X> Clone for SharedLink<LINKS, X> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<const LINKS: usize, X> Copy for SharedLink<LINKS, X> {}

impl<const LINKS: usize, X> PartialEq for SharedLink<LINKS, X> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<const LINKS: usize, X> Eq for SharedLink<LINKS, X> {}

// SAFETY: a link gives access to nothing by itself.
unsafe impl<const LINKS: usize, X> Send for SharedLink<LINKS, X> {}
// SAFETY: as above.
unsafe impl<const LINKS: usize, X> Sync for SharedLink<LINKS, X> {}

impl<const LINKS: usize, X> SharedLink<LINKS, X> {
    /// # Safety
    /// As [`View::step`].
    #[inline]
    pub(super) unsafe fn shared<'a>(self) -> &'a Shared<LINKS, X> {
        // SAFETY: the caller's promise: in the section no node is freed that was reachable in it.
        let shared = unsafe { self.0.as_ref() };
        shared.watch.read();
        shared
    }
}

/// The view of an RCU reader.
#[doc(hidden)]
pub struct Reading<X>(PhantomData<fn() -> X>);

impl<X> Reading<X> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<const LINKS: usize, X> View<LINKS> for Reading<X> {
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
