//! Runs one workload on one index with several threads, and measures that.
//!
//! All threads start from a barrier; the wall time is from the first one's start to the last one's end. CPU time is
//! the whole process's, background threads included, until the index has caught up with the work ([`quiesce`]), so
//! nobody gains by postponing.
//!
//! [`quiesce`]: archipelago_index::OrderedIndex::quiesce

use core::hint::black_box;

use archipelago_index::OrderedSession;
use archipelago_platform::sync::Barrier;
use archipelago_platform::thread::{self, Pinning};
use archipelago_platform::time::{Duration, Instant};
use archipelago_platform::topology::{CpuId, Topology};
use hdrhistogram::Histogram;

use crate::contender::Contender;
use crate::interrupt;
use crate::keys::BenchKey;
use crate::resources;
use crate::workload::{Kind, Op, Stream};

/// Operations between two looks at the interrupt flag.
const CHUNK: usize = 256;
/// Of so many operations one is timed on its own, if latencies are asked for.
const SAMPLE: usize = 8;

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Where the threads go.
    pub pinning: Pinning,
    /// Whether to time single operations.
    pub latency: bool,
    /// Reads are done in batches of so many keys by `get_many`; 0 for one by one.
    pub batch: usize,
}

/// One thread's part of a workload.
pub enum Work<'a, K> {
    /// Insert these.
    Load(&'a [K]),
    /// Look these up, `Settings::batch` at a time.
    Batches(&'a [K]),
    /// Do these.
    Stream(&'a Stream<K>),
}

/// What one run of one workload came to.
#[derive(Debug)]
pub struct Outcome {
    /// Operations done.
    pub ops: usize,
    /// From the first thread's start to the last one's end.
    pub wall: Duration,
    /// CPU time of the process.
    pub cpu: Option<Duration>,
    /// Look-ups that did not find a key that is there, and scans that found nothing.
    pub misses: usize,
    /// Latencies of single operations in nanoseconds.
    pub latency: Option<Histogram<u64>>,
    /// Whether all operations were done.
    pub complete: bool,
}

/// Runs every piece of `work` on a thread of its own.
pub fn run<K: BenchKey, I: Contender<K>>(index: &I, work: &[Work<'_, K>], settings: Settings) -> Outcome {
    let cpus = settings.pinning.assign(Topology::current(), work.len());
    let barrier = &Barrier::new(work.len());
    let cpu_before = resources::cpu_time();
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let start = |(work, cpu)| scope.spawn(move || serve(index, work, cpu, settings, barrier));
        let threads: Vec<_> = work.iter().zip(cpus).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).collect()
    });
    index.quiesce();
    let cpu_after = resources::cpu_time();
    let mut outcome = gather(tallies);
    outcome.cpu = cpu_after.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    outcome
}

/// What one thread did.
struct Tally {
    start: Instant,
    end: Instant,
    ops: usize,
    misses: usize,
    latency: Option<Histogram<u64>>,
    complete: bool,
}

fn gather(tallies: Vec<Tally>) -> Outcome {
    let start = tallies.iter().map(|tally| tally.start).min().expect("at least one thread");
    let end = tallies.iter().map(|tally| tally.end).max().expect("at least one thread");
    let mut outcome = Outcome { ops: 0, wall: end - start, cpu: None, misses: 0, latency: None, complete: true };
    for tally in tallies {
        outcome.ops += tally.ops;
        outcome.misses += tally.misses;
        outcome.complete &= tally.complete;
        match (&mut outcome.latency, tally.latency) {
            (Some(all), Some(one)) => all.add(one).expect("histograms of one shape add up"),
            (all, one) => *all = one,
        }
    }
    outcome
}

/// Latencies above a minute count as a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// A histogram of latencies in nanoseconds, to three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_NS, 3).expect("three digits are allowed")
}

