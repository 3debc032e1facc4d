//! Structures over MV-RLU.
//!
//! Links are [`Raw`], that is, unchecked: all nodes of a structure belong to its one domain, so no step needs a check.

use crate::mechanism::{Change, Conflict, Mechanism, Node, Session, Update, View};
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
pub struct MvLink<const LINKS: usize>(pub(crate) Raw<MvNode<LINKS>>);

pub(crate) type MvNode<const LINKS: usize> = Node<MvLink<LINKS>, LINKS>;

impl<const LINKS: usize> Clone for MvLink<LINKS> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<const LINKS: usize> Copy for MvLink<LINKS> {}

impl<const LINKS: usize> PartialEq for MvLink<LINKS> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<const LINKS: usize> Eq for MvLink<LINKS> {}

/// Returns the initial content of a root.
pub(crate) fn empty<const LINKS: usize>() -> MvNode<LINKS> {
    Node { key: 0, next: [None; LINKS], value: 0 }
}

impl<const LINKS: usize> Mechanism<LINKS> for OverMvRlu {
    type Link = MvLink<LINKS>;
    type Session<'m> = Handle;

    fn for_scopes(self, _: usize) -> Self {
        self
    }

    fn root(&self) -> MvLink<LINKS> {
        MvLink(self.0.alloc_raw(empty()))
    }

    fn session(&self) -> Handle {
        self.0.register()
    }
}

impl<const LINKS: usize> Session<LINKS> for Handle {
    type Link = MvLink<LINKS>;
    type View<'s> = Snapshot<'s>;
    type Update<'s> = Tx<'s>;

    #[inline]
    fn read<R>(&mut self, body: impl FnOnce(&Snapshot<'_>) -> R) -> R {
        body(&Handle::read(self))
    }

    #[inline]
    fn read_at_once<R>(&mut self, _: &[usize], body: impl FnOnce(&Snapshot<'_>) -> R) -> R {
        body(&Handle::read(self))
    }

    #[inline]
    fn update<R>(&mut self, _: &[usize], mut body: impl FnMut(&mut Tx<'_>) -> Result<R, Conflict>) -> R {
        let done = Handle::update(self, |tx| body(tx).map_err(|Conflict| Abort::Conflict));
        done.expect("a domain without a memory cap")
    }

    fn aborts(&self) -> u64 {
        self.counts().aborts
    }
}

/// Implements [`View`] for a snapshot and for a transaction, which have the same methods.
macro_rules! view {
    ($type:ty) => {
        impl<const LINKS: usize> View<LINKS> for $type {
            type Link = MvLink<LINKS>;

            #[inline]
            unsafe fn step(&self, link: MvLink<LINKS>, side: usize) -> (u64, Option<MvLink<LINKS>>) {
                // SAFETY: the caller's promise: a link that was read in this section leads to an object of this domain
                // that is not freed before the section ends.
                unsafe { self.read_raw(link.0, |node| (node.key, node.next[side])) }
            }

            #[inline]
            unsafe fn toward(&self, link: MvLink<LINKS>, key: u64) -> (u64, Option<MvLink<LINKS>>) {
                // SAFETY: as above.
                unsafe { self.read_raw(link.0, |node| (node.key, node.next[usize::from(key > node.key)])) }
            }

            #[inline]
            unsafe fn node(&self, link: MvLink<LINKS>) -> MvNode<LINKS> {
                // SAFETY: as above.
                *unsafe { self.get_raw(link.0) }
            }
        }
    };
}

view!(Snapshot<'_>);
view!(Tx<'_>);

impl<const LINKS: usize> Update<LINKS> for Tx<'_> {
    #[inline]
    unsafe fn set_next(&mut self, link: MvLink<LINKS>, side: usize, to: Change<MvLink<LINKS>>) -> Result<(), Conflict> {
        // SAFETY: as in `View::step`.
        unsafe { self.lock_raw(link.0) }.map(|node| node.next[side] = to.to).map_err(|_| Conflict)
    }

    #[inline]
    unsafe fn alloc(&mut self, node: MvNode<LINKS>) -> MvLink<LINKS> {
        // SAFETY: the caller's promise.
        MvLink(unsafe { self.alloc_raw(node) })
    }

    #[inline]
    unsafe fn retire(&mut self, link: MvLink<LINKS>, _: &MvNode<LINKS>) -> Result<(), Conflict> {
        // SAFETY: the caller's promise. Links are stored only in nodes, so sections that begin after the commit find no
        // link to this node.
        unsafe { self.retire_raw(link.0) }.map_err(|_| Conflict)
    }
}
