//! `bench ycsb` and `sim ycsb`: indexes under YCSB's workloads.
//!
//! An index's turn: the index is made and loaded, the workloads run in the order of [`Workload::ALL`] (those that
//! insert come last), and the index is dropped. All indexes have the same streams in every run. On the virtual machine
//! (a simulator) an index is made and loaded anew for each workload. Loading takes no virtual time, so the workload
//! `load` inserts further keys.

mod clients;
mod faults;
mod plan;

use std::process::ExitCode;

use archipelago_platform::pad::CachePadded;
use serde_json::json;

use crate::args::{SimYcsb, Ycsb};
use crate::contender::{BenchIndex, Info, Visit};
use crate::failure::Failure;
use crate::harness::driver::Ready;
use crate::harness::simulated;
use crate::harness::{Command, Entry, Experiment, Format, Progress, Turn};
use crate::keys::{self, BenchKey, KeyKind, KeySet};
use crate::output::tell;
use crate::report::row::{Cell, Facts};
use crate::resources::{self, Held};
use crate::roster::{self, Dispatch, Own, Roster};
use crate::workload::{Distribution, Workload};
use clients::{Clients, Shared, Work};
use plan::Prepared;

pub use faults::{WARM_BEFORE_FAULTS, faults};
pub use plan::Plan;

/// The number of keys if `--count` is not given.
const DEFAULT_COUNT: usize = 10_000_000;

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, the keys cannot be read, there is too little memory, or a report cannot be written.
pub fn run<R: Roster>(args: &Ycsb, release_memory: fn()) -> Result<ExitCode, Failure> {
    let kind = KeyKind::parse(&args.keys);
    let (plan, experiment) = plan::<R>(args, &kind, release_memory)?;
    let command = Command::start(&args.common)?;
    command.progress.say(format!("making or reading {} keys", kind.name()));
    if kind.is_bytes() {
        let keys = byte_keys(args, &kind, &plan, &experiment)?;
        measure::<R, _>(command, experiment, plan, &kind, &keys)
    } else {
        let count = args.count.unwrap_or(DEFAULT_COUNT);
        check_memory(count, 8, &plan, &experiment)?;
        let keys = keys::words(&kind, count, plan.fresh_wanted(count), args.common.seed);
        measure::<R, _>(command, experiment, plan, &kind, &keys)
    }
}

fn plan<R: Roster>(args: &Ycsb, kind: &KeyKind, release: fn()) -> Result<(Plan, Experiment<'static>), Failure> {
    let mut indexes = roster::select::<R>(&args.index, false)?;
    indexes.retain(|info| info.bytes || !kind.is_bytes());
    if indexes.is_empty() {
        let (index, kind) = (&args.index, kind.name());
        return Err(Failure::new(format!("--index {index}: none of them can be timed with {kind} keys")));
    }
    let names: Vec<&str> = indexes.iter().map(|info| info.name).collect();
    let experiment = Experiment::new("YCSB", &Format::OF_MAPS, &args.common, 3, None, &names)?;
    let (workloads, distribution) = (Workload::parse_list(&args.workload)?, Distribution::parse(&args.distribution)?);
    let (ops, batch, release_memory) = (args.ops, args.batch.unwrap_or(0), release);
    Ok((Plan { indexes, workloads, ops, distribution, batch, release_memory }, experiment))
}

fn byte_keys(
    args: &Ycsb,
    kind: &KeyKind,
    plan: &Plan,
    experiment: &Experiment<'_>,
) -> Result<KeySet<Vec<u8>>, Failure> {
    let seed = args.common.seed;
    let keys = match kind {
        KeyKind::File(path) => {
            // Without a count, a fifth of the file is enough for the workload that needs most.
            let fresh = plan.fresh_wanted(args.count.unwrap_or(usize::MAX));
            keys::from_file(path, args.count, fresh, seed)?
        }
        _ => {
            let count = args.count.unwrap_or(DEFAULT_COUNT);
            check_memory(count, 56, plan, experiment)?;
            return Ok(keys::emails(count, plan.fresh_wanted(count), seed));
        }
    };
    remarks(&keys, args.count).for_each(|remark| tell(format!("{}: {remark}", kind.name())));
    let bytes: usize = keys.loaded.iter().map(BenchKey::footprint).sum();
    check_memory(keys.loaded.len(), bytes / keys.loaded.len().max(1), plan, experiment)?;
    Ok(keys)
}

