//! `bench verify`: an exam that any concurrent ordered map must pass.
//!
//! | part | what must hold |
//! |---|---|
//! | model | one thread, random operations: every answer equals `BTreeMap`'s, including scans from present and absent keys |
//! | own writes | two writers on interleaved keys: each sees its own inserts, overwrites and removals at once, by look-up and by scan |
//! | overwrites | a key that is only overwritten, never removed, is always found, by look-up and by scan, with a value that was written to it |
//! | neighbours | a key that is never touched is always found, whatever is inserted and removed around it |
//!
//! An index without scans (`cuckoo-like`) is examined without them.
//!
//! A thread stops at its first finding. A part ends when its threads have stopped, after the given time at the latest.

mod clock;
mod concurrent;
mod model;
mod own;
mod subject;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use archipelago_platform::time::Duration;

use crate::args::Verify;
use crate::contender::{BenchIndex, Info, Visit};
use crate::failure::Failure;
use crate::harness::threads;
use crate::interrupt;
use crate::keys::{self, BenchKey, KeyKind};
use crate::output::{self, tell};
use crate::report;
use crate::roster::{self, Dispatch, Roster};
use clock::{Clock, Verdict};
use subject::Subject;

/// Keys of the exam, for each kind of keys.
const KEYS: usize = 100_000;

/// One index's results with one kind of keys. A part that an interrupt has ended early, without a finding, has no
/// verdict.
struct Report {
    info: &'static Info,
    keys: &'static str,
    verdicts: Vec<Option<Verdict>>,
}

const PARTS: [&str; 4] = ["model", "own writes", "overwrites", "neighbours"];

/// Runs the exam and prints which index passes which part. Returns 1 if one of this library's indexes fails.
///
/// # Errors
/// If an index is not known, threads cannot be started, or standard output cannot be written to.
pub fn run<R: Roster>(args: &Verify) -> Result<ExitCode, Failure> {
    let indexes = roster::select::<R>(&args.index, false)?;
    // Without this check, a thread that cannot be started would look like an index that panics.
    threads::try_to_start(concurrent::THREADS)?;
    interrupt::install();
    let mut words = keys::words(&KeyKind::Int, KEYS, 0, args.seed).loaded;
    words.extend([0, 1, u64::MAX - 1, u64::MAX]);
    let mut emails = keys::emails(KEYS, 0, args.seed).loaded;
    emails.extend(awkward_strings());
    let mut reports = Vec::new();
    for info in indexes {
        let time = Duration::from_secs_f64(args.seconds);
        examine::<R, u64>(info, "u64", &words, args.seed, time, &mut reports);
        if info.bytes {
            examine::<R, Vec<u8>>(info, "email", &emails, args.seed, time, &mut reports);
        }
        if interrupt::requested() {
            tell("Interrupted; what follows is partial: `-` stands for what was not examined to its end.");
            print(&reports)?;
            return Ok(interrupt::exit_code());
        }
    }
    print(&reports)?;
    let failed = reports.iter().any(|report| report.info.ours && report.verdicts.iter().flatten().any(Result::is_err));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns keys that are prefixes of each other, the empty key, and long keys.
fn awkward_strings() -> Vec<Vec<u8>> {
    let prefixes = (0..24).map(|length| b"gmail.com@john.smith.jr."[..length].to_vec());
    let long = (1..=8).map(|eighths| vec![b'~'; 31 * eighths]);
    prefixes.chain(long).chain([vec![0xff], vec![0xff; 9]]).collect()
}

fn examine<R: Dispatch<K>, K: BenchKey>(
    info: &'static Info,
    name: &'static str,
    keys: &[K],
    seed: u64,
    time: Duration,
    reports: &mut Vec<Report>,
) {
    let mut sorted = keys.to_vec();
    sorted.retain(|key| key.with_raw(<[u8]>::len) <= info.longest_key);
    sorted.sort_unstable();
    sorted.dedup();
    let mut exam = Exam { keys: &sorted, seed, time, interrupted: interrupt::requested, verdicts: Vec::new() };
    tell(format!("examining {} with {name} keys", info.name));
    R::dispatch(info, &mut exam);
    reports.push(Report { info, keys: name, verdicts: exam.verdicts });
}

struct Exam<'a, K> {
    /// The keys, ascending and distinct.
    keys: &'a [K],
    seed: u64,
    time: Duration,
    interrupted: fn() -> bool,
    verdicts: Vec<Option<Verdict>>,
}

impl<K: BenchKey> Visit<K> for Exam<'_, K> {
    fn made<I: BenchIndex<K>>(&mut self, _: &'static Info, empty: fn() -> I) {
        let Exam { keys, seed, .. } = *self;
        self.part(empty, |map, clock| model::examine(map, keys, seed, clock));
        self.part(empty, |map, clock| own::examine(map, keys, clock));
        self.part(empty, |map, clock| concurrent::overwrites(map, keys, seed, clock));
        self.part(empty, |map, clock| concurrent::neighbours(map, keys, seed, clock));
    }
}

impl<K: BenchKey> Exam<'_, K> {
    /// Runs a part of the exam on an empty map.
    fn part<I: BenchIndex<K>>(&mut self, empty: fn() -> I, part: impl FnOnce(&dyn Subject<K>, Clock) -> Verdict) {
        let clock = Clock { time: self.time };
        // An index that panics has failed; the exam continues with the others.
        let verdict = catch_unwind(AssertUnwindSafe(|| part(&empty(), clock)));
        let verdict = verdict.unwrap_or_else(|_| Err("it panicked".to_owned()));
        // A part that an interrupt ended early has done only some of its work, so the lack of a finding proves nothing.
        let cut_off = verdict.is_ok() && (self.interrupted)();
        self.verdicts.push((!cut_off).then_some(verdict));
    }
}

fn print(reports: &[Report]) -> Result<(), Failure> {
    let line = |report: &Report| {
        let verdicts = report.verdicts.iter().map(|verdict| match verdict {
            Some(Ok(())) => "ok",
            Some(Err(_)) => "FAIL",
            None => "-",
        });
        [report.info.name, report.keys].into_iter().chain(verdicts).map(str::to_owned).collect()
    };
    let head = ["index", "keys"].into_iter().chain(PARTS).map(str::to_owned).collect();
    let mut text = report::table::grid(head, reports.iter().map(line).collect()).to_string();
    for report in reports {
        for (part, verdict) in PARTS.iter().zip(&report.verdicts) {
            if let Some(Err(finding)) = verdict {
                text += &format!("\n{} ({} keys), {part}: {finding}", report.info.name, report.keys);
            }
        }
    }
    output::print(text).map(drop)
}

#[cfg(test)]
mod tests;
