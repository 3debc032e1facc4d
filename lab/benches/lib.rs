//! Microbenchmarks: `cargo bench -p archipelago-benches` runs all of them, `--bench locks` one file, and a part of a
//! name after `--` selects among them.
//!
//! The command `archipelago bench` measures whole structures under load, beside their rivals.

/// Returns a number's element of a scattered sequence: keys that no prefetcher predicts.
#[inline(always)]
pub fn scatter(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns a function that returns 0, 1, 2, and so on.
pub fn counter() -> impl FnMut() -> u64 {
    let mut next = 0;
    move || {
        next += 1;
        next - 1
    }
}
