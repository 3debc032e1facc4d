//! Runs threads on a program and measures the run. Each thread runs to the end of its work, or all threads run for a
//! given time.
//!
//! All threads start from a [`Gate`]. Wall time begins when the first of these threads passes the gate, by that
//! thread's own clock. The clock of the thread that started them is not used, since that thread may wake up late. Wall
//! time ends with the end of the last thread's work. In a run of a given time it ends when the threads are told to
//! stop, and only operations that have ended by then count. If the operations in progress counted as well, the
//! throughput of slow contenders and of many threads would be too high. CPU time is the whole process's, including
//! background threads. It is counted until the program has finished its postponed work ([`Drive::settle`]), so no
//! contender gains by postponing.

use archipelago_platform::SIMULATED;
use archipelago_platform::atomic::Ordering;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::thread::{self, Builder, Pinning, Scope, ScopedJoinHandle};
use archipelago_platform::time::{Duration, Instant};
use archipelago_platform::topology::{CpuId, Topology};
use hdrhistogram::Histogram;

use super::gate::Gate;
use super::program::{Done, Program, Turns};
use crate::failure::Failure;
use crate::interrupt::{self, Flag};
use crate::resources::{self, resident_bytes};

/// How to run the threads.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// On which CPUs the threads run.
    pub pinning: Pinning,
    /// Whether to time single operations.
    pub latency: bool,
    /// How long to run; `None` to run until the work is done.
    pub time: Option<Duration>,
    /// The seed of what the threads draw.
    pub seed: u64,
}

/// The program that the threads run.
pub trait Drive: Sync {
    /// One thread's part: preparation, then one call of [`Turns::go`].
    fn body(&self, turns: &mut Native<'_>);

    /// Returns the work of an additional thread in a run of a given time. The additional thread starts before the
    /// others begin, and works until [`stop`](Self::stop) is called.
    fn beside(&self) -> Option<Box<dyn FnOnce() + Send + '_>> {
        None
    }

    /// Called before the threads are waited for, when the time is up or if the run cannot begin.
    fn stop(&self) {}

    /// Called when the threads have ended. Waits for work that was postponed.
    fn settle(&self) {}
}

/// A program and the data that its threads share, ready to run on this machine.
pub struct Ready<'a, P: Program> {
    /// The program.
    pub program: &'a P,
    /// The data that the program has set up.
    pub shared: &'a P::Shared,
}

impl<P: Program + Sync> Drive for Ready<'_, P> {
    fn body(&self, turns: &mut Native<'_>) {
        if Native::EXISTS {
            self.program.body(self.shared, turns);
        }
    }

    fn beside(&self) -> Option<Box<dyn FnOnce() + Send + '_>> {
        self.program.beside(self.shared)
    }

    fn stop(&self) {
        self.program.stop(self.shared);
    }

    fn settle(&self) {
        self.program.settle(self.shared);
    }
}

/// The result of one run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Operations done.
    pub ops: usize,
    /// How long the operations took.
    pub wall: Duration,
    /// CPU time of the process.
    pub cpu: Option<Duration>,
    /// Look-ups that did not find a key that is present.
    pub misses: usize,
    /// Latencies of single operations in nanoseconds.
    pub latency: Option<Histogram<u64>>,
    /// `true` if the threads did all of the work. In a run of a given time: if no interrupt ended the run earlier.
    pub complete: bool,
    /// The number of updates, and how many attempts at updates were repeated, if the threads count them.
    pub attempts: [u64; 2],
    /// The number of bytes by which resident memory grew until the time was up.
    pub grown: Option<f64>,
}

/// Operations between two checks of the flag that ends a run: in a run of given work, and in a run of a given time. In
/// the latter each operation's end is checked. A check is a load from a line that only the end of the run writes.
const CHUNKS: [usize; 2] = [256, 1];
/// One in this many operations is timed, if latencies are asked for: in a run of given work, and in a run of a given
/// time.
const SAMPLES: [usize; 2] = [8, 1];
/// Latencies above a minute count as a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// How long the thread that waits for a run sleeps between two checks for an interrupt.
const LOOK: Duration = Duration::from_millis(50);

