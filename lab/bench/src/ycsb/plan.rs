//! The plan of a measurement on this machine, and every thread's operations, which are made before the measurement.

use super::clients::Part;
use crate::contender::Info;
use crate::harness::Progress;
use crate::keys::{BenchKey, KeySet};
use crate::workload::{self, Distribution, Draws, Stream, Workload};

/// What to measure.
pub struct Plan {
    /// The indexes, in order.
    pub indexes: Vec<&'static Info>,
    /// The workloads, in running order.
    pub workloads: Vec<Workload>,
    /// The requested number of operations per workload, all threads together. E runs an eighth of them. Workloads that
    /// insert run fewer operations if there are too few new keys, and `grow` runs one for each of its new keys.
    pub ops: usize,
    /// Which keys are popular.
    pub distribution: Distribution,
    /// The number of keys that YCSB's workload C looks up per call; 0 for single look-ups.
    pub batch: usize,
    /// Makes the allocator return free memory to the system, so that resident memory is meaningful.
    pub release_memory: fn(),
}

impl Plan {
    /// Returns how many keys to leave out of a load of `count` keys, so that the inserting workloads have new keys for
    /// the chosen number of operations.
    pub fn fresh_wanted(&self, count: usize) -> usize {
        self.workloads.iter().map(|workload| self.fresh_of(*workload, count)).fold(0, usize::saturating_add)
    }

    /// Returns about how many bytes an index of `count` keys takes in addition while a workload runs. The indexes that
    /// need the most take as much.
    pub fn bytes_taken(&self, workload: Workload, count: usize) -> usize {
        /// For a key, and for what the allocator and the index take in larger pieces.
        const EACH: usize = 128;
        const PIECES: usize = 16 << 20;
        match if workload == Workload::Load { count } else { self.fresh_of(workload, count) } {
            0 => 0,
            keys => keys.saturating_mul(EACH).saturating_add(PIECES),
        }
    }

    /// Returns how many new keys a workload needs.
    fn fresh_of(&self, workload: Workload, count: usize) -> usize {
        match workload {
            Workload::Grow => count / 5,
            // A twentieth of the operations insert. Their exact number is random, so a few more keys are left out.
            _ if workload.inserts() => workload.share(self.ops) / 18 + 100,
            _ => 0,
        }
    }

    /// Returns the greatest number of a workload's operations, all threads together, on `count` keys.
    pub fn most_ops(&self, workload: Workload, count: usize) -> usize {
        if workload == Workload::Grow { self.fresh_of(workload, count) } else { workload.share(self.ops) }
    }

    /// Returns how many of the keys that were left out a workload gets. If they are fewer than all workloads need, each
    /// gets the same share of what it needs.
    fn fresh_given<K>(&self, workload: Workload, keys: &KeySet<K>) -> usize {
        let (loaded, fresh) = (keys.loaded.len(), keys.fresh.len());
        let (mine, all) = (self.fresh_of(workload, loaded), self.fresh_wanted(loaded));
        if all <= fresh { mine } else { (mine as u128 * fresh as u128 / all as u128) as usize }
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
    let mut fresh = keys.fresh.as_slice();
    for (at, workload) in plan.workloads.iter().filter(|workload| **workload != Workload::Load).enumerate() {
        progress.say(format!("making the operations of workload {}, {threads} threads", workload.name()));
        let (mine, rest) = fresh.split_at(plan.fresh_given(*workload, keys));
        fresh = rest;
        let ops = plan_ops(plan, *workload, mine.len());
        let stream = |thread| {
            let seed = seed ^ ((at as u64 + 1) << 32) ^ ((thread as u64 + 1) << 48);
            let fresh = part(mine, thread, threads);
            let ops = (thread + 1) * ops / threads - thread * ops / threads;
            let draws = Draws::new(*workload, plan.distribution, &keys.loaded, fresh, seed);
            workload::stream(draws.of_thread(thread, threads), ops)
        };
        prepared.push(Prepared { workload: *workload, streams: (0..threads).map(stream).collect() });
    }
    prepared
}

/// Returns the number of a workload's operations, all threads together. If fewer keys than wanted were left out of the
/// load (`fresh`), a workload that inserts has fewer operations.
fn plan_ops(plan: &Plan, workload: Workload, fresh: usize) -> usize {
    let ops = workload.share(plan.ops);
    match workload {
        // Without a new key the only operation is a look-up, as in D: a row has at least one operation.
        Workload::Grow => fresh.max(1),
        _ if workload.inserts() => ops.min(fresh * 18).max(1),
        _ => ops,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::OpKind;

    fn plan(workloads: &str, ops: usize) -> Plan {
        let (indexes, workloads) = (Vec::new(), Workload::parse_list(workloads).unwrap());
        Plan { indexes, workloads, ops, distribution: Distribution::Uniform, batch: 0, release_memory: || () }
    }

    fn keys(loaded: usize, fresh: usize) -> KeySet<u64> {
        let keys = |range: core::ops::Range<usize>| range.map(|n| n as u64).collect();
        KeySet { loaded: keys(0..loaded), fresh: keys(loaded..loaded + fresh), duplicates: 0 }
    }

    /// Returns the keys that each workload inserts, all threads together, in order.
    fn inserted(plan: &Plan, keys: &KeySet<u64>, threads: usize) -> Vec<(Workload, Vec<u64>)> {
        let inserted = |stream: &Stream<u64>| {
            let inserts = stream.ops.iter().zip(&stream.keys).filter(|(op, _)| op.kind == OpKind::Insert);
            inserts.map(|(_, key)| *key).collect::<Vec<_>>()
        };
        let prepared = prepare(plan, keys, threads, 1, &Progress::hidden());
        prepared.into_iter().map(|it| (it.workload, it.streams.iter().flat_map(inserted).collect())).collect()
    }

    #[test]
    fn the_threads_together_insert_a_fifth_once() {
        for (workloads, threads) in [("grow", 1), ("grow", 3), ("c,d,e,grow", 2)] {
            let plan = plan(workloads, 900);
            let keys = keys(1_000, plan.fresh_wanted(1_000));
            let inserted = inserted(&plan, &keys, threads);
            let (last, of_grow) = inserted.last().unwrap();
            assert_eq!((*last, of_grow.len()), (Workload::Grow, 200));
            // `grow` is the last workload, and its keys are the last ones.
            assert_eq!(of_grow[..], keys.fresh[keys.fresh.len() - 200..], "{workloads}, {threads} threads");
        }
    }

    #[test]
    fn no_key_is_inserted_twice() {
        let plan = plan("all", 2_000);
        let keys = keys(1_000, plan.fresh_wanted(1_000));
        let mut all: Vec<u64> = inserted(&plan, &keys, 2).into_iter().flat_map(|(_, keys)| keys).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all[0] >= 1_000, "a loaded key is inserted");
    }

    /// A file has perhaps too few lines.
    #[test]
    fn few_new_keys_are_shared_in_proportion() {
        let plan = plan("d,e,grow", 18_000);
        // They need 1,100, 225 and 200 keys.
        assert_eq!(plan.fresh_wanted(1_000), 1_525);
        let keys = keys(1_000, 305);
        let given = [Workload::D, Workload::E, Workload::Grow].map(|workload| plan.fresh_given(workload, &keys));
        assert_eq!(given, [220, 45, 40]);
        assert_eq!(plan_ops(&plan, Workload::D, 220), 220 * 18);
        assert_eq!([40, 0].map(|fresh| plan_ops(&plan, Workload::Grow, fresh)), [40, 1]);
        assert_eq!(plan.fresh_wanted(usize::MAX), usize::MAX / 5 + 1_325);
    }
}
