//! `bench nr` and `sim nr`: node replication beside locks, flat combining and a lock-free structure, on the workloads
//! of the node-replication paper (§4.1, §4.2).
//!
//! For each run, workload and thread count, every method has its turn. So the methods alternate within seconds, and a
//! ratio compares measurements of about the same time. A method is made anew for each turn. It then passes through all
//! update ratios, distributions and amounts of external work. Additions and removals are equally frequent, so the
//! structure keeps about its size. On the virtual machine (a simulator) making a method takes no time. So there a
//! method is made anew for each combination of these parameters.

mod clients;
mod methods;
mod skiplist;
mod structures;

use std::process::ExitCode;
use std::rc::Rc;

use archipelago_platform::time::Duration;
use archipelago_replicate::{Combined, Replicated};
use archipelago_server::db::Db;
use archipelago_sync::lock::{RawDistributedRwLock, RawShfl, RawTas, RawTtas, RawUnqueuedRwLock};
use serde_json::json;

use crate::args::{Nr, NrWork, SimNr};
use crate::choose;
use crate::contender::On;
use crate::failure::Failure;
use crate::harness::driver::Ready;
use crate::harness::simulated::{self, Contender};
use crate::harness::{Command, Entry, Experiment, Format, Turn};
use crate::method::{LockFree, Method};
use crate::report::row::{Cell, Facts};
use crate::resources::{self, Held};
use crate::rivals::flat_combining::FlatCombining;
use crate::roster::{Own, Roster};
use crate::workload::Distribution;
use clients::{Clients, Load, Make};
use methods::{ReadFirst, ReadersWriterLock, SingleLock};
use structures::{Dictionary, Measured, PriorityQueue, SortedSet, lock_free_items};

/// The workloads.
const WORKLOADS: [&str; 4] = ["pqueue", "dictionary", "sorted-set", "server"];

/// Bytes of an item in one replica.
const ITEM: u64 = 32;

