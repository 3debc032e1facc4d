//! Keys made from a seed: uniform, clustered, and e-mail addresses.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt};

/// Number of runs in [`clustered`].
const CLUSTERS: u64 = 1000;
/// Distance between the starts of two runs.
const CLUSTER_STRIDE: u64 = 1 << 34;

/// Mail domains with their weights in percent, skewed as real ones are.
const DOMAINS: [(&str, u32); 16] = [
    ("gmail.com", 30),
    ("yahoo.com", 15),
    ("hotmail.com", 12),
    ("outlook.com", 9),
    ("aol.com", 7),
    ("icloud.com", 6),
    ("mail.ru", 4),
    ("gmx.de", 3),
    ("web.de", 3),
    ("qq.com", 3),
    ("163.com", 2),
    ("comcast.net", 2),
    ("live.com", 1),
    ("orange.fr", 1),
    ("protonmail.com", 1),
    ("example.edu", 1),
];

const FIRST: [&str; 32] = [
    "james", "mary", "john", "linda", "robert", "susan", "michael", "karen", "david", "nancy", "li", "wei", "anna",
    "peter", "olga", "ivan", "maria", "jose", "ahmed", "fatima", "yuki", "ken", "emma", "lucas", "sofia", "noah",
    "mia", "paul", "laura", "tom", "eva", "max",
];

const LAST: [&str; 32] = [
    "smith", "jones", "brown", "taylor", "wilson", "davis", "evans", "thomas", "johnson", "walker", "wright", "hall",
    "green", "wood", "king", "lee", "chen", "wang", "zhang", "liu", "kim", "park", "sato", "ito", "mueller", "schmidt",
    "garcia", "lopez", "silva", "santos", "ivanov", "rossi",
];

/// Returns `count` distinct uniform integers, in no particular order.
pub fn uniform(count: usize, rng: &mut SmallRng) -> Vec<u64> {
    distinct(count, || rng.next_u64())
}

/// Returns `count` integers in runs of consecutive numbers. The runs start [`CLUSTER_STRIDE`] apart.
pub fn clustered(count: usize, rng: &mut SmallRng) -> Vec<u64> {
    let offset = rng.random_range(0..CLUSTER_STRIDE);
    (0..count as u64).map(|i| offset + i % CLUSTERS * CLUSTER_STRIDE + i / CLUSTERS).collect()
}

/// Returns `count` distinct addresses, domain first, as in `gmail.com@john.smith84`.
pub fn emails(count: usize, rng: &mut SmallRng) -> Vec<Vec<u8>> {
    // There are so many numbers that most draws are new addresses, and so few that names occur
    // repeatedly.
    let numbers = (count as u64 / 50).max(100);
    distinct(count, || email(numbers, rng))
}

/// Returns an address with a number below `numbers`.
pub fn email(numbers: u64, rng: &mut SmallRng) -> Vec<u8> {
    let first = FIRST[rng.random_range(0..FIRST.len())];
    let last = LAST[rng.random_range(0..LAST.len())];
    let mut key = Vec::with_capacity(32);
    key.extend_from_slice(domain(rng).as_bytes());
    key.push(b'@');
    key.extend_from_slice(first.as_bytes());
    key.push(b'.');
    key.extend_from_slice(last.as_bytes());
    key.extend_from_slice(rng.random_range(0..numbers).to_string().as_bytes());
    key.shrink_to_fit();
    key
}

fn domain(rng: &mut SmallRng) -> &'static str {
    let mut left = rng.random_range(0..DOMAINS.iter().map(|(_, weight)| weight).sum());
    for (name, weight) in DOMAINS {
        if left < weight {
            return name;
        }
        left -= weight;
    }
    unreachable!("the draw is below the sum of the weights")
}

/// Draws until there are `count` distinct keys, and returns them.
fn distinct<K: Ord>(count: usize, mut draw: impl FnMut() -> K) -> Vec<K> {
    let mut keys = Vec::with_capacity(count);
    while keys.len() < count {
        keys.extend(std::iter::repeat_with(&mut draw).take(count - keys.len()));
        keys.sort_unstable();
        keys.dedup();
    }
    keys
}
