//! Yielding by threads that retire, if threads outnumber processors.
//!
//! A thread that is preempted inside a critical section stops the epoch until it runs again. Meanwhile all other
//! threads fill bags with retired objects. With dozens of threads, these are megabytes for each thread. Most
//! preemptions hit a thread inside a section. So a thread that has filled a bag yields its processor voluntarily
//! *between* its sections, and most time slices end there. A thread with many bags that are not *ripe* (cannot be
//! reclaimed yet) also sleeps there for a while, so that the preempted thread runs sooner. For each epoch it sleeps for
//! about 10 ms at most in all, since the epoch may also wait for a long reader.
//!
//! This happens only if more threads than processors have used the domain at the same time, and only where the
//! structure says that a thread is between its sections ([`Reader::give_way`]).

use archipelago_platform::panics::FirstPanic;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;

use super::domain::Domain;
use super::reader::Reader;
use super::record::Record;
use crate::crowd::processors;

/// With at most this many unripe bags a thread does not wait: three or four bags are always unripe.
const FEW: usize = 5;

/// The length of the first sleep, the length of the longest sleep, and the limit of the sum of all sleeps for one
/// epoch.
const FIRST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(1);
const IN_ALL: Duration = Duration::from_millis(10);

impl Reader<'_> {
    /// A structure calls this function before an operation that may retire, outside any guard. If threads outnumber
    /// processors, the call sometimes yields the processor, and waits for a short, bounded time while much of this
    /// thread's garbage waits for a preempted thread. Otherwise it costs a load and a branch.
    ///
    /// # Panics
    /// If a reclaim function panics.
    ///
    /// ```
    /// use archipelago::sync::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// for _operation in 0..3 {
    ///     reader.give_way();
    ///     let _guard = reader.enter();
    /// }
    /// ```
    #[inline]
    pub fn give_way(&self) {
        if self.record().has_filled_a_bag() {
            self.end_turn();
        }
    }

    #[cold]
    fn end_turn(&self) {
        if self.is_mine() && !self.record().is_busy() {
            self.domain().end_turn(self.record());
        }
    }
}

impl Domain {
    fn end_turn(&self, me: &Record) {
        me.note_filled_bag(false);
        if self.records().iter().take(processors().saturating_add(1)).count() <= processors() {
            return;
        }
        thread::yield_now();
        let (mut delay, mut slept) = (FIRST, Duration::ZERO);
        while me.garbage().bags() > FEW && me.waited_at() != self.epoch() {
            if slept >= IN_ALL {
                me.note_wait(self.epoch());
                return;
            }
            thread::sleep(delay);
            (slept, delay) = (slept + delay, (2 * delay).min(LONGEST));
            self.reclaim_own(me);
        }
    }

    /// Called by the owner, outside any guard.
    fn reclaim_own(&self, me: &Record) {
        let Some(_reclaiming) = me.begin_reclaiming() else { return };
        let mut panic = FirstPanic::default();
        self.reclaim_ripe(me, self.try_advance(), &mut panic);
        panic.resume();
    }
}
