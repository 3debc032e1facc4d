//! Structures over MV-RLU.
//!
//! Links are [`Raw`], that is, unchecked: all nodes of a structure belong to its one domain, so no step needs a check.

use core::marker::PhantomData;

use crate::mechanism::{Change, Conflict, Mechanism, Node, Session, Update, View};
use crate::room::{Room, Snug};
use archipelago_sync::mvrlu::{Abort, Builder, Domain, Handle, Raw, Snapshot, Tx};

/// Structures over [`mvrlu`](archipelago_sync::mvrlu), each with a [`Domain`] of its own.
#[derive(Default)]
pub struct OverMvRlu(Domain);

impl OverMvRlu {
    /// Makes the mechanism with a configured domain. A memory cap of the builder is removed, since updates of the
    /// structures cannot fail.
    pub fn with(domain: Builder) -> Self {
        Self(domain.memory_cap(usize::MAX).build())
    }

    /// Returns the domain, for its [`stats`](Domain::stats).
    pub fn domain(&self) -> &Domain {
        &self.0
    }
}

#[doc(hidden)]
pub struct MvLink<const LINKS: usize, R: Room = Snug>(pub(crate) Raw<MvNode<LINKS, R>>);

/// A node in its room. Readers read only the node.
#[doc(hidden)]
#[repr(C)]
pub struct MvNode<const LINKS: usize, R: Room> {
    node: Node<MvLink<LINKS, R>, LINKS>,
    _fill: R::Fill,
}

impl<const LINKS: usize, R: Room> Clone for MvNode<LINKS, R> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<const LINKS: usize, R: Room> Copy for MvNode<LINKS, R> {}

impl<const LINKS: usize, R: Room> MvNode<LINKS, R> {
    #[inline]
    fn new(node: Node<MvLink<LINKS, R>, LINKS>) -> Self {
        Self { node, _fill: R::FILL }
    }

    /// Returns the initial content of a root.
    pub(crate) fn empty() -> Self {
        Self::new(Node { key: 0, next: [None; LINKS], value: 0 })
    }
}

impl<const LINKS: usize, R: Room> Clone for MvLink<LINKS, R> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<const LINKS: usize, R: Room> Copy for MvLink<LINKS, R> {}

impl<const LINKS: usize, R: Room> PartialEq for MvLink<LINKS, R> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<const LINKS: usize, R: Room> Eq for MvLink<LINKS, R> {}

impl<const LINKS: usize> Mechanism<LINKS> for OverMvRlu {
    type Link = MvLink<LINKS>;
    type Session<'m> = MvSession<Snug>;

    fn for_scopes(self, _: usize) -> Self {
        self
    }

    fn root(&self) -> MvLink<LINKS> {
        MvLink(self.0.alloc_raw(MvNode::empty()))
    }

    fn session(&self) -> MvSession<Snug> {
        MvSession::of(self.0.register())
    }
}

/// A handle for nodes that take the room `R`.
#[doc(hidden)]
pub struct MvSession<R>(Handle, PhantomData<R>);

impl<R> MvSession<R> {
    pub(crate) fn of(handle: Handle) -> Self {
        Self(handle, PhantomData)
    }
}

/// A snapshot or a transaction on nodes that take the room `R`.
#[doc(hidden)]
#[repr(transparent)]
pub struct MvView<V, R>(V, PhantomData<R>);

impl<V, R> MvView<V, R> {
    #[inline]
    fn of(view: &mut V) -> &mut Self {
        // SAFETY: the same type, but for the name: the struct is transparent.
        unsafe { &mut *(&raw mut *view).cast() }
    }
}

impl<R: Room, const LINKS: usize> Session<LINKS> for MvSession<R> {
    type Link = MvLink<LINKS, R>;
    type View<'s> = MvView<Snapshot<'s>, R>;
    type Update<'s> = MvView<Tx<'s>, R>;

    #[inline]
    fn read<T>(&mut self, body: impl FnOnce(&Self::View<'_>) -> T) -> T {
        body(&MvView(self.0.read(), PhantomData))
    }

    #[inline]
    fn read_at_once<T>(&mut self, _: &[usize], body: impl FnOnce(&Self::View<'_>) -> T) -> T {
        body(&MvView(self.0.read(), PhantomData))
    }

    #[inline]
    fn update<T>(&mut self, _: &[usize], mut body: impl FnMut(&mut Self::Update<'_>) -> Result<T, Conflict>) -> T {
        let done = self.0.update(|tx| body(MvView::of(tx)).map_err(|Conflict| Abort::Conflict));
        done.expect("a domain without a memory cap")
    }

    fn aborts(&self) -> u64 {
        self.0.counts().aborts
    }
}

/// Implements [`View`] for a snapshot and for a transaction, which have the same methods.
macro_rules! view {
    ($type:ty) => {
        impl<R: Room, const LINKS: usize> View<LINKS> for MvView<$type, R> {
            type Link = MvLink<LINKS, R>;

            #[inline]
            unsafe fn step(&self, link: Self::Link, side: usize) -> (u64, Option<Self::Link>) {
                let bytes = size_of::<Node<Self::Link, LINKS>>();
                // SAFETY: the caller's promise: a link that was read in this section leads to an object of this domain
                // that is not freed before the section ends.
                unsafe { self.0.read_first_raw(link.0, bytes, |at| (at.node.key, at.node.next[side])) }
            }

            #[inline]
            unsafe fn toward(&self, link: Self::Link, key: u64) -> (u64, Option<Self::Link>) {
                let bytes = size_of::<Node<Self::Link, LINKS>>();
                let toward = |at: &MvNode<LINKS, R>| (at.node.key, at.node.next[usize::from(key > at.node.key)]);
                // SAFETY: as above.
                unsafe { self.0.read_first_raw(link.0, bytes, toward) }
            }

            #[inline]
            unsafe fn node(&self, link: Self::Link) -> Node<Self::Link, LINKS> {
                // SAFETY: as above.
                unsafe { self.0.read_first_raw(link.0, size_of::<Node<Self::Link, LINKS>>(), |at| at.node) }
            }
        }
    };
}

view!(Snapshot<'_>);
view!(Tx<'_>);

impl<R: Room, const LINKS: usize> Update<LINKS> for MvView<Tx<'_>, R> {
    #[inline]
    unsafe fn set_next(&mut self, link: Self::Link, side: usize, to: Change<Self::Link>) -> Result<(), Conflict> {
        // SAFETY: as in `View::step`.
        unsafe { self.0.lock_raw(link.0) }.map(|at| at.node.next[side] = to.to).map_err(|_| Conflict)
    }

    #[inline]
    unsafe fn alloc(&mut self, node: Node<Self::Link, LINKS>) -> Self::Link {
        // SAFETY: the caller's promise.
        MvLink(unsafe { self.0.alloc_raw(MvNode::new(node)) })
    }

    #[inline]
    unsafe fn retire(&mut self, link: Self::Link, _: &Node<Self::Link, LINKS>) -> Result<(), Conflict> {
        // SAFETY: the caller's promise. Links are stored only in nodes, so sections that begin after the commit find no
        // link to this node.
        unsafe { self.0.retire_raw(link.0) }.map_err(|_| Conflict)
    }
}
