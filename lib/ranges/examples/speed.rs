//! Compares a `RangeMap` with a `BTreeMap`, without a lock and behind locks. Prints millions of operations a second, of
//! all threads together: medians of five rounds, in each of which all candidates are measured once.
//!
//! `cargo run --release -p archipelago-ranges --example speed -- 100000`

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Range;

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::sync::{Barrier, Mutex, RwLock};
use archipelago_platform::thread;
use archipelago_platform::time::Instant;
use archipelago_ranges::RangeMap;

/// The interface of a candidate: an address space, a map from ranges of addresses to values.
trait Space: Sync {
    fn made(ranges: u64) -> Self;
    fn look_up(&self, point: u64) -> Option<u64>;
    /// Maps a page in a gap between ranges, and unmaps it.
    fn map_and_unmap(&self, page: Range<u64>);
}

const STEP: u64 = 64;

fn ranges(count: u64) -> impl Iterator<Item = (Range<u64>, u64)> {
    (0..count).map(|at| (at * STEP..at * STEP + 40, at))
}

impl Space for RangeMap<u64, u64> {
    fn made(count: u64) -> Self {
        ranges(count).collect()
    }

    fn look_up(&self, point: u64) -> Option<u64> {
        self.get(point)
    }

    fn map_and_unmap(&self, page: Range<u64>) {
        self.insert(page.clone(), 1 << 40);
        self.remove(page);
    }
}

/// Maps the start of each range to its end and value. It has no synchronization.
type Sequential = BTreeMap<u64, (u64, u64)>;

fn sequential(count: u64) -> Sequential {
    ranges(count).map(|(range, value)| (range.start, (range.end, value))).collect()
}

fn look_up(map: &Sequential, point: u64) -> Option<u64> {
    map.range(..=point).next_back().filter(|(_, (end, _))| point < *end).map(|(_, (_, value))| *value)
}

/// Maps and unmaps a page as a map of ranges does: removes or trims overlapping ranges, and joins the new range with
/// neighbours of equal value.
fn map_and_unmap(map: &mut Sequential, page: &Range<u64>) {
    for value in [Some(1 << 40), None] {
        while let Some((&start, &(end, old))) =
            map.range(..page.end).next_back().filter(|(_, (end, _))| *end > page.start)
        {
            map.remove(&start);
            if start < page.start {
                map.insert(start, (page.start, old));
            }
            if end > page.end {
                map.insert(page.end, (end, old));
            }
        }
        if let Some(value) = value {
            let joins =
                map.range(..=page.start).next_back().is_some_and(|(_, (end, old))| *end == page.start && *old == value);
            black_box(joins);
            map.insert(page.start, (page.end, value));
        }
    }
}

impl Space for Mutex<Sequential> {
    fn made(count: u64) -> Self {
        Mutex::new(sequential(count))
    }

    fn look_up(&self, point: u64) -> Option<u64> {
        look_up(&self.lock().expect("no panic"), point)
    }

    fn map_and_unmap(&self, page: Range<u64>) {
        map_and_unmap(&mut self.lock().expect("no panic"), &page);
    }
}

impl Space for RwLock<Sequential> {
    fn made(count: u64) -> Self {
        RwLock::new(sequential(count))
    }

    fn look_up(&self, point: u64) -> Option<u64> {
        look_up(&self.read().expect("no panic"), point)
    }

    fn map_and_unmap(&self, page: Range<u64>) {
        map_and_unmap(&mut self.write().expect("no panic"), &page);
    }
}

const OPERATIONS: u64 = 300_000;

fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

/// Returns millions of operations per second of `threads` threads, from the moment when they begin together until the
/// last one ends. Thread `t` works on the ranges `parts(t)`. If `beside_a_mapper`, a further thread runs `mapper` at
/// the same time.
fn rate(
    threads: u64,
    beside_a_mapper: bool,
    count: u64,
    parts: impl Fn(u64) -> Range<u64> + Sync,
    work: impl Fn(u64) + Sync,
    mapper: impl Fn(u64) + Sync,
) -> f64 {
    let (done, together) = (AtomicBool::new(false), Barrier::new(threads as usize));
    thread::scope(|scope| {
        if beside_a_mapper {
            scope.spawn(|| {
                let mut turn = 0;
                while !done.load(Ordering::Relaxed) {
                    mapper(mixed(turn) % count);
                    turn += 1;
                }
            });
        }
        let (work, parts, together) = (&work, &parts, &together);
        let run = move |thread: u64| {
            let part = parts(thread);
            // The threads' numbers differ, so that they do not follow each other through the ranges.
            let first = thread * OPERATIONS;
            together.wait();
            let begun = Instant::now();
            (first..first + OPERATIONS).for_each(|turn| work(part.start + mixed(turn) % (part.end - part.start)));
            (begun, Instant::now())
        };
        let running: Vec<_> = (1..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        let (mut begun, mut ended) = run(0);
        for thread in running {
            let (from, until) = thread.join().expect("no panic");
            (begun, ended) = (begun.min(from), ended.max(until));
        }
        done.store(true, Ordering::Relaxed);
        (threads * OPERATIONS) as f64 / (ended - begun).as_secs_f64() / 1e6
    })
}

fn measure<S: Space>(space: &S, count: u64) -> [f64; 5] {
    let look = |at: u64| {
        black_box(space.look_up(at * STEP + 7));
    };
    let change = |at: u64| space.map_and_unmap(at * STEP + 45..at * STEP + 55);
    let (all, half) = (|_| 0..count, |thread| thread * count / 2..(thread + 1) * count / 2);
    [
        rate(1, false, count, all, look, change),
        rate(2, false, count, all, look, change),
        rate(1, true, count, all, look, change),
        rate(1, false, count, all, change, change),
        rate(2, false, count, half, change, change),
    ]
}

/// Measures look-ups of one thread in a tree without a lock.
fn unsynchronized(tree: &Sequential, count: u64) -> f64 {
    let look = |at: u64| {
        black_box(look_up(tree, at * STEP + 7));
    };
    rate(1, false, count, |_| 0..count, look, look)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let count = std::env::args().nth(1).map_or(100_000, |text| text.parse().expect("a number of ranges"));
    let (ours, mutex, lock) =
        (RangeMap::made(count), Mutex::<Sequential>::made(count), RwLock::<Sequential>::made(count));
    let tree = sequential(count);
    let rounds: Vec<_> = (0..5)
        .map(|_| ([measure(&ours, count), measure(&mutex, count), measure(&lock, count)], unsynchronized(&tree, count)))
        .collect();
    let titles =
        ["look-ups, 1 thread", "look-ups, 2", "look-ups beside a mapper", "map + unmap, 1", "map + unmap, 2, halves"];
    println!("{count} ranges; millions a second   RangeMap   Mutex<BTreeMap>   RwLock<BTreeMap>");
    for (at, title) in titles.iter().enumerate() {
        let of = |which: usize| median(rounds.iter().map(|(round, _)| round[which][at]).collect());
        println!("{title:<30} {:>10.2} {:>17.2} {:>18.2}", of(0), of(1), of(2));
    }
    println!(
        "look-ups, 1 thread, BTreeMap without a lock: {:.2}",
        median(rounds.iter().map(|(_, alone)| *alone).collect())
    );
}
