//! RCU-HTM (Siakavaras et al., PACT 2017). An update makes private copies of the nodes that it changes. Then one
//! transaction checks whether the links that the update changes, and all links of the nodes that it retires, are as the
//! update read them, and swings one link to the copies. If the machine has no transactions, or a transaction does not
//! commit, [`Region`] does the same with the nodes' version locks held.

use archipelago_sync::region::{Change, Changing, Region, Stale, Versioned};
use archipelago_sync::version_lock::VersionLock;

use crate::optimistic::Optimistic;
use crate::plan::{Commit, Plan};
use crate::scratch::Scratch;
use crate::shared::Shared;

/// Structures over RCU whose updates are transactions.
pub type RcuHtm = Optimistic<ByRegion>;

impl RcuHtm {
    /// Makes the mechanism with these regions.
    pub fn over(region: Region) -> Self {
        Self::with(ByRegion(region))
    }
}

#[doc(hidden)]
#[derive(Default)]
pub struct ByRegion(Region);

// SAFETY: its words and links are plain fields.
unsafe impl<const LINKS: usize> Versioned for Shared<LINKS, VersionLock> {
    #[inline(always)]
    fn lock(&self) -> &VersionLock {
        &self.beside
    }
}

/// A plan's changes, as the body of one region that locks or subscribes to all nodes of the plan.
struct Swing<'p, const LINKS: usize>(&'p Plan<LINKS, VersionLock>);

impl<const LINKS: usize> Clone for Swing<'_, LINKS> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const LINKS: usize> Copy for Swing<'_, LINKS> {}

impl<const LINKS: usize> Change for Swing<'_, LINKS> {
    type Out = ();

    #[inline(always)]
    fn run(self, change: &mut impl Changing) -> Result<(), Stale> {
        // SAFETY: the node was seen in the guard of the commit.
        let holds = self.0.each_seen(|node, side, seen| change.target(unsafe { &(*node).next[side] }) == seen);
        if !holds {
            return Err(Stale);
        }
        for write in &self.0.writes {
            // SAFETY: as above. The new link leads to a node that is retired only after the last link to the node is
            // removed.
            unsafe { change.set_link(&(*write.node).next[write.side], write.to) };
        }
        for retired in &self.0.retired {
            // SAFETY: as above.
            change.retire(unsafe { &*retired.node });
        }
        Ok(())
    }
}

impl Commit for ByRegion {
    type Beside = VersionLock;
    type Turn<'c> = ();

    fn beside(&self) -> VersionLock {
        VersionLock::new()
    }

    fn gone(&self, _: &VersionLock) {}

    fn turn(&self, _: &[usize], _: u64) {}

    fn commit<const LINKS: usize>(&self, plan: &Plan<LINKS, VersionLock>, scratch: &mut Scratch, (): &()) -> bool {
        // SAFETY: the node was seen in the guard.
        let page = |node: *mut Shared<LINKS, VersionLock>| unsafe { &*node };
        let mut pages = scratch.take();
        pages.extend(plan.nodes().map(page));
        pages.sort_unstable_by_key(|page| core::ptr::from_ref(*page));
        pages.dedup_by_key(|page| core::ptr::from_ref(*page));
        let done = self.0.update_all(&pages, Swing(plan)).is_ok();
        scratch.keep(pages);
        done
    }
}
