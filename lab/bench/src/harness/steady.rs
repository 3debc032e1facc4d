//! The phases of a run: warming up, measured, over.
//!
//! *Warming up by itself.* If no time for warming up is given, the run *looks* at its throughput when it has lasted 1,
//! 2, 4, 8 and so on times as long as the measured span. It compares the third and the last quarter of the time so far.
//! The throughput is steady if three conditions hold: the throughputs of the two quarters differ by at most
//! [`TOLERANCE`]; each saw at least [`ENOUGH`] operations; and their sum differs by at most [`DRIFT`] from the sum at
//! the previous look. Quarters of the whole time so far, unlike a fixed window, show slow drifts too. While a cache
//! still fills, the last quarter is faster than the third. But the two quarters may be equal by chance, mostly if they
//! have few operations. Then the third condition fails, since the throughput is higher than at the previous look.
//!
//! *Beginning.* Each thread first makes its session, which may take long if hundreds of threads do so at once. Then it
//! waits for the others. All threads begin to run operations, and time begins to count, when the last thread is there.
//!
//! *Measuring.* The span is doubled until enough operations have ended within it. Warming up by itself and doubling the
//! span end at the latest when the patience is used up, and the run reports this.
//!
//! Everything here is the simulation's own bookkeeping: it costs no virtual time. It allocates nothing, since an
//! allocation in a simulated thread is a step of the schedule. Clients report in the order of virtual time, since the
//! scheduler runs the client whose clock is lowest. So a phase ends for all clients at one instant.

use core::cell::Cell;

/// By how much the throughputs of two quarters may differ, as a fraction of the greater one.
pub const TOLERANCE: f64 = 0.05;
/// By how much the throughputs at two successive looks may differ, as a fraction of the greater one.
pub const DRIFT: f64 = 0.1;
/// The fewest operations that a quarter must have seen.
const ENOUGH: u64 = 200;

/// The settings of the phases. Times are in virtual nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wish {
    /// How long to warm up; `None` to warm up until the throughput is steady.
    pub warm_ns: Option<u64>,
    /// How long to measure, at least. It is more than 0.
    pub measured_ns: u64,
    /// How many operations must end within the measured span.
    pub min_ops: u64,
    /// The longest time for each of these: until all threads have begun; for warming up until the throughput is steady;
    /// for measuring until `min_ops` operations have ended.
    pub patience_ns: u64,
}

/// The phases of a run, and their results.
#[derive(Debug)]
pub struct Course {
    wish: Wish,
    /// Threads that have not begun.
    missing: Cell<usize>,
    /// When the last thread began, or when the patience for its start was used up.
    began: Cell<Option<u64>>,
    /// When the measurement began.
    from: Cell<Option<u64>>,
    /// When the present phase ends, or the next look is due.
    until: Cell<u64>,
    over: Cell<bool>,
    steady: Cell<bool>,
    /// Operations that ended within the measured span.
    ops: Cell<u64>,
    /// Operations that ended in the third and in the last quarter of the time until the next look.
    quarters: [Cell<u64>; 2],
    /// The sum of both quarters at the previous look.
    before: Cell<Option<u64>>,
}

/// The result of [`Course::pass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The operation that ended does not count.
    Warming,
    /// The operation that ended counts.
    Measured,
    /// The client shall stop.
    Over,
}

impl Course {
    /// Makes a run that begins when `threads` threads have begun.
    pub fn new(wish: Wish, threads: usize) -> Self {
        let (began, from, until, over, ops, quarters, before) = Default::default();
        let (missing, steady) = (Cell::new(threads), Cell::new(true));
        let course = Course { wish, missing, began, from, until, over, steady, ops, quarters, before };
        if threads == 0 {
            course.start(0);
        }
        course
    }

    fn start(&self, now: u64) {
        self.began.set(Some(now));
        self.until.set(now + self.wish.warm_ns.unwrap_or(self.wish.measured_ns));
    }

    /// Notes that a client is ready to begin.
    pub fn arrive(&self, now: u64) {
        self.missing.set(self.missing.get() - 1);
        if self.missing.get() == 0 && self.began.get().is_none() {
            self.start(now);
        }
    }

    /// Returns whether a client must still wait for others at `now`.
    pub fn is_gathering(&self, now: u64) -> bool {
        self.began(now).is_none() && !self.over.get()
    }