fn serve<K: BenchKey, I: Contender<K>>(
    index: &I,
    work: &Work<'_, K>,
    cpu: Option<CpuId>,
    settings: Settings,
    barrier: &Barrier,
) -> Tally {
    if let Some(cpu) = cpu {
        // The CPU is one of the topology's, so only the operating system can refuse; then the thread runs unpinned.
        let _ = thread::pin_current(cpu);
    }
    let session = index.pin();
    let mut found = Vec::with_capacity(settings.batch);
    barrier.wait();
    match work {
        Work::Load(keys) => measured(keys.len(), settings.latency, |i| {
            session.insert(&keys[i], i as u64);
            true
        }),
        Work::Batches(keys) => {
            let batches = keys.len().div_ceil(settings.batch);
            let mut misses = 0;
            let mut tally = measured(batches, settings.latency, |i| {
                let from = i * settings.batch;
                session.get_many(&keys[from..keys.len().min(from + settings.batch)], &mut found);
                misses += found.iter().filter(|value| value.is_none()).count();
                black_box(&found);
                true
            });
            tally.misses = misses;
            // An operation is a look-up, also when it is done in company.
            tally.ops = keys.len().min(tally.ops * settings.batch);
            tally
        }
        Work::Stream(stream) => measured(stream.ops.len(), settings.latency, |i| {
            execute::<K, I>(&session, stream.ops[i], &stream.keys[i], i as u64)
        }),
    }
}

/// Calls `op` with 0, 1, 2 and so on below `count`. It says whether it found what it must.
#[inline]
fn measured(count: usize, latency: bool, mut op: impl FnMut(usize) -> bool) -> Tally {
    let start = Instant::now();
    let mut tally = Tally { start, end: start, ops: 0, misses: 0, latency: latency.then(histogram), complete: true };
    while tally.ops < count {
        if interrupt::requested() {
            tally.complete = false;
            break;
        }
        let chunk = tally.ops..count.min(tally.ops + CHUNK);
        tally.ops = chunk.end;
        match &mut tally.latency {
            None => tally.misses += chunk.filter(|i| !op(*i)).count(),
            Some(histogram) => tally.misses += chunk.filter(|i| !timed(*i, histogram, &mut op)).count(),
        }
    }
    tally.end = Instant::now();
    tally
}

/// Times one call in [`SAMPLE`].
#[inline]
fn timed(i: usize, histogram: &mut Histogram<u64>, op: &mut impl FnMut(usize) -> bool) -> bool {
    if !i.is_multiple_of(SAMPLE) {
        return op(i);
    }
    let start = Instant::now();
    let hit = op(i);
    histogram.saturating_record(start.elapsed().as_nanos() as u64);
    hit
}

/// Runs one operation; whether it found what it must.
///
/// In line, all of it but scans: what the driver adds to a look-up takes room in the processor's reorder window, which
/// overlaps the cache misses of one operation with the next one's.
#[inline(always)]
pub fn execute<K: BenchKey, I: Contender<K>>(session: &I::Session<'_>, op: Op, key: &K, value: u64) -> bool {
    match op.kind {
        Kind::Read => black_box(session.get(key)).is_some(),
        Kind::Update => overwrite::<K, I>(session, key, value),
        Kind::Insert => {
            session.insert(key, value);
            true
        }
        Kind::Scan => scan::<K, I>(session, usize::from(op.span), key),
        Kind::Modify => match session.get(key) {
            Some(old) => overwrite::<K, I>(session, key, old.wrapping_add(1)),
            None => false,
        },
    }
}

#[inline(never)]
fn scan<K: BenchKey, I: Contender<K>>(session: &I::Session<'_>, span: usize, from: &K) -> bool {
    let mut sum = 0u64;
    let visited = session.scan(from, span, |key, value| sum = sum.wrapping_add(K::touch(key) ^ value));
    black_box(sum);
    visited > 0
}

/// The index's best way to overwrite. `insert` cannot tell for every index whether the key was there.
#[inline(always)]
fn overwrite<K: BenchKey, I: Contender<K>>(session: &I::Session<'_>, key: &K, value: u64) -> bool {
    if I::UPDATES_IN_PLACE {
        return session.replace(key, value).is_some();
    }
    session.insert(key, value).is_some() || !I::INSERT_RETURNS_OLD
}
