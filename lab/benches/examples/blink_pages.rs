//! Measures `BLinkTree` with several page sizes, for integers and for strings of 24 bytes, beside the other maps. Also
//! measures it with the keys of files, as the code base from which the tree's thesis started is measured.
//!
//! `cargo run --release -p archipelago-benches --example blink_pages words [KEYS] [NAME ...]` (or `strings`): prints
//! nanoseconds per insertion, per look-up, per update by two concurrent threads (half of the updates remove), per entry
//! of scans of 50, and per entry of one scan of all; and bytes per key. Each figure is the least of three rounds.
//!
//! `... --example blink_pages files FILE ...`: for each file, a thread inserts its lines and then looks them up, as
//! byte strings and, if all lines are numbers, also as integers. Prints millions of lines per second, including reading
//! the files.

use archipelago_index::blink::{Dense, Pages};
use archipelago_index::map::{Kind, Map};
use archipelago_index::{Art, BLinkTree, HydraList, Key};
use archipelago_platform::thread;
use archipelago_platform::time::Instant;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// Maps integers to integers one to one, in no order.
fn scattered(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ x >> 32
}

/// Returns nanoseconds per operation.
fn time(operations: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / operations as f64
}

/// The measurements, in the order of the columns.
const COLUMNS: [&str; 6] = ["insert", "get", "update by 2", "of 50", "scan", "bytes/key"];

/// Runs one round. Half of the keys are loaded; updates also insert the other half.
fn round<S: Kind, K: Key>(map: Map<S, K, u64>, keys: &[K]) -> [f64; 6] {
    let session = map.pin();
    let count = keys.len() / 2;
    let insert = time(count, || (0..count).for_each(|n| _ = session.upsert(&keys[n], n as u64)));
    map.sync();
    let bytes = map.bytes() as f64 / count as f64;
    let get = time(count, || {
        (0..count).for_each(|n| {
            let n = n * 7 % count;
            assert_eq!(session.get_with(&keys[n], |value| *value), Some(n as u64));
        })
    });
    let mut sum = 0;
    let scan = time(count, || _ = session.scan(&keys[0], usize::MAX, |_, value| sum += *value));
    let scan = scan * count as f64 / session.scan(&keys[0], usize::MAX, |_, _| ()) as f64;
    let scans = count.min(200_000);
    let short = time(scans * 50, || {
        (0..scans).for_each(|n| _ = session.scan(&keys[n * 7 % count], 50, |_, value| sum += *value))
    });
    let update = time(2 * count, || {
        thread::scope(|scope| {
            for me in 0..2 {
                let map = &map;
                scope.spawn(move || {
                    let session = map.pin();
                    for n in 0..count as u64 {
                        let dice = scattered(n << 1 | me);
                        let key = &keys[dice as usize % keys.len()];
                        if dice >> 40 & 1 == 0 {
                            session.upsert(key, n);
                        } else {
                            session.delete(key);
                        }
                    }
                });
            }
        });
    });
    core::hint::black_box(sum);
    [insert, get, update, short, scan, bytes]
}

fn measure<S: Kind, K: Key>(name: &str, make: impl Fn() -> Map<S, K, u64>, keys: &[K]) {
    let rounds: Vec<_> = (0..3).map(|_| round(make(), keys)).collect();
    print!("{name:12}");
    for column in 0..COLUMNS.len() {
        print!(" {:11.1}", rounds.iter().map(|round| round[column]).fold(f64::INFINITY, f64::min));
    }
    println!();
}

fn sizes<K: Key>(keys: &[K], chosen: &[String]) {
    print!("{:12}", "");
    COLUMNS.iter().for_each(|column| print!(" {column:>11}"));
    println!();
    macro_rules! each {
        ($($name:literal: $map:ty;)*) => { $(
            if chosen.is_empty() || chosen.iter().any(|chosen| chosen == $name) {
                measure($name, <$map>::new, keys);
            }
        )* };
    }
    each! {
        "512": BLinkTree<K, u64, Dense<Pages<512>>>;
        "1k": BLinkTree<K, u64, Dense<Pages<1024>>>;
        "2k": BLinkTree<K, u64, Dense<Pages<2048>>>;
        "63 lines": BLinkTree<K, u64, Dense<Pages<4032>>>;
        "4k": BLinkTree<K, u64, Dense<Pages<4096>>>;
        "8k": BLinkTree<K, u64, Dense<Pages<8192>>>;
        "16k": BLinkTree<K, u64, Dense<Pages<16384>>>;
        "4k split": BLinkTree<K, u64, Pages<4096>>;
        "hydralist": HydraList<K, u64>;
        "art": Art<K, u64>;
    }
}

/// Measures the keys of files: a thread for each file inserts them, then looks them up.
fn files<K: Key>(what: &str, files: &[String], key: impl Fn(&[u8]) -> K + Sync) {
    let map: BLinkTree<K, u64> = BLinkTree::new();
    lines(&format!("{what}: inserted"), files, |line, number| _ = map.pin().upsert(&key(line), number));
    lines(&format!("{what}: found"), files, |line, _| assert!(map.pin().contains_key(&key(line))));
}

fn number(line: &[u8]) -> Option<u64> {
    core::str::from_utf8(line).ok()?.parse().ok()
}

/// Passes the lines of each file to `each` in a thread of its own. Prints how many million lines per second were
/// processed.
fn lines(what: &str, files: &[String], each: impl Fn(&[u8], u64) + Sync) {
    let (start, each) = (Instant::now(), &each);
    let count = |file: &String| {
        let mut file = BufReader::new(File::open(file).expect("a file that can be read"));
        let (mut line, mut count) = (Vec::new(), 0);
        while file.read_until(b'\n', &mut line).expect("it can be read to the end") > 0 {
            each(line.strip_suffix(b"\n").unwrap_or(&line), count);
            count += 1;
            line.clear();
        }
        count
    };
    let counts: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = files.iter().map(|file| scope.spawn(|| count(file))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let all: u64 = counts.iter().sum();
    println!("{what} {all} lines, {} threads: {:.2} M/s", files.len(), all as f64 / start.elapsed().as_micros() as f64);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let count = || rest.first().map_or(1_000_000, |count| count.parse().expect("a number of keys"));
    let chosen = rest.get(1..).unwrap_or_default();
    match what.as_str() {
        "words" => sizes(&(0..2 * count()).map(scattered).collect::<Vec<u64>>(), chosen),
        "strings" => {
            let key = |n| format!("user{:020}", scattered(n));
            sizes(&(0..2 * count()).map(key).collect::<Vec<String>>(), chosen);
        }
        "files" => {
            files("byte strings", &rest, <[u8]>::to_vec);
            let all_numbers = |file: &String| {
                let lines = BufReader::new(File::open(file).expect("a file that can be read")).split(b'\n');
                lines.into_iter().all(|line| number(&line.expect("it can be read to the end")).is_some())
            };
            if rest.iter().all(all_numbers) {
                files("integers", &rest, |line| number(line).expect("a number"));
            }
        }
        _ => eprintln!("what to measure: words, strings, or files"),
    }
}
