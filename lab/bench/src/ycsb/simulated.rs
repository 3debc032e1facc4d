//! `sim ycsb`: indexes under YCSB's workloads, with one search layer and with one per node, and with threads that stop
//! in bad places.

use archipelago_index::art::WriteSync;
use archipelago_index::hydra::SearchLayerKind;
use archipelago_index::{Art, EunoBTree, EunoSkipList, HydraList, OrderedSession};
use archipelago_platform::topology::Topology;
use archipelago_sim::{Fault, Point, world};
use archipelago_sync::version_lock::VersionLock;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::execute;
use crate::args::{SimYcsb, Warm};
use crate::choose;
use crate::contender::Contender;
use crate::failure::Failure;
use crate::harness::program::{Done, Turns};
use crate::harness::simulated::{self, Program, run};
use crate::keys::{self, BenchKey, KeyKind, KeySet};
use crate::report::row::Cell;
use crate::rivals::btree::{BTreeOlc, TreeKey};
use crate::rivals::locked_tree::RwLocked;
use crate::rivals::masstree::Masstree;
use crate::workload::{Distribution, Stream, Workload, stream};

/// Operations of a thread, gone through again and again.
const STREAM: usize = 4096;
/// Keys held back per thread, for inserts.
const FRESH: usize = 2048;
/// With threads that stop, `--warm auto` is this many microseconds.
pub const WARM_BEFORE_FAULTS: u64 = 50;

/// Keys that a simulation can make on its way.
trait SimKey: TreeKey {
    /// This many to load and as many more, as in `bench ycsb`.
    fn set(kind: &KeyKind, count: usize, fresh: usize, seed: u64) -> KeySet<Self>;

    /// One that was most likely never seen.
    fn unseen(rng: &mut SmallRng) -> Self;
}

impl SimKey for u64 {
    fn set(kind: &KeyKind, count: usize, fresh: usize, seed: u64) -> KeySet<u64> {
        keys::words(kind, count, fresh, seed)
    }

    fn unseen(rng: &mut SmallRng) -> u64 {
        rng.random()
    }
}

impl SimKey for Vec<u8> {
    fn set(_: &KeyKind, count: usize, fresh: usize, seed: u64) -> KeySet<Vec<u8>> {
        keys::emails(count, fresh, seed)
    }

    fn unseen(rng: &mut SmallRng) -> Vec<u8> {
        keys::email(rng)
    }
}

/// The workload of one contender.
#[derive(Clone)]
struct Work {
    workload: Workload,
    distribution: Distribution,
    keys: KeyKind,
    count: usize,
}

/// An index: how to make it, and how to drive it.
fn program<K: SimKey, I: Contender<K> + 'static>(work: Work, make: fn() -> I) -> Program {
    Box::new(move |machine, config, setting, threads| {
        let setup = || {
            let index = make();
            let keys = K::set(&work.keys, work.count, threads * FRESH, config.seed);
            load(&index, &keys.loaded, machine.sockets);
            let of = |thread: usize| {
                let fresh = &keys.fresh[thread * FRESH..][..FRESH];
                let seed = config.seed.wrapping_mul(1_000_003).wrapping_add(thread as u64);
                stream(work.workload, work.distribution, STREAM, &keys.loaded, fresh, seed)
            };
            let streams: Vec<Stream<K>> = match work.workload {
                Workload::Load => Vec::new(),
                _ => (0..threads).map(of).collect(),
            };
            (index, streams)
        };
        let body = |(index, streams): &(I, Vec<Stream<K>>), turns: &mut simulated::Turns<'_>| match work.workload {
            Workload::Load => load_turns(index, config.seed, turns),
            _ => stream_turns(index, &streams[turns.thread()], turns),
        };
        run(machine, config, setting, threads, setup, body, |_| None)
    })
}

/// Fills the index before the run, from every node in turn, so that its memory is spread.
fn load<K: BenchKey, I: Contender<K>>(index: &I, keys: &[K], nodes: usize) {
    for (part, keys) in keys.chunks(keys.len().div_ceil(64)).enumerate() {
        world::bind(part % nodes);
        let session = index.pin();
        keys.iter().for_each(|key| _ = session.insert(key, 1));
    }
    world::bind(0);
    index.quiesce();
}

/// Inserts new keys, into a map that is filled.
fn load_turns<K: SimKey, I: Contender<K>>(index: &I, seed: u64, turns: &mut impl Turns) {
    let session = index.pin();
    let mut rng = SmallRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(turns.thread() as u64));
    let insert = |_| {
        session.insert(&K::unseen(&mut rng), 1);
        Done::Found
    };
    turns.go(usize::MAX, insert, || ());
}

