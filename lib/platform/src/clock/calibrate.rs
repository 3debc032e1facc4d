//! Measures how much the counters of two CPUs may differ.
//!
//! A thread on CPU `i` reads its counter and passes the value to a thread on CPU `j` through one cache line. The
//! receiver reads its own counter at once. The difference of the two readings is the difference of the counters plus
//! the transfer time of the line. So it is never less than the difference of the counters, and the smallest result of
//! many tries is close to it. The two directions together bound the difference from both sides, and the larger result
//! is the pair's bound. A try that was interrupted only gives a larger result. (ORDO, algorithm 1.)
//!
//! One CPU is the hub. It is measured against one hardware thread of every core, for the nodes in turn. If the time is
//! up, the remaining CPUs are assumed to be like the measured CPUs of their node: the cores of one socket share the
//! clock and the reset of their counters. If no CPU of a node was measured, there is no bound.
//!
//! On a busy machine, the two threads may not have run at the same time. Then everything is measured again, up to
//! [`ATTEMPTS`] times. Every measurement bounds the same differences, so the smallest bound of each CPU counts, and the
//! results of all attempts are combined.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::counter;
use crate::hint;
use crate::pad::CachePadded;
use crate::topology::{CpuId, Topology};

/// Time limit for all pairs together, in one attempt.
const BUDGET: Duration = Duration::from_millis(15);

/// The largest number of attempts. On two CPUs shared with eight busy threads, one attempt in three failed. So all of
/// them fail less than once in ten million times.
const ATTEMPTS: u32 = 16;

/// Number of tries per pair. ORDO makes 100 000, which takes hours; the minimum hardly changes after the first hundred.
const TRIES: u32 = 200;

/// The largest useful bound, in microseconds. With a larger bound, waiting until it has passed costs more than a shared
/// counter. Machines without faults stay below one microsecond. A larger result means that the machine was so busy that
/// the two threads never ran at the same time. Such a bound is correct, but milliseconds wide.
const WIDEST: f64 = 20.0;

/// The reason why the processor's counter cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// There is no suitable counter.
    Counter,
    /// The process may use one CPU, and the machine has others, on which the process's threads may run later.
    Alone,
    /// The operating system did not start the threads.
    Threads,
    /// The operating system did not pin the threads.
    Pinning,
    /// In no attempt did the two threads run at the same time.
    Busy,
    /// The bounds are wider than [`WIDEST`].
    Wide,
}

impl Unusable {
    /// Returns the reason as text, for reports.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Unusable::Counter => "the processor promises no counter that runs at one rate on all CPUs",
            Unusable::Alone => "the process may use one CPU of several, so there was nothing to compare it with",
            Unusable::Threads => "the threads that compare the CPUs' counters could not be started",
            Unusable::Pinning => "threads cannot be pinned to the CPUs whose counters are to be compared",
            Unusable::Busy => "the machine was too busy for comparing the CPUs' counters, in all attempts",
            Unusable::Wide => "the CPUs' counters could not be compared to within 20 us, in all attempts",
        }
    }
}

/// The result of [`measure`].
#[derive(Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) uncertainty: u64,
    pub(super) ticks_per_microsecond: f64,
}

/// Measures a bound of the difference between any two of the CPUs that this process may use.
///
/// # Errors
/// Returns the reason if this is impossible, or if the bound is too wide.
pub(super) fn measure(topology: &Topology) -> Result<Measured, Unusable> {
    let first_threads = |cpu: &&CpuId| topology.cpu(**cpu).is_some_and(|cpu| cpu.smt_rank == 0);
    let mut cpus = topology.spread_order().iter().filter(first_threads).copied();
    let hub = cpus.next().ok_or(Unusable::Pinning)?;
    if topology.cpus().len() == 1 && crate::topology::online_cpus() > 1 {
        return Err(Unusable::Alone);
    }
    let others: Vec<CpuId> = cpus.collect();
    let nodes: Vec<_> = others.iter().map(|&cpu| topology.node_of(cpu)).collect();
    let start = (Instant::now(), counter::read());
    measure_by(
        &nodes,
        || bounds_of_pairs(hub, &others),
        || {
            // The rate is measured over at least a millisecond; a shorter time would give a poor result.
            while start.0.elapsed() < Duration::from_millis(1) {
                hint::spin_loop();
            }
            let ticks = counter::read().wrapping_sub(start.1);
            ticks as f64 / start.0.elapsed().as_nanos() as f64 * 1e3
        },
    )
}

