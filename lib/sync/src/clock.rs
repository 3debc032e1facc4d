//! The order of commits and snapshots: a counter that all threads share, or the processor's clock.
//!
//! Multi-versioning needs a clock: [`mvrlu`](crate::mvrlu) domains have one, and so has `archipelago-txn`. The list
//! below gives the guarantee of each method. In the list, "sees" refers to loads that follow the method's return in
//! program order.
//!
//! - [`begin`](Clock::begin): the local time of a snapshot. The snapshot sees everything that was linked before a
//!   thread drew a [`stamp`](Clock::stamp) at or below the local time.
//! - [`stamp`](Clock::stamp): the time of a commit. It is above the local time of every snapshot that missed a store
//!   which precedes the call. It is also above the stamp of every commit that missed such a store after it had called
//!   [`settle`](Clock::settle) with its own stamp.
//! - [`cut`](Clock::cut): the local time of a snapshot that other threads have to see. A thread sees the caller's
//!   stores before the call once it has a [`floor`](Clock::floor) above the cut, or, from a logical clock, any time
//!   above the cut. Each later `begin` of a logical clock is above the cut.
//! - [`floor`](Clock::floor): a lower bound. It is not above the local time of any snapshot that begins after a full
//!   barrier ([`barrier`](Clock::barrier)) that follows the call.
//! - [`settle`](Clock::settle): returns when every later `begin`, on any thread, is at or above the stamp.
//! - [`observe`](Clock::observe): for a thread whose snapshot sees the commit with the stamp. Returns under the same
//!   condition as `settle`. The thread calls `observe` before other threads can learn of the commit from this thread.
//!   So each thread that begins afterwards sees the commit, too.
//!
//! *Logical.* `begin` loads the counter (Acquire); `stamp` adds one to it (AcqRel) and returns the sum. Claim: if a
//! snapshot at t missed a store that precedes the drawing of s, then s > t. Proof: assume that the counter reached t at
//! the drawing or later. Then the value that the snapshot loaded was written by the drawing, or by a read-modify-write
//! that follows it in the counter's order. So the load synchronizes with the drawing, and the snapshot sees the store.
//! Because stamps are drawn by a read-modify-write, this proof needs no fence on the reader's side. It also holds for a
//! commit with the stamp t: its own drawing is a read-modify-write (Acquire) that reads what the drawing of s or a later
//! one wrote, if s < t.
//!
//! *Hardware.* The counters of two processors differ by less than the uncertainty B. `stamp` drains the store buffer,
//! reads the clock and adds B. (A fence does not drain the store buffer, see `archipelago_platform::clock`: with a
//! fence instead, snapshots were torn in a third of the runs of a test.) A snapshot that missed one of the drained
//! stores had read its clock before the drain ended, so its local time is below the sum. The same holds for a commit
//! that missed one of them after `settle`, whose last reading of the clock is above its stamp. `settle` waits until the
//! thread's own clock is B past the stamp: a few hundred nanoseconds on machines with several sockets, no time where B
//! is 0. A reader whose clock is ahead may see a commit whose committer still waits. Such a reader waits too, for at
//! most 2 B; otherwise a later reader whose clock is behind would miss the commit although the first reader has
//! reported it. The paper adds and subtracts B when stamps are compared; with that rule a thread does not see its own
//! commit until B has passed.

use archipelago_platform::atomic::{AtomicU64, Ordering, fence};
use archipelago_platform::clock::{OrderedClock, drain_stores};
use archipelago_platform::pad::CachePadded;

/// The kinds of order of commits and snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockKind {
    /// A counter that all threads share: a snapshot reads it, and a commit increments it. The cheapest kind on few
    /// cores.
    Logical,
    /// The processor's clock, with the uncertainty measured on this machine. There is no shared word, but each commit
    /// waits for the uncertainty. If the machine has no usable clock, the logical one is used.
    Hardware,
}

/// A clock of commits and snapshots. The module's text states the guarantees of its methods.
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
    /// Makes a clock of this kind; a logical one if the machine has no usable clock. A logical clock begins at 1.
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

    /// Sets a logical clock to `time`. No thread may have read the clock before.
    ///
    /// # Panics
    /// If it is a hardware clock.
    pub fn go_on_at(&self, time: u64) {
        match &self.0 {
            Source::Logical(count) => count.store(time, Ordering::Relaxed),
            Source::Hardware(_) => panic!("the processors' clocks cannot be set"),
        }
    }

    /// Returns the clock's kind: the requested one, or `Logical` if the machine has no usable clock.
    pub fn kind(&self) -> ClockKind {
        match &self.0 {
            Source::Logical(_) => ClockKind::Logical,
            Source::Hardware(_) => ClockKind::Hardware,
        }
    }

    /// Returns the local time of a snapshot that begins now. It is never 0.
    #[inline]
    pub fn begin(&self) -> u64 {
        match &self.0 {
            Source::Logical(count) => count.load(Ordering::Acquire),
            Source::Hardware(clock) => clock.now(),
        }
    }

    /// Draws the time of a commit. Two stamps of a logical clock differ; two stamps of the hardware clock may be equal.
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

    /// Returns the local time of a snapshot that other threads have to see: see the module's text.
    pub fn cut(&self) -> u64 {
        match &self.0 {
            Source::Logical(count) => count.fetch_add(1, Ordering::AcqRel),
            Source::Hardware(clock) => {
                drain_stores();
                clock.now()
            }
        }
    }

    /// Returns a lower bound of the local times of snapshots that begin later.
    pub fn floor(&self) -> u64 {
        match &self.0 {
            Source::Logical(count) => count.load(Ordering::Acquire),
            Source::Hardware(clock) => clock.now().saturating_sub(clock.uncertainty()),
        }
    }

    /// A full barrier. Earlier stores of this thread are seen by each thread that gets a [`floor`](Self::floor) above
    /// the result of this thread's next [`begin`](Self::begin). With the hardware clock, a fence does not suffice for
    /// this.
    #[inline]
    pub fn barrier(&self) {
        match &self.0 {
            Source::Logical(_) => fence(Ordering::SeqCst),
            Source::Hardware(_) => drain_stores(),
        }
    }

    /// Waits, if necessary, until the caller may report a commit with this stamp, which it has seen at `local`, to
    /// other threads.
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
