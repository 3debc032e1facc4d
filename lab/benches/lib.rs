//! What the pieces cost: `cargo bench -p archipelago-benches`, one file with `--bench locks`, some of it with a part of a
//! name behind `--`.
//!
//! Whole structures under load, beside their rivals, are measured by the command instead: `archipelago bench`.

/// The next of a sequence that jumps about: keys that no prefetcher guesses.
#[inline(always)]
pub fn scatter(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Counts 0, 1, 2, and so on, and gives each in turn.
pub fn counter() -> impl FnMut() -> u64 {
    let mut next = 0;
    move || {
        next += 1;
        next - 1
    }
}
