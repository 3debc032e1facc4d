//! The clock type: the processor's counter with its uncertainty, or a shared counter.

#[cfg(not(loom))]
use std::sync::OnceLock;

#[cfg(not(loom))]
use super::calibrate;
use super::counter;
use crate::atomic::{AtomicU64, Ordering};
use crate::hint;
use crate::pad::CachePadded;

/// The kinds of clocks, by the source of their stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClockKind {
    /// Readings of the processor's counter.
    Hardware,
    /// Values of a counter that all threads share.
    Logical,
}

/// A clock whose stamps order events across threads. The [module](super)'s text states the guarantee.
///
/// ```
/// use archipelago::platform::clock::OrderedClock;
/// let clock = OrderedClock::shared();
/// let start = clock.now();
/// let end = clock.new_after(start);
/// assert_eq!(clock.is_before(start, end), Some(true));
/// assert_eq!(clock.is_before(end, start), Some(false));
/// ```
#[derive(Debug)]
pub struct OrderedClock {
    source: Source,
    /// The reason why the process's clock is logical.
    why: Option<&'static str>,
}

#[derive(Debug)]
enum Source {
    #[cfg_attr(loom, allow(dead_code))]
    Hardware {
        uncertainty: u64,
        ticks_per_microsecond: f64,
    },
    Logical(CachePadded<AtomicU64>),
    /// The simulator's clocks; a tick is a picosecond.
    #[cfg(archipelago_sim)]
    Virtual,
}

