//! What TPC-C draws: its uneven numbers, its names (clauses 2.1.6, 4.3.2).

use super::rows::{Name, name};
use crate::random::Random;

/// The number C of the uneven draws, for customers' numbers, items, and last names in a run and in the load; the last two differ by 87,
/// which clause 2.1.6.1 allows.
const OF_CUSTOMERS: u64 = 259;
const OF_ITEMS: u64 = 7911;
const OF_NAMES: [u64; 2] = [187, 100];

/// When a last name is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In a run.
    Run,
    /// When customers are loaded.
    Load,
}

/// NURand(A, x, y) with the constant C.
fn uneven(random: &mut Random, a: u64, c: u64, (low, high): (u64, u64)) -> u64 {
    ((random.within(0, a) | random.within(low, high)) + c) % (high - low + 1) + low
}

/// A customer's number, of this many.
pub fn customer(random: &mut Random, customers: u16) -> u16 {
    uneven(random, 1023, OF_CUSTOMERS, (1, u64::from(customers))) as u16
}

/// An item's number, of this many.
pub fn item(random: &mut Random, items: u32) -> u32 {
    uneven(random, 8191, OF_ITEMS, (1, u64::from(items))) as u32
}

/// The number of a last name, of those that this many customers of a district have.
pub fn last(random: &mut Random, when: When, customers: u16) -> u16 {
    let names = u64::from(customers.min(1000));
    uneven(random, 255, OF_NAMES[usize::from(when == When::Load)], (0, names - 1)) as u16
}

/// The last name with a number below 1,000.
pub fn last_name(number: u16) -> Name {
    const PARTS: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    let part = |digit: u16| PARTS[usize::from(digit % 10)];
    name(&[part(number / 100), part(number / 10), part(number)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_three_parts() {
        assert_eq!(last_name(371), name("PRICALLYOUGHT"));
        assert_eq!(last_name(0), name("BARBARBAR"));
        // The longest one fits.
        assert_eq!(last_name(777), name("CALLYCALLYCALLY"));
    }

    /// Draws stay within their limits and are uneven: the most frequent number has several times its even share.
    #[test]
    fn draws_are_uneven_and_within_their_limits() {
        let mut random = Random::new(1, 0);
        let mut counts = vec![0; 3001];
        (0..300_000).for_each(|_| counts[usize::from(customer(&mut random, 3000))] += 1);
        let drawn = counts.iter().filter(|count| **count > 0).count();
        assert!(counts[0] == 0 && drawn > 2500, "{drawn} of 3000");
        // An even share is a hundred.
        assert!(counts.iter().max() > Some(&400), "{:?}", counts.iter().max());
        assert!((0..10_000).all(|_| (1..=100_000).contains(&item(&mut random, 100_000))));
        assert!((0..10_000).all(|_| last(&mut random, When::Run, 30) < 30));
    }
}
