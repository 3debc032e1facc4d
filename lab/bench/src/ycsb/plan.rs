//! The plan of a measurement on this machine, and every thread's operations, which are made before the measurement.

use super::clients::Part;
use crate::contender::Info;
use crate::harness::Progress;
use crate::keys::{BenchKey, KeySet};
use crate::workload::{self, Distribution, Stream, Workload};

/// What to measure.
pub struct Plan {
    /// The indexes, in order.
    pub indexes: Vec<&'static Info>,
    /// The workloads, in running order.
    pub workloads: Vec<Workload>,
    /// The requested number of operations per workload, all threads together. E runs an eighth of them. Workloads that
    /// insert run fewer operations if there are too few new keys.
    pub ops: usize,
    /// Which keys are popular.
    pub distribution: Distribution,
    /// The number of keys that YCSB's workload C looks up per call; 0 for single look-ups.
    pub batch: usize,
    /// Makes the allocator return free memory to the system, so that resident memory is meaningful.
    pub release_memory: fn(),
}

impl Plan {
    /// Returns how many keys to leave out of the load, so that the inserting workloads have new keys for the chosen
    /// number of operations.
    pub fn fresh_wanted(&self) -> usize {
        // A twentieth of the operations insert. Their exact number is random, so a few more keys are left out.
        let wanted = |workload: &Workload| workload.share(self.ops) / 18 + 100;
        self.workloads.iter().filter(|workload| workload.inserts()).map(wanted).sum()
    }
}

/// A workload's streams, one for each thread.
pub struct Prepared<K> {
    /// The workload.
    pub workload: Workload,
    /// The streams; empty ones for the load.
    pub streams: Vec<Stream<K>>,
}

/// Makes the streams of all workloads. The load comes first and always runs; its streams are empty.
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

/// Returns the number of a workload's operations, all threads together. If fewer keys than wanted were left out of the
/// load (`fresh`), a workload that inserts has fewer operations.
fn plan_ops(plan: &Plan, workload: Workload, fresh: usize) -> usize {
    let ops = workload.share(plan.ops);
    if workload.inserts() { ops.min(fresh * 18).max(1) } else { ops }
}

/// Returns one thread's part of `all`. Parts are contiguous, and their lengths differ by at most one.
fn part<T>(all: &[T], thread: usize, threads: usize) -> &[T] {
    &all[thread * all.len() / threads..(thread + 1) * all.len() / threads]
}

impl<K: BenchKey> Prepared<K> {
    /// Returns the part of every thread.
    pub fn parts<'a>(&'a self, plan: &Plan, loaded: &'a [K]) -> Vec<Part<'a, K>> {
        let threads = self.streams.len();
        let piece = |(thread, stream): (usize, &'a Stream<K>)| match self.workload {
            Workload::Load => Part::Load(part(loaded, thread, threads)),
            Workload::C if plan.batch > 0 => Part::Batches(&stream.keys, plan.batch),
            _ => Part::Stream(stream),
        };
        self.streams.iter().enumerate().map(piece).collect()
    }
}
