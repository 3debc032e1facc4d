//! `bench nr`: node replication beside locks, flat combining and a lock-free structure, on the workloads of the
//! node-replication paper (§4.1, §4.2).
//!
//! For each run, workload and thread count: every method in turn, so that the methods alternate by the second and a
//! ratio compares measurements of about the same time. A method is made anew for every workload and run, and goes
//! through all update ratios, distributions and amounts of external work, for all of which the structure keeps its size.

pub(crate) mod driver;
pub(crate) mod methods;
mod simulated;
mod skiplist;
pub(crate) mod structures;

use std::process::ExitCode;

use archipelago_platform::time::Duration;
use archipelago_replicate::{Combined, Replicated};
use archipelago_server::db::Db;
use serde_json::json;

use crate::args::{Nr, NrWork};
use crate::choose;
use crate::failure::Failure;
use crate::harness::{Command, Entry, Experiment, Turn};
use crate::report::row::{Cell, Facts};
use crate::resources::{self, Held};
use crate::roster::Roster;
use crate::workload::Distribution;
use crate::ycsb::FORMAT;
use driver::{Driven, Load};
use methods::{LockFree, Method, lock_free_keys};
pub use simulated::simulated;
use structures::{Dictionary, PriorityQueue, SortedSet, Structure};

/// The workloads.
pub const WORKLOADS: [&str; 4] = ["pqueue", "dictionary", "sorted-set", "server"];
const METHODS: [&str; 9] = ["sl", "rwl", "fc", "fc+", "nr", "nr+", "lf", "lf-freeing", "lf-crossbeam"];

/// Bytes of an item in one replica.
const ITEM: u64 = 32;

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, or the report cannot be written.
pub fn run<R: Roster>(args: &Nr, release_memory: fn()) -> Result<ExitCode, Failure> {
    let experiment = experiment::<R>(args, release_memory)?;
    Command::start(&args.common)?.run(&experiment)
}

fn experiment<R: Roster>(args: &Nr, release_memory: fn()) -> Result<Experiment<'_>, Failure> {
    let methods = choose::names("method", &args.method, &METHODS)?;
    if !R::HAS_LIST && methods.contains(&"lf-crossbeam") {
        return Err(Failure::new(
            "--method lf-crossbeam needs the feature 'peers', which this command was built without; lf does not",
        ));
    }
    let workloads = choose::names("workload", &args.workload, &WORKLOADS)?;
    let cells = cells(&args.work)?;
    resources::check_items(args.work.most_items(), ITEM.saturating_mul(args.replicas.unwrap_or(1) as u64), 0)?;
    let mut experiment = Experiment::new("node replication", &FORMAT, &args.common, 5, Some("sl"), &methods)?;
    experiment.time = Some(Duration::from_millis(args.millis as u64));
    experiment.steps = workloads.len() * methods.len() * cells.len();
    experiment.facts = Facts::from([("keys", json!("int")), ("batch", json!(0))]);
    for workload in workloads {
        let first = experiment.cells.len();
        let count = args.work.items(workload);
        for &(updates, distribution, work) in &cells {
            experiment.cell(cell(workload, updates, distribution, work, count), Facts::new());
        }
        let entry = |&method: &&'static str| {
            let cells = cells.clone();
            let take = move |turn: &mut Turn<'_>| {
                Taking { args, release_memory, method, workload, items: count, first, cells: &cells, turn }.take::<R>();
            };
            Entry { name: method, ours: false, take: Box::new(take) }
        };
        experiment.groups.push(methods.iter().map(entry).collect());
    }
    Ok(experiment)
}

/// All combinations of update ratio, distribution and external work.
///
/// # Errors
/// If a distribution is none that this benchmark has.
pub fn cells(work: &NrWork) -> Result<Vec<(u32, Distribution, usize)>, Failure> {
    let mut cells = Vec::new();
    for &update_percent in &work.update_percent {
        for text in work.distribution.split(',') {
            let distribution = Distribution::parse(text.trim())?;
            if distribution == Distribution::Latest {
                return Err(Failure::new("node replication's benchmark knows no --distribution latest"));
            }
            cells.extend(work.external_work.iter().map(|&work| (update_percent, distribution, work)));
        }
    }
    Ok(cells)
}

/// What rows say of such a combination.
pub fn cell(workload: &str, updates: u32, distribution: Distribution, external_work: usize, count: usize) -> Cell {
    Cell {
        workload: workload.to_owned(),
        update_percent: Some(updates),
        distribution: Some(distribution),
        external_work: Some(external_work),
        count: Some(count),
        details: String::new(),
    }
}

