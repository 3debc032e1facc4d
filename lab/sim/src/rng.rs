//! The simulation's random numbers: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), one state word per stream.

/// Returns the next number of the stream.
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns a number below `bound`, which is not 0. The bias is below `bound / 2^64`.
pub(crate) fn below(state: &mut u64, bound: u64) -> u64 {
    ((u128::from(next(state)) * u128::from(bound)) >> 64) as u64
}

/// Returns true with this probability.
pub(crate) fn chance(state: &mut u64, probability: f64) -> bool {
    (next(state) >> 11) as f64 / (1_u64 << 53) as f64 <= probability && probability > 0.0
}
