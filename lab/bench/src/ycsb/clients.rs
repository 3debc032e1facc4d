//! The threads that use an index, on either machine.

use core::hint::black_box;
use core::marker::PhantomData;
use core::ops::Range;
use std::sync::Arc;

use archipelago_index::OrderedSession;
use archipelago_platform::pad::CachePadded;
use archipelago_sim::world;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::contender::BenchIndex;
use crate::harness::program::{Done, Program, Turns, from_every_node};
use crate::keys::{BenchKey, KeyKind, KeySet};
use crate::workload::{Distribution, Draws, Op, OpKind, Stream, Workload};

/// Keys held back for each thread on the virtual machine (a simulator), for inserts.
const FRESH: usize = 2048;

/// A workload, and the keys on which it runs.
#[derive(Clone)]
pub struct Work {
    pub workload: Workload,
    pub distribution: Distribution,
    pub keys: KeyKind,
    /// The number of loaded keys.
    pub count: usize,
}

/// One thread's part of a workload.
pub enum Part<'a, K: Clone> {
    /// Insert these keys.
    Load(&'a [K]),
    /// Insert new keys, drawn with this seed, until the time is up.
    Unseen(u64),
    /// Look these keys up, this many per call.
    Batches(&'a [K], usize),
    /// Run these operations.
    Stream(&'a Stream<K>),
    /// Run operations drawn from these keys with this seed, until the time is up. Inserts use first the fresh keys in
    /// this range, then keys that were never made before.
    Drawn(Arc<KeySet<K>>, Range<usize>, u64),
}

/// Threads that run a workload on an index.
pub struct Clients<'a, K, I> {
    work: Work,
    empty: fn() -> I,
    keys: PhantomData<&'a K>,
}

/// An index, and the part of every thread.
pub struct Shared<'a, K: Clone, I> {
    pub index: I,
    /// The parts have cache lines of their own, since operations write the index's cache lines.
    pub parts: CachePadded<Vec<Part<'a, K>>>,
}

impl<K: BenchKey, I: BenchIndex<K>> Clients<'_, K, I> {
    pub fn new(work: Work, empty: fn() -> I) -> Self {
        Clients { work, empty, keys: PhantomData }
    }
}

impl<'a, K: BenchKey, I: BenchIndex<K>> Program for Clients<'a, K, I> {
    type Shared = Shared<'a, K, I>;

    /// Loads the index, even for the workload `load`, which inserts further keys.
    fn setup(&self, threads: usize, seed: u64) -> Self::Shared {
        let Work { workload, keys, count, .. } = &self.work;
        // The keys that are drawn are no memory of the program.
        let keys = world::outside(|| Arc::new(K::synthetic(keys, *count, threads * FRESH, seed)));
        let mut index = (self.empty)();
        // Insertions are measured where a table that is large enough in the end is half as full as in the end.
        index.reserve(if *workload == Workload::Load { 2 * count } else { *count });
        load(&index, &keys.loaded);
        let part = |thread: usize| {
            let seed = seed.wrapping_mul(1_000_003).wrapping_add(thread as u64);
            if *workload == Workload::Load {
                return Part::Unseen(seed);
            }
            Part::Drawn(keys.clone(), thread * FRESH..(thread + 1) * FRESH, seed)
        };
        let parts = CachePadded::new((0..threads).map(part).collect());
        Shared { index, parts }
    }

    /// What is drawn differs between the workloads, and what is loaded only for `load`. One index may be set up in two
    /// ways.
    fn shares_setup(&self, other: &Self) -> bool {
        let loaded = |work: &Work| (work.keys.clone(), work.count, work.workload == Workload::Load);
        loaded(&self.work) == loaded(&other.work) && core::ptr::fn_addr_eq(self.empty, other.empty)
    }