/// Runs `threads` threads.
///
/// # Errors
/// If a thread cannot be started, or panics. In either case the other threads do not wait for it.
pub fn run(threads: usize, settings: Settings, drive: &dyn Drive) -> Result<Outcome, Failure> {
    let timed = usize::from(settings.time.is_some());
    let (up, gate) = (CachePadded::new(Flag::new(false)), Gate::default());
    let halt: &Flag = if timed == 1 { &up } else { interrupt::flag() };
    let cpus = settings.pinning.assign(Topology::current(), threads);
    let cpu_before = resources::cpu_time();
    let (tallies, time) = thread::scope(|scope| {
        let start = |(thread, cpu): (usize, Option<CpuId>)| {
            let gate = &gate;
            // The threads are started one after the other. By the time the next thread is started, this one has
            // allocated what it needs, so the check for free address space includes these allocations.
            gate.gather(thread);
            start_thread(scope, move || {
                let _closing = gate.closing();
                // The CPU is in the topology, so only the operating system can refuse to pin. If it refuses, the thread
                // runs unpinned.
                let _ = cpu.map(thread::pin_current);
                let latency = settings.latency.then(histogram);
                let mut turns = Native { thread, seed: settings.seed, gate, halt, timed, latency, tally: None };
                drive.body(&mut turns);
                turns.tally.map(|tally| (tally, turns.latency))
            })
        };
        let beside = drive.beside().map(|beside| start_thread(scope, beside)).transpose();
        let workers = beside.and_then(|_| cpus.into_iter().enumerate().map(start).collect::<Result<Vec<_>, _>>());
        if workers.is_err() {
            gate.close();
        }
        let all_there = gate.gather(threads);
        let before = settings.time.and_then(|_| resident_bytes());
        let begun = gate.open().filter(|_| all_there);
        let time = begun.zip(settings.time).map(|(begun, time)| {
            let complete = sleep(begun, time);
            let grown = resident_bytes().zip(before).map(|(after, before)| after as f64 - before as f64);
            up.store(true, Ordering::Relaxed);
            drive.stop();
            (begun.elapsed(), grown, complete)
        });
        if begun.is_none() {
            drive.stop();
        }
        let ended =
            workers.map(|workers| workers.into_iter().map(|worker| worker.join().ok().flatten()).collect::<Vec<_>>());
        (ended, time)
    });
    let tallies = tallies?
        .into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| Failure::new("a thread of the run panicked; what it said is above"))?;
    drive.settle();
    let cpu = resources::cpu_time().zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    let mut outcome = gather(tallies);
    outcome.cpu = cpu;
    if let Some((wall, grown, complete)) = time {
        (outcome.wall, outcome.grown, outcome.complete) = (wall, grown, complete);
    }
    Ok(outcome)
}

/// The address space, in bytes, that must be free when a thread is started: more than its stack and its allocator's
/// first segment need. A thread that cannot allocate its own data would end the process.
const ROOM: usize = 128 << 20;

/// Starts a thread of a scope.
///
/// # Errors
/// If the operating system refuses, or the free address space is less than [`ROOM`].
fn start_thread<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Failure> {
    let refused = |why| Failure::new(format!("a thread cannot be started: {why}; try fewer --threads"));
    if !resources::has_room(ROOM) {
        return Err(refused("there is no room for another in the address space".to_owned()));
    }
    Builder::new().spawn_scoped(scope, body).map_err(|error| refused(error.to_string()))
}

/// Sleeps until `time` has passed since `begun`. Returns false if the run was interrupted before.
fn sleep(begun: Instant, time: Duration) -> bool {
    while let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        if interrupt::requested() {
            return false;
        }
        thread::sleep(left.min(LOOK));
    }
    true
}

/// What one thread did.
struct Tally {
    start: Instant,
    end: Instant,
    ops: usize,
    misses: usize,
    complete: bool,
    attempts: [u64; 2],
}

fn gather(tallies: Vec<(Tally, Option<Histogram<u64>>)>) -> Outcome {
    let start = tallies.iter().map(|(tally, _)| tally.start).min().expect("at least one thread");
    let end = tallies.iter().map(|(tally, _)| tally.end).max().expect("at least one thread");
    let mut outcome = Outcome { wall: end - start, complete: true, ..Outcome::default() };
    for (tally, latency) in tallies {
        outcome.ops += tally.ops;
        outcome.misses += tally.misses;
        outcome.complete &= tally.complete;
        outcome.attempts = [0, 1].map(|which| outcome.attempts[which] + tally.attempts[which]);
        merge(&mut outcome.latency, latency);
    }
    outcome
}

/// Adds the latencies `more` to `all`.
pub fn merge(all: &mut Option<Histogram<u64>>, more: Option<Histogram<u64>>) {
    match (all.as_mut(), more) {
        (Some(all), Some(one)) => all.add(one).expect("histograms of one shape add up"),
        (None, one) => *all = one,
        (Some(_), None) => {}
    }
}

