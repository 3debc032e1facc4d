//! Measuring by how much the counters of two CPUs may differ.
//!
//! A thread on CPU `i` reads its counter, and passes the value to a thread on CPU `j` through one cache line; that one
//! reads its own counter at once. The difference is the counters' difference plus the time that the line took, so it
//! is never less than the counters' difference, and the smallest of many tries is close to it. Both directions
//! together bound the difference from both sides, and the larger of the two is the pair's bound. A try that was
//! interrupted is merely a bad one. (ORDO, algorithm 1.)
//!
//! One CPU is the hub and is measured against one hardware thread of every core, the nodes in turn. Whatever is left
//! when the time is up is taken to be like its node's others: the cores of one socket share their counter's clock and
//! its reset. If a whole node is left, there is no bound.
//!
//! On a busy machine the two threads may not have run at the same time. Then all is measured again, up to a number of times.
//! Every measurement bounds the same differences, so the least bound of each CPU counts: attempts add up.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::counter;
use crate::hint;
use crate::pad::CachePadded;
use crate::topology::{CpuId, Topology};

/// Time for all pairs together, in one attempt.
const BUDGET: Duration = Duration::from_millis(15);

/// Attempts at most. On two CPUs that eight busy threads shared, one in three failed: all of them fail once in ten million times.
const ATTEMPTS: u32 = 16;

/// Tries per pair; ORDO makes 100 000 in hours, and the minimum hardly moves after the first hundred.
const TRIES: u32 = 200;

/// A bound wider than this many microseconds is of no use: waiting for it to pass costs more than a shared counter
/// does. Sound machines stay below one. What exceeds it is a measurement on a machine so busy that the two threads
/// never ran at the same time; it is right, but milliseconds wide.
const WIDEST: f64 = 20.0;

/// Why the processor's counter is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// It has none that could be.
    Counter,
    /// The operating system started no threads.
    Threads,
    /// It pinned none.
    Pinning,
    /// In no attempt two CPUs had time for each other.
    Busy,
    /// The bounds are wider than [`WIDEST`].
    Wide,
}

impl Unusable {
    /// For reports.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Unusable::Counter => "the processor promises no counter that runs at one rate on all CPUs",
            Unusable::Threads => "the threads that compare the CPUs' counters could not be started",
            Unusable::Pinning => "threads cannot be pinned to the CPUs whose counters are to be compared",
            Unusable::Busy => "the machine was too busy for comparing the CPUs' counters, in all attempts",
            Unusable::Wide => "the CPUs' counters could not be compared to within 20 us, in all attempts",
        }
    }
}

/// What [`measure`] found.
#[derive(Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) uncertainty: u64,
    pub(super) ticks_per_microsecond: f64,
}

/// Bounds the difference between any two of the CPUs that this process may use.
///
/// # Errors
/// Why that cannot be done, or not closely enough to be of use.
pub(super) fn measure(topology: &Topology) -> Result<Measured, Unusable> {
    let first_threads = |cpu: &&CpuId| topology.cpu(**cpu).is_some_and(|cpu| cpu.smt_rank == 0);
    let mut cpus = topology.spread_order().iter().filter(first_threads).copied();
    let hub = cpus.next().ok_or(Unusable::Pinning)?;
    let others: Vec<CpuId> = cpus.collect();
    let nodes: Vec<_> = others.iter().map(|&cpu| topology.node_of(cpu)).collect();
    let start = (Instant::now(), counter::read());
    measure_by(
        &nodes,
        || bounds_of_pairs(hub, &others),
        || {
            // A short measurement would tell the rate badly.
            while start.0.elapsed() < Duration::from_millis(1) {
                hint::spin_loop();
            }
            let ticks = counter::read().wrapping_sub(start.1);
            ticks as f64 / start.0.elapsed().as_nanos() as f64 * 1e3
        },
    )
}

/// As [`measure`], of CPUs of these nodes, by attempts at bounding them; `rate` are the ticks of a microsecond.
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

/// The bound for any two of the measured CPUs: from one to the hub, and from the hub to the other.
fn widest_pair(mut bounds: Vec<u64>) -> u64 {
    bounds.sort_unstable_by(|a, b| b.cmp(a));
    // One more, since the guarantee is a strict inequality.
    bounds.iter().take(2).sum::<u64>() + 1
}

/// Measures each of `others` against `hub`; `None` for those for which there was no time.
///
/// # Errors
/// If no thread can be started, or pinned.
fn bounds_of_pairs(hub: CpuId, others: &[CpuId]) -> Result<Vec<Option<u64>>, Unusable> {
    if others.is_empty() {
        return Ok(Vec::new());
    }
    let deadline = Instant::now() + BUDGET;
    let lines: Vec<Line> = others.iter().map(|_| Line::default()).collect();
    // Two threads of our own, since the caller's affinity is not ours to change. The remote side goes from CPU to CPU.
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
            // The other side must not wait for it.
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

/// The line between two CPUs: whose turn it is, and the last sender's reading.
#[derive(Default)]
struct Line {
    /// Counts messages: the hub sends the even ones, the remote side the odd ones. With the reading it is one message;
    /// the two words lie in one line, and the turn is written last.
    turn: CachePadded<(AtomicU64, AtomicU64)>,
    /// The remote side is on its CPU. Until then the hub yields instead of spinning, since both may be on one CPU.
    placed: AtomicBool,
    /// A side gave up.
    over: AtomicBool,
}

impl Line {
    /// Sends and receives in turn; the smallest difference received, never below 0.
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
            // The first messages bring the lines and the predictors up.
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

    /// Ends the other side's waiting; there is no measurement.
    fn give_up(&self) -> Option<u64> {
        self.over.store(true, Ordering::Relaxed);
        None
    }

    fn send(&self, message: u64) {
        self.turn.1.store(counter::read(), Ordering::Relaxed);
        // Release: who sees the turn sees the reading. Its partner is the Acquire in `receive`.
        self.turn.0.store(message + 1, Ordering::Release);
    }

    /// Waits for a message; how far this CPU's counter is ahead of the reading in it.
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

    /// What comes of attempts with these bounds, those of the last for all that follow; and how many there were.
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
        // What one attempt has found is not lost in the next.
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
