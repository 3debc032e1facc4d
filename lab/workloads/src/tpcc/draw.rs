//! TPC-C's non-uniform random numbers, and its last names (clauses 2.1.6, 4.3.2).

use super::rows::{Name, name};
use crate::random::Random;

/// The constant C of the non-uniform numbers, for customers' numbers, for items, and for last names in a run and in the
/// load. The two constants for last names differ by 87, which clause 2.1.6.1 allows.
const OF_CUSTOMERS: u64 = 259;
const OF_ITEMS: u64 = 7911;
const OF_NAMES: [u64; 2] = [187, 100];

/// The occasion of drawing a last name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// During a run.
    Run,
    /// When customers are loaded.
    Load,
}

/// Returns NURand(A, x, y) with the constant C.
fn uneven(random: &mut Random, a: u64, c: u64, (low, high): (u64, u64)) -> u64 {
    ((random.within(0, a) | random.within(low, high)) + c) % (high - low + 1) + low
}

/// Draws the number of one of this many customers.
pub fn customer(random: &mut Random, customers: u16) -> u16 {
    uneven(random, 1023, OF_CUSTOMERS, (1, u64::from(customers))) as u16
}

/// Draws the number of one of this many items.
pub fn item(random: &mut Random, items: u32) -> u32 {
    uneven(random, 8191, OF_ITEMS, (1, u64::from(items))) as u32
}

/// Draws the number of a last name, of the names that this many customers of a district have.
pub fn last(random: &mut Random, when: When, customers: u16) -> u16 {
    let names = u64::from(customers.min(1000));
    uneven(random, 255, OF_NAMES[usize::from(when == When::Load)], (0, names - 1)) as u16
}

/// Returns the last name with this number, which is below 1,000.
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
        // The longest last name fits.
        assert_eq!(last_name(777), name("CALLYCALLYCALLY"));
    }

    /// The draws are within their limits and are non-uniform: the most frequent number has several times the uniform
    /// share.
    #[test]
    fn draws_are_uneven_and_within_their_limits() {
        let mut random = Random::new(1, 0);
        let mut counts = vec![0; 3001];
        (0..300_000).for_each(|_| counts[usize::from(customer(&mut random, 3000))] += 1);
        let drawn = counts.iter().filter(|count| **count > 0).count();
        assert!(counts[0] == 0 && drawn > 2500, "{drawn} of 3000");
        // The uniform share is a hundred.
        assert!(counts.iter().max() > Some(&400), "{:?}", counts.iter().max());
        assert!((0..10_000).all(|_| (1..=100_000).contains(&item(&mut random, 100_000))));
        assert!((0..10_000).all(|_| last(&mut random, When::Run, 30) < 30));
    }
}