impl OrderedClock {
    /// Returns the process's clock. The first call measures the machine, which takes a few milliseconds and two threads
    /// of its own. If the machine is so busy that these threads do not run at the same time, it takes up to a quarter
    /// of a second. If the processor's counter cannot be used, the clock is logical and returns the reason from
    /// [`why_logical`](Self::why_logical).
    #[cfg(not(loom))]
    pub fn shared() -> &'static OrderedClock {
        #[cfg(archipelago_sim)]
        if archipelago_sim::world::active() {
            return &OrderedClock { source: Source::Virtual, why: None };
        }
        static SHARED: OnceLock<OrderedClock> = OnceLock::new();
        SHARED.get_or_init(|| {
            Self::hardware().unwrap_or_else(|why| OrderedClock { why: Some(why.reason()), ..Self::logical() })
        })
    }

    /// Makes a new clock that counts the calls of [`now`](Self::now). Its uncertainty is 0, and no two stamps are
    /// equal.
    pub fn logical() -> OrderedClock {
        OrderedClock { source: Source::Logical(CachePadded::new(AtomicU64::new(0))), why: None }
    }

    #[cfg(not(loom))]
    fn hardware() -> Result<OrderedClock, calibrate::Unusable> {
        if !counter::is_invariant() {
            return Err(calibrate::Unusable::Counter);
        }
        let measured = calibrate::measure(crate::topology::Topology::machine())?;
        let calibrate::Measured { uncertainty, ticks_per_microsecond } = measured;
        Ok(OrderedClock { source: Source::Hardware { uncertainty, ticks_per_microsecond }, why: None })
    }

    /// Returns a stamp, in ticks.
    #[inline]
    pub fn now(&self) -> u64 {
        match &self.source {
            Source::Hardware { .. } => counter::read(),
            // If one call happens before another, the second finds the first one's value, or a later one, in the
            // counter and increments it. Acquire and Release keep memory accesses from moving across the call.
            Source::Logical(count) => count.fetch_add(1, Ordering::AcqRel) + 1,
            #[cfg(archipelago_sim)]
            Source::Virtual => counter::read(),
        }
    }

    /// Returns the uncertainty, in ticks: stamps that differ by at least this much are ordered. 0 for a logical clock.
    #[inline]
    pub fn uncertainty(&self) -> u64 {
        match self.source {
            Source::Hardware { uncertainty, .. } => uncertainty,
            Source::Logical(_) => 0,
            // The skew between the clocks, which a perfect measurement would return. One is added because the guarantee
            // is a strict inequality.
            #[cfg(archipelago_sim)]
            Source::Virtual => archipelago_sim::world::clock_uncertainty_ps() + 1,
        }
    }

    /// Returns a stamp that every thread finds to be after `stamp`. On a hardware clock, this waits until the
    /// uncertainty has passed, some hundreds of nanoseconds after `stamp` was taken.
    ///
    /// # Panics
    /// If a hardware clock's `stamp` is within the uncertainty of `u64::MAX`, or a logical clock's `stamp` is in the
    /// upper half of the numbers. No clock returns such a stamp.
    #[inline]
    pub fn new_after(&self, stamp: u64) -> u64 {
        match &self.source {
            Source::Logical(count) => {
                // Nearly always, the counter has already passed the stamp. The counter must not be raised to a stamp of
                // another clock.
                assert!(stamp <= u64::MAX / 2, "the stamp comes from this clock");
                if count.load(Ordering::Relaxed) < stamp {
                    count.fetch_max(stamp, Ordering::AcqRel);
                }
                self.now()
            }
            _ => {
                let bound = stamp.checked_add(self.uncertainty()).expect("the stamp comes from this clock");
                loop {
                    let now = counter::read();
                    if now > bound {
                        return now;
                    }
                    hint::spin_loop();
                }
            }
        }
    }

    /// Returns whether stamp `a` is before stamp `b`, or `None` if they are too close. Never returns `None` on a
    /// logical clock.
    #[inline]
    pub fn is_before(&self, a: u64, b: u64) -> Option<bool> {
        let uncertainty = self.uncertainty();
        if a >= b && a - b >= uncertainty {
            Some(false)
        } else if b > a && b - a >= uncertainty {
            Some(true)
        } else {
            None
        }
    }

    /// Returns the kind of the clock.
    pub fn kind(&self) -> ClockKind {
        match self.source {
            Source::Logical(_) => ClockKind::Logical,
            _ => ClockKind::Hardware,
        }
    }

    /// Returns the reason why the process's clock is logical, for reports. Returns `None` for a hardware clock, and for
    /// a clock that was made by [`logical`](Self::logical).
    pub fn why_logical(&self) -> Option<&'static str> {
        self.why
    }

    /// Returns the rate of a hardware clock, to about a percent, for reports. Returns `None` for a logical clock.
    pub fn ticks_per_microsecond(&self) -> Option<f64> {
        match self.source {
            Source::Hardware { ticks_per_microsecond, .. } => Some(ticks_per_microsecond),
            Source::Logical(_) => None,
            #[cfg(archipelago_sim)]
            Source::Virtual => Some(1e6),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_thread_sees_time_pass() {
        for clock in [OrderedClock::shared(), &OrderedClock::logical()] {
            let first = clock.now();
            let second = clock.now();
            assert_ne!(clock.is_before(second, first), Some(true));
            let third = clock.new_after(second);
            assert!(third > second + clock.uncertainty());
            assert_eq!(clock.is_before(second, third), Some(true));
            assert_eq!(clock.is_before(third, second), Some(false));
        }
    }

    #[test]
    #[should_panic(expected = "the stamp comes from this clock")]
    fn a_logical_clock_is_not_exhausted_by_a_stamp() {
        OrderedClock::logical().new_after(u64::MAX);
    }

    #[test]
    fn three_answers() {
        let clock =
            OrderedClock { source: Source::Hardware { uncertainty: 10, ticks_per_microsecond: 1.0 }, why: None };
        assert_eq!(clock.is_before(100, 110), Some(true));
        assert_eq!(clock.is_before(100, 109), None);
        assert_eq!(clock.is_before(100, 100), None);
        assert_eq!(clock.is_before(100, 91), None);
        assert_eq!(clock.is_before(100, 90), Some(false));
        assert_eq!(clock.is_before(0, u64::MAX), Some(true));
        let clock = OrderedClock::logical();
        assert_eq!((clock.is_before(1, 2), clock.is_before(2, 2)), (Some(true), Some(false)));
    }

    #[test]
    fn a_logical_clock_starts_behind_any_stamp() {
        let clock = OrderedClock::logical();
        assert!(clock.new_after(1 << 40) > 1 << 40);
        assert!(clock.now() > 1 << 40);
        assert_eq!((clock.kind(), clock.uncertainty()), (ClockKind::Logical, 0));
    }

    /// Threads pass stamps through a lock. Each new stamp is after the last one for every thread, and plain readings
    /// never violate the module's guarantee.
    #[test]
    fn causality_through_a_lock() {
        for clock in [OrderedClock::shared(), &OrderedClock::logical()] {
            let last = Mutex::new(clock.now());
            let rounds = if cfg!(miri) { 20 } else { 20_000 };
            let work = |after: bool| {
                for _ in 0..rounds {
                    let mut last = last.lock().unwrap();
                    let stamp = if after { clock.new_after(*last) } else { clock.now() };
                    assert_ne!(clock.is_before(stamp, *last), Some(true));
                    assert!(stamp + clock.uncertainty() > *last);
                    assert!(!after || clock.is_before(*last, stamp) == Some(true));
                    *last = stamp;
                }
            };
            let work = &work;
            std::thread::scope(|scope| {
                for after in [true, false, true, false] {
                    scope.spawn(move || work(after));
                }
            });
        }
    }

    /// A thread that reads a time greater than a stamp sees all stores before the stamp was drawn.
    #[test]
    fn drained_stores_are_seen_by_later_times() {
        let rounds: u64 = if cfg!(miri) { 20 } else { 300_000 };
        for clock in [OrderedClock::shared(), &OrderedClock::logical()] {
            let (stored, stamps): (_, Vec<_>) = (AtomicU64::new(0), (0..=rounds).map(|_| AtomicU64::new(0)).collect());
            let reads = std::thread::scope(|scope| {
                scope.spawn(|| {
                    for value in 1..=rounds {
                        stored.store(value, Ordering::Release);
                        crate::clock::drain_stores();
                        stamps[value as usize].store(clock.now() + clock.uncertainty(), Ordering::Relaxed);
                    }
                });
                let read = || (clock.now(), stored.load(Ordering::Acquire));
                // The number of readings is bounded, in case the writer is preempted.
                core::iter::repeat_with(read).take(4_000_000).take_while(|(_, seen)| *seen < rounds).collect::<Vec<_>>()
            });
            for (now, seen) in reads {
                let stamp = stamps[seen as usize + 1].load(Ordering::Relaxed);
                assert!(now < stamp, "a load {} ticks after a stamp missed what was stored before it", now - stamp);
            }
        }
    }

    #[test]
    fn logical_stamps_are_unique() {
        let clock = OrderedClock::logical();
        let (threads, rounds) = (4, if cfg!(miri) { 10 } else { 10_000 });
        let stamps = std::thread::scope(|scope| {
            let take = || (0..rounds).map(|_| clock.now()).collect::<Vec<_>>();
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
            handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect::<Vec<_>>()
        });
        let unique: std::collections::HashSet<_> = stamps.iter().collect();
        assert_eq!(unique.len(), threads * rounds);
    }
}
