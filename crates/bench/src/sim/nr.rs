//! `sim nr`: the node-replication paper's comparison (§4.1, §4.2) on a machine like its own.

use archipelago_platform::touch_mut;
use archipelago_replicate::{Combined, Replicated};
use archipelago_sim::world;
use archipelago_sync::lock::{DistributedRwLock, Mutex, RawShfl, RawTas, RawTtas};
use lock_api::RawMutex;

use super::measure::{Program, run};
use super::{Cell, Contender, choose};
use crate::args::SimNr;
use crate::failure::Failure;
use crate::nr::driver::Load;
use crate::nr::methods::{LockFree, Method, Session, lock_free_keys};
use crate::nr::structures::{Dictionary, Op, PriorityQueue, SortedSet, Structure};
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

fn filled<T: Structure>(items: usize) -> T {
    world::untimed(|| T::filled(items))
}

fn program<T: Structure, M: Method + 'static>(work: Work, make: fn(usize) -> M) -> Program {
    Box::new(move |machine, config, setting, threads| {
        let Work { items, update_percent, distribution, external_work } = work;
        let key_space = T::key_space(items);
        let load = Load { update_percent, distribution, external_work, key_space, seed: config.seed };
        let streams: Vec<Vec<Op>> = (0..threads).map(|thread| load.stream(thread)).collect::<Result<_, _>>()?;
        run(
            machine,
            config,
            setting,
            threads,
            || make(items),
            |method, turns| {
                let mut session = method.session();
                let outside = vec![0_u64; if external_work > 0 { OUTSIDE * 8 } else { 0 }];
                let mut ops = streams[turns.client().index].iter().cycle();
                while turns.next() {
                    session.execute(*ops.next().expect("a cycle has no end"));
                    for _ in 0..external_work {
                        touch_mut(&raw const outside[world::random() as usize % OUTSIDE * 8], size_of::<u64>());
                    }
                }
            },
        )
    })
}

fn method<T: Structure>(name: &str, work: Work) -> Program {
    match name {
        "sl" => program::<T, _>(work, |items| SingleLock::<RawTtas, _>(Mutex::new(filled::<T>(items)))),
        "tas" => program::<T, _>(work, |items| SingleLock::<RawTas, _>(Mutex::new(filled::<T>(items)))),
        "shfl" => program::<T, _>(work, |items| SingleLock::<RawShfl, _>(Mutex::new(filled::<T>(items)))),
        "rwl" => program::<T, _>(work, |items| ReadersWriterLock(DistributedRwLock::new(filled::<T>(items)))),
        "fc" => program::<T, _>(work, |items| Combined::flat(filled::<T>(items))),
        "fc+" => program::<T, _>(work, |items| Combined::new(filled::<T>(items))),
        _ => program::<T, _>(work, |items| Replicated::builder().build(|| filled::<T>(items))),
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
    program::<T, _>(work, |items| world::untimed(|| lock_free_keys(QUEUE, items).collect::<LockFree<QUEUE, FREES>>()))
}

/// The methods on the workloads that the arguments name.
///
/// # Errors
/// If a name is not known.
pub fn contenders(args: &SimNr) -> Result<Vec<Contender>, Failure> {
    let workloads = choose("--workload", &args.workload, &["pqueue", "dictionary", "sorted-set"])?;
    let known = ["sl", "rwl", "fc", "fc+", "nr", "lf", "lf-freeing", "tas", "shfl"];
    let methods = choose("--method", &args.method, &known)?;
    let mut contenders = Vec::new();
    for workload in workloads {
        for (update_percent, distribution, external_work) in cells(args)? {
            let items = args.count.unwrap_or(if workload == "sorted-set" { 10_000 } else { 200_000 });
            let work = Work { items, update_percent, distribution, external_work };
            let cell = Cell {
                update_percent: Some(update_percent),
                distribution: Some(distribution),
                external_work: Some(external_work),
            };
            for name in &methods {
                let program = match workload {
                    _ if name.starts_with("lf") => lock_free(name, workload, work),
                    "pqueue" => Some(method::<PriorityQueue>(name, work)),
                    "dictionary" => Some(method::<Dictionary>(name, work)),
                    _ => Some(method::<SortedSet>(name, work)),
                };
                contenders.extend(program.map(|program| Contender {
                    name: (*name).to_owned(),
                    workload: workload.to_owned(),
                    cell: cell.clone(),
                    program,
                }));
            }
        }
    }
    Ok(contenders)
}

/// All combinations of update ratio, distribution and external work.
fn cells(args: &SimNr) -> Result<Vec<(u32, Distribution, usize)>, Failure> {
    let mut cells = Vec::new();
    for &update_percent in &args.update_percent {
        for text in args.distribution.split(',') {
            let distribution = Distribution::parse(text.trim())?;
            if distribution == Distribution::Latest {
                return Err(Failure::new("sim nr knows no --distribution latest"));
            }
            cells.extend(args.external_work.iter().map(|&lines| (update_percent, distribution, lines)));
        }
    }
    Ok(cells)
}
