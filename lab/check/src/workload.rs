//! Seeded keys and operation mixes, reproducible on every run and machine.
//!
//! All randomness comes from a named generator ([`Rng`], xoshiro256++) and a seed that the test gives. Only the
//! scheduling of threads is left to chance.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use std::collections::BTreeSet;

/// The random generator of all workloads.
pub type Rng = rand::rngs::Xoshiro256PlusPlus;

/// Returns a generator for one thread of a test.
pub fn rng(seed: u64, thread: usize) -> Rng {
    Rng::seed_from_u64(seed ^ (thread as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Chooses indices of a key set.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Each of this many indices equally often.
    Uniform(usize),
    /// Some of the indices far more often than others, by Zipf's law.
    Skewed(Zipf<f64>),
}

impl Choice {
    /// Returns a uniform choice of indices below `len`.
    pub fn uniform(len: usize) -> Self {
        Choice::Uniform(len)
    }

    /// Returns a choice of indices below `len`; index i has a frequency proportional to `1 / (i + 1)^exponent`. YCSB's
    /// exponent is 0.99.
    ///
    /// # Panics
    /// If `len` is 0 or `exponent` is negative.
    pub fn zipf(len: usize, exponent: f64) -> Self {
        Choice::Skewed(Zipf::new(len as f64, exponent).expect("a non-empty set and a non-negative exponent"))
    }

    /// Draws the next index.
    pub fn next(&self, rng: &mut Rng) -> usize {
        match self {
            Choice::Uniform(len) => rng.random_range(0..*len),
            Choice::Skewed(zipf) => zipf.sample(rng) as usize - 1,
        }
    }
}

/// The shares of the kinds of operations in a mix. Their sum is arbitrary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Look-ups.
    pub get: u32,
    /// Inserts or replacements.
    pub insert: u32,
    /// Atomic replacements of a present key's value.
    pub update: u32,
    /// Removals.
    pub remove: u32,
    /// Scans, ascending and descending.
    pub scan: u32,
}

/// The kinds of operations a [`Mix`] mixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// A look-up.
    Get,
    /// An insert or replacement.
    Insert,
    /// An atomic replacement of a present key's value.
    Update,
    /// A removal.
    Remove,
    /// A scan.
    Scan,
}

impl Mix {
    /// All kinds about equally often: the mix for finding bugs.
    pub const EVEN: Mix = Mix { get: 4, insert: 4, update: 2, remove: 4, scan: 2 };
    /// Nearly only look-ups.
    pub const READS: Mix = Mix { get: 18, insert: 1, update: 0, remove: 1, scan: 0 };
    /// Inserts and removals only, so that pages fill up and become empty.
    pub const CHURN: Mix = Mix { get: 0, insert: 1, update: 0, remove: 1, scan: 0 };

    /// Draws the next operation's kind.
    ///
    /// # Panics
    /// If all shares are 0.
    pub fn next(&self, rng: &mut Rng) -> OpKind {
        let shares = [
            (self.get, OpKind::Get),
            (self.insert, OpKind::Insert),
            (self.update, OpKind::Update),
            (self.remove, OpKind::Remove),
            (self.scan, OpKind::Scan),
        ];
        let mut point = rng.random_range(0..shares.iter().map(|(share, _)| share).sum());
        for (share, kind) in shares {
            if point < share {
                return kind;
            }
            point -= share;
        }
        unreachable!("the point is below the sum of all shares")
    }
}

/// Returns `count` different random keys, in no order.
pub fn random_keys(count: usize, rng: &mut Rng) -> Vec<u64> {
    distinct(count, || rng.random())
}

/// Returns `count` different keys in runs of `run` neighbours. The runs start 2^34 apart, so the high bits have few
/// values and the low bits are dense.
pub fn clustered_keys(count: usize, run: usize) -> Vec<u64> {
    (0..count).map(|i| (((i / run) as u64) << 34) + (i % run) as u64).collect()
}

/// Returns the keys `0..count`.
pub fn sequential_keys(count: usize) -> Vec<u64> {
    (0..count as u64).collect()
}

/// Returns `count` different strings like `mail.example@user`, of about 25 bytes each. The domains are few and not
/// equally frequent, so that keys share long prefixes.
pub fn email_keys(count: usize, rng: &mut Rng) -> Vec<String> {
    const DOMAINS: [&str; 16] = [
        "mail.example",
        "post.example",
        "inbox.example",
        "webmail.example",
        "letters.example",
        "mailbox.example.org",
        "students.example.edu",
        "staff.example.edu",
        "example.com",
        "example.net",
        "corp.example.com",
        "support.example.com",
        "news.example.net",
        "lists.example.org",
        "a.example",
        "very.long.subdomain.example",
    ];
    let domain = Choice::zipf(DOMAINS.len(), 1.0);
    distinct(count, || {
        let letters = rng.random_range(6..=15);
        let user: String = (0..letters).map(|_| rng.random_range(b'a'..=b'z') as char).collect();
        format!("{}@{user}", DOMAINS[domain.next(rng)])
    })
}