/// A method's turn.
type Take = Box<dyn Fn(&Course, &mut Turn<'_>)>;

/// A method over a workload's structure.
struct Known {
    name: &'static str,
    on: On,
    take: Take,
    simulate: Box<dyn Fn(Load) -> simulated::Simulation>,
}

fn known<T: Measured, M: Method + 'static>(on: On, name: &'static str, make: Make<T, M>) -> Known {
    let take = Box::new(move |course: &Course, turn: &mut Turn<'_>| course.take(make, turn));
    Known { name, on, take, simulate: Box::new(move |load| simulated::program(Clients::new(load, make))) }
}

/// Returns the methods for any structure. The virtual machine cannot run `parking_lot`'s locks. There, `sl` is a spin
/// lock that reads the lock's word before it tries to write it, and `rwl` is the paper's readers-writer lock (§3.8).
/// `fc` and `fc+` are flat combining as published. This project's variants of these three are `rwl-queued`,
/// `combined-flat` and `combined`.
fn locks_and_replicas<T: Measured>() -> Vec<Known> {
    vec![
        known(On::Native, "sl", |_, filled| SingleLock::<parking_lot::RawMutex, T>::over(filled())),
        known(On::Simulated, "sl", |_, filled| SingleLock::<RawTtas, T>::over(filled())),
        known(On::Native, "rwl", |_, filled| ReadersWriterLock::<parking_lot::RawRwLock, T>::over(filled())),
        known(On::Simulated, "rwl", |_, filled| ReadersWriterLock::<RawUnqueuedRwLock, T>::over(filled())),
        known(On::Both, "rwl-queued", |_, filled| ReadersWriterLock::<RawDistributedRwLock, T>::over(filled())),
        known(On::Both, "fc", |_, filled| FlatCombining::<T, false, 1>::over(filled())),
        known(On::Both, "fc+", |_, filled| FlatCombining::<T, true, 1>::over(filled())),
        known(On::Simulated, "fc-two-walks", |_, filled| FlatCombining::<T, false, 2>::over(filled())),
        known(On::Both, "combined-flat", |_, filled| Combined::<T>::flat(filled())),
        known(On::Both, "combined", |_, filled| Combined::<T>::new(filled())),
        known(On::Both, "nr", replicated::<T>),
        known(On::Native, "nr+", |load, filled| ReadFirst::<T>(replicated(load, filled))),
        known(On::Simulated, "tas", |_, filled| SingleLock::<RawTas, T>::over(filled())),
        known(On::Simulated, "shfl", |_, filled| SingleLock::<RawShfl, T>::over(filled())),
    ]
}

/// How often a helper of node replication refreshes its replica if it is not woken before.
const HELPER_INTERVAL: Duration = Duration::from_millis(1);

/// Makes node replication with the load's number of replicas, and, as in the paper (§3.9), with a thread per node that
/// refreshes the node's replica while the node has no operations.
fn replicated<T: Measured>(load: &Load, filled: &(dyn Fn() -> T + Sync)) -> Replicated<T> {
    let builder = Replicated::builder().helper(HELPER_INTERVAL);
    let builder = if let Some(replicas) = load.replicas { builder.replicas(replicas) } else { builder };
    builder.build(filled)
}

/// Returns the lock-free methods for a queue or a dictionary. A sorted set has none, since no lock-free structure
/// changes two structures at once.
fn lock_free<R: Roster, T: Measured, const QUEUE: bool>() -> [Known; 4] {
    fn list<M: FromIterator<(u64, u64)>, T, const QUEUE: bool>(load: &Load, _: &(dyn Fn() -> T + Sync)) -> M {
        lock_free_items(QUEUE, load.items).collect()
    }
    [
        known(On::Both, "lf", list::<LockFree<QUEUE, false, true>, T, QUEUE>),
        known(On::Both, "lf-book", list::<LockFree<QUEUE, false, false>, T, QUEUE>),
        known(On::Both, "lf-freeing", list::<LockFree<QUEUE, true, false>, T, QUEUE>),
        known(On::Native, "lf-crossbeam", list::<R::List<QUEUE>, T, QUEUE>),
    ]
}

/// Returns the methods for a workload's structure, in the order of reports.
fn methods<R: Roster>(workload: &str) -> Vec<Known> {
    fn both<R: Roster, T: Measured, const QUEUE: bool>() -> Vec<Known> {
        locks_and_replicas::<T>().into_iter().chain(lock_free::<R, T, QUEUE>()).collect()
    }
    match workload {
        "pqueue" => both::<R, PriorityQueue, true>(),
        "dictionary" => both::<R, Dictionary, false>(),
        "sorted-set" => locks_and_replicas::<SortedSet>(),
        _ => locks_and_replicas::<Db>(),
    }
}

/// A workload: its cells (combinations of its parameters) with the load of each, and the methods of a list that fit the
/// workload and the machine.
struct Chosen {
    cells: Vec<(Cell, Load)>,
    methods: Vec<Known>,
}

/// Returns the methods' names and the workloads that the arguments choose.
///
/// # Errors
/// If a name is not known.
fn chosen<R: Roster>(
    [methods, workloads]: [&str; 2],
    work: &NrWork,
    replicas: Option<usize>,
    simulated: bool,
) -> Result<(Vec<&'static str>, Vec<Chosen>), Failure> {
    let known = |workload| self::methods::<R>(workload).into_iter().filter(|known| known.on.has(simulated));
    // Every method can make a dictionary concurrent.
    let names: Vec<&'static str> = known("dictionary").map(|known| known.name).collect();
    let names = choose::names("method", methods, &names)?;
    let mut chosen = Vec::new();
    for workload in choose::names("workload", workloads, &WORKLOADS)? {
        let place = |known: &Known| names.iter().position(|name| *name == known.name);
        let mut methods: Vec<Known> = known(workload).filter(|known| place(known).is_some()).collect();
        methods.sort_by_key(place);
        chosen.push(Chosen { cells: cells(workload, work, replicas)?, methods });
    }
    Ok((names, chosen))
}

/// Returns all combinations of update ratio, distribution and external work.
///
/// # Errors
/// If a distribution is not known, or is for YCSB only.
fn cells(workload: &str, work: &NrWork, replicas: Option<usize>) -> Result<Vec<(Cell, Load)>, Failure> {
    let (items, distributions) = (work.items(workload), Distribution::parse_list(&work.distribution)?);
    let mut cells = Vec::new();
    for &update_percent in &work.update_percent {
        for &distribution in &distributions {
            for &external_work in &work.external_work {
                let details = replicas.map_or(String::new(), |replicas| format!("{replicas} replicas"));
                let cell = Cell {
                    details,
                    update_percent: Some(update_percent),
                    distribution: Some(distribution),
                    external_work: Some(external_work),
                    count: Some(items),
                    ..Cell::of(workload)
                };
                cells.push((cell, Load { items, update_percent, distribution, external_work, replicas }));
            }
        }
    }
    Ok(cells)
}

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, or the report cannot be written.
pub fn run<R: Roster>(args: &Nr, release_memory: fn()) -> Result<ExitCode, Failure> {
    let experiment = experiment::<R>(args, release_memory)?;
    Command::start(&args.common)?.run(&experiment)
}

fn experiment<R: Roster>(args: &Nr, release_memory: fn()) -> Result<Experiment<'static>, Failure> {
    let (names, chosen) = chosen::<R>([&args.method, &args.workload], &args.work, args.replicas, false)?;
    if !R::HAS_LIST && names.contains(&"lf-crossbeam") {
        return Err(Failure::new(
            "--method lf-crossbeam needs the feature 'peers', which this command was built without; lf does not",
        ));
    }
    resources::check_items(args.work.most_items(), ITEM.saturating_mul(args.replicas.unwrap_or(1) as u64), 0)?;
    let mut experiment = Experiment::new("node replication", &Format::OF_MAPS, &args.common, 5, Some("sl"), &names)?;
    experiment.time = Some(Duration::from_millis(args.millis as u64));
    experiment.facts = Facts::from([("keys", json!("int")), ("batch", json!(0))]);
    for Chosen { cells, methods } in chosen {
        experiment.steps += methods.len() * cells.len();
        let (first, loads) = (experiment.cells.len(), cells.iter().map(|(_, load)| *load).collect());
        experiment.cells.extend(cells.into_iter().map(|(cell, _)| (cell, Facts::new())));
        let course = Rc::new(Course { loads, first, release_memory });
        let entry = |Known { name, take, .. }| {
            let course = course.clone();
            Entry { name, ours: false, facts: Facts::new(), take: Box::new(move |turn| take(&course, turn)) }
        };
        experiment.groups.push(methods.into_iter().map(entry).collect());
    }
    Ok(experiment)
}