/// One method's turn at one workload.
struct Taking<'a, 't> {
    args: &'a Nr,
    release_memory: fn(),
    method: &'static str,
    workload: &'static str,
    items: usize,
    /// The number of the first of the cells.
    first: usize,
    cells: &'a [(u32, Distribution, usize)],
    turn: &'a mut Turn<'t>,
}

impl Taking<'_, '_> {
    fn take<R: Roster>(&mut self) {
        match self.workload {
            "pqueue" => self.with_structure::<R, PriorityQueue>(),
            "dictionary" => self.with_structure::<R, Dictionary>(),
            "sorted-set" => self.with_structure::<R, SortedSet>(),
            _ => self.with_structure::<R, Db>(),
        }
    }

    fn with_structure<R: Roster, T: Structure>(&mut self) {
        let items = self.items;
        match self.method {
            "sl" => self.measure::<T, _>(methods::SingleLock::<T>::new),
            "rwl" => self.measure::<T, _>(methods::ReadersWriterLock::<T>::new),
            "fc" => self.measure::<T, _>(|items| Combined::flat(T::filled(items))),
            "fc+" => self.measure::<T, _>(|items| Combined::new(T::filled(items))),
            "nr" => self.measure::<T, _>(self.replicated::<T>()),
            "nr+" => {
                let make = self.replicated::<T>();
                self.measure::<T, _>(|items| methods::ReadFirst(make(items)));
            }
            "lf" => self.lock_free::<T, LockFree<true, false>, LockFree<false, false>>(items),
            "lf-freeing" => self.lock_free::<T, LockFree<true, true>, LockFree<false, true>>(items),
            _ => self.lock_free::<T, R::List<true>, R::List<false>>(items),
        }
    }

    fn replicated<T: Structure>(&self) -> impl FnOnce(usize) -> Replicated<T> + use<T> {
        let replicas = self.args.replicas;
        move |items| {
            let builder = Replicated::builder();
            let builder = if let Some(replicas) = replicas { builder.replicas(replicas) } else { builder };
            builder.build(|| T::filled(items))
        }
    }

    /// A lock-free list as a queue or as a dictionary.
    fn lock_free<T, Queue, Dictionary>(&mut self, items: usize)
    where
        T: Structure,
        Queue: Method + FromIterator<(u64, u64)>,
        Dictionary: Method + FromIterator<(u64, u64)>,
    {
        match self.workload {
            "pqueue" => self.measure::<T, Queue>(|_| lock_free_keys(true, items).collect()),
            "dictionary" => self.measure::<T, Dictionary>(|_| lock_free_keys(false, items).collect()),
            // No lock-free structure changes two at once.
            _ => {}
        }
    }

    fn measure<T: Structure, M: Method>(&mut self, make: impl FnOnce(usize) -> M) {
        let held = Held::now(self.release_memory);
        let method = &make(self.items);
        let memory = held.since(self.items);
        for (number, &(update_percent, distribution, external_work)) in self.cells.iter().enumerate() {
            if self.turn.is_over() {
                break;
            }
            self.turn.say(&format!("{} {update_percent}%, {} threads", self.workload, self.turn.threads));
            let (key_space, seed) = (T::key_space(self.items), self.args.common.seed);
            let load = Load { update_percent, distribution, external_work, key_space, seed };
            let streams = &load.streams(self.turn.threads);
            let outcome = self.turn.drive(&Driven { method, streams, external_work: load.external_work });
            self.turn.record(self.first + number, outcome, &[("bytes_per_key", memory)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Progress;
    use crate::roster::Own;
    use clap::Parser;

    fn args(line: &str) -> Nr {
        #[derive(clap::Parser)]
        struct Just {
            #[command(flatten)]
            nr: Nr,
        }
        Just::try_parse_from(std::iter::once("nr").chain(line.split_whitespace())).unwrap().nr
    }

    /// Every method on every workload, small and short: the rows come out, in order and with their ratio.
    #[test]
    fn a_small_sweep() {
        let line = String::from(
            "--method sl,rwl,fc,fc+,nr,nr+,lf,lf-freeing --workload all --count 500 --millis 20 --threads 2 --runs 1 --update-percent 10,100 \
             --distribution uniform,zipf:1.5 --external-work 4 --replicas 2",
        );
        let args = args(&line);
        let experiment = experiment::<Own>(&args, || {}).unwrap();
        let rows = experiment.rows(&experiment.measure(&Progress::hidden()));
        assert_eq!(rows.len(), 4 * (8 + 8 + 6 + 6));
        assert!(rows.iter().all(|row| row.speeds()[0] > 0.0 && row.text("baseline") == "sl"));
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
