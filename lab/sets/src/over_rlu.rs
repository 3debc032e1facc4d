//! Structures over RLU: as over MV-RLU, which it shares handles with.

use crate::mechanism::Mechanism;
use crate::over_mvrlu::{MvLink, empty};
use archipelago_sync::mvrlu::{ClockKind, Handle};
use archipelago_sync::rlu::Domain;

/// Structures over [`rlu`](archipelago_sync::rlu): a [`Domain`] of their own. Sessions of one thread must not be used inside each
/// other's sections; the structures' operations never are, as no section runs a caller's code.
pub struct OverRlu(Domain);

impl OverRlu {
    /// With a domain of this clock and deferral, as [`Domain::new`].
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
