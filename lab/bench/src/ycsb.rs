//! `bench ycsb`: indexes under YCSB's workloads.
//!
//! An index's turn: make it, load it, run the workloads in the order of [`Workload::ALL`] (those that insert come last),
//! drop it. All indexes get the very same streams in every run.

mod drive;
mod simulated;

use std::process::ExitCode;

use serde_json::json;

use crate::args::Ycsb;
use crate::contender::{Contender, Info, Visit};
use crate::failure::Failure;
use crate::harness::{Command, Entry, Experiment, Format, Progress, Turn};
use crate::keys::{self, BenchKey, KeyKind, KeySet};
use crate::output::tell;
use crate::report::row::{Cell, Facts};
use crate::resources::{self, Held};
use crate::roster::{self, Dispatch, Roster};
use crate::workload::{Distribution, Workload};
use drive::Prepared;

pub use drive::{Plan, execute};
pub use simulated::{WARM_BEFORE_FAULTS, faults, simulated};

/// Keys, if `--count` does not say.
const DEFAULT_COUNT: usize = 10_000_000;

/// The fields of its rows, and of node replication's. `keys`: their kind, or their file; `count`: how many were loaded;
/// `bytes_per_key`: resident memory that loading added; `batch`: keys per look-up call in C, 0 for single look-ups;
/// `misses`: look-ups and scans that found nothing although the key is there, over all runs. Not 0: the index is wrong.
pub const FORMAT: Format = Format {
    name: "structure",
    keys: "structure workload keys count threads machine seed runs mops mops_min mops_max ns_per_op cpu_ns_per_op \
           bytes_per_key distribution ratio baseline ops batch pin misses partial p50_ns p90_ns p99_ns p999_ns max_ns \
           update_percent external_work paired_ratio",
};

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
        let keys = keys::words(&kind, count, plan.fresh_wanted(), args.common.seed);
        measure::<R, _>(command, experiment, plan, &kind, &keys)
    }
}

fn plan<R: Roster>(args: &Ycsb, kind: &KeyKind, release: fn()) -> Result<(Plan, Experiment<'static>), Failure> {
    let mut indexes = roster::select::<R>(&args.index)?;
    indexes.retain(|info| info.bytes || !kind.is_bytes());
    if indexes.is_empty() {
        let (index, kind) = (&args.index, kind.name());
        return Err(Failure::new(format!("--index {index}: none of them can be timed with {kind} keys")));
    }
    let names: Vec<&str> = indexes.iter().map(|info| info.name).collect();
    let experiment = Experiment::new("YCSB", &FORMAT, &args.common, 3, None, &names)?;
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
        KeyKind::File(path) => keys::from_file(path, args.count, plan.fresh_wanted(), seed)?,
        _ => {
            let count = args.count.unwrap_or(DEFAULT_COUNT);
            check_memory(count, 56, plan, experiment)?;
            return Ok(keys::emails(count, plan.fresh_wanted(), seed));
        }
    };
    remarks(&keys, args.count).for_each(|remark| tell(format!("{}: {remark}", kind.name())));
    let bytes: usize = keys.loaded.iter().map(BenchKey::footprint).sum();
    check_memory(keys.loaded.len(), bytes / keys.loaded.len().max(1), plan, experiment)?;
    Ok(keys)
}

/// What is to be known of the keys of a file.
fn remarks(keys: &KeySet<Vec<u8>>, count: Option<usize>) -> impl Iterator<Item = String> {
    let (loaded, fresh) = (keys.loaded.len(), keys.fresh.len());
    let returns = keys.loaded.iter().chain(&keys.fresh).filter(|key| key.ends_with(b"\r")).count();
    let repeated = format!("{} lines repeat an earlier one and are used once.", keys.duplicates);
    let held_back = format!(
        "{loaded} of {} keys are loaded; the others are held back for the workloads that insert, d and e.",
        loaded + fresh
    );
    let ended = format!("{returns} lines end with a carriage return (\\r), which is taken for a part of the key.");
    let remarks = [(keys.duplicates > 0, repeated), (fresh > 0 && count.is_none(), held_back), (returns > 0, ended)];
    remarks.into_iter().filter_map(|(holds, remark)| holds.then_some(remark))
}

