//! Structures over MV-RLU.

use super::mechanism::{Conflict, Mechanism, Node, Session, Update, View};
use crate::mvrlu::{Abort, Builder, Domain, Handle, Link, Snapshot, Tx};

/// Structures over [`mvrlu`](crate::mvrlu): a [`Domain`] of their own.
pub struct OverMvRlu(Domain);

impl OverMvRlu {
    /// With a domain made to measure. A memory cap is not allowed: updates of the structures cannot fail.
    pub fn with(domain: Builder) -> Self {
        Self(domain.memory_cap(usize::MAX).build())
    }

    /// The domain, for its [`stats`](Domain::stats).
    pub fn domain(&self) -> &Domain {
        &self.0
    }
}

#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MvLink(pub(super) Link<Node<MvLink>>);

impl Mechanism for OverMvRlu {
    type Link = MvLink;
    type Session<'m> = Handle;

    fn with_scopes(_: usize) -> Self {
        Self(Domain::new())
    }

    fn root(&self) -> MvLink {
        MvLink(self.0.alloc(Node { key: 0, value: 0, next: [None; 2] }))
    }

    fn session(&self) -> Handle {
        self.0.register()
    }
}

impl Session for Handle {
    type Link = MvLink;
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

impl View for Snapshot<'_> {
    type Link = MvLink;

    #[inline]
    unsafe fn step(&self, link: MvLink, side: usize) -> (u64, Option<MvLink>) {
        let node = self.get(link.0);
        (node.key, node.next[side])
    }

    #[inline]
    unsafe fn toward(&self, link: MvLink, key: u64) -> (u64, Option<MvLink>) {
        let node = self.get(link.0);
        (node.key, node.next[usize::from(key > node.key)])
    }

    #[inline]
    unsafe fn node(&self, link: MvLink) -> Node<MvLink> {
        *self.get(link.0)
    }
}

impl View for Tx<'_> {
    type Link = MvLink;

    #[inline]
    unsafe fn step(&self, link: MvLink, side: usize) -> (u64, Option<MvLink>) {
        let node = self.get(link.0);
        (node.key, node.next[side])
    }

    #[inline]
    unsafe fn toward(&self, link: MvLink, key: u64) -> (u64, Option<MvLink>) {
        let node = self.get(link.0);
        (node.key, node.next[usize::from(key > node.key)])
    }

    #[inline]
    unsafe fn node(&self, link: MvLink) -> Node<MvLink> {
        *self.get(link.0)
    }
}

impl Update for Tx<'_> {
    #[inline]
    unsafe fn set_next(&mut self, link: MvLink, side: usize, to: Option<MvLink>) -> Result<(), Conflict> {
        self.lock(link.0).map(|node| node.next[side] = to).map_err(|_| Conflict)
    }

    #[inline]
    unsafe fn alloc(&mut self, node: Node<MvLink>) -> MvLink {
        // SAFETY: the caller's promise.
        MvLink(unsafe { Tx::alloc(self, node) })
    }

    #[inline]
    unsafe fn retire(&mut self, link: MvLink) -> Result<(), Conflict> {
        // SAFETY: the caller's promise; sections that begin after the commit find links in nodes only.
        unsafe { Tx::retire(self, link.0) }.map_err(|_| Conflict)
    }

    #[inline]
    fn settle(&mut self) {}
}
