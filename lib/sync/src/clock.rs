//! What orders commits and snapshots: a counter that all threads share, or the processor's clock.
//!
//! Multi-versioning needs it: [`mvrlu`](crate::mvrlu) domains have one, and so has `archipelago-txn`. These are its questions, and what
//! each answer promises. Below, "sees" is about loads that follow the answer in program order.
//!
//! - [`begin`](Clock::begin): the local time of a snapshot. It sees whatever was linked before a [`stamp`](Clock::stamp)
//!   not above it was drawn.
//! - [`stamp`](Clock::stamp): the time of a commit, above the local time of every snapshot that missed a store which
//!   precedes the call.
//! - [`cut`](Clock::cut): the local time of a snapshot that other threads have to know of. What the caller stored before the call is
//!   seen by each thread that has got a [`floor`](Clock::floor) above it, or, from a logical clock, any time above it. Each later `begin`
//!   of a logical clock is above it.
//! - [`floor`](Clock::floor): not above the local time of any snapshot that begins after a full barrier
//!   ([`barrier`](Clock::barrier)) that follows the call.
//! - [`settle`](Clock::settle): returns when every later `begin`, on any thread, is at or above the stamp.
//! - [`observe`](Clock::observe): the same, for a thread that sees at its local time what was committed at the stamp: each
//!   thread that begins after the first one has told of it sees it, too.
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

use archipelago_platform::atomic::{AtomicU64, Ordering, fence};
use archipelago_platform::clock::{OrderedClock, drain_stores};
use archipelago_platform::pad::CachePadded;

/// What commits and snapshots are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockKind {
    /// A counter that all threads share: a snapshot reads it, a commit adds one. The cheapest on few cores.
    Logical,
    /// The processor's clock with the uncertainty measured on this machine, and a wait for it at each commit: no shared
    /// word. Where the machine has none, the logical one is used.
    Hardware,
}

/// A clock of commits and snapshots; the module's page says what its answers promise.
///
/// ```
/// use archipelago_sync::clock::{Clock, ClockKind};
/// for kind in [ClockKind::Logical, ClockKind::Hardware] {
///     let clock = Clock::new(kind);
///     let before = clock.begin();
///     let stamp = clock.stamp();
///     clock.settle(stamp);
///     assert!(before < stamp && stamp <= clock.begin());
/// }
/// ```
#[derive(Debug)]
pub struct Clock(Source);

#[derive(Debug)]
enum Source {
    Logical(CachePadded<AtomicU64>),
    #[cfg_attr(loom, allow(dead_code))]
    Hardware(&'static OrderedClock),
}

impl Clock {
    /// A clock of this kind; a logical one where the machine has no clock that could be used. A logical one begins at 1.
    pub fn new(kind: ClockKind) -> Self {
        #[cfg(not(loom))]
        if kind == ClockKind::Hardware
            && OrderedClock::shared().kind() == archipelago_platform::clock::ClockKind::Hardware
        {
            return Self(Source::Hardware(OrderedClock::shared()));
        }
        let _ = kind;
        // Above 0, which records use for "not known yet".
        Self(Source::Logical(CachePadded::new(AtomicU64::new(1))))
    }

    /// Lets a logical clock go on at `time`, before any thread has asked it.
    ///
    /// # Panics
    /// If it is the hardware's.
    pub fn go_on_at(&self, time: u64) {
        match &self.0 {
            Source::Logical(count) => count.store(time, Ordering::Relaxed),
            Source::Hardware(_) => panic!("the processors' clocks cannot be set"),
        }
    }

    /// What the clock is: the kind that was asked for, or logical.
    pub fn kind(&self) -> ClockKind {
        match &self.0 {
            Source::Logical(_) => ClockKind::Logical,
            Source::Hardware(_) => ClockKind::Hardware,
        }
    }

    /// The local time of a snapshot that begins now. Never 0.
    #[inline]
    pub fn begin(&self) -> u64 {
        match &self.0 {
            Source::Logical(count) => count.load(Ordering::Acquire),
            Source::Hardware(clock) => clock.now(),
        }
    }

    /// Draws the time of a commit. Two draws of a logical clock differ; two of the hardware's may be equal.
    #[inline]
    pub fn stamp(&self) -> u64 {
        match &self.0 {
            Source::Logical(count) => count.fetch_add(1, Ordering::AcqRel) + 1,
            Source::Hardware(clock) => {
                drain_stores();
                clock.now() + clock.uncertainty()
            }
        }
    }

    /// The local time of a snapshot that others have to know of. See the module's page.
    pub fn cut(&self) -> u64 {
        match &self.0 {
            Source::Logical(count) => count.fetch_add(1, Ordering::AcqRel),
            Source::Hardware(clock) => {
                drain_stores();
                clock.now()
            }
        }
    }

    /// A bound for the local times of snapshots that are still to begin.
    pub fn floor(&self) -> u64 {
        match &self.0 {
            Source::Logical(count) => count.load(Ordering::Acquire),
            Source::Hardware(clock) => clock.now().saturating_sub(clock.uncertainty()),
        }
    }

    /// A full barrier, after which earlier stores are seen by each thread that gets a [`floor`](Self::floor) above what this
    /// thread's next [`begin`](Self::begin) answers. With the hardware's clock a fence does not do.
    #[inline]
    pub fn barrier(&self) {
        match &self.0 {
            Source::Logical(_) => fence(Ordering::SeqCst),
            Source::Hardware(_) => drain_stores(),
        }
    }

    /// Waits, if need be, before the caller tells what it has seen at `local` of a commit with this stamp.
    #[inline]
    pub fn observe(&self, stamp: u64, local: u64) {
        if let Source::Hardware(clock) = &self.0
            && local - stamp < clock.uncertainty()
        {
            self.settle(stamp);
        }
    }

    /// Waits until all snapshots that begin later see a commit with this stamp.
    #[inline]
    pub fn settle(&self, stamp: u64) {
        if let Source::Hardware(clock) = &self.0 {
            clock.new_after(stamp);
        }
    }
}
