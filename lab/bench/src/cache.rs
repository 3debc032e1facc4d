//! `bench cache` and `sim cache`: records of 1,000 bytes in caches. The caches are this library's, a cache after Kyoto
//! Cabinet's CacheDB, the papers' variants of CacheDB, and peers if the program has them.
//!
//! | workload | requests |
//! |---|---|
//! | `zipf` | keys by Zipf's law; the given percentage of requests stores a record, the others look one up and store it if it is missing |
//! | `trace-zipf`, `trace-loop`, `trace-scan`, `trace-file` | the trace's keys in order; a missing record is stored. The report gives the hits of an empty cache in one pass, beside the most that any cache could have |

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

use archipelago_platform::SIMULATED;
use archipelago_platform::sync::Arc;
use archipelago_platform::time::Duration;
use archipelago_workloads::caches::{self, CACHES, Caching, Room};
use archipelago_workloads::random::{Random, scatter};
use archipelago_workloads::traces;

use crate::args::{Cache, SimCommon, Timed};
use crate::choose;
use crate::failure::Failure;
use crate::harness::program::{Done, Program, Turns};
use crate::harness::simulated::Contender;
use crate::harness::{Cells, Command, Experiment, known};
use crate::report::row::Cell;
use crate::resources;
use crate::roster::Roster;
use crate::workload::Distribution;

/// Bytes of a record in the cache that needs the most memory.
const ITEM: u64 = 1_300;

/// The number of keys that a thread draws before the measurement. The thread requests them repeatedly.
const STREAM: usize = if SIMULATED { 1 << 12 } else { 1 << 20 };
/// Keys of a synthetic trace.
const TRACE: usize = 1_000_000;

/// What threads do.
#[derive(Clone, Copy)]
struct Work {
    theta: f64,
    updates: u32,
    /// Records in total, and records that the cache has room for.
    records: usize,
    room: Room,
    /// The keys to request, in order and repeatedly, instead of keys by Zipf's law.
    trace: Option<Trace>,
    /// All caches.
    caches: &'static [caches::Known],
}

/// A trace, which is kept until the program ends. The contenders of a cell (a workload with its parameters) share it.
#[derive(Clone, Copy)]
struct Trace {
    keys: &'static [u64],
    /// The most hits that any cache of the cell's size could have. Counting them takes longer than a measurement.
    best: &'static OnceLock<usize>,
}

/// A cache, and the keys that each thread requests.
struct Shared {
    cache: Box<dyn Caching>,
    streams: Vec<Arc<[u64]>>,
}

/// Clients of a cache.
struct Clients {
    work: Work,
    make: fn(Room) -> Box<dyn Caching>,
}

