//! HyperLogLogs: approximate counts of distinct elements, byte for byte as Redis 7 keeps them in a string.
//!
//! 16 bytes come first: "HYLL", the encoding, three zeros, and the last count with its topmost bit set if it is out of date. Then
//! come 16,384 registers: *dense*, six bits each, the first in the lowest bits; or *sparse*, as runs:
//!
//! | bytes | registers |
//! |---|---|
//! | `00llllll` | l + 1 of 0 |
//! | `01llllll llllllll` | l + 1 of 0 |
//! | `1vvvvvll` | l + 1 of v + 1 |
//!
//! Anyone can make such a string with `SET`, `SETRANGE` or `RESTORE`: every run is checked against the registers that are left, and
//! nothing is indexed by what the string says.
//!
//! The estimate is that of Ertl ("New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6), as in
//! Redis, operation by operation, so that counts are equal to the last digit.

use crate::reply::Fault;

/// How many registers there are.
pub const REGISTERS: usize = 1 << BITS;
/// Bits of a hash that choose a register.
const BITS: u32 = 14;
/// Bits of a hash that are left: the largest register is one more.
const REST: u32 = 64 - BITS;
/// Bytes before the registers.
const HEAD: usize = 16;
/// Bytes of a dense one.
const DENSE: usize = HEAD + REGISTERS * 6 / 8;
/// The longest string that stays sparse, unless it is set otherwise.
pub const SPARSE: usize = 3000;

const MAGIC: &[u8] = b"HYLL";
const IS_DENSE: u8 = 0;
const IS_SPARSE: u8 = 1;
/// Where the encoding is.
const ENCODING: usize = 4;
/// Where the last count is.
const CACHE: core::ops::Range<usize> = 8..HEAD;
/// Set in the last byte of a count that is out of date.
const STALE: u8 = 0x80;

/// The longest run of zeros in one byte.
const ZEROS: usize = 64;
/// The longest run of a value.
const VALUES: usize = 4;
/// The largest value of a run.
const LARGEST: u8 = 32;
/// Runs that are looked at for neighbours of one value.
const NEAR: usize = 5;

/// The error for what is one by its head and none by its runs.
const CORRUPTED: Fault = Fault::new("INVALIDOBJ Corrupted HLL object detected");

/// An empty one.
pub fn new() -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[ENCODING] = IS_SPARSE;
    put_zeros(REGISTERS, &mut bytes);
    bytes
}

/// Returns whether a string is one, by its head and length.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.len() >= HEAD
        && bytes.starts_with(MAGIC)
        && (bytes[ENCODING] == IS_SPARSE || (bytes[ENCODING] == IS_DENSE && bytes.len() == DENSE))
}

/// Returns whether it is sparse.
pub fn is_sparse(bytes: &[u8]) -> bool {
    bytes[ENCODING] == IS_SPARSE
}

/// The last count, unless it is out of date.
pub fn cached(bytes: &[u8]) -> Option<u64> {
    let count = bytes[CACHE].try_into().expect("it has eight bytes");
    (bytes[HEAD - 1] & STALE == 0).then_some(u64::from_le_bytes(count))
}

/// Keeps a count.
pub fn cache(bytes: &mut [u8], count: u64) {
    bytes[CACHE].copy_from_slice(&count.to_le_bytes());
}

/// Says that the last count is out of date.
pub fn spoil(bytes: &mut [u8]) {
    bytes[HEAD - 1] |= STALE;
}

