//! What a session for each operation costs against a session that is kept: `pin`, `pin` and `get`, `get`, in ns, the
//! least of alternating rounds.
//!
//! `cargo run --release -p archipelago-index --example pin_cost [KEYS]`

use archipelago_index::{Art, HydraList};
use archipelago_platform::time::Instant;
use core::hint::black_box;

const ROUNDS: usize = 21;

/// A name, and what does as many operations as its argument says.
type Work<'a> = (&'a str, Box<dyn FnMut(u64) + 'a>);

/// Least and median ns an operation, of each of the works, in alternating rounds.
fn compare<const N: usize>(operations: u64, mut works: [Work<'_>; N]) {
    let mut times = [[0.0; ROUNDS]; N];
    for round in 0..ROUNDS {
        for (work, times) in works.iter_mut().zip(&mut times) {
            let start = Instant::now();
            (work.1)(operations);
            times[round] = start.elapsed().as_nanos() as f64 / operations as f64;
        }
    }
    for ((name, _), times) in works.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{name:24} least {:6.2} ns, median {:6.2} ns", times[0], times[ROUNDS / 2]);
    }
}

/// The next of a sequence that jumps about.
#[inline(always)]
fn scatter(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[inline(always)]
fn use_up<T>(value: T) {
    black_box(value);
}

fn main() {
    let keys: u64 = std::env::args().nth(1).map_or(1_000, |text| text.parse().expect("a number of keys"));
    let operations = if keys > 100_000 { 400_000 } else { 1_000_000 };
    let list: HydraList<u64, u64> = HydraList::new();
    list.pin().extend((0..keys).map(|n| (scatter(n), n)));
    list.sync();
    let key = |n: u64| scatter(scatter(n) % keys);
    let session = list.pin();
    println!("HydraList, {keys} keys");
    compare(
        operations,
        [
            ("pin", Box::new(|n| (0..n).for_each(|_| use_up(list.pin())))),
            ("get, session kept", Box::new(|n| (0..n).for_each(|n| use_up(session.get(&key(n)))))),
            ("pin and get", Box::new(|n| (0..n).for_each(|n| use_up(list.pin().get(&key(n)))))),
            ("range(..).next()", Box::new(|n| (0..n).for_each(|n| use_up(session.range(key(n)..).next())))),
            ("range(between..).next()", Box::new(|n| (0..n).for_each(|n| use_up(session.range(key(n) + 1..).next())))),
            ("get_ref", Box::new(|n| (0..n).for_each(|n| use_up(session.get_ref(&key(n)).map(|value| *value))))),
            ("insert over, kept", Box::new(|n| (0..n).for_each(|n| use_up(session.upsert(&key(n), n))))),
        ],
    );
    if keys > 1_000_000 {
        return;
    }
    let art: Art<u64, u64> = (0..keys).map(|n| (scatter(n), n)).collect();
    let session = art.pin();
    println!("Art, {keys} keys");
    compare(
        operations,
        [
            ("pin", Box::new(|n| (0..n).for_each(|_| use_up(art.pin())))),
            ("get, session kept", Box::new(|n| (0..n).for_each(|n| use_up(session.get(&key(n)))))),
            ("pin and get", Box::new(|n| (0..n).for_each(|n| use_up(art.pin().get(&key(n)))))),
        ],
    );
}
