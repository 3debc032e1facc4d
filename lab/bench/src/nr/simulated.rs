//! `sim nr`: the node-replication paper's comparison (§4.1, §4.2) on a machine like its own.

use core::cell::OnceCell;

use archipelago_platform::touch_mut;
use archipelago_replicate::{Combined, Replicated};
use archipelago_server::db::Db;
use archipelago_sim::world;
use archipelago_sync::lock::{DistributedRwLock, Mutex, RawShfl, RawTas, RawTtas};
use lock_api::RawMutex;

use super::driver::Load;
use super::methods::{LockFree, Method, Session, lock_free_keys};
use super::structures::{Dictionary, Op, PriorityQueue, SortedSet, Structure};
use crate::args::SimNr;
use crate::choose;
use crate::failure::Failure;
use crate::harness::program::{Done, Turns};
use crate::harness::simulated::{Contender, Program, run};
use crate::workload::Distribution;

/// Lines that the external work writes to: a thread's own mebibyte.
const OUTSIDE: usize = 1 << 14;

/// `SL`: one spin lock, a test-and-test-and-set lock with backoff; `tas`, the same with a lock that writes at each look;
/// `shfl`, with one that sorts its waiters by node. (Natively `bench nr` takes `parking_lot`'s mutex, which the virtual machine doesn't know.)
struct SingleLock<R, T>(Mutex<R, T>);

/// `RWL`: the paper's readers-writer lock (§3.8).
struct ReadersWriterLock<T>(DistributedRwLock<T>);

impl<R: RawMutex + Send + Sync, T: Structure> Method for SingleLock<R, T> {
    type Session<'m>
        = &'m Self
    where
        R: 'm;

    fn session(&self) -> &Self {
        self
    }
}

impl<R: RawMutex + Send + Sync, T: Structure> Session for &SingleLock<R, T> {
    fn execute(&mut self, op: Op) {
        std::hint::black_box(match T::operation(op) {
            Ok(read) => self.0.lock().read(&read),
            Err(write) => self.0.lock().write(&write),
        });
    }
}

impl<T: Structure> Method for ReadersWriterLock<T> {
    type Session<'m> = &'m Self;

    fn session(&self) -> &Self {
        self
    }
}

impl<T: Structure> Session for &ReadersWriterLock<T> {
    fn execute(&mut self, op: Op) {
        std::hint::black_box(match T::operation(op) {
            Ok(read) => self.0.read().read(&read),
            Err(write) => self.0.write().write(&write),
        });
    }
}

/// What all methods do.
#[derive(Clone, Copy)]
struct Work {
    items: usize,
    update_percent: u32,
    distribution: Distribution,
    external_work: usize,
}

/// Filled structures, for each run and replica one. The first was made outside of all runs, the others are made from it.
struct Filled<'a, T> {
    items: usize,
    first: &'a T,
}

impl<T: Structure> Filled<'_, T> {
    fn make(&self) -> T {
        world::untimed(|| self.first.copy(self.items))
    }
}

fn program<T: Structure, M: Method + 'static>(work: Work, make: fn(&Filled<'_, T>) -> M) -> Program {
    let first = OnceCell::new();
    Box::new(move |machine, config, setting, threads| {
        let Work { items, update_percent, distribution, external_work } = work;
        let filled = Filled { items, first: first.get_or_init(|| T::filled(items)) };
        let key_space = T::key_space(items);
        let load = Load { update_percent, distribution, external_work, key_space, seed: config.seed };
        let streams = load.streams(threads);
        run(
            machine,
            config,
            setting,
            threads,
            || make(&filled),
            |method, turns| {
                let mut session = method.session();
                let outside = vec![0_u64; if external_work > 0 { OUTSIDE * 8 } else { 0 }];
                let stream = streams[turns.thread()].as_slice();
                let op = |i: usize| {
                    session.execute(stream[i % stream.len()]);
                    Done::Found
                };
                turns.go(usize::MAX, op, || {
                    for _ in 0..external_work {
                        touch_mut(&raw const outside[world::random() as usize % OUTSIDE * 8], size_of::<u64>());
                    }
                });
            },
            |_| None,
        )
    })
}

fn method<T: Structure>(name: &str, work: Work) -> Program {
    match name {
        "sl" => program::<T, _>(work, |filled| SingleLock::<RawTtas, _>(Mutex::new(filled.make()))),
        "tas" => program::<T, _>(work, |filled| SingleLock::<RawTas, _>(Mutex::new(filled.make()))),
        "shfl" => program::<T, _>(work, |filled| SingleLock::<RawShfl, _>(Mutex::new(filled.make()))),
        "rwl" => program::<T, _>(work, |filled| ReadersWriterLock(DistributedRwLock::new(filled.make()))),
        "fc" => program::<T, _>(work, |filled| Combined::flat(filled.make())),
        "fc+" => program::<T, _>(work, |filled| Combined::new(filled.make())),
        _ => program::<T, _>(work, |filled| Replicated::builder().build(|| filled.make())),
    }
}

/// The lock-free list for those workloads that it can do: none changes two structures at once.
fn lock_free(name: &str, workload: &str, work: Work) -> Option<Program> {
    match (name, workload) {
        ("lf", "pqueue") => Some(lock_free_program::<PriorityQueue, true, false>(work)),
        ("lf", "dictionary") => Some(lock_free_program::<Dictionary, false, false>(work)),
        ("lf-freeing", "pqueue") => Some(lock_free_program::<PriorityQueue, true, true>(work)),
        ("lf-freeing", "dictionary") => Some(lock_free_program::<Dictionary, false, true>(work)),
        _ => None,
    }
}

fn lock_free_program<T: Structure, const QUEUE: bool, const FREES: bool>(work: Work) -> Program {
    program::<T, _>(work, |filled| {
        world::untimed(|| lock_free_keys(QUEUE, filled.items).collect::<LockFree<QUEUE, FREES>>())
    })
}

/// The methods on the workloads that the arguments name.
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &SimNr) -> Result<Vec<Contender>, Failure> {
    let workloads = choose::names("workload", &args.workload, &super::WORKLOADS)?;
    let known = ["sl", "rwl", "fc", "fc+", "nr", "lf", "lf-freeing", "tas", "shfl"];
    let methods = choose::names("method", &args.method, &known)?;
    let mut contenders = Vec::new();
    for workload in workloads {
        for (update_percent, distribution, external_work) in super::cells(&args.work)? {
            let items = args.work.items(workload);
            let work = Work { items, update_percent, distribution, external_work };
            let cell = super::cell(workload, update_percent, distribution, external_work, items);
            for name in &methods {
                let program = match workload {
                    _ if name.starts_with("lf") => lock_free(name, workload, work),
                    "pqueue" => Some(method::<PriorityQueue>(name, work)),
                    "dictionary" => Some(method::<Dictionary>(name, work)),
                    "sorted-set" => Some(method::<SortedSet>(name, work)),
                    _ => Some(method::<Db>(name, work)),
                };
                contenders.extend(program.map(|program| Contender {
                    name: (*name).to_owned(),
                    cell: cell.clone(),
                    program,
                }));
            }
        }
    }
    Ok(contenders)
}