/// MurmurHash64A with Redis's seed.
fn hash(element: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0xadc8_3b19;
    let mix = |word: u64| {
        let word = word.wrapping_mul(FACTOR);
        (word ^ word >> 47).wrapping_mul(FACTOR)
    };
    let mut hash = SEED ^ (element.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = element.as_chunks::<8>();
    for word in words {
        hash = (hash ^ mix(u64::from_le_bytes(*word))).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        hash = (hash ^ last).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(FACTOR);
    hash ^ hash >> 47
}

/// The register of an element, and what it is to be at least.
fn place(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let rest = hash >> BITS | 1 << REST;
    (hash as usize % REGISTERS, rest.trailing_zeros() as u8 + 1)
}

/// Adds an element. Returns whether a register was changed. A sparse one that would be longer than `most` bytes becomes dense.
pub fn add(bytes: &mut Vec<u8>, element: &[u8], most: usize) -> Result<bool, Fault> {
    let (index, value) = place(element);
    raise(bytes, index, value, most)
}

/// Raises a register to a value. Returns whether it was below. O(1) if it is dense, else O(bytes).
pub fn raise(bytes: &mut Vec<u8>, index: usize, value: u8, most: usize) -> Result<bool, Fault> {
    if is_sparse(bytes) { raise_sparse(bytes, index, value, most) } else { Ok(raise_dense(bytes, index, value)) }
}

fn register(bytes: &[u8], index: usize) -> u8 {
    let (at, shift) = (HEAD + index * 6 / 8, index * 6 % 8);
    let two = u16::from(bytes[at]) | bytes.get(at + 1).map_or(0, |next| u16::from(*next) << 8);
    (two >> shift) as u8 & 0x3f
}

fn raise_dense(bytes: &mut [u8], index: usize, value: u8) -> bool {
    if register(bytes, index) >= value {
        return false;
    }
    let (at, shift) = (HEAD + index * 6 / 8, index * 6 % 8);
    let (mask, set) = (0x3f_u16 << shift, u16::from(value) << shift);
    bytes[at] = bytes[at] & !mask as u8 | set as u8;
    if let Some(next) = bytes.get_mut(at + 1) {
        *next = *next & !(mask >> 8) as u8 | (set >> 8) as u8;
    }
    true
}

/// Registers of one value, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Their value.
    pub value: u8,
    /// How many they are.
    pub len: usize,
    /// Bytes that say so.
    pub size: usize,
}

/// The run at a place.
fn run(bytes: &[u8], at: usize) -> Option<Run> {
    let &first = bytes.get(at)?;
    let low = usize::from(first & 0x3f);
    Some(match first >> 6 {
        0 => Run { value: 0, len: low + 1, size: 1 },
        1 => Run { value: 0, len: (low << 8 | usize::from(*bytes.get(at + 1)?)) + 1, size: 2 },
        _ => Run { value: (first >> 2 & 0x1f) + 1, len: usize::from(first & 3) + 1, size: 1 },
    })
}

/// The runs of a sparse one, up to the first that is cut.
pub fn runs(bytes: &[u8]) -> impl Iterator<Item = Run> {
    let mut at = HEAD;
    core::iter::from_fn(move || {
        let run = run(bytes, at)?;
        at += run.size;
        Some(run)
    })
}

fn put_zeros(len: usize, out: &mut Vec<u8>) {
    let less = len - 1;
    if len > ZEROS {
        out.push(0x40 | (less >> 8) as u8);
    }
    out.push(less as u8);
}

fn put_values(value: u8, len: usize, out: &mut Vec<u8>) {
    out.push(0x80 | (value - 1) << 2 | (len - 1) as u8);
}

/// Shows `see` the registers that are not zero.
///
/// # Errors
/// If its runs are not those of all registers; some may have been shown.
fn each(bytes: &[u8], mut see: impl FnMut(usize, u8)) -> Result<(), Fault> {
    if !is_sparse(bytes) {
        (0..REGISTERS).for_each(|index| see(index, register(bytes, index)));
        return Ok(());
    }
    let (mut index, mut size) = (0, HEAD);
    for run in runs(bytes) {
        let end = index + run.len;
        if end > REGISTERS {
            return Err(CORRUPTED);
        }
        if run.value > 0 {
            (index..end).for_each(|index| see(index, run.value));
        }
        (index, size) = (end, size + run.size);
    }
    if index == REGISTERS && size == bytes.len() { Ok(()) } else { Err(CORRUPTED) }
}

/// The registers, one a byte.
pub type Registers = [u8; REGISTERS];

/// Raises registers to those of one.
///
/// # Errors
/// If it is corrupted.
pub fn merge(bytes: &[u8], into: &mut Registers) -> Result<(), Fault> {
    each(bytes, |index, value| into[index] = into[index].max(value))
}

/// Makes it dense. Returns whether it was not.
///
/// # Errors
/// If it is corrupted.
pub fn expand(bytes: &mut Vec<u8>) -> Result<bool, Fault> {
    if !is_sparse(bytes) {
        return Ok(false);
    }
    let mut dense = vec![0; DENSE];
    dense[..HEAD].copy_from_slice(&bytes[..HEAD]);
    dense[ENCODING] = IS_DENSE;
    each(bytes, |index, value| _ = raise_dense(&mut dense, index, value))?;
    *bytes = dense;
    Ok(true)
}

fn raise_expanded(bytes: &mut Vec<u8>, index: usize, value: u8) -> Result<bool, Fault> {
    expand(bytes)?;
    Ok(raise_dense(bytes, index, value))
}

fn raise_sparse(bytes: &mut Vec<u8>, index: usize, value: u8, most: usize) -> Result<bool, Fault> {
    if value > LARGEST {
        return raise_expanded(bytes, index, value);
    }
    let (mut at, mut first, mut before) = (HEAD, 0, HEAD);
    let met = loop {
        let run = run(bytes, at).ok_or(CORRUPTED)?;
        if index < first + run.len {
            break run;
        }
        (before, at, first) = (at, at + run.size, first + run.len);
    };
    if met.value >= value {
        return Ok(false);
    }
    let (left, right) = (index - first, first + met.len - 1 - index);
    let mut new = Vec::with_capacity(NEAR);
    let put = |len: usize, out: &mut Vec<u8>| match (len, met.value) {
        (0, _) => {}
        (_, 0) => put_zeros(len, out),
        (_, old) => put_values(old, len, out),
    };
    put(left, &mut new);
    put_values(value, 1, &mut new);
    put(right, &mut new);
    if new.len() > met.size && bytes.len() + new.len() - met.size > most {
        return raise_expanded(bytes, index, value);
    }
    bytes.splice(at..at + met.size, new);
    join(bytes, before);
    spoil(bytes);
    Ok(true)
}

/// Makes one run of neighbours of one value, among a few runs from a place on.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..NEAR {
        let Some(one) = run(bytes, at) else { return };
        let next = run(bytes, at + one.size).filter(|next| one.value > 0 && next.value == one.value);
        match next.map(|next| one.len + next.len).filter(|len| *len <= VALUES) {
            Some(len) => {
                let mut joined = Vec::with_capacity(1);
                put_values(one.value, len, &mut joined);
                bytes.splice(at..at + 2, joined);
            }
            None => at += one.size,
        }
    }
}