/// Returns remarks on the keys of a file.
fn remarks(keys: &KeySet<Vec<u8>>, count: Option<usize>) -> impl Iterator<Item = String> {
    let (loaded, fresh) = (keys.loaded.len(), keys.fresh.len());
    let returns = keys.loaded.iter().chain(&keys.fresh).filter(|key| key.ends_with(b"\r")).count();
    let repeated = format!("{} lines repeat an earlier one and are used once.", keys.duplicates);
    let held_back = format!(
        "{loaded} of {} keys are loaded; the others are held back for the workloads that insert, d, e and grow.",
        loaded + fresh
    );
    let ended = format!("{returns} lines end with a carriage return (\\r), which is taken for a part of the key.");
    let remarks = [(keys.duplicates > 0, repeated), (fresh > 0 && count.is_none(), held_back), (returns > 0, ended)];
    remarks.into_iter().filter_map(|(holds, remark)| holds.then_some(remark))
}

/// Checks that the keys, the streams and the largest index fit into memory.
fn check_memory(count: usize, key_bytes: usize, plan: &Plan, experiment: &Experiment<'_>) -> Result<(), Failure> {
    // The peers that need the most memory take about 130 bytes and a copy of the key.
    let all = count.saturating_add(plan.fresh_wanted(count)) as u64;
    let keys = all.saturating_mul(2 * key_bytes as u64 + 130);
    let ops =
        |workload: &Workload| (plan.most_ops(*workload, count) as u64).saturating_mul(experiment.threads.len() as u64);
    let ops = plan.workloads.iter().map(ops).fold(0, u64::saturating_add);
    let needed = keys.saturating_add(ops.saturating_mul(key_bytes as u64 + 2));
    resources::check_memory(needed, &format!("{count} keys"), "a smaller --count (or --ops)")
}

fn measure<R: Dispatch<K>, K: BenchKey>(
    command: Command<'_>,
    empty: Experiment<'static>,
    mut plan: Plan,
    kind: &KeyKind,
    keys: &KeySet<K>,
) -> Result<ExitCode, Failure> {
    leave_out_unfit::<R, K>(&mut plan, keys)?;
    let streams = prepare(&plan, &empty, keys, &command.progress);
    let mut experiment = empty;
    fill::<R, K>(&mut experiment, &plan, kind, keys, &streams);
    command.run(&experiment)
}

/// Makes the streams of every workload, for each thread count.
pub fn prepare<K: BenchKey>(
    plan: &Plan,
    experiment: &Experiment<'_>,
    keys: &KeySet<K>,
    progress: &Progress,
) -> Vec<Vec<Prepared<K>>> {
    experiment.threads.iter().map(|threads| plan::prepare(plan, keys, *threads, experiment.seed, progress)).collect()
}

/// Adds the cells and the contenders.
pub fn fill<'a, R: Dispatch<K>, K: BenchKey>(
    experiment: &mut Experiment<'a>,
    plan: &'a Plan,
    kind: &'a KeyKind,
    keys: &'a KeySet<K>,
    streams: &'a [Vec<Prepared<K>>],
) {
    for &workload in &plan.workloads {
        let batch = if workload == Workload::C { plan.batch } else { 0 };
        let (distribution, count) = (Some(plan.distribution), Some(keys.loaded.len()));
        let cell = Cell { distribution, count, ..Cell::of(workload.name()) };
        experiment.cell(cell, vec![("batch", json!(batch))]);
    }
    experiment.facts = Facts::from([("keys", json!(kind.name())), ("ops_asked", json!(plan.ops))]);
    experiment.steps = plan.indexes.len() * streams.first().map_or(0, Vec::len);
    let entry = |info: &&'static Info| {
        let info = *info;
        let take = move |turn: &mut Turn<'_>| {
            let of_turn = streams.iter().find(|streams| streams[0].streams.len() == turn.threads);
            let streams = of_turn.expect("streams were made for every thread count");
            R::dispatch(info, &mut One { plan, kind, keys, streams, turn });
        };
        Entry { name: info.name, ours: info.ours, facts: Facts::new(), take: Box::new(take) }
    };
    experiment.groups = vec![plan.indexes.iter().map(entry).collect()];
}

/// Removes the indexes that cannot hold these keys, or cannot run these workloads, and reports this.
fn leave_out_unfit<R: Dispatch<K>, K: BenchKey>(plan: &mut Plan, keys: &KeySet<K>) -> Result<(), Failure> {
    let all = || keys.loaded.iter().chain(&keys.fresh);
    // An integer key may contain zero bytes, too, but every index accepts integers.
    let words = size_of::<K::Raw>() == 8;
    let zero_bytes = !words && all().any(|key| key.with_raw(|raw| raw.contains(&0)));
    let longest = all().map(|key| key.with_raw(<[u8]>::len)).max().unwrap_or(0);
    let scans = plan.workloads.contains(&Workload::E);
    plan.indexes.retain(|info| {
        let reason = match () {
            () if zero_bytes && !info.zero_bytes => "it does not take keys with zero bytes",
            () if longest > info.longest_key => "it does not take keys of this length",
            () if scans && !roster::has_scans::<R, K>(info) => "it has no scans, which the workload e needs",
            () => return true,
        };
        tell(format!("{} is left out: {reason}.", info.name));
        false
    });
    if plan.indexes.is_empty() {
        Err(Failure::new("none of the chosen indexes takes these keys and workloads"))
    } else {
        Ok(())
    }
}

