//! `sim ycsb`: indexes under YCSB's workloads, with one search layer and with one per node, and with threads that stop
//! in bad places.

use archipelago_index::{Art, HydraList, OrderedSession};
use archipelago_platform::topology::Topology;
use archipelago_sim::{Fault, Point, world};
use archipelago_sync::version_lock::VersionLock;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::measure::{Program, Turns, run};
use super::{Cell, choose};
use crate::args::SimYcsb;
use crate::contender::Contender;
use crate::driver::execute;
use crate::failure::Failure;
use crate::locked::RwLocked;
use crate::workload::{Distribution, Stream, Workload, stream};

/// Operations of a thread, gone through again and again.
const STREAM: usize = 4096;
/// Keys held back per thread, for inserts.
const FRESH: usize = 2048;

/// The keys of a run: those loaded, then those held back.
struct Keys {
    all: Vec<u64>,
    loaded: usize,
}

impl Keys {
    fn new(count: usize, threads: usize, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let all = (0..count + threads * FRESH).map(|_| rng.random()).collect();
        Keys { all, loaded: count }
    }

    fn loaded(&self) -> &[u64] {
        &self.all[..self.loaded]
    }

    fn fresh(&self, thread: usize) -> &[u64] {
        &self.all[self.loaded + thread * FRESH..][..FRESH]
    }
}

/// The workload of one contender.
#[derive(Clone, Copy)]
struct Work {
    workload: Workload,
    distribution: Distribution,
    count: usize,
}

/// An index: how to make it, and how to drive it.
fn program<I: Contender<u64> + 'static>(work: Work, make: fn() -> I) -> Program {
    Box::new(move |machine, config, setting, threads| {
        let setup = || {
            let index = make();
            let keys = Keys::new(work.count, threads, config.seed);
            if work.workload != Workload::Load {
                load(&index, keys.loaded(), machine.sockets);
            }
            let of = |thread| {
                let (loaded, fresh) = (keys.loaded(), keys.fresh(thread));
                let seed = config.seed.wrapping_mul(1_000_003).wrapping_add(thread as u64);
                stream(work.workload, work.distribution, STREAM, loaded, fresh, seed)
            };
            let streams: Vec<Stream<u64>> = match work.workload {
                Workload::Load => Vec::new(),
                _ => (0..threads).map(of).collect(),
            };
            (index, streams)
        };
        run(machine, config, setting, threads, setup, |(index, streams), turns| match work.workload {
            Workload::Load => load_turns(index, config.seed, turns),
            _ => stream_turns(index, &streams[turns.client().index], turns),
        })
    })
}

/// Fills the index before the run, from every node in turn, so that its memory is spread.
fn load<I: Contender<u64>>(index: &I, keys: &[u64], nodes: usize) {
    for (part, keys) in keys.chunks(keys.len().div_ceil(64)).enumerate() {
        world::bind(part % nodes);
        let session = index.pin();
        keys.iter().for_each(|key| _ = session.insert(key, 1));
    }
    world::bind(0);
    index.quiesce();
}

/// Inserts random keys, into a map that is empty at first.
fn load_turns<I: Contender<u64>>(index: &I, seed: u64, turns: &mut Turns<'_>) {
    let session = index.pin();
    let mut rng = SmallRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(turns.client().index as u64));
    while turns.next() {
        session.insert(&rng.random(), 1);
    }
}

fn stream_turns<I: Contender<u64>>(index: &I, stream: &Stream<u64>, turns: &mut Turns<'_>) {
    let session = index.pin();
    let mut at = 0;
    while turns.next() {
        execute::<u64, I>(&session, stream.ops[at], &stream.keys[at], at as u64);
        at = (at + 1) % STREAM;
    }
}

/// A map with one search layer, whatever the machine.
fn one_layer() -> HydraList<u64, u64> {
    HydraList::builder().topology(Topology::synthetic(1, 1)).build()
}

/// Makes an index's program.
type Make = fn(Work) -> Program;

/// The indexes under the workloads that the arguments name.
///
/// # Errors
/// If a name is not known.
pub fn contenders(args: &SimYcsb) -> Result<Vec<super::Contender>, Failure> {
    let known: [(&str, Make); 4] = [
        ("hydralist", |work| program(work, HydraList::<u64, u64>::new)),
        ("hydralist-one-layer", |work| program(work, one_layer)),
        ("art", |work| program(work, Art::<u64, u64>::new)),
        ("rwlock-btreemap", |work| program(work, RwLocked::<u64>::empty)),
    ];
    let indexes = choose("--index", &args.index, &known.map(|(name, _)| name))?;
    let distribution = Distribution::parse(&args.distribution)?;
    let mut contenders = Vec::new();
    for workload in Workload::parse_list(&args.workload)? {
        for name in &indexes {
            let make = known.iter().find(|(known, _)| known == name).expect("it was chosen from these").1;
            let program = make(Work { workload, distribution, count: args.count });
            contenders.push(super::Contender {
                name: (*name).to_owned(),
                workload: workload.name().to_owned(),
                cell: Cell { distribution: Some(distribution), ..Cell::default() },
                program,
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
    let (warm, all) = (args.common.warm * 1000, (args.common.warm + args.common.micros) * 1000);
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
