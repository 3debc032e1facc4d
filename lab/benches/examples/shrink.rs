//! Measures how much memory a map keeps after most of its entries were deleted: the map's own figure (`bytes()`), and
//! resident memory.
//!
//! ```text
//! cargo run --release -p archipelago-benches --example shrink -- [KEYS [word|bytes [sorted|random [KEEP]]]]
//! ```
//! Loads KEYS keys in order. Deletes all keys except every KEEP-th (if KEEP is 0: all keys), in order or at random.
//! Prints a line after each step.

use archipelago_index::{HydraList, Key};
use archipelago_platform::memory::resident_bytes;
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};

fn report<K: Key>(when: &str, map: &HydraList<K, u64>, base: u64) {
    let resident = resident_bytes().unwrap_or(0).saturating_sub(base);
    println!("{when:24} bytes() {:9.3} MB, resident {:9.3} MB", map.bytes() as f64 / 1e6, resident as f64 / 1e6);
}

fn run<K: Key>(count: u64, random_load: bool, sorted: bool, keep: u64, make: fn(u64) -> K) {
    let base = resident_bytes().unwrap_or(0);
    let map: HydraList<K, u64> = HydraList::new();
    let start = Instant::now();
    map.pin().extend((0..count).map(|n| if random_load { n * 1_000_003 % count } else { n }).map(|n| (make(n), n)));
    report("loaded", &map, base);
    let session = map.pin();
    let gone = |n: u64| keep == 0 || !n.is_multiple_of(keep);
    if sorted {
        (0..count).filter(|&n| gone(n)).for_each(|n| _ = session.remove(&make(n)));
    } else {
        // The keys are removed in a permuted order: 1_000_003 times n modulo the count. The count must not be a
        // multiple of 1_000_003.
        (0..count).map(|n| n * 1_000_003 % count).filter(|&n| gone(n)).for_each(|n| _ = session.remove(&make(n)));
    }
    report("deleted", &map, base);
    for rest in [1, 10, 100, 1000] {
        thread::sleep(Duration::from_millis(rest));
        report(&format!("after {rest} ms more"), &map, base);
    }
    map.sync();
    report("after sync", &map, base);
    let left = map.len();
    let before = resident_bytes().unwrap_or(0);
    let fresh: HydraList<K, u64> = HydraList::from_sorted(map.pin().iter());
    report(&format!("a fresh map of {left}"), &fresh, before);
    println!("{:.1} s", start.elapsed().as_secs_f64());
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |at: usize, default: &str| arguments.get(at).map_or(default.to_owned(), Clone::clone);
    let count = text(0, "3000000").parse().expect("a number of keys");
    let random_load = text(4, "sorted") == "random";
    let (sorted, keep) = (text(2, "sorted") == "sorted", text(3, "1000").parse().expect("a number, or 0"));
    match text(1, "word").as_str() {
        "word" => run(count, random_load, sorted, keep, |n| n),
        _ => run(count, random_load, sorted, keep, |n| format!("user{n:012}@example.org")),
    }
}
