//! Structures over RLU. The code is that of MV-RLU's structures, with which RLU shares its handles.

use core::marker::PhantomData;

use crate::mechanism::Mechanism;
use crate::over_mvrlu::{MvLink, MvNode, MvSession};
use crate::room::{Kilobyte, Room, Snug};
use archipelago_sync::mvrlu::ClockKind;
use archipelago_sync::rlu::Domain;

/// Structures over [`rlu`](archipelago_sync::rlu), each with a [`Domain`] of its own. A session must not be used inside
/// a section of another session of the same thread. The structures' operations never do so, since no caller's code runs
/// in a section.
pub type OverRlu = RluWith<Snug>;

/// The same as [`OverRlu`] with nodes of 1,024 bytes, as in the program with which RCX was measured. An update copies
/// the whole of each node that it changes, and writes the whole back.
pub type OverRluKilobyte = RluWith<Kilobyte>;

/// Structures over RLU, with nodes that take the room `R`.
pub struct RluWith<R>(Domain, PhantomData<R>);

impl<R> RluWith<R> {
    /// Makes the mechanism with a domain of this clock and deferral; see [`Domain::new`].
    pub fn with(clock: ClockKind, deferred: usize) -> Self {
        Self(Domain::new(clock, deferred), PhantomData)
    }
}

impl<R> Default for RluWith<R> {
    fn default() -> Self {
        Self::with(ClockKind::Logical, 0)
    }
}

impl<R: Room, const LINKS: usize> Mechanism<LINKS> for RluWith<R> {
    type Link = MvLink<LINKS, R>;
    type Session<'m> = MvSession<R>;

    fn for_scopes(self, _: usize) -> Self {
        self
    }

    fn root(&self) -> MvLink<LINKS, R> {
        MvLink(self.0.alloc_raw(MvNode::empty()))
    }

    fn session(&self) -> MvSession<R> {
        MvSession::of(self.0.register())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_room_that_is_said() {
        // With its head, a node of the greater room takes 1,024 bytes, since objects take whole lines.
        assert_eq!((size_of::<MvNode<1, Snug>>(), size_of::<MvNode<2, Snug>>()), (24, 32));
        assert_eq!((size_of::<MvNode<1, Kilobyte>>(), size_of::<MvNode<2, Kilobyte>>()), (992, 1_000));
    }
}
