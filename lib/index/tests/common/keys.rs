//! Keys for the suite. Each key type has a pool of keys, which begins with the hostile ones.

use archipelago_check::workload;
use archipelago_index::Key;
use core::fmt::Debug;
use core::hash::Hash;
use std::collections::BTreeSet;

/// A key type with which the suite can run. Its order is that of its encodings.
pub trait TestKey: Key + Ord + Debug + Hash {
    /// Returns the least key.
    fn least() -> Self;

    /// Returns keys that could break encodings, bounds and prefixes. The most dangerous keys are first.
    fn hostile() -> Vec<Self>;

    /// Returns more keys: half of them are clustered or share long prefixes, and half are random.
    fn ordinary(count: usize) -> Vec<Self>;

    /// Returns a key that a scan has shown, as an owned key.
    fn owned(shown: Self::Ref<'_>) -> Self;

    /// Returns `count` different keys, in no order; up to a third of them are hostile.
    fn pool(count: usize) -> Vec<Self> {
        let mut seen = BTreeSet::new();
        let hostile = Self::hostile().into_iter().take(count.div_ceil(3));
        let all = hostile.chain(Self::ordinary(2 * count));
        let pool: Vec<Self> = all.filter(|key| seen.insert(key.clone())).take(count).collect();
        assert_eq!(pool.len(), count, "this key type has not enough keys");
        pool
    }
}

/// Reorders the items, so that adjacent items are separated: takes every seventh item from the first one on, then every
/// seventh from the second one on, and so on.
fn scattered<T: Clone>(items: Vec<T>) -> Vec<T> {
    (0..7).flat_map(|start| items[start.min(items.len())..].iter().step_by(7).cloned()).collect()
}

fn mixed_integers(count: usize) -> impl Iterator<Item = u64> {
    let random = workload::random_keys(count.div_ceil(2), &mut workload::rng(1, 0));
    workload::clustered_keys(count.div_ceil(2), 50).into_iter().zip(random).flat_map(|(a, b)| [a, b])
}

fn mixed_strings(count: usize) -> impl Iterator<Item = String> {
    let emails = workload::email_keys(count.div_ceil(2), &mut workload::rng(1, 0));
    let random = workload::random_keys(count.div_ceil(2), &mut workload::rng(2, 0));
    emails.into_iter().zip(random).flat_map(|(a, b)| [a, format!("{b:x}")])
}

macro_rules! integer_keys {
    ($($t:ty: |$x:ident| $spread:expr;)*) => { $(
        impl TestKey for $t {
            fn least() -> Self {
                <$t>::MIN
            }

            fn hostile() -> Vec<Self> {
                let worst = [<$t>::MIN, <$t>::MAX, 0, 1, <$t>::MAX - 1, <$t>::MIN + 1];
                let powers = scattered(workload::hostile_integers()).into_iter().map(|$x| $spread);
                worst.into_iter().chain(powers).collect()
            }

            fn ordinary(count: usize) -> Vec<Self> {
                mixed_integers(count).map(|$x| $spread).collect()
            }

            fn owned(shown: $t) -> Self {
                shown
            }
        }
    )* };
}

integer_keys! {
    u64: |x| x;
    // Clustered numbers become small positive and small negative numbers.
    i64: |x| if x % 2 == 0 { x as i64 } else { (x as i64).wrapping_neg() };
    u32: |x| (x ^ (x >> 32)) as u32;
    // These differ in the high half, in the low half, or in both.
    u128: |x| match x % 3 { 0 => u128::from(x), 1 => u128::from(x) << 64, _ => u128::from(x) << 64 | u128::from(x) };
}

impl<const N: usize> TestKey for [u8; N] {
    fn least() -> Self {
        [0; N]
    }

    fn hostile() -> Vec<Self> {
        let mut keys = vec![[0; N], [0xFF; N]];
        for place in 0..N {
            for byte in [0, 1, 0x7F, 0x80, 0xFF] {
                let (mut low, mut high) = ([0; N], [0xFF; N]);
                (low[place], high[place]) = (byte, byte);
                keys.extend([low, high]);
            }
        }
        keys
    }

    fn ordinary(count: usize) -> Vec<Self> {
        let spread = |x: u64| core::array::from_fn(|i| x.to_be_bytes()[i % 8]);
        mixed_integers(count).map(spread).collect()
    }

    fn owned(shown: [u8; N]) -> Self {
        shown
    }
}

impl TestKey for Vec<u8> {
    fn least() -> Self {
        Vec::new()
    }

    fn hostile() -> Vec<Self> {
        let longest = vec![b'l'; 10_000];
        [vec![vec![], vec![0], vec![0xFF; 9], longest], scattered(workload::hostile_bytes())].concat()
    }

    fn ordinary(count: usize) -> Vec<Self> {
        mixed_strings(count).map(String::into_bytes).collect()
    }

    fn owned(shown: &[u8]) -> Self {
        shown.to_vec()
    }
}

impl TestKey for String {
    fn least() -> Self {
        String::new()
    }

    fn hostile() -> Vec<Self> {
        let worst = ["".into(), "\0".into(), "l".repeat(10_000), "\u{10FFFF}".into()];
        worst.into_iter().chain(scattered(workload::hostile_strings())).collect()
    }

    fn ordinary(count: usize) -> Vec<Self> {
        mixed_strings(count).collect()
    }

    fn owned(shown: &str) -> Self {
        shown.to_owned()
    }
}

impl TestKey for (u32, String) {
    fn least() -> Self {
        (0, String::new())
    }

    fn hostile() -> Vec<Self> {
        let strings = String::hostile();
        let numbers = u32::hostile().into_iter().cycle();
        numbers.zip(strings).flat_map(|(number, string)| [(number, string.clone()), (0, string)]).collect()
    }

    fn ordinary(count: usize) -> Vec<Self> {
        u32::ordinary(count).into_iter().map(|n| n % 16).zip(String::ordinary(count)).collect()
    }

    fn owned((number, string): Self::Ref<'_>) -> Self {
        (number, string.into_owned())
    }
}

impl TestKey for (Vec<u8>, i16, Vec<u8>) {
    fn least() -> Self {
        (Vec::new(), i16::MIN, Vec::new())
    }

    fn hostile() -> Vec<Self> {
        let strings = Vec::<u8>::hostile();
        let numbers = [i16::MIN, -1, 0, 1, i16::MAX].into_iter().cycle();
        let pairs = strings.iter().zip(strings.iter().rev()).zip(numbers);
        pairs.map(|((a, b), number)| (a.clone(), number, b.clone())).collect()
    }

    fn ordinary(count: usize) -> Vec<Self> {
        let strings = String::ordinary(count).into_iter().map(String::into_bytes);
        let rest = u32::ordinary(count).into_iter();
        rest.zip(strings).map(|(n, string)| (string[..string.len() / 2].to_vec(), n as i16, string)).collect()
    }

    fn owned((first, number, last): Self::Ref<'_>) -> Self {
        (first.into_owned(), number, last.into_owned())
    }
}