    /// Returns when time began to count, or `None` while the run still waits for a client to begin.
    fn began(&self, now: u64) -> Option<u64> {
        if self.began.get().is_none() && now >= self.wish.patience_ns {
            self.start(now);
            self.steady.set(false);
        }
        self.began.get()
    }

    /// Notes that a client is between two operations at `now`, and whether an operation has `ended`. Returns the
    /// client's phase.
    pub fn pass(&self, now: u64, ended: bool) -> Phase {
        let Some(began) = self.began(now) else {
            return if self.over.get() { Phase::Over } else { Phase::Warming };
        };
        while !self.over.get() && now >= self.until.get() {
            self.end_phase(began);
        }
        match self.from.get() {
            _ if self.over.get() => return Phase::Over,
            Some(_) => {
                self.ops.set(self.ops.get() + u64::from(ended));
                return Phase::Measured;
            }
            None => {}
        }
        // Both quarters lie in the second half of the time until the next look.
        let [third, last] = &self.quarters;
        let (now, all) = (now - began, self.until.get() - began);
        let (half, fourth) = (all / 2, all / 4);
        if ended && now >= half {
            let quarter = if now < half + fourth { third } else { last };
            quarter.set(quarter.get() + 1);
        }
        Phase::Warming
    }

    /// Ends the run at once.
    pub fn stop(&self) {
        self.over.set(true);
    }

    fn end_phase(&self, began: u64) {
        let (until, Wish { warm_ns, measured_ns, min_ops, patience_ns }) = (self.until.get(), self.wish);
        match self.from.get() {
            None => {
                let steady = warm_ns.is_some() || self.is_steady();
                let longer = 2 * (until - began);
                if steady || longer > patience_ns {
                    self.steady.set(self.steady.get() && steady);
                    self.from.set(Some(until));
                    self.until.set(until + measured_ns);
                } else {
                    self.until.set(began + longer);
                    let seen = self.quarters.iter().map(|quarter| quarter.replace(0)).sum();
                    self.before.set(Some(seen));
                }
            }
            Some(from) => {
                let longer = 2 * (until - from);
                if self.ops.get() >= min_ops || longer > patience_ns {
                    self.over.set(true);
                } else {
                    self.until.set(from + longer);
                }
            }
        }
    }

    /// Returns whether the last two quarters of the time until now agree, and this look agrees with the previous one.
    fn is_steady(&self) -> bool {
        let [third, last] = [0, 1].map(|which| self.quarters[which].get());
        // At the previous look, the run had lasted half as long.
        let before = self.before.get().map_or(0, |before| 2 * before);
        let agree = |a: u64, b: u64, part: f64| a.abs_diff(b) as f64 <= part * a.max(b) as f64;
        third.min(last) >= ENOUGH && agree(third, last, TOLERANCE) && agree(before, third + last, DRIFT)
    }

    /// Returns when the measurement began, or `u64::MAX` if it has not begun.
    pub fn from(&self) -> u64 {
        self.from.get().unwrap_or(u64::MAX)
    }

    /// Returns when the present phase ends.
    pub fn until(&self) -> u64 {
        self.until.get()
    }

    /// Returns the number of operations that ended within the measured span.
    pub fn ops(&self) -> u64 {
        self.ops.get()
    }

    /// Returns whether all threads began before the patience was used up, and the throughput was steady after warming
    /// up or the warm-up time was given.
    pub fn steady(&self) -> bool {
        self.steady.get()
    }

