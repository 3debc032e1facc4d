//! HyperLogLogs: approximate counts of distinct elements. A HyperLogLog is a string with exactly the bytes that Redis 7
//! stores.
//!
//! The string begins with 16 bytes: "HYLL", one byte for the encoding, three zeros, and eight bytes for the last count.
//! The topmost bit of the last count is set if that count is out of date. 16,384 registers follow, in one of two
//! encodings. *Dense*: six bits for each register, the first register in the lowest bits. *Sparse*: runs of equal
//! registers:
//!
//! | bytes | registers |
//! |---|---|
//! | `00llllll` | l + 1 of value 0 |
//! | `01llllll llllllll` | l + 1 of value 0 |
//! | `1vvvvvll` | l + 1 of value v + 1 |
//!
//! A client can make such a string with `SET`, `SETRANGE` or `RESTORE`, so its bytes are untrusted. Each run is checked
//! against the number of registers that are left. No index is taken from the string unchecked.
//!
//! The estimate is that of Ertl ("New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6).
//! The floating-point operations are those of Redis, in the same order, so that the counts are equal to the last digit.

use crate::reply::Fault;

/// The number of registers.
pub const REGISTERS: usize = 1 << BITS;
/// The number of bits of a hash that select a register.
const BITS: u32 = 14;
/// The number of the other bits of a hash. The largest value of a register is this number plus one.
const REST: u32 = 64 - BITS;
/// The number of bytes before the registers.
const HEAD: usize = 16;
/// The number of bytes of a dense HyperLogLog.
const DENSE: usize = HEAD + REGISTERS * 6 / 8;
/// The default for the longest HyperLogLog that stays sparse, in bytes.
pub const SPARSE: usize = 3000;

const MAGIC: &[u8] = b"HYLL";
const IS_DENSE: u8 = 0;
const IS_SPARSE: u8 = 1;
/// The offset of the encoding.
const ENCODING: usize = 4;
/// The bytes of the last count.
const CACHE: core::ops::Range<usize> = 8..HEAD;
/// The bit that is set in the highest byte of the last count if the count is out of date.
const STALE: u8 = 0x80;

/// The longest run of zeros that one byte can encode.
const ZEROS: usize = 64;
/// The longest run of a value that is not 0.
const VALUES: usize = 4;
/// The largest value that a run can have.
const LARGEST: u8 = 32;
/// How many runs are checked for an equal neighbour after a change.
const NEAR: usize = 5;

/// The error for a string that has a HyperLogLog's head but malformed runs.
const CORRUPTED: Fault = Fault::new("INVALIDOBJ Corrupted HLL object detected");

/// Returns an empty HyperLogLog.
pub fn new() -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[ENCODING] = IS_SPARSE;
    put_zeros(REGISTERS, &mut bytes);
    bytes
}

/// Returns whether a string is a HyperLogLog, judged by its head and its length.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.len() >= HEAD
        && bytes.starts_with(MAGIC)
        && (bytes[ENCODING] == IS_SPARSE || (bytes[ENCODING] == IS_DENSE && bytes.len() == DENSE))
}

/// Returns whether a HyperLogLog is sparse.
pub fn is_sparse(bytes: &[u8]) -> bool {
    bytes[ENCODING] == IS_SPARSE
}

/// Returns the last count, unless it is out of date.
pub fn cached(bytes: &[u8]) -> Option<u64> {
    let count = bytes[CACHE].try_into().expect("it has eight bytes");
    (bytes[HEAD - 1] & STALE == 0).then_some(u64::from_le_bytes(count))
}

/// Stores a count as the last count.
pub fn cache(bytes: &mut [u8], count: u64) {
    bytes[CACHE].copy_from_slice(&count.to_le_bytes());
}

/// Marks the last count as out of date.
pub fn spoil(bytes: &mut [u8]) {
    bytes[HEAD - 1] |= STALE;
}

/// Returns the MurmurHash64A of an element, with Redis's seed.
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

/// Returns the register of an element, and the least value that the register has once the element is added.
fn place(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let rest = hash >> BITS | 1 << REST;
    (hash as usize % REGISTERS, rest.trailing_zeros() as u8 + 1)
}

/// Adds an element. Returns whether a register was changed. A sparse HyperLogLog becomes dense if it would be longer
/// than `most` bytes, or if it cannot represent the register's new value.
pub fn add(bytes: &mut Vec<u8>, element: &[u8], most: usize) -> Result<bool, Fault> {
    let (index, value) = place(element);
    raise(bytes, index, value, most)
}

/// Raises a register to `value`. Returns whether the register was lower before. O(1) if the HyperLogLog is dense, else
/// O(bytes).
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

/// Consecutive registers of equal value.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The value of each register.
    pub value: u8,
    /// The number of registers.
    pub len: usize,
    /// The number of bytes that encode the run.
    pub size: usize,
}

/// Returns the run that is encoded at offset `at`.
fn run(bytes: &[u8], at: usize) -> Option<Run> {
    let &first = bytes.get(at)?;
    let low = usize::from(first & 0x3f);
    Some(match first >> 6 {
        0 => Run { value: 0, len: low + 1, size: 1 },
        1 => Run { value: 0, len: (low << 8 | usize::from(*bytes.get(at + 1)?)) + 1, size: 2 },
        _ => Run { value: (first >> 2 & 0x1f) + 1, len: usize::from(first & 3) + 1, size: 1 },
    })
}

/// Returns the runs of a sparse HyperLogLog, up to the first run whose bytes are incomplete.
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

/// Passes to `see` the index and value of each register. Registers of a sparse HyperLogLog that are 0 are left out.
///
/// # Errors
/// Returns an error if the runs do not cover exactly all registers. Some registers may already have been passed to
/// `see`.
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

/// All registers, one byte each.
pub type Registers = [u8; REGISTERS];

/// Raises each register of `into` to the value of the same register of a HyperLogLog.
///
/// # Errors
/// Returns an error if the HyperLogLog is malformed.
pub fn merge(bytes: &[u8], into: &mut Registers) -> Result<(), Fault> {
    each(bytes, |index, value| into[index] = into[index].max(value))
}

/// Makes a HyperLogLog dense. Returns whether it was sparse.
///
/// # Errors
/// Returns an error if the HyperLogLog is malformed.
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

/// Joins neighbouring runs of the same value other than 0, among the next [`NEAR`] runs from offset `at` on.
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

/// Returns an estimate of how many distinct elements were added.
///
/// # Errors
/// Returns an error if the HyperLogLog is malformed.
pub fn count(bytes: &[u8]) -> Result<u64, Fault> {
    let mut registers = [0; REGISTERS];
    merge(bytes, &mut registers)?;
    Ok(count_of(&registers))
}

/// Returns an estimate of how many distinct elements were added, from the registers.
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
                // Some registers are close to each other, so that runs are joined.
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
        // The expected values are those that `PFDEBUG DECODE` of Redis reports.
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