    fn body(&self, shared: &Self::Shared, turns: &mut impl Turns) {
        let session = shared.index.pin();
        match &shared.parts[turns.thread()] {
            Part::Load(keys) => {
                let insert = |i: usize| {
                    session.insert(&keys[i], i as u64);
                    Done::Found
                };
                turns.go(keys.len(), insert, || ());
            }
            Part::Unseen(seed) => {
                let mut rng = SmallRng::seed_from_u64(*seed);
                turns.charge().begins(OpKind::Insert);
                let insert = |_| {
                    session.insert(&K::unseen(&mut rng), 1);
                    Done::Found
                };
                turns.go(usize::MAX, insert, || ());
            }
            Part::Batches(keys, size) => {
                let (mut found, mut misses) = (Vec::with_capacity(*size), 0);
                let look_up = |i: usize| {
                    let from = i * size;
                    session.get_many(&keys[from..keys.len().min(from + size)], &mut found);
                    misses += found.iter().filter(|value| value.is_none()).count();
                    black_box(&found);
                    Done::Found
                };
                turns.go(keys.len().div_ceil(*size), look_up, || ());
                // Each look-up of a batch is an operation.
                turns.correct(|batches| (keys.len().min(batches * size), misses));
            }
            Part::Stream(stream) => {
                // Slices are used so that the fields of the vectors themselves are not memory that threads share.
                let (ops, keys) = (&stream.ops[..], &stream.keys[..]);
                let op = |i: usize| Done::found(execute::<K, I>(&session, ops[i], &keys[i], i as u64));
                turns.go(ops.len(), op, || ());
            }
            Part::Drawn(keys, fresh, seed) => {
                let Work { workload, distribution, .. } = self.work;
                let fresh = &keys.fresh[fresh.clone()];
                let draws = Draws::new(workload, distribution, &keys.loaded, fresh, *seed);
                let mut draws = draws.of_thread(turns.thread(), shared.parts.len()).without_end(K::unseen);
                let charge = turns.charge();
                let op = |i: usize| {
                    // Drawing costs the program nothing, and what was drawn is no memory of the program.
                    let (op, key) = world::outside(|| draws.draw());
                    charge.begins(op.kind);
                    Done::found(execute::<K, I>(&session, op, key, i as u64))
                };
                turns.go(usize::MAX, op, || ());
            }
        }
    }

    fn tuples(&self, shared: &Self::Shared) -> usize {
        shared.index.tuples()
    }

    fn settle(&self, shared: &Self::Shared) {
        shared.index.quiesce();
    }
}

/// Loads the index from every node in turn.
fn load<K: BenchKey, I: BenchIndex<K>>(index: &I, keys: &[K]) {
    let size = keys.len().div_ceil(64);
    from_every_node(keys.len().div_ceil(size), |part| {
        let session = index.pin();
        keys.chunks(size).nth(part).into_iter().flatten().for_each(|key| _ = session.insert(key, 1));
    });
    index.quiesce();
}

/// Runs one operation. Returns whether it found what it had to find.
///
/// Everything except scans is inlined. Each instruction that the driver adds to a look-up takes room in the processor's
/// reorder window, which overlaps the cache misses of one operation with those of the next.
#[inline(always)]
fn execute<K: BenchKey, I: BenchIndex<K>>(session: &I::Session<'_>, op: Op, key: &K, value: u64) -> bool {
    match op.kind {
        OpKind::Read => black_box(session.get(key)).is_some(),
        OpKind::Update => overwrite::<K, I>(session, key, value),
        OpKind::Insert => {
            session.insert(key, value);
            true
        }
        OpKind::Scan => scan::<K, I>(session, usize::from(op.span), key),
        OpKind::Modify => match session.get(key) {
            Some(old) => overwrite::<K, I>(session, key, old.wrapping_add(1)),
            None => false,
        },
    }
}

#[inline(never)]
fn scan<K: BenchKey, I: BenchIndex<K>>(session: &I::Session<'_>, span: usize, from: &K) -> bool {
    let mut sum = 0u64;
    let visited = session.scan(from, span, |key, value| sum = sum.wrapping_add(K::touch(key) ^ value));
    black_box(sum);
    visited > 0
}

/// Overwrites a value in the index's best way. Not every index's `insert` can tell whether the key was present.
#[inline(always)]
fn overwrite<K: BenchKey, I: BenchIndex<K>>(session: &I::Session<'_>, key: &K, value: u64) -> bool {
    if I::UPDATES_IN_PLACE {
        return session.replace(key, value).is_some();
    }
    session.insert(key, value).is_some() || !I::INSERT_RETURNS_OLD
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_index::OrderedIndex;

    use crate::harness::program::Alone;
    use crate::locked::RwLocked;

    /// D and E insert as long as they run, also after the keys that were held back.
    #[test]
    fn inserts_go_on() {
        let (count, ops) = (1_000, 60_000);
        let empty = <RwLocked<u64> as BenchIndex<u64>>::empty;
        let work =
            Work { workload: Workload::D, distribution: Distribution::Uniform, keys: KeyKind::parse("int"), count };
        let clients = Clients::<u64, RwLocked<u64>>::new(work, empty);
        let shared = clients.setup(1, 1);
        clients.body(&shared, &mut Alone { ops, seed: 1 });
        let entries = shared.index.pin().scan(&0, usize::MAX, |_, _| ());
        assert!((entries - count).abs_diff(ops / 20) < 300, "{entries}");
    }
}
