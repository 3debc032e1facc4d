//! Functions for searches in pages.

/// Returns the first index in `start..end` for which `before` is false. `before` must be true up to some index and
/// false from this index on. If a writer changes the data during the search, this may not hold, and the result is
/// meaningless.
#[inline]
pub(crate) fn partition_point(start: usize, end: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut start, mut size) = (start, end - start);
    // A branch predictor cannot predict which half is chosen, so the loop has no branch that depends on `before`.
    while size > 1 {
        let half = size / 2;
        start = core::hint::select_unpredictable(before(start + half), start + half, start);
        size -= half;
    }
    if size == 1 && before(start) { start + 1 } else { start }
}

/// Returns eight bytes of `key` from index `at`, as a big-endian number, padded with zeros.
#[inline]
pub(crate) fn chunk(key: &[u8], at: usize) -> u64 {
    if let Some(bytes) = key.get(at..at + 8) {
        return u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    }
    if at >= key.len() {
        return 0;
    }
    if let Some(last) = key.last_chunk::<8>() {
        return u64::from_be_bytes(*last) << (8 * (at + 8 - key.len()));
    }
    key[at..].iter().enumerate().fold(0, |word, (i, &byte)| word | u64::from(byte) << (56 - 8 * i))
}

/// Returns the length of the longest common prefix.
pub(crate) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
