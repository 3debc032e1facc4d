//! Times `simd::match_bytes` at every level that this machine has: `cargo run --release --example match_bytes`.
//!
//! The searched rows are many and change from search to search, as in an index; they fit the first-level cache.

use archipelago_platform::atomic::AtomicU8;
use archipelago_platform::simd::{Level, match_bytes, match_bytes_with};
use archipelago_platform::time::Instant;

const ROWS: usize = 256;
const SEARCHES: usize = 20_000_000;

fn rows<const N: usize>() -> Vec<[AtomicU8; N]> {
    let mut state = 1u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        AtomicU8::new((state >> 24) as u8)
    };
    (0..ROWS).map(|_| core::array::from_fn(|_| byte())).collect()
}

/// Nanoseconds per search, the best of five runs. Each row depends on the last answer, as in a descent.
fn time<const N: usize>(rows: &[[AtomicU8; N]], search: impl Fn(&[AtomicU8; N], u8) -> u64) -> f64 {
    let run = || {
        let start = Instant::now();
        let mut found = 0u64;
        for at in 0..SEARCHES {
            found = search(&rows[(at + (found & 1) as usize) % ROWS], at as u8);
        }
        core::hint::black_box(found);
        start.elapsed().as_nanos() as f64 / SEARCHES as f64
    };
    (0..5).map(|_| run()).fold(f64::INFINITY, f64::min)
}

fn report<const N: usize>() {
    let rows = rows::<N>();
    println!("N = {N}: match_bytes {:.2} ns", time(&rows, match_bytes));
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        println!("  {level:?} {:.2} ns", time(&rows, |row, byte| match_bytes_with(level, row, byte)));
    }
}

fn main() {
    report::<16>();
    report::<48>();
    report::<64>();
}