/// Whether keys, streams and the largest index fit.
fn check_memory(count: usize, key_bytes: usize, plan: &Plan, experiment: &Experiment<'_>) -> Result<(), Failure> {
    // The hungriest peers take about 130 bytes and a copy of the key.
    let keys = (count as u64).saturating_mul(2 * key_bytes as u64 + 130);
    let ops = |workload: &Workload| (workload.share(plan.ops) as u64).saturating_mul(experiment.threads.len() as u64);
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
    leave_out_unfit(&mut plan, keys)?;
    let streams = prepare(&plan, &empty, keys, &command.progress);
    let mut experiment = empty;
    fill::<R, K>(&mut experiment, &plan, kind, keys, &streams);
    command.run(&experiment)
}

/// The streams of every workload, for each thread count.
pub fn prepare<K: BenchKey>(
    plan: &Plan,
    experiment: &Experiment<'_>,
    keys: &KeySet<K>,
    progress: &Progress,
) -> Vec<Vec<Prepared<K>>> {
    experiment.threads.iter().map(|threads| drive::prepare(plan, keys, *threads, experiment.seed, progress)).collect()
}

/// Adds the cells and the contenders.
pub fn fill<'a, R: Dispatch<K>, K: BenchKey>(
    experiment: &mut Experiment<'a>,
    plan: &'a Plan,
    kind: &KeyKind,
    keys: &'a KeySet<K>,
    streams: &'a [Vec<Prepared<K>>],
) {
    for &workload in &plan.workloads {
        let batch = if workload == Workload::C { plan.batch } else { 0 };
        let (distribution, count) = (Some(plan.distribution), Some(keys.loaded.len()));
        let cell = Cell { distribution, count, ..Cell::of(workload.name()) };
        experiment.cell(cell, vec![("batch", json!(batch))]);
    }
    experiment.facts = Facts::from([("keys", json!(kind.name()))]);
    experiment.steps = plan.indexes.len() * streams.first().map_or(0, Vec::len);
    let entry = |info: &&'static Info| {
        let info = *info;
        let take = move |turn: &mut Turn<'_>| {
            let of_turn = streams.iter().find(|streams| streams[0].streams.len() == turn.threads);
            let streams = of_turn.expect("streams were made for every thread count");
            R::dispatch(info, &mut One { plan, keys, streams, turn });
        };
        Entry { name: info.name, ours: info.ours, take: Box::new(take) }
    };
    experiment.groups = vec![plan.indexes.iter().map(entry).collect()];
}

/// Leaves out the indexes that cannot hold these keys, and says so.
fn leave_out_unfit<K: BenchKey>(plan: &mut Plan, keys: &KeySet<K>) -> Result<(), Failure> {
    let all = || keys.loaded.iter().chain(&keys.fresh);
    // Words have zero bytes, too, but every index takes them.
    let words = size_of::<K::Raw>() == 8;
    let zero_bytes = !words && all().any(|key| key.with_raw(|raw| raw.contains(&0)));
    let longest = all().map(|key| key.with_raw(<[u8]>::len)).max().unwrap_or(0);
    plan.indexes.retain(|info| {
        let reason = match () {
            () if zero_bytes && !info.zero_bytes => "keys with zero bytes",
            () if longest > info.longest_key => "keys of this length",
            () => return true,
        };
        tell(format!("{} is left out: it does not take {reason}.", info.name));
        false
    });
    if plan.indexes.is_empty() { Err(Failure::new("none of the chosen indexes takes these keys")) } else { Ok(()) }
}

/// One index's turn.
struct One<'a, 't, K> {
    plan: &'a Plan,
    keys: &'a KeySet<K>,
    streams: &'a [Prepared<K>],
    turn: &'a mut Turn<'t>,
}

impl<K: BenchKey> Visit<K> for One<'_, '_, K> {
    fn visit<I: Contender<K>>(&mut self, _: &'static Info) {
        let held = Held::now(self.plan.release_memory);
        let index = I::empty();
        let mut bytes_per_key = None;
        for prepared in self.streams {
            if self.turn.is_over() {
                return;
            }
            self.turn.say(&format!("{}, {} threads", prepared.workload.name(), self.turn.threads));
            let work = prepared.work(self.plan, &self.keys.loaded);
            let outcome = self.turn.drive(&drive::Index { index: &index, work, batch: self.plan.batch });
            if prepared.workload == Workload::Load {
                bytes_per_key = held.since(self.keys.loaded.len());
            }
            match self.plan.workloads.iter().position(|workload| *workload == prepared.workload) {
                Some(cell) => self.turn.record(cell, outcome, &[("bytes_per_key", bytes_per_key)]),
                None => self.turn.pass(),
            }
        }
        self.turn.say("is dropped");
        drop(index);
        (self.plan.release_memory)();
    }
}
