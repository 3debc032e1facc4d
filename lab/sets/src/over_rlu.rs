//! Structures over RLU. The code is that of MV-RLU's structures, with which RLU shares its handles.

use crate::mechanism::Mechanism;
use crate::over_mvrlu::{MvLink, empty};
use archipelago_sync::mvrlu::{ClockKind, Handle};
use archipelago_sync::rlu::Domain;

/// Structures over [`rlu`](archipelago_sync::rlu), each with a [`Domain`] of its own. A session must not be used inside
/// a section of another session of the same thread. The structures' operations never do so, since no caller's code runs
/// in a section.
pub struct OverRlu(Domain);

impl OverRlu {
    /// Makes the mechanism with a domain of this clock and deferral; see [`Domain::new`].
    pub fn with(clock: ClockKind, deferred: usize) -> Self {
        Self(Domain::new(clock, deferred))
    }
}

impl Default for OverRlu {
    fn default() -> Self {
        Self::with(ClockKind::Logical, 0)
    }
}

impl<const LINKS: usize> Mechanism<LINKS> for OverRlu {
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
