//! Inserts and deletes for as long as the user wants. Memory must stay flat, and every result must be right.
//!
//! Each thread has a window of keys of its own, interleaved with those of the other threads. It inserts at one end of
//! the window and deletes at the other. Three kinds of passes take turns: with ascending keys; with scattered keys;
//! and with scattered keys where the window fills up and is emptied, without moving.
//!
//! ```text
//! cargo run --release -p archipelago-benches --example churn -- [OPERATIONS [THREADS [WINDOW [word|bytes]]]]
//! ```
//! Numbers may end in k, M or G; the default is `10M 2 100k word`. For a thousand million operations: `churn 1G`.
//! Prints a line from time to time. The exit code is 1 if memory grew.

use archipelago_index::{HydraList, Key};
use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use archipelago_platform::memory::resident_bytes;
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use std::process::ExitCode;

/// The number of kinds of passes over the window.
const ORDERS: u64 = 3;

struct Plan {
    operations: u64,
    threads: u64,
    window: u64,
}

/// Returns the `n`-th key of a thread in a pass of the kind `order`. Within a window, the keys of all threads and all
/// `n` are different.
fn key(order: u64, n: u64) -> u64 {
    if order == 0 { n } else { n.wrapping_mul(0x9E37_79B9_7F4A_7C15) }
}

/// Runs one thread's operations, in passes over its window.
fn churn<K: Key>(map: &HydraList<K, u64>, plan: &Plan, thread: u64, done: &AtomicU64, make: fn(u64) -> K) {
    let session = map.pin();
    let (mut next, mut left) = (0, plan.operations / plan.threads);
    let nth = |order: u64, n: u64| make(key(order, n * plan.threads + thread));
    while left > 0 {
        for order in 0..ORDERS {
            // Fills the window, slides it, and empties it.
            let slide = if order < 2 { 3 * plan.window } else { 0 };
            let (start, end) = (next, next + plan.window + slide);
            for n in start..end {
                assert_eq!(session.insert(nth(order, n), n), None, "key {n} was there");
                if n >= start + plan.window {
                    assert_eq!(session.remove(&nth(order, n - plan.window)), Some(n - plan.window));
                }
                if n % 4096 == 0 {
                    done.store(n, Relaxed);
                }
            }
            for n in end - plan.window..end {
                assert_eq!(session.remove(&nth(order, n)), Some(n), "key {n} was not there");
            }
            next = end;
            left = left.saturating_sub(2 * (end - start));
        }
    }
}

/// The peak memory in a part of the run.
#[derive(Clone, Copy, Default)]
struct Peak {
    map: usize,
    resident: u64,
}

impl Peak {
    fn see(&mut self, map: usize) {
        self.map = self.map.max(map);
        self.resident = self.resident.max(resident_bytes().unwrap_or(0));
    }
}

fn run<K: Key>(plan: &Plan, make: fn(u64) -> K) -> ExitCode {
    let map: HydraList<K, u64> = HydraList::new();
    let (over, start) = (AtomicBool::new(false), Instant::now());
    let done: Vec<AtomicU64> = (0..plan.threads).map(|_| AtomicU64::new(0)).collect();
    let peaks = thread::scope(|s| {
        let watcher = s.spawn(|| watch(|| map.bytes(), || done.iter().map(|d| d.load(Relaxed)).sum(), &over));
        thread::scope(|s| {
            for (thread, done) in (0..).zip(&done) {
                let map = &map;
                s.spawn(move || churn(map, plan, thread, done, make));
            }
        });
        over.store(true, Relaxed);
        watcher.join().expect("the watcher does not panic")
    });
    map.sync();
    map.check_invariants();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} operations in {seconds:.0} s, {:.2} Mops/s; {} entries and {:.1} MB left, {:.1} MB resident",
        plan.operations,
        plan.operations as f64 / seconds / 1e6,
        map.len(),
        map.bytes() as f64 / 1e6,
        resident_bytes().unwrap_or(0) as f64 / 1e6,
    );
    verdict(&peaks)
}

/// Prints the memory of the run, every 2 seconds at first and every 15 seconds later, and keeps the peak of each
/// interval.
fn watch(bytes: impl Fn() -> usize, done: impl Fn() -> u64, over: &AtomicBool) -> Vec<Peak> {
    let (mut peaks, mut printed) = (vec![Peak::default()], Instant::now());
    while !over.load(Relaxed) {
        thread::sleep(Duration::from_millis(50));
        let last = peaks.len() - 1;
        peaks[last].see(bytes());
        if printed.elapsed() > Duration::from_secs(if peaks.len() < 10 { 2 } else { 15 }) {
            let Peak { map, resident } = peaks[last];
            println!(
                "{:>12} keys so far, map {:.1} MB, resident {:.1} MB",
                done(),
                map as f64 / 1e6,
                resident as f64 / 1e6
            );
            (printed, peaks) = (Instant::now(), [peaks, vec![Peak::default()]].concat());
        }
    }
    peaks
}

/// Judges whether memory is flat: the peak in the second half of the intervals is at most little above the peak in the
/// first half. Fewer than five intervals are not judged.
fn verdict(peaks: &[Peak]) -> ExitCode {
    if peaks.len() < 5 {
        println!("too short to say whether memory is flat");
        return ExitCode::SUCCESS;
    }
    let most = |peaks: &[Peak]| peaks.iter().map(|peak| peak.resident).max().unwrap_or(0) as f64 / 1e6;
    let (early, late) = (most(&peaks[..peaks.len() / 2]), most(&peaks[peaks.len() / 2..]));
    println!("resident at most {early:.1} MB in the first half, {late:.1} MB in the second");
    if late > 1.1 * early + 2.0 {
        println!("memory grew");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn number(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(digits) if text.ends_with('k') => (digits, 1_000),
        Some(digits) if text.ends_with('M') => (digits, 1_000_000),
        Some(digits) => (digits, 1_000_000_000),
        None => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|&number| number > 0)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Option<Vec<u64>> = arguments.iter().take(3).map(|text| number(text)).collect();
    let kind = arguments.get(3).map_or("word", String::as_str);
    let (Some(numbers), "word" | "bytes", 0..=4) = (numbers, kind, arguments.len()) else {
        eprintln!("usage: churn [OPERATIONS [THREADS [WINDOW [word|bytes]]]], numbers like 500, 100k, 10M or 1G");
        return ExitCode::from(2);
    };
    let get = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
    let plan = Plan { operations: get(0, 10_000_000), threads: get(1, 2), window: get(2, 100_000) };
    match kind {
        "word" => run(&plan, |n| n),
        _ => run(&plan, |n| format!("user{n:020}@example.org")),
    }
}
