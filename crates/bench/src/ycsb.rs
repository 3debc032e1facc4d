//! `bench ycsb`: from the arguments to the reports.

use std::process::ExitCode;

use archipelago_platform::thread::available_parallelism;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::Ycsb;
use crate::contender::Info;
use crate::driver::Settings;
use crate::failure::Failure;
use crate::interrupt;
use crate::keys::{self, BenchKey, KeyKind, KeySet};
use crate::measure::{self, Plan, Results};
use crate::report::{self, Common};
use crate::resources;
use crate::roster::{self, Dispatch, Roster};
use crate::workload::{Distribution, Workload};

/// Keys, if `--count` does not say.
const DEFAULT_COUNT: usize = 10_000_000;

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, the keys cannot be read, there is too little memory, or a report cannot be written.
pub fn run<R: Roster>(args: &Ycsb, release_memory: fn()) -> Result<ExitCode, Failure> {
    let kind = KeyKind::parse(&args.keys);
    let plan = plan::<R>(args, &kind, release_memory)?;
    interrupt::install();
    if kind.is_bytes() {
        let keys = byte_keys(args, &kind, &plan)?;
        measure_and_report::<R, _>(args, &kind, plan, &keys)
    } else {
        check_memory(args.count.unwrap_or(DEFAULT_COUNT), 8, &plan)?;
        let keys = keys::words(&kind, args.count.unwrap_or(DEFAULT_COUNT), plan.fresh_wanted(), args.seed);
        measure_and_report::<R, _>(args, &kind, plan, &keys)
    }
}

fn plan<R: Roster>(args: &Ycsb, kind: &KeyKind, release_memory: fn()) -> Result<Plan, Failure> {
    let chosen = roster::select::<R>(&args.index)?;
    let indexes: Vec<&'static Info> = chosen.into_iter().filter(|info| info.bytes || !kind.is_bytes()).collect();
    if indexes.is_empty() {
        return Err(Failure::new(format!(
            "--index {}: none of them can be timed with {} keys",
            args.index,
            kind.name()
        )));
    }
    if let Some(name) = &args.baseline
        && !indexes.iter().any(|info| info.name == name)
    {
        let chosen: Vec<&str> = indexes.iter().map(|info| info.name).collect();
        return Err(Failure::new(format!("--baseline {name} is not measured; measured are {}", chosen.join(", "))));
    }
    let mut threads = args.threads.clone();
    if threads.is_empty() {
        threads = vec![1, available_parallelism().map_or(1, usize::from)];
        threads.dedup();
    }
    Ok(Plan {
        indexes,
        workloads: Workload::parse_list(&args.workload)?,
        threads,
        ops: args.ops,
        distribution: Distribution::parse(&args.distribution)?,
        seed: args.seed,
        runs: args.runs,
        settings: Settings { pinning: args.pin.pinning(), latency: args.latency, batch: args.batch.unwrap_or(0) },
        release_memory,
    })
}

fn byte_keys(args: &Ycsb, kind: &KeyKind, plan: &Plan) -> Result<KeySet<Vec<u8>>, Failure> {
    let keys = match kind {
        KeyKind::File(path) => keys::from_file(path, args.count, plan.fresh_wanted(), args.seed)?,
        _ => {
            let count = args.count.unwrap_or(DEFAULT_COUNT);
            check_memory(count, 56, plan)?;
            return Ok(keys::emails(count, plan.fresh_wanted(), args.seed));
        }
    };
    if keys.duplicates > 0 {
        eprintln!("{}: {} lines repeat an earlier one and are used once.", kind.name(), keys.duplicates);
    }
    let bytes: usize = keys.loaded.iter().map(BenchKey::footprint).sum();
    check_memory(keys.loaded.len(), bytes / keys.loaded.len().max(1), plan)?;
    Ok(keys)
}

/// Whether keys, streams and the largest index fit.
fn check_memory(count: usize, key_bytes: usize, plan: &Plan) -> Result<(), Failure> {
    let Some(available) = resources::available_bytes() else { return Ok(()) };
    // The hungriest peers take about 130 bytes and a copy of the key.
    let keys = count as u64 * (2 * key_bytes as u64 + 130);
    let ops: usize = plan.workloads.iter().map(|workload| workload.share(plan.ops)).sum();
    let needed = keys.saturating_add((ops * plan.threads.len()) as u64 * (key_bytes as u64 + 2));
    if needed <= available {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{count} keys need about {:.1} GiB of memory, {:.1} GiB are available; try a smaller --count (or --ops)",
        needed as f64 / f64::from(1 << 30),
        available as f64 / f64::from(1 << 30),
    )))
}

fn measure_and_report<R: Dispatch<K>, K: BenchKey>(
    args: &Ycsb,
    kind: &KeyKind,
    mut plan: Plan,
    keys: &KeySet<K>,
) -> Result<ExitCode, Failure> {
    leave_out_unfit(&mut plan, keys)?;
    let progress = progress_bar(measure::steps(&plan));
    let results = measure::measure::<R, K>(&plan, keys, &progress);
    progress.finish_and_clear();
    let common = Common {
        keys: kind.name().to_owned(),
        count: keys.loaded.len(),
        seed: args.seed,
        distribution: plan.distribution.to_string(),
        batch: plan.settings.batch,
        pin: args.pin.name().to_owned(),
        baseline: args.baseline.clone(),
    };
    report(args, &results, &common)?;
    Ok(if results.partial { ExitCode::from(crate::INTERRUPTED) } else { ExitCode::SUCCESS })
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
        eprintln!("{} is left out: it does not take {reason}.", info.name);
        false
    });
    if plan.indexes.is_empty() { Err(Failure::new("none of the chosen indexes takes these keys")) } else { Ok(()) }
}

/// A bar on standard error with so many steps.
pub fn progress_bar(steps: u64) -> ProgressBar {
    // Standard error, and hidden if that is no terminal. No steady tick: it would take CPU time from what is measured.
    let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} (left {eta}) {wide_msg}");
    bar.with_style(style.expect("the template is correct"))
}

fn report(args: &Ycsb, results: &Results, common: &Common) -> Result<(), Failure> {
    let rows = report::rows(results, common);
    report::print(&rows, args.format)?;
    if let Some(path) = &args.report {
        report::html::save(path, "YCSB", &rows, common, results.partial)?;
    }
    Ok(())
}
