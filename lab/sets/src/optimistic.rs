//! Structures over RCU whose updates run in parallel. An update is decided without locks ([`plan`](crate::plan)). Then
//! a [`Commit`] tries to carry it out; if the commit fails, the update is decided anew.
//!
//! # Why no thread waits for ever
//! Inside the RCU guard of its session, a commit waits for a bounded time, or only for threads that hold a scope's lock
//! or have nodes locked. These threads wait for no reader: each update changes its links one after another, and no
//! change has to wait until readers have left (`tree.rs`). If a commit fails, its thread leaves the guard, waits, and
//! decides the update anew.

use archipelago_platform::hint::point;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::{Domain, Guard, Reader};

use crate::mechanism::{Conflict, Mechanism, Node, Session};
use crate::plan::{Commit, Plan, Planning};
use crate::points;
use crate::scratch::Scratch;
use crate::shared::{Reading, Shared, SharedLink};

/// Structures over RCU with optimistic updates.
#[derive(Default)]
pub struct Optimistic<C> {
    domain: Domain,
    commit: C,
}

impl<C> Optimistic<C> {
    pub(super) fn with(commit: C) -> Self {
        Self { domain: Domain::new(), commit }
    }

    pub(super) fn commit(&self) -> &C {
        &self.commit
    }
}

impl<C: Commit, const LINKS: usize> Mechanism<LINKS> for Optimistic<C> {
    type Link = SharedLink<LINKS, C::Beside>;
    type Session<'m> = OptimisticSession<'m, C, LINKS>;

    fn for_scopes(self, scopes: usize) -> Self {
        Self { commit: self.commit.for_scopes(scopes), ..self }
    }

    fn root(&self) -> Self::Link {
        Shared::boxed(Node { key: 0, next: [None; LINKS], value: 0 }, self.commit.beside())
    }

    fn session(&self) -> Self::Session<'_> {
        let (reader, plan) = (self.domain.reader(), Plan::new());
        OptimisticSession { over: self, reader, plan, scratch: Scratch::default(), aborts: 0 }
    }
}

#[doc(hidden)]
pub struct OptimisticSession<'m, C: Commit, const LINKS: usize> {
    over: &'m Optimistic<C>,
    reader: Reader<'m>,
    plan: Plan<LINKS, C::Beside>,
    scratch: Scratch,
    aborts: u64,
}

impl<C: Commit, const LINKS: usize> OptimisticSession<'_, C, LINKS> {
    fn discard(&mut self) {
        self.plan.discard(|beside| self.over.commit.gone(beside));
    }

    /// Tries to carry the plan out, and discards the plan if the commit fails. Returns whether the commit succeeded.
    fn commit(&mut self, guard: Guard<'_>, turn: &C::Turn<'_>) -> bool {
        point(points::DECIDED);
        let done = self.over.commit.commit(&self.plan, &mut self.scratch, turn);
        drop(guard);
        if !done {
            self.discard();
            return false;
        }
        if !self.plan.retired.is_empty() {
            let guard = self.reader.enter();
            for retired in &self.plan.retired {
                // SAFETY: the node is from `Shared::boxed`. This update unlinked it, and no other update could retire
                // it.
                unsafe {
                    self.over.commit.gone(&(*retired.node).beside);
                    guard.retire_box(retired.node);
                }
            }
        }
        self.plan.clear();
        true
    }
}

impl<C: Commit, const LINKS: usize> Session<LINKS> for OptimisticSession<'_, C, LINKS> {
    type Link = SharedLink<LINKS, C::Beside>;
    type View<'s>
        = Reading<C::Beside>
    where
        Self: 's;
    type Update<'s>
        = Planning<'s, LINKS, C>
    where
        Self: 's;

    #[inline]
    fn read<R>(&mut self, body: impl FnOnce(&Reading<C::Beside>) -> R) -> R {
        let _guard = self.reader.enter();
        body(&Reading::new())
    }

    /// The nodes are read at different moments, since no lock keeps them unchanged.
    fn read_at_once<R>(&mut self, _: &[usize], body: impl FnOnce(&Reading<C::Beside>) -> R) -> R {
        let _guard = self.reader.enter();
        body(&Reading::new())
    }

    fn update<R>(
        &mut self,
        scopes: &[usize],
        mut body: impl FnMut(&mut Planning<'_, LINKS, C>) -> Result<R, Conflict>,
    ) -> R {
        debug_assert!(self.plan.is_empty(), "an update within an update");
        self.reader.give_way();
        let (backoff, over, before) = (Backoff::new(), self.over, self.aborts);
        loop {
            let turn = over.commit.turn(scopes, self.aborts - before);
            let guard = self.reader.enter();
            match body(&mut Planning::new(&mut self.plan, &self.over.commit)) {
                Ok(result) if self.plan.is_empty() => {
                    self.discard();
                    return result;
                }
                Ok(result) if self.commit(guard, &turn) => return result,
                Ok(_) => {}
                Err(Conflict) => self.discard(),
            }
            self.aborts += 1;
            backoff.wait();
        }
    }

    fn aborts(&self) -> u64 {
        self.aborts
    }
}