/// The loads through which each method passes in its turn.
struct Course {
    loads: Vec<Load>,
    /// The number of the first load's cell.
    first: usize,
    release_memory: fn(),
}

impl Course {
    fn take<T: Measured, M: Method>(&self, make: Make<T, M>, turn: &mut Turn<'_>) {
        let held = Held::now(self.release_memory);
        let method = Clients::new(self.loads[0], make).method();
        let memory = held.since(self.loads[0].items);
        for (cell, &load) in (self.first..).zip(&self.loads) {
            if turn.is_over() {
                break;
            }
            turn.say_cell(cell);
            let program = &Clients::new(load, make);
            let outcome = turn.drive(&Ready { program, shared: &method });
            turn.record(cell, outcome, &[("bytes_per_key", memory)]);
        }
    }
}

/// Returns the contenders on the virtual machine.
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &SimNr) -> Result<Vec<Contender>, Failure> {
    let (_, chosen) = chosen::<Own>([&args.method, &args.workload], &args.work, None, true)?;
    let mut contenders = Vec::new();
    for Chosen { cells, methods } in chosen {
        for (cell, load) in cells {
            let contender = |known: &Known| Contender {
                name: known.name.to_owned(),
                cell: cell.clone(),
                program: (known.simulate)(load),
            };
            contenders.extend(methods.iter().map(contender));
        }
    }
    Ok(contenders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Progress;
    use archipelago_check::hostile::some_try;
    use clap::Parser;

    fn args(line: &str) -> Nr {
        #[derive(clap::Parser)]
        struct Just {
            #[command(flatten)]
            nr: Nr,
        }
        Just::try_parse_from(std::iter::once("nr").chain(line.split_whitespace())).unwrap().nr
    }

    /// Runs every method on every workload, small and short: the rows are complete, in order, and have their ratios.
    #[test]
    fn a_small_sweep() {
        let line = String::from(
            "--method sl,rwl,fc,fc+,nr,nr+,rwl-queued,combined-flat,combined,lf,lf-book,lf-freeing --workload all --count 500 --millis 20 --threads 2 --runs 1 --update-percent 10,100 \
             --distribution uniform,zipf:1.5 --external-work 4 --replicas 2",
        );
        let args = args(&line);
        let experiment = experiment::<Own>(&args, || {}).unwrap();
        // It may be that no thread gets a processor in a run's 20 ms.
        let rows = some_try(5, || {
            let rows = experiment.rows(&experiment.measure(&Progress::hidden()));
            if rows.iter().all(|row| row.speeds()[0] > 0.0) { Ok(rows) } else { Err("a row without operations".into()) }
        });
        assert_eq!(rows.len(), 4 * (12 + 12 + 9 + 9));
        assert!(rows.iter().all(|row| row.text("baseline") == "sl"));
        assert_eq!((rows[0].text("structure"), rows[0].real("ratio")), ("sl", Some(1.0)));
        let (updates, work) = (rows[4].whole("update_percent"), rows[4].whole("external_work"));
        assert_eq!((rows[4].text("structure"), updates, work), ("nr", Some(10), Some(4)));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--method mcs", "--method sl,lf --baseline rwl", "--workload stack", "--distribution normal"] {
            assert!(experiment::<Own>(&args(line), || {}).is_err(), "{line}");
        }
    }
}