/// Returns an empty histogram of latencies in nanoseconds, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_NS, 3).expect("three digits are allowed")
}

/// A thread of a run on this machine.
pub struct Native<'a> {
    thread: usize,
    seed: u64,
    gate: &'a Gate,
    halt: &'a Flag,
    /// The index in `CHUNKS` and `SAMPLES`: 1 in a run of a given time, else 0.
    timed: usize,
    latency: Option<Histogram<u64>>,
    /// What the thread did; `None` before it ran, and if the gate was closed.
    tally: Option<Tally>,
}

impl Native<'_> {
    /// True if runs on this machine are possible. The constant is known to the compiler. In the build for the virtual
    /// machine (a simulator) the compiler therefore makes no native version of each contender;
    /// [`only_native`](super::simulated::only_native) refuses to measure in that build.
    pub const EXISTS: bool = !SIMULATED;
}

impl Turns for Native<'_> {
    fn thread(&self) -> usize {
        self.thread
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    #[inline]
    fn go(&mut self, limit: usize, mut op: impl FnMut(usize) -> Done, mut between: impl FnMut()) {
        let (size, mask, timed_run) = (CHUNKS[self.timed], SAMPLES[self.timed] - 1, self.timed == 1);
        if !self.gate.come() {
            return;
        }
        let start = Instant::now();
        let (mut ops, mut misses, mut complete) = (0, 0, true);
        while ops < limit {
            // Relaxed, here and below: the flag carries no data.
            if !timed_run && self.halt.load(Ordering::Relaxed) {
                complete = false;
                break;
            }
            let chunk = ops..limit.min(ops + size);
            let end = chunk.end;
            let mut tell = |done| {
                misses += usize::from(done == Done::Missed);
                between();
            };
            match &mut self.latency {
                None => chunk.for_each(|i| tell(op(i))),
                Some(times) => chunk.for_each(|i| tell(if i & mask == 0 { timed(times, || op(i)) } else { op(i) })),
            }
            // The operation ended after the time. It does not count, but a miss of it and its latency do.
            if timed_run && self.halt.load(Ordering::Relaxed) {
                complete = false;
                break;
            }
            ops = end;
        }
        self.tally = Some(Tally { start, end: Instant::now(), ops, misses, complete, attempts: [0; 2] });
    }

    fn correct(&mut self, correct: impl FnOnce(usize) -> (usize, usize)) {
        if let Some(tally) = self.tally.as_mut() {
            (tally.ops, tally.misses) = correct(tally.ops);
        }
    }

    fn attempts(&mut self, updates: u64, repeated: u64) {
        if let Some(tally) = self.tally.as_mut() {
            tally.attempts = [updates, repeated];
        }
    }
}

