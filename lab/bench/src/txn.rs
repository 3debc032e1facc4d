//! `bench txn` and `sim txn`: transactions under every scheme (kind of concurrency control) over every map, beside a
//! store with one lock over everything, and on the real machine beside stores of other authors.
//!
//! | workload | a transaction |
//! |---|---|
//! | `ycsb`, `ycsb-10` | sixteen requests on rows of one column, or of ten columns, of 100 bytes; a read adds up a column |
//! | `ycsb-words` | as `ycsb`, with requests as in DBx1000: a read reads one word, and popular rows are neighbours |
//! | `ycsb-words-together` | as `ycsb-words`; each transaction first asks for all of its rows together |
//! | `reports`, `reports-by-views` | as `ycsb`; one transaction in a thousand reads the whole table, in a transaction or in a snapshot |
//! | `smallbank` | one of SmallBank's six transactions |
//! | `tpcc` | one of TPC-C's five transactions, in TPC-C's mix; each thread has a home warehouse of its own if there are enough |
//! | `tpcc-pair` | New-Order or Payment, half each |
//!
//! The state that a run leaves is checked: TPC-C's twelve consistency conditions hold, no update is lost, and no money
//! is lost. A row states the isolation of its contender's transactions. Write skews (in SmallBank) fail the run of a
//! contender that is serializable. Under snapshot isolation they are counted, in the field `write_skews`.

use std::process::ExitCode;

use archipelago_platform::SIMULATED;
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::sync::Mutex;
use archipelago_platform::time::{Duration, Instant};
use archipelago_platform::touch_mut;
use archipelago_workloads::Isolation;
use archipelago_workloads::arena::{Arena, Client};
use archipelago_workloads::catalog::{self, Known, Workload};
use archipelago_workloads::tpcc::Scale;
use archipelago_workloads::ycsb::{Load, Reports, Requests};

use crate::args::{SimCommon, Timed, Txn};
use crate::choose;
use crate::failure::Failure;
use crate::harness::program::{Done, Program, Turns};
use crate::harness::simulated::{self, Contender};
use crate::harness::{Command, Entry, Experiment};
use crate::report::row::Cell;
use crate::resources;
use crate::rivals::htm_btree::HtmBTree;
use crate::rivals::indexes::choice;
use crate::rivals::masstree::Masstree;
use crate::roster::Roster;
use crate::workload::Distribution;

/// Silo over rivals' trees.
static SILO_OVER_RIVALS: [Known; 2] = [
    Known::silo_over("silo-htm-btree", choice::<HtmBTree>("HtmBTree")),
    Known::silo_over("silo-masstree-like", choice::<Masstree<u64>>("MasstreeLike")),
];

/// Bytes of a row with its record, in the workload that needs the most memory, except TPC-C.
const ITEM: u64 = 1_400;
/// Bytes of a warehouse in TPC-C's full scale.
const WAREHOUSE: u64 = 250 << 20;
/// The same, with the model of its cache lines, on the virtual machine. It is an estimate, not a measurement.
const SIMULATED_WAREHOUSE: u64 = 1_100 << 20;
/// By how much a warehouse in the small scale is smaller.
const SMALLER: u64 = 100;

/// A workload in a store. In TPC-C, 0 warehouses mean one per thread.
#[derive(Clone, Copy)]
struct Clients {
    store: &'static Known,
    workload: Workload,
}

/// A loaded workload, and the counts of its clients.
struct Shared {
    arena: Box<dyn Arena>,
    /// Attempts beyond the first, of all clients together.
    repeated: AtomicU64,
    /// For each kind of transaction: transactions, attempts beyond the first, rollbacks, nanoseconds.
    kinds: Mutex<Vec<[u64; 4]>>,
}

impl Program for Clients {
    type Shared = Shared;

    fn setup(&self, threads: usize, seed: u64) -> Shared {
        let workload = match self.workload {
            Workload::Tpcc { warehouses: 0, scale, pair } => {
                Workload::Tpcc { warehouses: threads.min(usize::from(u16::MAX)) as u16, scale, pair }
            }
            other => other,
        };
        let arena = self.store.load(workload, seed);
        let kinds = Mutex::new(vec![[0; 4]; arena.kinds().len()]);
        Shared { arena, repeated: AtomicU64::new(0), kinds }
    }