    /// Returns the length of the measured span, in virtual nanoseconds.
    pub fn measured_ns(&self) -> u64 {
        self.from.get().map_or(0, |from| self.until.get() - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish = Wish { warm_ns: None, measured_ns: 4_000, min_ops: 0, patience_ns: 1 << 20 };

    /// Runs operations one after the other, each as long as `takes` says. Returns when the measurement began, and how
    /// many operations counted.
    fn drive(course: &Course, mut takes: impl FnMut(u64) -> u64) -> (u64, u64) {
        let mut now = 0;
        let mut ended = false;
        while course.pass(now, ended) != Phase::Over {
            now += takes(now);
            ended = true;
        }
        (course.from(), course.ops())
    }

    #[test]
    fn an_even_pace_is_steady_at_the_second_look() {
        let course = Course::new(WISH, 0);
        assert_eq!(drive(&course, |_| 4), (8_000, 1_000));
        assert!(course.steady() && course.measured_ns() == 4_000);
    }

    #[test]
    fn too_few_operations_are_no_pace() {
        // A quarter of 8,000 ns sees 100 operations of 20 ns; a quarter of 16,000 ns sees 200.
        assert_eq!(drive(&Course::new(WISH, 0), |_| 20).0, 16_000);
    }

    /// Operations are fifty times slower until 30 us. At 32 us the quarters differ; at 64 us they agree, but this look
    /// differs from the previous one; at 128 us all agree.
    #[test]
    fn a_slow_start_is_waited_for() {
        let course = Course::new(WISH, 0);
        let (from, ops) = drive(&course, |now| if now < 30_000 { 50 } else { 1 });
        assert_eq!((from, ops), (128_000, 4_000));
        assert!(course.steady());
    }

    /// Until 256 us the pace rises by half with each doubling of the time, in steps that fall on the looks. The
    /// quarters of each look agree, and only the comparison with the previous look fails.
    #[test]
    fn a_drift_between_looks_is_waited_for() {
        let course = Course::new(WISH, 0);
        let takes = |now: u64| (12.0 * 1.5_f64.powi(18 - (now * 33 / 32 + 1).ilog2().min(18) as i32)) as u64;
        let (from, _) = drive(&course, takes);
        assert!(course.steady() && from == 1_024_000, "steady from {from} ns on");
    }

    /// The third quarter of each look is three times as fast as the last one. Successive looks agree, and only their
    /// quarters differ.
    #[test]
    fn a_swing_within_looks_is_not_steady() {
        let course = Course::new(Wish { patience_ns: 200_000, ..WISH }, 0);
        let takes = |now: u64| {
            let half = 2_000 << (now / 2_000).max(1).ilog2();
            if now < half + half / 2 { 2 } else { 6 }
        };
        assert_eq!(drive(&course, takes).0, 128_000);
        assert!(!course.steady());
    }

    /// A pace that doubles with the time is never steady, and the wait ends with the patience.
    #[test]
    fn patience_ends_and_says_so() {
        let course = Course::new(Wish { patience_ns: 100_000, ..WISH }, 0);
        let (from, ops) = drive(&course, |now| (2_000_000 / (now + 10_000)).max(1));
        assert!(from == 64_000 && ops > 0 && !course.steady());
    }

    #[test]
    fn the_span_is_doubled_for_the_operations() {
        let wish = Wish { warm_ns: Some(1_000), min_ops: 30, ..WISH };
        let course = Course::new(wish, 0);
        // 4, 8 and 16 operations end within 4, 8 and 16 us: too few. 32 end within 32 us.
        assert_eq!(drive(&course, |_| 1_000), (1_000, 32));
        assert_eq!(course.measured_ns(), 32_000);
        let course = Course::new(Wish { patience_ns: 10_000, ..wish }, 0);
        assert_eq!(drive(&course, |_| 1_000), (1_000, 8));
    }

    /// Operations of the first of two threads do not count before the second thread has begun. This wait ends with the
    /// patience.
    #[test]
    fn all_are_waited_for() {
        let wish = Wish { warm_ns: Some(1_000), patience_ns: 50_000, ..WISH };
        let course = Course::new(wish, 2);
        course.arrive(0);
        assert_eq!([2_000, 9_000].map(|now| course.pass(now, true)), [Phase::Warming; 2]);
        course.arrive(10_000);
        assert_eq!(course.pass(10_999, true), Phase::Warming);
        assert_eq!((course.pass(11_000, true), course.pass(15_000, true)), (Phase::Measured, Phase::Over));
        assert_eq!((course.from(), course.ops(), course.steady()), (11_000, 1, true));
        let course = Course::new(wish, 2);
        course.arrive(0);
        assert_eq!(
            [49_000, 50_000, 51_000].map(|now| course.pass(now, true)),
            [Phase::Warming, Phase::Warming, Phase::Measured]
        );
        course.arrive(52_000);
        assert!(course.pass(55_000, true) == Phase::Over && course.from() == 51_000 && !course.steady());
    }

    #[test]
    fn a_run_can_be_stopped() {
        let course = Course::new(WISH, 0);
        assert_eq!(course.pass(10, true), Phase::Warming);
        course.stop();
        assert_eq!(course.pass(20, true), Phase::Over);
        assert_eq!(course.ops(), 0);
    }
}