/// Works as [`measure`] does, but takes the nodes of the CPUs and a function that makes one attempt. `rate` returns the
/// ticks per microsecond.
fn measure_by<N: Ord>(
    nodes: &[N],
    mut attempt: impl FnMut() -> Result<Vec<Option<u64>>, Unusable>,
    rate: impl Fn() -> f64,
) -> Result<Measured, Unusable> {
    let mut least: Vec<Option<u64>> = vec![None; nodes.len()];
    let mut why = Unusable::Busy;
    for _ in 0..ATTEMPTS {
        for (least, bound) in least.iter_mut().zip(attempt()?) {
            *least = [*least, bound].into_iter().flatten().min();
        }
        let measured = nodes.iter().zip(&least).filter(|(_, bound)| bound.is_some()).map(|(node, _)| node);
        if measured.collect::<BTreeSet<_>>() != nodes.iter().collect() {
            continue;
        }
        let ticks_per_microsecond = rate();
        let uncertainty = widest_pair(least.iter().flatten().copied().collect());
        if uncertainty as f64 <= WIDEST * ticks_per_microsecond {
            return Ok(Measured { uncertainty, ticks_per_microsecond });
        }
        why = Unusable::Wide;
    }
    Err(why)
}

/// Returns the bound for any two of the measured CPUs: from one CPU to the hub, and from the hub to the other.
fn widest_pair(mut bounds: Vec<u64>) -> u64 {
    bounds.sort_unstable_by(|a, b| b.cmp(a));
    // One is added because the guarantee is a strict inequality.
    bounds.iter().take(2).sum::<u64>() + 1
}

/// Measures each of `others` against `hub`. The result is `None` for those for which there was no time.
///
/// # Errors
/// If no thread can be started or pinned.
fn bounds_of_pairs(hub: CpuId, others: &[CpuId]) -> Result<Vec<Option<u64>>, Unusable> {
    if others.is_empty() {
        return Ok(Vec::new());
    }
    let deadline = Instant::now() + BUDGET;
    let lines: Vec<Line> = others.iter().map(|_| Line::default()).collect();
    // Two new threads are used, because the caller's affinity must not be changed. The remote thread moves from CPU to
    // CPU.
    let at_hub = || {
        let pinned = crate::thread::set_affinity(&[hub]);
        let play = |line: &Line| if pinned.is_ok() { line.play(Side::Hub, deadline) } else { line.give_up() };
        lines.iter().map(play).collect::<Vec<_>>()
    };
    let remote = || {
        let mut pinned = false;
        let visit = |(&cpu, line): (&CpuId, &Line)| match crate::thread::set_affinity(&[cpu]) {
            Ok(()) => {
                pinned = true;
                line.play(Side::Remote, deadline)
            }
            Err(_) => line.give_up(),
        };
        let bounds: Vec<_> = others.iter().zip(&lines).map(visit).collect();
        pinned.then_some(bounds)
    };
    let (to_hub, from_hub) = std::thread::scope(|scope| {
        let remote = Builder::new().spawn_scoped(scope, remote).map_err(|_| Unusable::Threads)?;
        let Ok(hub) = Builder::new().spawn_scoped(scope, at_hub) else {
            // Ends the remote thread's waiting for the hub.
            lines.iter().for_each(|line| _ = line.give_up());
            return Err(Unusable::Threads);
        };
        Ok((hub.join(), remote.join()))
    })?;
    let (Ok(to_hub), Ok(from_hub)) = (to_hub, from_hub) else { return Err(Unusable::Threads) };
    let from_hub = from_hub.ok_or(Unusable::Pinning)?;
    Ok(to_hub.into_iter().zip(from_hub).map(|(to, from)| Some(to?.max(from?))).collect())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Hub,
    Remote,
}

/// The cache line between two CPUs: the turn, and the last sender's reading.
#[derive(Default)]
struct Line {
    /// `turn.0` counts messages: the hub sends the even ones, the remote side the odd ones. `turn.1` is the reading.
    /// Both words are in one cache line and form one message; the turn is written last.
    turn: CachePadded<(AtomicU64, AtomicU64)>,
    /// Whether the remote side runs on its CPU. Until then the hub yields instead of spinning, since both may be on one
    /// CPU.
    placed: AtomicBool,
    /// Whether a side gave up.
    over: AtomicBool,
}

impl Line {
    /// Sends and receives in turn. Returns the smallest received difference, at least 0.
    fn play(&self, side: Side, deadline: Instant) -> Option<u64> {
        match side {
            Side::Remote => self.placed.store(true, Ordering::Release),
            Side::Hub => self.wait_for_remote(deadline)?,
        }
        let mut smallest = None;
        for round in 0..u64::from(TRIES) {
            let (mine, theirs) = match side {
                Side::Hub => (2 * round, 2 * round + 1),
                Side::Remote => (2 * round + 1, 2 * round),
            };
            if side == Side::Hub {
                self.send(mine);
            }
            let Some(difference) = self.receive(theirs, deadline) else { break };
            // The differences of the first messages are larger, because caches and branch predictors are cold. They do
            // not affect the smallest difference.
            smallest = Some(smallest.map_or(difference, |smallest: u64| smallest.min(difference)));
            if side == Side::Remote {
                self.send(mine);
            }
        }
        smallest
    }