/// One index's turn.
struct One<'a, 't, K> {
    plan: &'a Plan,
    kind: &'a KeyKind,
    keys: &'a KeySet<K>,
    streams: &'a [Prepared<K>],
    turn: &'a mut Turn<'t>,
}

impl<K: BenchKey> Visit<K> for One<'_, '_, K> {
    fn made<I: BenchIndex<K>>(&mut self, _: &'static Info, empty: fn() -> I) {
        let held = Held::now(self.plan.release_memory);
        let mut index = empty();
        index.reserve(self.keys.loaded.len());
        let mut shared = Shared { index, parts: CachePadded::default() };
        let mut bytes_per_key = None;
        for prepared in self.streams {
            if self.turn.is_over() {
                return;
            }
            self.turn.say(&format!("{}, {} threads", prepared.workload.name(), self.turn.threads));
            let (distribution, count) = (self.plan.distribution, self.keys.loaded.len());
            let work = Work { workload: prepared.workload, distribution, keys: self.kind.clone(), count };
            *shared.parts = prepared.parts(self.plan, &self.keys.loaded);
            resources::warm_memory(self.plan.bytes_taken(prepared.workload, count));
            let outcome = self.turn.drive(&Ready { program: &Clients::new(work, empty), shared: &shared });
            if prepared.workload == Workload::Load {
                bytes_per_key = held.since(self.keys.loaded.len());
            }
            match self.plan.workloads.iter().position(|workload| *workload == prepared.workload) {
                Some(cell) => self.turn.record(cell, outcome, &[("bytes_per_key", bytes_per_key)]),
                None => self.turn.pass(),
            }
        }
        self.turn.say("is dropped");
        drop(shared);
        (self.plan.release_memory)();
    }
}

/// Returns the contenders on the virtual machine.
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &SimYcsb) -> Result<Vec<simulated::Contender>, Failure> {
    match KeyKind::parse(&args.keys) {
        KeyKind::File(_) => {
            let (wrong, known) = (&args.keys, KeyKind::NAMES);
            Err(Failure::new(format!("--keys {wrong} is not known; known are {known}")))
        }
        kind if kind.is_bytes() => simulated_with::<Vec<u8>>(args, &kind),
        kind => simulated_with::<u64>(args, &kind),
    }
}

fn simulated_with<K: BenchKey>(args: &SimYcsb, kind: &KeyKind) -> Result<Vec<simulated::Contender>, Failure>
where
    Own: Dispatch<K>,
{
    let mut indexes = roster::select::<Own>(&args.index, true)?;
    indexes.retain(|info| info.bytes || !kind.is_bytes());
    let distribution = Distribution::parse(&args.distribution)?;
    let mut contenders = Vec::new();
    for workload in Workload::parse_list(&args.workload)? {
        let has_scans = |info: &&'static Info| workload != Workload::E || roster::has_scans::<Own, K>(info);
        let (indexes, left_out): (Vec<_>, Vec<_>) = indexes.iter().copied().partition(has_scans);
        left_out.iter().for_each(|info| tell(format!("{} is left out of the workload e: it has no scans.", info.name)));
        for count in args.counts() {
            let work = Work { workload, distribution, keys: kind.clone(), count };
            let details = format!("{} keys", kind.name());
            let (distribution, count) = (Some(distribution), Some(count));
            let among = (args.count.len() > 1).then(|| format!("{} keys", work.count));
            let cell = Cell { distribution, count, details, among, ..Cell::of(workload.name()) };
            for info in &indexes {
                let work = work.clone();
                Own::dispatch(info, &mut Simulate { work, cell: &cell, contenders: &mut contenders });
            }
        }
    }
    if contenders.is_empty() {
        let (index, workload) = (&args.index, &args.workload);
        return Err(Failure::new(format!("--index {index}: none of them can run --workload {workload}")));
    }
    Ok(contenders)
}

/// Adds an index's program to the contenders.
struct Simulate<'a> {
    work: Work,
    cell: &'a Cell,
    contenders: &'a mut Vec<simulated::Contender>,
}

impl<K: BenchKey> Visit<K> for Simulate<'_> {
    fn made<I: BenchIndex<K>>(&mut self, info: &'static Info, empty: fn() -> I) {
        let program = simulated::program(Clients::<K, I>::new(self.work.clone(), empty));
        self.contenders.push(simulated::Contender { name: info.name.to_owned(), cell: self.cell.clone(), program });
    }
}
