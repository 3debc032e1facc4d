//! What threads that retire do where threads outnumber processors.
//!
//! A thread that is preempted inside a critical section holds the epoch until its next turn, and all others fill bags
//! meanwhile: megabytes each, with dozens of threads. A scheduler that ends a turn does so in a section, mostly. So a thread
//! that has filled a bag gives its processor away of its own accord, *between* its sections: most turns end there then. And
//! one that has many bags which do not ripen sleeps there for a while, for the thread that holds the epoch runs the
//! sooner: 10 ms at most, once for each epoch, since the one that holds it may as well be a reader that takes its time.
//!
//! All of that only where more threads have used the domain at a time than there are processors, and where the structure says
//! that a thread is between its sections ([`Reader::give_way`]).

use archipelago_platform::thread;
use archipelago_platform::time::Duration;

use super::domain::Domain;
use super::garbage::FirstPanic;
use super::reader::Reader;
use super::record::Record;
use crate::crowd::processors;

/// Bags on their way to ripeness that are no reason to wait: three or four are on their way always.
const FEW: usize = 5;

/// How long the first sleep and the longest are, and all for one epoch.
const FIRST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(1);
const IN_ALL: Duration = Duration::from_millis(10);

impl Reader<'_> {
    /// For structures whose operations retire, outside any guard, before such an operation: gives the processor away now and
    /// then where threads outnumber processors, and waits a little, never for long, while much of what this thread has
    /// retired waits for a thread that does not run. Otherwise a load and a branch.
    ///
    /// # Panics
    /// With what a reclaim function panicked with.
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

    /// Outside any guard, by the owner.
    fn reclaim_own(&self, me: &Record) {
        let Some(_reclaiming) = me.begin_reclaiming() else { return };
        let mut panic = FirstPanic::default();
        self.reclaim_ripe(me, self.try_advance(), &mut panic);
        panic.resume();
    }
}