    fn body(&self, shared: &Shared, turns: &mut impl Turns) {
        let mut client = shared.arena.client(turns.thread(), turns.seed());
        let mut kinds = vec![[0; 4]; shared.arena.kinds().len()];
        turns.go(usize::MAX, |_| one(&mut *client, &mut kinds), || ());
        // Dropping the client publishes its counts before they are checked.
        drop(client);
        // Relaxed: the sum is read after the threads were joined.
        shared.repeated.fetch_add(kinds.iter().map(|kind| kind[1]).sum(), Ordering::Relaxed);
        let mut all = shared.kinds.lock().expect("no client panics with the lock");
        touch_mut(all.as_ptr(), size_of_val(&all[..]));
        all.iter_mut().zip(kinds).for_each(|(all, own)| (0..4).for_each(|at| all[at] += own[at]));
    }

    fn retries(&self, shared: &Shared) -> Option<u64> {
        Some(shared.repeated.load(Ordering::Relaxed))
    }

    fn wrong(&self, shared: &Shared) -> Option<String> {
        shared.arena.check_at(self.store.isolation).err()
    }

    fn isolation(&self) -> Option<&'static str> {
        Some(match self.store.isolation {
            Isolation::Serializable => "serializable",
            Isolation::Snapshot => "snapshot",
        })
    }

    fn skews(&self, shared: &Shared) -> Option<u64> {
        let counted = matches!(self.workload, Workload::SmallBank(_)) && self.store.isolation == Isolation::Snapshot;
        // The skews are counted anew: a counter among the shared data would move other shared data to other cache
        // lines.
        counted.then(|| shared.arena.check_at(self.store.isolation)).and_then(Result::ok)
    }

    fn notes(&self, shared: &Shared) -> Vec<String> {
        let kinds = shared.kinds.lock().expect("no client panics with the lock");
        let told = shared.arena.kinds().iter().zip(&*kinds).filter(|(_, kind)| kind[0] > 0);
        let note = |(name, [count, repeated, rolled_back, ns]): (&&str, &[u64; 4])| {
            let each = |sum: u64| sum as f64 / *count as f64;
            let (aborts, back, micros) = (each(*repeated), 100.0 * each(*rolled_back), each(*ns) / 1e3);
            format!("{name}: {count} transactions, {aborts:.4} aborts and {micros:.1} us each, {back:.2} % rolled back")
        };
        let skews = self.skews(shared).map(|skews| format!("{skews} write skews, which snapshot isolation permits"));
        told.map(note).chain(skews).collect()
    }
}

/// Runs one transaction.
fn one(client: &mut dyn Client, kinds: &mut [[u64; 4]]) -> Done {
    // On the virtual machine (a simulator), reading the clock would be an access of its own.
    let start = (!SIMULATED).then(Instant::now);
    let turn = client.turn();
    let ns = start.map_or(0, |start| start.elapsed().as_nanos() as u64);
    let kind = &mut kinds[turn.kind];
    let more = [1, turn.begun - 1, u64::from(turn.rolled_back), ns];
    (0..4).for_each(|at| kind[at] += more[at]);
    Done::updated(turn.writes)
}

/// The workloads' names.
const WORKLOADS: [&str; 9] = [
    "ycsb",
    "ycsb-10",
    "ycsb-words",
    "ycsb-words-together",
    "reports",
    "reports-by-views",
    "smallbank",
    "tpcc",
    "tpcc-pair",
];

