//! One workload on one index: the streams of its threads, and how a thread goes through its own.

use core::hint::black_box;

use archipelago_index::OrderedSession;

use crate::contender::{Contender, Info};
use crate::harness::Progress;
use crate::harness::driver::{Drive, Native};
use crate::harness::program::{Done, Turns};
use crate::keys::{BenchKey, KeySet};
use crate::workload::{self, Distribution, Kind, Op, Stream, Workload};

/// What to measure.
pub struct Plan {
    /// Which indexes, in order.
    pub indexes: Vec<&'static Info>,
    /// Which workloads, in running order.
    pub workloads: Vec<Workload>,
    /// Operations of a workload, all threads together.
    pub ops: usize,
    /// Which keys are popular.
    pub distribution: Distribution,
    /// Keys that C looks up at a time; 0 for one by one.
    pub batch: usize,
    /// Gives memory that the allocator holds back to the system, so that resident memory means something.
    pub release_memory: fn(),
}

impl Plan {
    /// Keys to hold back for the workloads that insert, for the chosen number of operations.
    pub fn fresh_wanted(&self) -> usize {
        // A twentieth of the operations insert; a little more, since the number is random.
        let wanted = |workload: &Workload| workload.share(self.ops) / 18 + 100;
        self.workloads.iter().filter(|workload| workload.inserts()).map(wanted).sum()
    }
}

/// A workload's streams, one for each thread.
pub struct Prepared<K> {
    /// The workload.
    pub workload: Workload,
    /// Empty ones for the load.
    pub streams: Vec<Stream<K>>,
}

/// One thread's part of a workload.
pub enum Work<'a, K> {
    /// Insert these.
    Load(&'a [K]),
    /// Look these up, several at a time.
    Batches(&'a [K]),
    /// Do these.
    Stream(&'a Stream<K>),
}

/// An index with the work of every thread.
pub struct Index<'a, I, K> {
    /// The index.
    pub index: &'a I,
    /// The work.
    pub work: Vec<Work<'a, K>>,
    /// Keys of a batch.
    pub batch: usize,
}

/// The streams of all workloads, the load first: it has no streams and always happens.
pub fn prepare<K: BenchKey>(
    plan: &Plan,
    keys: &KeySet<K>,
    threads: usize,
    seed: u64,
    progress: &Progress,
) -> Vec<Prepared<K>> {
    let empty = || Stream { ops: Vec::new(), keys: Vec::new() };
    let mut prepared = vec![Prepared { workload: Workload::Load, streams: (0..threads).map(|_| empty()).collect() }];
    let inserting = plan.workloads.iter().filter(|workload| workload.inserts()).count();
    let mut fresh = keys.fresh.as_slice();
    for (at, workload) in plan.workloads.iter().filter(|workload| **workload != Workload::Load).enumerate() {
        progress.say(format!("making the operations of workload {}, {threads} threads", workload.name()));
        let mine = match workload {
            Workload::D if inserting == 2 => {
                // D has eight times as many operations as E.
                let (mine, rest) = fresh.split_at(fresh.len() * 8 / 9);
                fresh = rest;
                mine
            }
            _ => fresh,
        };
        let ops = plan_ops(plan, *workload, mine.len());
        let stream = |thread| {
            let seed = seed ^ ((at as u64 + 1) << 32) ^ ((thread as u64 + 1) << 48);
            let fresh = part(mine, thread, threads);
            let ops = (thread + 1) * ops / threads - thread * ops / threads;
            workload::stream(*workload, plan.distribution, ops, &keys.loaded, fresh, seed)
        };
        prepared.push(Prepared { workload: *workload, streams: (0..threads).map(stream).collect() });
    }
    prepared
}

/// Operations of a workload. If too few keys could be held back, those that insert have fewer.
fn plan_ops(plan: &Plan, workload: Workload, fresh: usize) -> usize {
    let ops = workload.share(plan.ops);
    if workload.inserts() { ops.min(fresh * 18).max(1) } else { ops }
}

/// The part of `all` that belongs to one of `threads` threads: contiguous, and they differ by one at most.
fn part<T>(all: &[T], thread: usize, threads: usize) -> &[T] {
    &all[thread * all.len() / threads..(thread + 1) * all.len() / threads]
}

impl<K: BenchKey> Prepared<K> {
    /// The work of every thread.
    pub fn work<'a>(&'a self, plan: &Plan, loaded: &'a [K]) -> Vec<Work<'a, K>> {
        let threads = self.streams.len();
        let piece = |(thread, stream): (usize, &'a Stream<K>)| match self.workload {
            Workload::Load => Work::Load(part(loaded, thread, threads)),
            Workload::C if plan.batch > 0 => Work::Batches(&stream.keys),
            _ => Work::Stream(stream),
        };
        self.streams.iter().enumerate().map(piece).collect()
    }
}

impl<K: BenchKey, I: Contender<K>> Drive for Index<'_, I, K> {
    fn body(&self, turns: &mut Native<'_>) {
        if !Native::EXISTS {
            return;
        }
        let session = self.index.pin();
        match self.work[turns.thread()] {
            Work::Load(keys) => {
                let insert = |i: usize| {
                    session.insert(&keys[i], i as u64);
                    Done::Found
                };
                turns.go(keys.len(), insert, || ());
            }
            Work::Batches(keys) => {
                let (mut found, mut misses) = (Vec::with_capacity(self.batch), 0);
                let look_up = |i: usize| {
                    let from = i * self.batch;
                    session.get_many(&keys[from..keys.len().min(from + self.batch)], &mut found);
                    misses += found.iter().filter(|value| value.is_none()).count();
                    black_box(&found);
                    Done::Found
                };
                turns.go(keys.len().div_ceil(self.batch), look_up, || ());
                // An operation is a look-up, also when it is done in company.
                turns.correct(|batches| (keys.len().min(batches * self.batch), misses));
            }
            Work::Stream(stream) => {
                let op = |i: usize| Done::found(execute::<K, I>(&session, stream.ops[i], &stream.keys[i], i as u64));
                turns.go(stream.ops.len(), op, || ());
            }
        }
    }

    fn settle(&self) {
        self.index.quiesce();
    }
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
