//! Measures several ways to walk over a map, in million entries per second: the best of alternating rounds, and the
//! ratio to `scan`.
//!
//! `cargo run --release -p archipelago-benches --example walk_cost [KEYS]`

use archipelago_index::HydraList;
use archipelago_platform::time::Instant;
use core::hint::black_box;
use core::ops::ControlFlow;

const ROUNDS: usize = 9;

/// A name, and a function that walks over all entries and returns a sum.
type Work<'a> = (&'a str, Box<dyn Fn() -> u64 + 'a>);

fn compare(entries: u64, works: &[Work<'_>]) {
    let mut best = vec![f64::MAX; works.len()];
    for _ in 0..ROUNDS {
        for ((_, work), best) in works.iter().zip(&mut best) {
            let start = Instant::now();
            black_box(work());
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    for ((name, _), time) in works.iter().zip(&best) {
        println!("  {name:20} {:7.1} M/s {:5.2}", entries as f64 / time / 1e6, best[0] / time);
    }
}

fn main() {
    let count: u64 = std::env::args().nth(1).map_or(10_000_000, |text| text.parse().expect("a number of keys"));
    let map: HydraList<u64, u64> = (0..count).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15), n)).collect();
    map.sync();
    let session = map.pin();
    println!("{count} words");
    compare(
        count,
        &[
            (
                "scan",
                Box::new(|| {
                    let mut sum = 0_u64;
                    session.scan(&0, usize::MAX, |key, value| sum = sum.wrapping_add(key ^ value));
                    sum
                }),
            ),
            (
                "scan_range",
                Box::new(|| {
                    let mut sum = 0_u64;
                    session.scan_range::<u64, _, ()>(.., |key, value| {
                        sum = sum.wrapping_add(key ^ value);
                        ControlFlow::Continue(())
                    });
                    sum
                }),
            ),
            ("iter", Box::new(|| session.iter().fold(0, |sum: u64, (key, value)| sum.wrapping_add(key ^ value)))),
            (
                "iter backwards",
                Box::new(|| session.iter().rev().fold(0, |sum: u64, (key, value)| sum.wrapping_add(key ^ value))),
            ),
            ("keys", Box::new(|| session.keys().fold(0, u64::wrapping_add))),
            (
                "entries",
                Box::new(|| {
                    let entries = session.entries::<u64, _>(..);
                    entries.fold(0, |sum: u64, entry| sum.wrapping_add(entry.key() ^ entry.value()))
                }),
            ),
            (
                "entries, lent",
                Box::new(|| {
                    let (mut entries, mut sum) = (session.entries::<u64, _>(..), 0_u64);
                    while let Some((key, value)) = entries.next_ref() {
                        sum = sum.wrapping_add(key ^ value);
                    }
                    sum
                }),
            ),
        ],
    );
    drop(map);
    let count = count / 10;
    let map: HydraList<String, u64> =
        (0..count).map(|n| (format!("user{:020}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)), n)).collect();
    map.sync();
    let session = map.pin();
    println!("{count} strings of 24 bytes");
    let read = |key: &str, value: &u64| key.as_bytes()[23] as u64 ^ value;
    compare(
        count,
        &[
            (
                "scan",
                Box::new(|| {
                    let mut sum = 0_u64;
                    session.scan("", usize::MAX, |key, value| sum = sum.wrapping_add(read(key, value)));
                    sum
                }),
            ),
            (
                "scan_range",
                Box::new(|| {
                    let mut sum = 0_u64;
                    session.scan_range::<String, _, ()>(.., |key, value| {
                        sum = sum.wrapping_add(read(key, value));
                        ControlFlow::Continue(())
                    });
                    sum
                }),
            ),
            (
                "iter",
                Box::new(|| session.iter().fold(0, |sum: u64, (key, value)| sum.wrapping_add(read(&key, &value)))),
            ),
            (
                "entries",
                Box::new(|| {
                    let entries = session.entries::<String, _>(..);
                    entries.fold(0, |sum: u64, entry| sum.wrapping_add(read(entry.key(), entry.value())))
                }),
            ),
            (
                "entries, lent",
                Box::new(|| {
                    let (mut entries, mut sum) = (session.entries::<String, _>(..), 0_u64);
                    while let Some((key, value)) = entries.next_ref() {
                        sum = sum.wrapping_add(read(key, value));
                    }
                    sum
                }),
            ),
        ],
    );
}
