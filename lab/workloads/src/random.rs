//! Random numbers that are equal for equal seeds on every machine.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes the generator of a thread from a seed. Threads with different numbers have different generators.
    pub fn new(seed: u64, thread: usize) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (thread as u64) << 48);
        random.draw();
        random
    }

    /// Returns the next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `low` to `high`, both included.
    #[inline]
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        // Takes the high half of a product. Its bias is negligible, as the range is far smaller than 2^64.
        low + ((u128::from(self.draw()) * u128::from(high - low + 1)) >> 64) as u64
    }

    /// Returns true in this percentage of calls.
    #[inline]
    pub fn percent(&mut self, percent: u32) -> bool {
        self.within(0, 99) < u64::from(percent)
    }

    /// Returns a number from 0 to below 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns letters and digits, in a length from `low` to `high`.
    pub fn text(&mut self, low: u64, high: u64) -> String {
        const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        (0..self.within(low, high)).map(|_| char::from(LETTERS[self.within(0, 61) as usize])).collect()
    }

    /// Returns `count` digits.
    pub fn digits(&mut self, count: usize) -> String {
        (0..count).map(|_| char::from(b'0' + self.within(0, 9) as u8)).collect()
    }

    /// Returns `N` lower-case letters.
    pub fn letters<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| b'a' + self.within(0, 25) as u8)
    }
}

/// Draws numbers below `n` by Zipf's law: rank `r` has a probability in proportion to `1 / (r + 1)^theta` (Gray et
/// al., *Quickly Generating Billion-Record Synthetic Databases*, SIGMOD'94, as in YCSB and DBx1000).
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    n: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Makes a distribution over `n` ranks, at least 1. `theta` is from 0 (all ranks are equally likely) to below 1,
    /// or above 1 up to 4. Takes O(n) time.
    pub fn new(n: u64, theta: f64) -> Self {
        Self::with_zeta(n, theta, (1..=n).map(|rank| (rank as f64).powf(-theta)).sum())
    }

    /// Makes the distribution of YCSB's `zipfian` requests: 10^10 ranks with a `theta` of 0.99, however many keys there
    /// are. YCSB maps ranks to keys by a hash. Takes O(1) time.
    pub fn ycsb() -> Self {
        // The sum over all ranks has too many terms to be computed here.
        Self::with_zeta(10_000_000_000, 0.99, 26.469_028_201_783_02)
    }

    /// Makes a distribution whose sum of `1 / rank^theta` over all ranks, from 1 to `n`, is `zeta`.
    fn with_zeta(n: u64, theta: f64, zeta: f64) -> Self {
        let of_two = 1.0 + 2.0_f64.powf(-theta);
        let eta = (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - of_two / zeta);
        Self { n, theta, zeta, eta }
    }

    /// Returns the next rank.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        self.rank(random.unit())
    }

    /// Returns the rank for a uniform number from 0 to below 1; a greater number has a greater rank or the same.
    #[inline]
    pub fn rank(&self, uniform: f64) -> u64 {
        if self.theta == 0.0 {
            return (uniform * self.n as f64) as u64;
        }
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1.min(self.n - 1);
        }
        let rank = self.n as f64 * (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
        (rank as u64).min(self.n - 1)
    }

    /// Returns the next key. Ranks are scattered over all keys below `n`, one key for each rank.
    #[inline]
    pub fn key(&self, random: &mut Random) -> u64 {
        scatter(self.draw(random), self.n)
    }
}

/// Maps a rank to a number below `n`. The mapping is one to one, since its factor is a prime greater than `n`.
///
/// # Panics
/// If `n` is not below 2^31.
pub fn scatter(rank: u64, n: u64) -> u64 {
    const PRIME: u64 = 2_654_435_761;
    assert!(n < 1 << 31, "too many things to scatter");
    rank * PRIME % n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_scattered_one_to_one() {
        for n in [1, 2, 1000, 4096, 99_991] {
            let mut keys: Vec<u64> = (0..n).map(|rank| scatter(rank, n)).collect();
            keys.sort_unstable();
            assert!(keys.into_iter().eq(0..n), "{n}");
        }
    }

    /// The first rank's share is `1 / zeta`, within the deviation that a hundred thousand draws allow.
    #[test]
    fn the_first_rank_has_its_share() {
        let mut random = Random::new(1, 0);
        for theta in [0.7, 0.99] {
            let (n, draws) = (1000, 100_000);
            let zipf = Zipf::new(n, theta);
            let sum = (1..=n).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
            let first = (0..draws).filter(|_| zipf.draw(&mut random) == 0).count() as f64;
            let expected = f64::from(draws) / sum;
            assert!((first - expected).abs() < 6.0 * expected.sqrt(), "{theta}: {first}, not {expected}");
        }
    }

    /// The sum that [`Zipf::ycsb`] states is the sum of the first ranks, and the Euler-Maclaurin formula for the others.
    #[test]
    fn the_sum_of_ycsb_is_right() {
        let Zipf { n, theta, zeta, .. } = Zipf::ycsb();
        let term = |rank: f64| rank.powf(-theta);
        let (first, last) = (1000.0_f64, n as f64);
        let integral = (last.powf(1.0 - theta) - first.powf(1.0 - theta)) / (1.0 - theta);
        let ends = (term(first) + term(last)) / 2.0 + theta * (term(first) / first - term(last) / last) / 12.0;
        let sum = (1..1000).map(|rank| term(f64::from(rank))).sum::<f64>() + integral + ends;
        assert!((sum - zeta).abs() < 1e-9, "{sum}, not {zeta}");
    }

    #[test]
    fn ranks_of_ycsb_rise_with_the_number_and_are_all_in_range() {
        let zipf = Zipf::ycsb();
        let ranks: Vec<u64> = (0..1000).map(|step| zipf.rank(f64::from(step) / 1000.0)).collect();
        assert!(ranks.is_sorted() && ranks[0] == 0, "{ranks:?}");
        // The greatest rank that a number below 1 can have.
        assert!((9_999_999_000..10_000_000_000).contains(&zipf.rank(1.0_f64.next_down())));
        assert_eq!(ranks.iter().filter(|rank| **rank == 0).count(), 38, "1000 / 26.47, rounded up");
    }

    #[test]
    fn all_of_a_range_is_drawn() {
        let mut random = Random::new(2, 0);
        let mut seen = [0; 6];
        (0..6000).for_each(|_| seen[random.within(5, 10) as usize - 5] += 1);
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
    }
}