/// Times one call of `op`.
fn timed<R>(histogram: &mut Histogram<u64>, op: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = op();
    histogram.saturating_record(start.elapsed().as_nanos() as u64);
    result
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use archipelago_check::hostile::some_try;

    /// Every third operation misses. The thread with number n runs `limit` + n operations.
    #[derive(Default)]
    struct Counting {
        limit: usize,
        between: AtomicUsize,
        stopped: AtomicUsize,
        settled: AtomicUsize,
    }

    impl Drive for Counting {
        fn body(&self, turns: &mut Native<'_>) {
            let (limit, mut between) = (self.limit.saturating_add(turns.thread()), 0);
            turns.go(limit, |i| Done::found(i % 3 != 0), || between += 1);
            turns.attempts(between as u64, 1);
            self.between.fetch_add(between, Ordering::Relaxed);
        }

        fn stop(&self) {
            self.stopped.fetch_add(1, Ordering::Relaxed);
        }

        fn settle(&self) {
            self.settled.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn drive(limit: usize, time: Option<Duration>) -> (Outcome, Counting) {
        let counting = Counting { limit, ..Counting::default() };
        let outcome = run(2, Settings { pinning: Pinning::None, latency: true, time, seed: 1 }, &counting).unwrap();
        (outcome, counting)
    }

    /// Records when its first operation began, and when its threads were told to stop.
    #[derive(Default)]
    struct Noting(Mutex<[Option<Instant>; 2]>);

    impl Drive for Noting {
        fn body(&self, turns: &mut Native<'_>) {
            let first = |i| {
                if i == 0 {
                    self.0.lock().unwrap()[0].get_or_insert_with(Instant::now);
                }
                Done::Found
            };
            turns.go(usize::MAX, first, || ());
        }

        fn stop(&self) {
            self.0.lock().unwrap()[1] = Some(Instant::now());
        }
    }

    /// The measured time includes operations that run before the thread that started the others has woken up.
    #[test]
    fn a_time_is_that_of_the_threads_that_work() {
        let time = Some(Duration::from_millis(2));
        let settings = Settings { pinning: Pinning::None, latency: false, time, seed: 1 };
        for round in 0..20 {
            // In so short a time, it may be that no thread gets a processor.
            let (outcome, [first, stopped]) = some_try(10, || {
                let noting = Noting::default();
                let outcome = run(8, settings, &noting).unwrap();
                let noted = noting.0.into_inner().unwrap();
                let [Some(first), Some(stopped)] = noted else { return Err("nothing was done".to_owned()) };
                Ok((outcome, [first, stopped]))
            });
            let took = stopped - first;
            assert!(outcome.wall >= took, "round {round}: operations of {took:?} are told to be of {:?}", outcome.wall);
        }
    }

    /// Panics in one thread: before its work if `before`, else in its work.
    struct Panicking {
        before: bool,
        stopped: AtomicUsize,
    }

    impl Drive for Panicking {
        fn body(&self, turns: &mut Native<'_>) {
            let panics = turns.thread() == 1;
            let panic = || std::panic::resume_unwind(Box::new("planned"));
            if panics && self.before {
                panic();
            }
            let op = |_| if panics { panic() } else { Done::Found };
            turns.go(1000, op, || ());
            turns.attempts(1, 0);
            turns.correct(|ops| (ops, 0));
        }

        fn stop(&self) {
            self.stopped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The operations of each thread after its first three end after the time.
    #[derive(Default)]
    struct Late(Flag);

    impl Drive for Late {
        fn body(&self, turns: &mut Native<'_>) {
            let late = |i| {
                while i >= 3 && !self.0.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                Done::found(i < 3)
            };
            turns.go(usize::MAX, late, || ());
        }

        fn stop(&self) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[test]
    fn what_ends_after_the_time_does_not_count() {
        let time = Some(Duration::from_millis(5));
        let settings = Settings { pinning: Pinning::None, latency: false, time, seed: 1 };
        let outcome = run(4, settings, &Late::default()).unwrap();
        assert!(outcome.ops <= 4 * 3, "{} operations", outcome.ops);
        assert!(outcome.misses <= 4, "each thread ends with the operation that was in progress");
    }

    #[test]
    fn a_thread_that_panics_leaves_none_behind() {
        for (before, time) in [(true, None), (true, Some(Duration::from_secs(1 << 20))), (false, None)] {
            let panicking = Panicking { before, stopped: AtomicUsize::new(0) };
            let settings = Settings { pinning: Pinning::None, latency: false, time, seed: 1 };
            let failure = run(4, settings, &panicking).unwrap_err();
            assert!(failure.to_string().contains("panicked"), "{failure}");
            assert_eq!(panicking.stopped.into_inner(), usize::from(before), "what waits beside the run is told");
        }
    }

    #[test]
    fn work_is_done_to_its_end() {
        let (outcome, counting) = drive(1000, None);
        assert_eq!((outcome.ops, outcome.misses, outcome.complete), (2001, 334 + 334, true));
        // The first of every eight operations is timed.
        assert_eq!(outcome.latency.unwrap().len(), 125 + 126);
        assert_eq!(counting.between.into_inner(), 2001);
        assert_eq!((counting.stopped.into_inner(), counting.settled.into_inner()), (0, 1));
        assert_eq!((outcome.attempts, outcome.grown), ([2001, 2], None));
    }

    #[test]
    fn a_time_ends_by_itself() {
        let time = Duration::from_millis(5);
        let (outcome, counting) = some_try(10, || {
            let (outcome, counting) = drive(usize::MAX, Some(time));
            if outcome.ops > 0 { Ok((outcome, counting)) } else { Err("nothing was done".to_owned()) }
        });
        assert!(outcome.complete && outcome.wall >= time);
        let done = counting.between.into_inner();
        assert_eq!(outcome.latency.unwrap().len(), done as u64, "each is timed");
        assert_eq!(done, outcome.ops + 2, "each thread's last operation ended after the time");
        assert_eq!((counting.stopped.into_inner(), counting.settled.into_inner()), (1, 1));
    }
}
