//! `simd::match_bytes` at every level that this machine supports. There are many rows, and each search uses another
//! one, as in an index. The rows fit the first-level cache. Each search depends on the previous result, as in a
//! descent.

use archipelago_platform::atomic::AtomicU8;
use archipelago_platform::simd::{Level, match_bytes, match_bytes_with};
use divan::Bencher;

const ROWS: usize = 256;

fn main() {
    divan::main();
}

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.is_available())
}

fn rows<const N: usize>() -> Vec<[AtomicU8; N]> {
    let mut state = 1u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        AtomicU8::new((state >> 24) as u8)
    };
    (0..ROWS).map(|_| core::array::from_fn(|_| byte())).collect()
}

fn search<const N: usize>(bencher: Bencher, search: impl Fn(&[AtomicU8; N], u8) -> u64) {
    let rows = rows::<N>();
    let (mut found, mut at) = (0u64, 0);
    bencher.bench_local(|| {
        at += 1;
        found = search(&rows[(at + (found & 1) as usize) % ROWS], at as u8);
        found
    });
}

/// Searches by a function that is inlined, with the level that is known at compile time.
#[divan::bench(consts = [16, 48, 64])]
fn inlined<const N: usize>(bencher: Bencher) {
    search::<N>(bencher, match_bytes);
}

/// Searches by a call of a function, at each level that this machine supports.
#[divan::bench(args = levels(), consts = [16, 48, 64])]
fn called<const N: usize>(bencher: Bencher, level: Level) {
    search::<N>(bencher, |row, byte| match_bytes_with(level, row, byte));
}
