//! Random numbers that are the same for the same seed, on every machine.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Those of a seed; of a thread beside others, if it mixes its number in.
    pub fn new(seed: u64, thread: usize) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (thread as u64) << 48);
        random.draw();
        random
    }

    /// The next one.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both included.
    #[inline]
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        // The high half of a product: as even as 2^64 is large.
        low + ((u128::from(self.draw()) * u128::from(high - low + 1)) >> 64) as u64
    }

    /// Returns true so many times of a hundred.
    #[inline]
    pub fn percent(&mut self, percent: u32) -> bool {
        self.within(0, 99) < u64::from(percent)
    }

    /// From 0 to below 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Letters and digits, of a length from `low` to `high`.
    pub fn text(&mut self, low: u64, high: u64) -> String {
        const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        (0..self.within(low, high)).map(|_| char::from(LETTERS[self.within(0, 61) as usize])).collect()
    }

    /// Digits.
    pub fn digits(&mut self, count: usize) -> String {
        (0..count).map(|_| char::from(b'0' + self.within(0, 9) as u8)).collect()
    }

    /// `N` letters and digits.
    pub fn letters<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| b'a' + self.within(0, 25) as u8)
    }
}

/// Numbers below `n`, the small ones more often: rank `r` in proportion to `1 / (r + 1)^theta` (Gray et al., *Quickly Generating
/// Billion-Record Synthetic Databases*, SIGMOD'94, as in YCSB and DBx1000).
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    n: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Below `n`, at least 1; `theta` from 0 (all alike) to below 1, or above 1 up to 4. O(n).
    pub fn new(n: u64, theta: f64) -> Self {
        let zeta = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let all = zeta(n);
        let eta = (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - zeta(2) / all);
        Self { n, theta, zeta: all, eta }
    }

    /// The next rank.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        let uniform = random.unit();
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

    /// The next key: ranks scattered over all keys below `n`, one key each.
    #[inline]
    pub fn key(&self, random: &mut Random) -> u64 {
        scatter(self.draw(random), self.n)
    }
}

/// A number below `n`, of another: one to one, since the factor is a prime and greater than `n`.
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

    /// The share of the first rank is `1 / zeta`, within what a hundred thousand draws allow.
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

    #[test]
    fn all_of_a_range_is_drawn() {
        let mut random = Random::new(2, 0);
        let mut seen = [0; 6];
        (0..6000).for_each(|_| seen[random.within(5, 10) as usize - 5] += 1);
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
    }
}