fn stream_turns<K: BenchKey, I: Contender<K>>(index: &I, stream: &Stream<K>, turns: &mut impl Turns) {
    let session = index.pin();
    let op = |i: usize| {
        let at = i % STREAM;
        Done::found(execute::<K, I>(&session, stream.ops[at], &stream.keys[at], at as u64))
    };
    turns.go(usize::MAX, op, || ());
}

/// A map with one search layer, whatever the machine.
fn one_layer<K: BenchKey>() -> HydraList<K, u64> {
    HydraList::builder().topology(Topology::synthetic(1, 1)).build()
}

/// A map with the thesis's search layer: a radix tree that is changed in place.
fn radix_layer<K: BenchKey>() -> HydraList<K, u64> {
    HydraList::builder().search_layer(SearchLayerKind::Art).build()
}

/// Makes an index's program.
type Make = fn(Work) -> Program;

/// The indexes, for one type of keys.
fn indexes<K: SimKey + 'static>() -> Vec<(&'static str, Make)> {
    vec![
        ("hydralist", |work| program(work, HydraList::<K, u64>::new)),
        ("hydralist-one-layer", |work| program(work, one_layer::<K>)),
        ("hydralist-radix-layer", |work| program(work, radix_layer::<K>)),
        ("art", |work| program(work, Art::<K, u64>::new)),
        ("art-olc", |work| program(work, || Art::<K, u64>::with_write_sync(WriteSync::OptimisticLockCoupling))),
        ("euno-btree", |work| program(work, EunoBTree::<K, u64>::new)),
        ("euno-skiplist", |work| program(work, EunoSkipList::<K, u64>::new)),
        ("btree-olc", |work| program(work, BTreeOlc::<K>::default)),
        ("masstree-like", |work| program(work, Masstree::<K>::default)),
    ]
}

/// The indexes under the workloads that the arguments name.
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &SimYcsb) -> Result<Vec<simulated::Contender>, Failure> {
    let keys = KeyKind::parse(&args.keys);
    let known = match keys {
        KeyKind::File(_) => {
            let (wrong, known) = (&args.keys, KeyKind::NAMES);
            return Err(Failure::new(format!("--keys {wrong} is not known; known are {known}")));
        }
        KeyKind::Email => indexes::<Vec<u8>>(),
        _ => {
            let mut known = indexes::<u64>();
            known.push(("rwlock-btree", |work| program(work, RwLocked::empty)));
            known
        }
    };
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let chosen = choose::names("index", &args.index, &names)?;
    let distribution = Distribution::parse(&args.distribution)?;
    let count = args.count();
    let mut contenders = Vec::new();
    for workload in Workload::parse_list(&args.workload)? {
        for name in &chosen {
            let make = known.iter().find(|(known, _)| known == name).expect("it was chosen from these").1;
            contenders.push(simulated::Contender {
                name: (*name).to_owned(),
                cell: Cell {
                    workload: workload.name().to_owned(),
                    distribution: Some(distribution),
                    count: Some(count),
                    details: format!("{} keys", keys.name()),
                    ..Cell::default()
                },
                program: make(Work { workload, distribution, keys: keys.clone(), count }),
            });
        }
    }
    Ok(contenders)
}

/// What stops, and where.
///
/// # Errors
/// If the name is not known.
pub fn faults(args: &SimYcsb) -> Result<Vec<Fault>, Failure> {
    let Some(stall) = &args.stall else { return Ok(Vec::new()) };
    let warm = match args.common.warm {
        Warm::Auto => WARM_BEFORE_FAULTS,
        Warm::Micros(micros) => micros,
    };
    // To the end of the run, however long it is measured.
    let (warm, all) = (warm * 1000, (warm + args.common.micros.max(args.common.patience)) * 1000);
    match stall.as_str() {
        // Background threads have the slots behind the clients' and the set-up's.
        "updater" => Ok((1..=64)
            .flat_map(|behind| args.common.threads.iter().map(move |threads| threads + behind))
            .map(|slot| Fault::Stall { thread: Some(slot), at: Point::Time(warm), for_ns: all })
            .collect()),
        "lock-holder" => {
            let name = VersionLock::HELD.to_owned();
            Ok(vec![Fault::Stall {
                thread: Some(0),
                at: Point::Named { name, nth: 100 },
                for_ns: args.common.micros * 500,
            }])
        }
        other => Err(Failure::new(format!("--stall {other} is not known; known are updater, lock-holder"))),
    }
}