/// How many elements were added, about.
///
/// # Errors
/// If it is corrupted.
pub fn count(bytes: &[u8]) -> Result<u64, Fault> {
    let mut registers = [0; REGISTERS];
    merge(bytes, &mut registers)?;
    Ok(count_of(&registers))
}

/// How many elements were added, about, by registers.
pub fn count_of(registers: &Registers) -> u64 {
    const TIMES: f64 = 0.721_347_520_444_481_7;
    let mut of_value = [0_u32; 64];
    registers.iter().for_each(|value| of_value[usize::from(*value) % 64] += 1);
    let all = REGISTERS as f64;
    let top = f64::from(of_value[REST as usize + 1]);
    let mut z = all * tau((all - top) / all);
    for value in (1..=REST as usize).rev() {
        z = (z + f64::from(of_value[value])) * 0.5;
    }
    z += all * sigma(f64::from(of_value[0]) / all);
    (TIMES * all * all / z).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Random;

    fn registers(bytes: &[u8]) -> Registers {
        let mut all = [0; REGISTERS];
        merge(bytes, &mut all).expect("it is a sound one");
        all
    }

    #[test]
    fn sparse_and_dense_have_the_registers_of_a_table() {
        let mut random = Random(5);
        for most in [0, 100, SPARSE, 20_000] {
            let (mut bytes, mut model) = (new(), [0; REGISTERS]);
            for step in 0..6_000 {
                // Neighbours now and then, so that runs are joined.
                let index = if step % 3 == 0 { random.below(REGISTERS) } else { 8_000 + random.below(60) };
                let value = 1 + random.below(if step > 5_000 { 51 } else { 3 }) as u8;
                let raised = raise(&mut bytes, index, value, most).unwrap();
                assert_eq!(raised, model[index] < value);
                model[index] = model[index].max(value);
                assert!(is_one(&bytes) && (!is_sparse(&bytes) || bytes.len() <= most.max(18)));
                if step % 50 == 0 {
                    assert_eq!(registers(&bytes), model, "{most} {step}");
                }
            }
        }
    }

    #[test]
    fn counts_are_near() {
        let mut bytes = new();
        for number in 1..=200_000_u32 {
            add(&mut bytes, &number.to_le_bytes(), SPARSE).unwrap();
            if number.is_power_of_two() || number == 200_000 {
                let count = count(&bytes).unwrap() as f64;
                assert!((count / f64::from(number) - 1.0).abs() < 0.03, "{count} of {number}");
            }
        }
        assert!(!is_sparse(&bytes));
    }

    #[test]
    fn the_hash_is_murmurs() {
        // What PFDEBUG DECODE of Redis tells of each.
        assert_eq!((place(b"a"), place(b"foobarbaz")), ((12_711, 2), (7_560, 2)));
    }

    #[test]
    fn what_is_corrupted_is_refused() {
        let mut random = Random(6);
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut bytes = new();
            (0..random.below(40))
                .for_each(|_| _ = raise(&mut bytes, random.below(REGISTERS), 1 + random.below(32) as u8, SPARSE));
            for _ in 0..1 + random.below(3) {
                let at = HEAD + random.below(bytes.len() - HEAD);
                bytes[at] = random.draw() as u8;
            }
            if random.below(3) == 0 {
                bytes.truncate(HEAD + random.below(bytes.len() - HEAD));
            }
            let sound = count(&bytes).is_ok();
            refused += u32::from(!sound);
            assert_eq!(expand(&mut bytes.clone()).is_ok(), sound);
            let _ = raise(&mut bytes, random.below(REGISTERS), 1 + random.below(51) as u8, SPARSE);
        }
        assert!(refused > 10_000, "{refused}");
    }
}