fn distinct<T: Ord + Clone>(count: usize, mut next: impl FnMut() -> T) -> Vec<T> {
    let mut seen = BTreeSet::new();
    let mut keys = Vec::with_capacity(count);
    while keys.len() < count {
        let key = next();
        if seen.insert(key.clone()) {
            keys.push(key);
        }
    }
    keys
}

/// Returns integers at which encodings and bounds break: both ends, every power of two, and its neighbours.
pub fn hostile_integers() -> Vec<u64> {
    let mut keys: BTreeSet<u64> = [0, 1, u64::MAX, u64::MAX - 1].into();
    for bit in 0..64 {
        let power = 1u64 << bit;
        keys.extend([power - 1, power, power.wrapping_add(1)]);
    }
    keys.into_iter().collect()
}

/// Returns byte strings at which encodings, prefixes and length fields break: the empty string, 10 kB, all lengths of
/// one shared prefix (each with different next bytes), and zero bytes and 0xFF in every position.
pub fn hostile_bytes() -> Vec<Vec<u8>> {
    let mut keys: BTreeSet<Vec<u8>> = [vec![], vec![0], vec![0, 0], vec![0xFF], vec![0xFF; 2], vec![0xFF; 9]].into();
    let stem = b"archipelago/island/harbour/quay-";
    for length in 0..=stem.len() {
        let prefix = &stem[..length];
        keys.insert(prefix.to_vec());
        for next in [0, 1, 0x7F, 0x80, 0xFE, 0xFF] {
            keys.insert([prefix, &[next]].concat());
            keys.insert([prefix, &[next, 0]].concat());
        }
    }
    for length in [7, 8, 9, 15, 16, 17, 255, 256, 257] {
        keys.insert(vec![0; length]);
        keys.insert(vec![b'x'; length]);
    }
    let long = vec![b'l'; 10_000];
    let (mut longer, mut other) = (long.clone(), long.clone());
    longer.push(0);
    other[9_999] = b'm';
    keys.extend([long, longer, other]);
    keys.into_iter().collect()
}

/// Returns strings for the same purpose: those of [`hostile_bytes`] that are valid text, and characters of every
/// encoded length.
pub fn hostile_strings() -> Vec<String> {
    let mut keys: BTreeSet<String> =
        hostile_bytes().into_iter().filter_map(|key| String::from_utf8(key).ok()).collect();
    keys.extend(
        ["\u{80}", "\u{7FF}", "\u{800}", "\u{FFFF}", "\u{10000}", "\u{10FFFF}", "é", "e\u{301}"].map(String::from),
    );
    keys.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_workload() {
        let draw = |seed, thread| {
            let mut rng = rng(seed, thread);
            let choice = Choice::zipf(100, 0.99);
            (0..50).map(|_| (choice.next(&mut rng), Mix::EVEN.next(&mut rng))).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
        // The values are fixed here, so that a change of the generator is noticed.
        assert_eq!(random_keys(2, &mut rng(1, 0)), [0xcfc5_d07f_6f03_c29b, 0xbf42_4132_963f_e08d]);
    }

    #[test]
    fn choices_stay_in_range_and_skew() {
        let mut rng = rng(7, 0);
        let mut counts = [[0u32; 10]; 2];
        for (choice, counts) in [Choice::uniform(10), Choice::zipf(10, 0.99)].iter().zip(&mut counts) {
            for _ in 0..10_000 {
                counts[choice.next(&mut rng)] += 1;
            }
        }
        assert!(counts[0].iter().all(|&count| (800..1200).contains(&count)), "{counts:?}");
        assert!(counts[1][0] > 5 * counts[1][9] && counts[1][9] > 0, "{counts:?}");
    }

    #[test]
    fn mixes_keep_their_shares() {
        let mut rng = rng(3, 0);
        let kinds: Vec<_> = (0..1600).map(|_| Mix::EVEN.next(&mut rng)).collect();
        let count = |kind| kinds.iter().filter(|&&k| k == kind).count();
        assert!((320..480).contains(&count(OpKind::Get)) && (120..280).contains(&count(OpKind::Scan)));
        assert!((0..100).all(|_| matches!(Mix::CHURN.next(&mut rng), OpKind::Insert | OpKind::Remove)));
    }

    #[test]
    fn key_sets_are_what_they_say() {
        let mut rng = rng(5, 0);
        let emails = email_keys(1000, &mut rng);
        let bytes: usize = emails.iter().map(String::len).sum();
        assert!((23_000..27_000).contains(&bytes), "{bytes}");
        assert!(emails.iter().all(|key| key.split('@').count() == 2));
        assert_eq!(clustered_keys(5, 2), [0, 1, 1 << 34, (1 << 34) + 1, 2 << 34]);
        assert_eq!(random_keys(100, &mut rng).into_iter().collect::<BTreeSet<_>>().len(), 100);
        assert!([0, u64::MAX].iter().all(|key| hostile_integers().contains(key)));
        let bytes = hostile_bytes();
        assert!(bytes[0].is_empty() && bytes.iter().any(|key| key.len() > 10_000) && bytes.len() > 300);
        assert!(hostile_strings().len() > 100);
    }
}
