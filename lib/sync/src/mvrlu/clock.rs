//! What orders commits and snapshots: a counter that all threads share, or the processor's clock.
//!
//! Five questions, and what each answer promises. Below, "sees" is about loads that follow the answer in program order.
//!
//! - [`begin`](Clock::begin): the local time of a snapshot. It sees whatever was linked before a [`stamp`](Clock::stamp)
//!   not above it was drawn.
//! - [`stamp`](Clock::stamp): the time of a commit, above the local time of every snapshot that missed a store which
//!   precedes the call.
//! - [`floor`](Clock::floor): not above the local time of any snapshot that begins after a full barrier that follows
//!   the call.
//! - [`settle`](Clock::settle): returns when every later `begin`, on any thread, is at or above the stamp.
//! - [`observe`](Clock::observe): the same, for who sees at its local time what was committed at the stamp: the thread
//!   that begins after it has let any thread know sees it too.
//!
//! *Logical.* `begin` loads the counter (Acquire), `stamp` adds one to it (AcqRel) and answers with the sum. If a snapshot
//! at t missed a store that precedes the drawing of s, then s > t: had the counter reached t only after the drawing,
//! the value that the snapshot loaded would have been written by a read-modify-write that follows ours in the counter's
//! order, hence synchronizes with it, and the snapshot would have seen the store. A read-modify-write is what makes this
//! a proof without fences on the reader's side.
//!
//! *Hardware.* The counters of two processors differ by less than the uncertainty B. `stamp` drains its stores (which a
//! fence does not do, see `archipelago_platform::clock`: with one instead, snapshots were torn in a third of the runs of
//! a test), reads the clock and adds B; a snapshot that missed one of these stores had read its clock before
//! that moment, so below the sum. `settle` waits until the own clock is B past the stamp: a few hundred nanoseconds on
//! machines with several sockets, nothing where B is 0. A reader whose clock is ahead may see a commit that still waits;
//! then it waits in the committer's stead, for at most 2 B, or a later reader whose clock is behind would miss what the
//! first one has told. The paper adds and subtracts B when stamps are compared; then a
//! thread doesn't see its own commit until B has passed.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::clock::{OrderedClock, drain_stores};
use archipelago_platform::pad::CachePadded;

/// What a domain's commits and snapshots are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockKind {
    /// A counter that all threads share: a snapshot reads it, a commit adds one. The cheapest on few cores.
    Logical,
    /// The processor's clock with the uncertainty measured on this machine, and a wait for it at each commit: no shared
    /// word. Where the machine has none, the logical one is used.
    Hardware,
}

pub(super) enum Clock {
    Logical(CachePadded<AtomicU64>),
    #[cfg_attr(loom, allow(dead_code))]
    Hardware(&'static OrderedClock),
}

impl Clock {
    pub(super) fn new(kind: ClockKind) -> Self {
        #[cfg(not(loom))]
        if kind == ClockKind::Hardware
            && OrderedClock::shared().kind() == archipelago_platform::clock::ClockKind::Hardware
        {
            return Clock::Hardware(OrderedClock::shared());
        }
        let _ = kind;
        // Above 0, which records use for "not known yet".
        Clock::Logical(CachePadded::new(AtomicU64::new(1)))
    }

    pub(super) fn kind(&self) -> ClockKind {
        match self {
            Clock::Logical(_) => ClockKind::Logical,
            Clock::Hardware(_) => ClockKind::Hardware,
        }
    }

    #[inline]
    pub(super) fn begin(&self) -> u64 {
        match self {
            Clock::Logical(count) => count.load(Ordering::Acquire),
            Clock::Hardware(clock) => clock.now(),
        }
    }

    #[inline]
    pub(super) fn stamp(&self) -> u64 {
        match self {
            Clock::Logical(count) => count.fetch_add(1, Ordering::AcqRel) + 1,
            Clock::Hardware(clock) => {
                drain_stores();
                clock.now() + clock.uncertainty()
            }
        }
    }

    pub(super) fn floor(&self) -> u64 {
        match self {
            Clock::Logical(count) => count.load(Ordering::Acquire),
            Clock::Hardware(clock) => clock.now().saturating_sub(clock.uncertainty()),
        }
    }

    #[inline]
    pub(super) fn observe(&self, stamp: u64, local: u64) {
        if let Clock::Hardware(clock) = self
            && local - stamp < clock.uncertainty()
        {
            self.settle(stamp);
        }
    }

    #[inline]
    pub(super) fn settle(&self, stamp: u64) {
        if let Clock::Hardware(clock) = self {
            clock.new_after(stamp);
        }
    }
}
