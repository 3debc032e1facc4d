//! What is measured on this machine: the plan, and every thread's operations, made beforehand.

use std::borrow::Cow;

use super::clients::Part;
use crate::contender::Info;
use crate::harness::Progress;
use crate::keys::{BenchKey, KeySet};
use crate::workload::{self, Distribution, Stream, Workload};

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
    /// What every thread does.
    pub fn parts<'a>(&'a self, plan: &Plan, loaded: &'a [K]) -> Vec<Part<'a, K>> {
        let threads = self.streams.len();
        let piece = |(thread, stream): (usize, &'a Stream<K>)| match self.workload {
            Workload::Load => Part::Load(part(loaded, thread, threads)),
            Workload::C if plan.batch > 0 => Part::Batches(&stream.keys, plan.batch),
            _ => Part::Stream(Cow::Borrowed(stream)),
        };
        self.streams.iter().enumerate().map(piece).collect()
    }
}
