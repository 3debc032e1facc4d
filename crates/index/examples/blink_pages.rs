//! `BLinkTree` by page size, beside the other maps: nanoseconds per insertion, look-up and scanned entry on one thread, and
//! bytes per entry.
//!
//! `cargo run --release -p archipelago-index --example blink_pages [KEYS] [NAME ...]`

use archipelago_index::blink::{Dense, Pages};
use archipelago_index::{Art, BLinkTree, HydraList, OrderedIndex, OrderedSession};
use archipelago_platform::memory::resident_bytes;
use archipelago_platform::time::Instant;

/// A bijection of the integers that leaves them in no order.
fn scattered(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ x >> 32
}

struct Row<'a> {
    name: &'a str,
    count: u64,
}

impl Row<'_> {
    fn time(&self, operations: u64, work: impl FnOnce()) -> f64 {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64 / operations as f64
    }

    fn measure<I: OrderedIndex<u64, u64>>(&self, index: I) {
        let before = resident_bytes().unwrap_or(0);
        let map = index.pin();
        let load = self.time(self.count, || {
            for n in 0..self.count {
                map.insert(&scattered(n), n);
            }
        });
        index.quiesce();
        let held = resident_bytes().unwrap_or(0).saturating_sub(before) as f64 / self.count as f64;
        let gets = self.count.min(5_000_000);
        let get = self.time(gets, || {
            for n in 0..gets {
                assert_eq!(map.get(&scattered(n * 7 % self.count)), Some(n * 7 % self.count));
            }
        });
        let mut sum = 0;
        let scan = self.time(self.count, || {
            map.scan(&0, usize::MAX, |_, value| sum += *value);
        });
        assert_eq!(sum, self.count * (self.count - 1) / 2);
        let short = self.time(1_000_000 * 50, || {
            for n in 0..1_000_000 {
                map.scan(&scattered(n), 50, |_, value| sum += *value);
            }
        });
        let name = self.name;
        println!("{name:12} {load:10.0} {get:10.0} {scan:10.1} {short:10.1} {held:10.1}");
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(10_000_000, |count| count.parse().expect("a number of keys"));
    let chosen: Vec<String> = arguments.collect();
    println!("{:12} {:>10} {:>10} {:>10} {:>10} {:>10}", "", "insert", "get", "scan", "scan 50", "bytes/key");
    let row = |name: &'static str| {
        (chosen.is_empty() || chosen.iter().any(|chosen| chosen == name)).then_some(Row { name, count })
    };
    macro_rules! each {
        ($($name:literal: $map:expr;)*) => { $( if let Some(row) = row($name) { row.measure($map); } )* };
    }
    each! {
        "512": BLinkTree::<u64, u64, Pages<512>>::new();
        "1k": BLinkTree::<u64, u64, Pages<1024>>::new();
        "2k": BLinkTree::<u64, u64, Pages<2048>>::new();
        "4032": BLinkTree::<u64, u64, Pages<4032>>::new();
        "4k": BLinkTree::<u64, u64, Pages<4096>>::new();
        "8k": BLinkTree::<u64, u64, Pages<8192>>::new();
        "16k": BLinkTree::<u64, u64, Pages<16384>>::new();
        "64k": BLinkTree::<u64, u64, Pages<65536>>::new();
        "1k dense": BLinkTree::<u64, u64, Dense<Pages<1024>>>::new();
        "2k dense": BLinkTree::<u64, u64, Dense<Pages<1984>>>::new();
        "4032 dense": BLinkTree::<u64, u64, Dense<Pages<4032>>>::new();
        "8k dense": BLinkTree::<u64, u64, Dense<Pages<8128>>>::new();
        "4k dense": BLinkTree::<u64, u64, Dense<Pages<4096>>>::new();
        "hydralist": HydraList::<u64, u64>::new();
        "art": Art::<u64, u64>::new();
    }
}
