//! What searches in pages are made of.

/// The first index in `start..end` for which `before` is false; `before` is monotonous, or racing with a writer and
/// the result meaningless.
#[inline]
pub(crate) fn partition_point(start: usize, end: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut start, mut size) = (start, end - start);
    // Which half it is, no branch predictor can know.
    while size > 1 {
        let half = size / 2;
        start = core::hint::select_unpredictable(before(start + half), start + half, start);
        size -= half;
    }
    if size == 1 && before(start) { start + 1 } else { start }
}

/// Eight bytes of `key` from `at`, big-endian, padded with zeros.
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

/// The length of the longest common prefix.
pub(crate) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