impl From<(&'static str, Work)> for Clients {
    fn from((name, work): (&'static str, Work)) -> Self {
        let make = work.caches.iter().find(|cache| cache.name == name).expect("chosen of these").make;
        Clients { work, make }
    }
}

impl Program for Clients {
    type Shared = Shared;

    fn setup(&self, threads: usize, seed: u64) -> Shared {
        let Work { theta, records, room, trace, .. } = self.work;
        let cache = (self.make)(room);
        // The most popular records are stored last, so that they are in the cache when the run begins.
        let most = if trace.is_some() { 0 } else { room.records.min(records) as u64 };
        let mut client = cache.client();
        (0..most).rev().for_each(|rank| client.set(scatter(rank, records as u64), rank));
        drop(client);
        let stream = |thread: usize| match trace {
            Some(trace) => trace.keys.into(),
            None => traces::zipf(records as u64, theta, STREAM, seed * 1000 + thread as u64).into(),
        };
        Shared { cache, streams: (0..threads).map(stream).collect() }
    }

    fn body(&self, shared: &Shared, turns: &mut impl Turns) {
        let (mut cache, stream) = (shared.cache.client(), &shared.streams[turns.thread()]);
        let updates = self.work.updates;
        let mut random = Random::new(turns.seed(), turns.thread());
        let op = |i: usize| {
            let key = stream[i % stream.len()];
            if random.percent(updates) {
                cache.set(key, i as u64);
                return Done::Updated;
            }
            if cache.get(key).is_none() {
                cache.set(key, i as u64);
            }
            Done::Read
        };
        turns.go(usize::MAX, op, || ());
    }

    fn notes(&self, _: &Shared) -> Vec<String> {
        let Work { room, trace, .. } = self.work;
        let entries = room.records;
        let note = |Trace { keys, best }: Trace| {
            let cache = (self.make)(room);
            let percent = |hits: usize| 100.0 * hits as f64 / keys.len().max(1) as f64;
            let best = *best.get_or_init(|| traces::optimum(keys, entries));
            let (hits, best) = (percent(caches::hits(&*cache, keys)), percent(best));
            format!("{entries} of {} requests' records: {hits:.2} % hits, the best {best:.2} %", keys.len())
        };
        trace.map(note).into_iter().collect()
    }
}

/// Returns the trace of a workload, or `None` if the workload has none.
fn trace<C: clap::Args>(args: &Cache<C>, workload: &str, records: usize, theta: f64) -> Result<Option<Trace>, Failure> {
    let keys = records as u64;
    let made = match workload {
        "trace-zipf" => traces::zipf(keys, theta, TRACE, 1),
        "trace-loop" => traces::cycle(keys, TRACE),
        "trace-scan" => traces::scans(keys, theta, TRACE, 1),
        "trace-file" => {
            let path =
                args.trace.as_deref().ok_or_else(|| Failure::new("the workload trace-file needs --trace FILE"))?;
            let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
            let trace =
                traces::read(std::io::BufReader::new(std::fs::File::open(path).map_err(failed)?)).map_err(failed)?;
            if trace.is_empty() {
                return Err(Failure::new(format!("{}: there are no keys in it", path.display())));
            }
            trace
        }
        _ => return Ok(None),
    };
    Ok(Some(Trace { keys: made.leak(), best: Box::leak(Box::default()) }))
}

/// Returns the caches of `caches` that the arguments name, in one cell for each workload, exponent and percentage of
/// updates.
fn cells<C: clap::Args>(
    args: &Cache<C>,
    records: usize,
    caches: &'static [caches::Known],
) -> Result<Cells<Work>, Failure> {
    let names: Vec<&'static str> = caches.iter().map(|cache| cache.name).collect();
    let chosen = known::named::<Clients, _>(&choose::names("cache", &args.cache, &names)?);
    let records = args.count.unwrap_or(records);
    let mut cells = Vec::new();
    let workloads = ["zipf", "trace-zipf", "trace-loop", "trace-scan", "trace-file"];
    for workload in choose::names("workload", &args.workload, &workloads)? {
        // Only some workloads draw keys by Zipf's law.
        let drawn = !matches!(workload, "trace-loop" | "trace-file");
        for theta in args.theta.iter().copied().take(if drawn { usize::MAX } else { 1 }) {
            let trace = trace(args, workload, records, theta)?;
            let percents = if trace.is_some() { &[0][..] } else { &args.update_percent };
            for &updates in percents {
                let entries = (records as u64 * u64::from(args.capacity_percent) / 100).max(16) as usize;
                // If all records have room, none is evicted. A trace gets no slack, since its hits are compared with
                // the hits of the best cache of exactly this many records.
                let all = trace.is_none() && entries >= records;
                let room = if all { Room::for_all(entries) } else { Room::of(entries) };
                let work = Work { theta, updates, records, room, trace, caches };
                let distribution = if theta > 0.0 { Distribution::Zipf(theta) } else { Distribution::Uniform };
                let (update_percent, count) = (Some(updates), Some(records));
                let from = args.trace.as_deref().filter(|_| workload == "trace-file").zip(trace);
                let from = from.map(|(path, trace)| requests_of(path, trace.keys)).unwrap_or_default();
                let details = format!("{entries} records kept{from}");
                let distribution = drawn.then_some(distribution);
                let cell = Cell { update_percent, distribution, count, details, ..Cell::of(workload) };
                cells.push((cell, work, chosen.clone()));
            }
        }
    }
    Ok(cells)
}

/// Returns where a cell's requests come from. A row belongs to the file's content, so the text changes with it.
fn requests_of(path: &Path, keys: &[u64]) -> String {
    let mut hasher = DefaultHasher::new();
    keys.hash(&mut hasher);
    format!(", {} requests of {} (hash {:016x})", keys.len(), path.display(), hasher.finish())
}

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, a trace cannot be read, or the report cannot be written.
pub fn run<R: Roster>(args: &Cache<Timed>) -> Result<ExitCode, Failure> {
    let Timed { common, millis } = &args.common;
    resources::check_items(args.count.unwrap_or(0), ITEM, 0)?;
    let (cells, time) =
        (cells(args, 100_000, [CACHES, R::CACHES].concat().leak())?, Duration::from_millis(*millis as u64));
    Command::start(common)?.run(&Experiment::of("cache", common, "kyoto", time, cells)?)
}

/// Returns the contenders on the virtual machine (a simulator).
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &Cache<SimCommon>) -> Result<Vec<Contender>, Failure> {
    Ok(known::simulated(cells(args, 2_000, CACHES)?))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        cache: Cache<Timed>,
    }

    /// Rows of two traces are told apart, also if the traces have equally many keys, and if they are one file's content
    /// at different times.
    #[test]
    fn a_row_names_its_trace() {
        let facts = |name: &str, keys: &str| {
            let path = std::env::temp_dir().join(format!("archipelago-trace-{}-{name}", std::process::id()));
            std::fs::write(&path, keys).unwrap();
            let trace = path.to_str().unwrap();
            let line = ["cache", "--cache", "kyoto", "--workload", "trace-file", "--trace", trace];
            let cells = cells(&Line::try_parse_from(line).unwrap().cache, 100, CACHES).unwrap();
            std::fs::remove_file(&path).unwrap();
            cells[0].0.facts()
        };
        assert_ne!(facts("a", "1\n2\n"), facts("b", "1\n2\n"));
        assert_ne!(facts("a", "1\n2\n"), facts("a", "1\n1\n"));
        assert_eq!(facts("a", "1\n2\n"), facts("a", "1\n2\n"));
    }

    /// A trace whose keys are not drawn by Zipf's law has one row, without an exponent.
    #[test]
    fn only_what_is_drawn_has_an_exponent() {
        let cells = |workload| {
            let line =
                format!("cache --cache kyoto --workload {workload} --theta 0.9,1.1 --count 100 --update-percent 2");
            let cells = cells(&Line::try_parse_from(line.split(' ')).unwrap().cache, 100, CACHES).unwrap();
            cells.into_iter().map(|(cell, ..)| cell.distribution).collect::<Vec<_>>()
        };
        assert_eq!(cells("trace-loop"), [None]);
        for drawn in ["zipf", "trace-zipf", "trace-scan"] {
            assert_eq!(cells(drawn), [0.9, 1.1].map(|theta| Some(Distribution::Zipf(theta))), "{drawn}");
        }
    }

    /// With the default capacity no look-up of the workload `zipf` misses.
    #[test]
    fn what_has_room_does_not_give_way() {
        let line = ["cache", "--cache", "kyoto,kyoto-rcu-slots,s3-fifo", "--theta", "0", "--count", "2k"];
        let args = Line::try_parse_from(line).unwrap().cache;
        for (_, work, known) in cells(&args, 2_000, CACHES).unwrap() {
            for known in known {
                let shared = Clients::from((known.name, work)).setup(1, 1);
                let mut client = shared.cache.client();
                let missing = (0..2_000).filter(|rank| client.get(scatter(*rank, 2_000)).is_none()).count();
                assert_eq!(missing, 0, "{}", known.name);
            }
        }
    }
}
