//! The hash function of the tables of a database.

use siphasher::sip::SipHasher13;

/// A hash function. It follows from a secret seed, so that a client cannot choose keys with equal hashes. The seed is a
/// part of the database: the replicas have it in common, and recoveries restore it.
///
/// With a seed, the function is SipHash-1-3. A multiplicative mix like [`unseeded`] would not suffice: a key that makes
/// one factor 0 makes the product 0, whatever the seed is. Seed 0 stands for `unseeded`, the function of
/// databases that are older than seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hashing(u64);

impl Hashing {
    /// Returns the hash function of a seed.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the seed.
    pub fn seed(self) -> u64 {
        self.0
    }

    /// Returns the hash of a key. It is the same in every process and must never change.
    pub fn of(self, key: &[u8]) -> u32 {
        match self.0 {
            0 => unseeded(key),
            // SipHash's key has two words. A table stores only one word, and the other word is its complement.
            seed => (SipHasher13::new_with_keys(seed, !seed).hash(key) >> 32) as u32,
        }
    }
}

/// The constants of [`unseeded`].
pub(super) const K: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];

/// Returns the hash of a key without a seed. It is the same in every process and must never change.
pub fn unseeded(key: &[u8]) -> u32 {
    let mix = |a: u64, b: u64| {
        let wide = u128::from(a) * u128::from(b);
        wide as u64 ^ (wide >> 64) as u64
    };
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let mut state = K[0] ^ key.len() as u64;
    let mut pieces = key.chunks_exact(16);
    for piece in &mut pieces {
        state = mix(word(&piece[..8]) ^ K[1], word(&piece[8..]) ^ state);
    }
    let rest = pieces.remainder();
    let (first, second) = rest.split_at(rest.len().min(8));
    state = mix(word(first) ^ K[1], word(second) ^ state);
    (mix(state ^ K[2], K[1]) >> 32) as u32
}