/// Returns the stores that a comma-separated list names; `all`, `silo` and `schemes` stand for several.
fn chosen(list: &str, stores: &[&'static Known]) -> Result<Vec<&'static Known>, Failure> {
    // Stores that are serializable, in memory only, and have a database's default clock.
    let plain = |name: &str| !["snapshot", "logged", "ordered"].iter().any(|other| name.contains(other));
    let rival = |name: &str| SILO_OVER_RIVALS.iter().any(|store| store.name == name);
    let silo = |name: &'static str| plain(name) && name.starts_with("silo-") && !rival(name);
    let schemes = |name: &'static str| plain(name) && name.ends_with("-hydralist");
    let groups: [choose::Group<'_, _>; 2] = [("silo", &silo), ("schemes", &schemes)];
    let names: Vec<&'static str> = stores.iter().map(|store| store.name).collect();
    let named = choose::choose("store", list, &names, |name| name, &groups)?;
    Ok(named.iter().filter_map(|name| stores.iter().find(|store| store.name == *name)).copied().collect())
}

/// Returns all stores except peers.
fn ours() -> impl Iterator<Item = &'static Known> {
    catalog::stores().chain(&SILO_OVER_RIVALS)
}

/// Returns a cell (a workload with its parameters) for each workload, exponent and percentage of updates.
fn cells<C: clap::Args>(args: &Txn<C>, rows: usize, whole: bool) -> Result<Vec<(Cell, Workload)>, Failure> {
    let rows = args.count.unwrap_or(rows);
    let mut cells = Vec::new();
    for workload in choose::names("workload", &args.workload, &WORKLOADS)? {
        if let "smallbank" = workload {
            let cell = Cell { count: Some(rows.max(2)), ..Cell::of(workload) };
            cells.push((cell, Workload::SmallBank(rows.max(2) as u64)));
        } else if workload.starts_with("tpcc") {
            let scale = if args.whole || whole && !args.small { Scale::WHOLE } else { Scale::SMALL };
            let numbers = if args.warehouses.is_empty() { &[0][..] } else { &args.warehouses };
            cells.extend(numbers.iter().map(|&number| tpcc(workload, number as u16, scale, numbers.len() > 1)));
        } else {
            ycsb(args, workload, rows, &mut cells);
        }
    }
    Ok(cells)
}

/// Returns TPC-C's cell with this many warehouses; 0 stands for one for each thread. `several` tells whether there are
/// cells with other numbers.
fn tpcc(workload: &'static str, warehouses: u16, scale: Scale, several: bool) -> (Cell, Workload) {
    let many = if warehouses == 0 { "a warehouse a thread".into() } else { format!("{warehouses} warehouses") };
    let scaled = if scale == Scale::WHOLE { "" } else { ", SCALED: 1,000 items, 30 customers a district" };
    let details = format!("{many}{scaled}");
    let cell = Cell { details, among: several.then_some(many), ..Cell::of(workload) };
    (cell, Workload::Tpcc { warehouses, scale, pair: workload == "tpcc-pair" })
}

/// Adds the cells of a workload of YCSB.
fn ycsb<C: clap::Args>(args: &Txn<C>, workload: &'static str, rows: usize, cells: &mut Vec<(Cell, Workload)>) {
    let reports = match workload {
        "reports" => Reports::Transactions,
        "reports-by-views" => Reports::Views,
        _ => Reports::None,
    };
    let requests = match workload {
        "ycsb-words" => Requests::Words,
        "ycsb-words-together" => Requests::Together,
        _ => Requests::Columns,
    };
    for &theta in &args.theta {
        for &updates in &args.update_percent {
            let load = Load { rows: rows as u64, theta, updates, reports, requests };
            let distribution = if theta > 0.0 { Distribution::Zipf(theta) } else { Distribution::Uniform };
            let (update_percent, distribution, count) = (Some(updates), Some(distribution), Some(rows));
            let cell = Cell { update_percent, distribution, count, ..Cell::of(workload) };
            cells.push((cell, if workload == "ycsb-10" { Workload::Ycsb10(load) } else { Workload::Ycsb(load) }));
        }
    }
}

/// Checks that the warehouses of these cells fit into the available memory, each of `whole` bytes in TPC-C's full scale.
///
/// # Errors
/// If they do not fit.
fn check_warehouses(cells: &[(Cell, Workload)], threads: usize, whole: u64) -> Result<(), Failure> {
    for (_, workload) in cells {
        let Workload::Tpcc { warehouses, scale, .. } = *workload else { continue };
        let most = if warehouses == 0 { threads as u64 } else { warehouses.into() };
        let (each, more) = match scale {
            Scale::WHOLE => (whole, ", or --small"),
            _ => (whole / SMALLER, ""),
        };
        let try_this = format!("fewer --warehouses{more}");
        resources::check_memory(most.saturating_mul(each), &format!("{most} warehouses"), &try_this)?;
    }
    Ok(())
}

/// Checks that the warehouses fit into the available memory on the virtual machine, with this many threads at most.
///
/// # Errors
/// If they do not fit, or a name is not known.
pub fn check_simulated(args: &Txn<SimCommon>, threads: usize) -> Result<(), Failure> {
    check_warehouses(&simulated_cells(args)?, threads, SIMULATED_WAREHOUSE)
}

fn simulated_cells(args: &Txn<SimCommon>) -> Result<Vec<(Cell, Workload)>, Failure> {
    cells(args, 10_000, false)
}

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, a run leaves an inconsistent state, or the report cannot be written.
pub fn run<R: Roster>(args: &Txn<Timed>) -> Result<ExitCode, Failure> {
    let Timed { common, millis } = &args.common;
    resources::check_items(args.count.unwrap_or(0), ITEM, 0)?;
    let cells = cells(args, 100_000, true)?;
    check_warehouses(&cells, common.threads().into_iter().max().unwrap_or(1), WAREHOUSE)?;
    let stores: Vec<_> = ours().chain(R::STORES).collect();
    let chosen = chosen(&args.store, &stores)?;
    let entries = |(at, (cell, workload)): (usize, (Cell, Workload))| {
        let entry = |store: &&'static Known| Entry::of(store.name, at, Clients { store, workload });
        (cell, chosen.iter().map(entry).collect())
    };
    let cells = cells.into_iter().enumerate().map(entries).collect();
    let time = Duration::from_millis(*millis as u64);
    Command::start(common)?.run(&Experiment::in_cells("txn", common, "lock", time, cells)?)
}

/// Returns the contenders on the virtual machine, without stores of other authors.
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &Txn<SimCommon>) -> Result<Vec<Contender>, Failure> {
    let stores: Vec<_> = ours().collect();
    let chosen = chosen(&args.store, &stores)?;
    let mut contenders = Vec::new();
    for (cell, workload) in simulated_cells(args)? {
        let contender = |store: &&'static Known| {
            let program = simulated::program(Clients { store, workload });
            Contender { name: store.name.to_owned(), cell: cell.clone(), program }
        };
        contenders.extend(chosen.iter().map(contender));
    }
    Ok(contenders)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Warehouses are counted whatever the list of workloads and the scale are.
    #[test]
    fn warehouses_must_have_room() {
        let cells = |warehouses, scale| {
            let workload = Workload::Tpcc { warehouses, scale, pair: false };
            [(Cell::of("smallbank"), Workload::SmallBank(2)), (Cell::of("tpcc"), workload)]
        };
        let checked = |warehouses, scale, threads| check_warehouses(&cells(warehouses, scale), threads, 1 << 60);
        for (warehouses, scale, threads) in
            [(16, Scale::WHOLE, 1), (u16::MAX, Scale::SMALL, 1), (0, Scale::WHOLE, 1 << 40), (0, Scale::SMALL, 1 << 40)]
        {
            let said = checked(warehouses, scale, threads).unwrap_err().to_string();
            assert!(said.contains("try fewer --warehouses"), "{said}");
            assert_eq!(said.contains("or --small"), scale == Scale::WHOLE, "{said}");
        }
        assert!(check_warehouses(&cells(1, Scale::SMALL), 1, WAREHOUSE).is_ok());
    }

    #[test]
    fn groups_are_maps_and_schemes() {
        let stores: Vec<_> = ours().collect();
        let names = |list| chosen(list, &stores).unwrap().iter().map(|store| store.name).collect::<Vec<_>>();
        let maps = ["hydralist", "art", "blink", "euno-btree", "euno-skiplist"];
        assert_eq!(names("silo"), maps.map(|map| format!("silo-{map}")));
        let schemes = ["silo", "tictoc", "no-wait", "wait-die", "hekaton", "mvrlu"];
        assert_eq!(names("schemes"), schemes.map(|scheme| format!("{scheme}-hydralist")));
        // No name occurs twice.
        assert_eq!(names("all").len(), stores.len());
    }
}