    fn wait_for_remote(&self, deadline: Instant) -> Option<()> {
        while !self.placed.load(Ordering::Acquire) {
            if self.is_over(deadline) {
                return None;
            }
            std::thread::yield_now();
        }
        Some(())
    }

    fn is_over(&self, deadline: Instant) -> bool {
        if Instant::now() > deadline {
            self.give_up();
        }
        self.over.load(Ordering::Relaxed)
    }

    /// Ends the other side's waiting. Returns `None`: there is no measurement.
    fn give_up(&self) -> Option<u64> {
        self.over.store(true, Ordering::Relaxed);
        None
    }

    fn send(&self, message: u64) {
        self.turn.1.store(counter::read(), Ordering::Relaxed);
        // Release: a thread that sees the turn also sees the reading. Pairs with the Acquire in `receive`.
        self.turn.0.store(message + 1, Ordering::Release);
    }

    /// Waits for a message. Returns how far this CPU's counter is ahead of the reading in the message.
    fn receive(&self, message: u64, deadline: Instant) -> Option<u64> {
        let mut spins = 0u32;
        while self.turn.0.load(Ordering::Acquire) != message + 1 {
            spins += 1;
            if spins.is_multiple_of(256) && self.is_over(deadline) {
                return None;
            }
            hint::spin_loop();
        }
        let arrived = counter::read();
        Some(arrived.saturating_sub(self.turn.1.load(Ordering::Relaxed)))
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn the_widest_pair_goes_through_the_hub() {
        assert_eq!(widest_pair(vec![5, 30, 7, 20]), 51);
        assert_eq!(widest_pair(vec![30]), 31);
        assert_eq!(widest_pair(vec![]), 1);
    }

    const RATE: f64 = 1000.0;

    /// Makes attempts with these bounds; the last bounds are used for all further attempts. Returns the result and the
    /// number of attempts.
    fn attempts(nodes: &[u32], bounds: &[&[Option<u64>]]) -> (Result<Measured, Unusable>, usize) {
        let mut made = 0;
        let attempt = || {
            made += 1;
            Ok(bounds[(made - 1).min(bounds.len() - 1)].to_vec())
        };
        (measure_by(nodes, attempt, || RATE), made)
    }

    #[test]
    fn a_busy_machine_is_measured_again() {
        let measured = |uncertainty| Ok(Measured { uncertainty, ticks_per_microsecond: RATE });
        let (nothing, wide): (&[_], &[_]) = (&[None, None], &[Some(15_000), Some(9_000)]);
        assert_eq!(attempts(&[0, 0], &[nothing, nothing, wide, &[Some(300), Some(200)]]), (measured(501), 4));
        // The results of one attempt are kept in the next.
        assert_eq!(attempts(&[0, 1], &[&[Some(300), None], &[None, Some(200)]]), (measured(501), 2));
        assert_eq!(attempts(&[0, 1], &[wide, &[None, Some(200)], &[Some(400), Some(9_000)]]), (measured(15_201), 2));
        assert_eq!(attempts(&[0, 0], &[&[Some(300), None]]), (measured(301), 1), "the other is like its neighbour");
        assert_eq!(attempts(&[], &[&[]]), (measured(1), 1), "one CPU differs from none");
    }

    #[test]
    fn a_measurement_is_given_up_with_its_reason() {
        assert_eq!(attempts(&[0, 1], &[&[Some(300), None]]), (Err(Unusable::Busy), ATTEMPTS as usize));
        assert_eq!(attempts(&[0], &[&[Some(20_001)]]), (Err(Unusable::Wide), ATTEMPTS as usize));
        let mut made = 0;
        let refused = || {
            made += 1;
            Err(Unusable::Pinning)
        };
        assert_eq!(measure_by(&[0], refused, || RATE), Err(Unusable::Pinning));
        assert_eq!(made, 1, "what the system refuses it refuses again");
    }

    #[test]
    fn messages_alternate_and_an_end_is_noticed() {
        let line = Line::default();
        let deadline = Instant::now() + Duration::from_secs(20);
        std::thread::scope(|scope| {
            let remote = scope.spawn(|| line.play(Side::Remote, deadline));
            assert!(line.play(Side::Hub, deadline).is_some());
            assert!(remote.join().unwrap().is_some());
        });
        assert_eq!(Line::default().play(Side::Remote, Instant::now()), None);
    }
}
