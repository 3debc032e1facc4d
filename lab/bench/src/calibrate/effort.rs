//! How long the measurements take.

use std::time::Instant;

/// How often each is made, and how much of it.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Each measurement is made so often, and its least time counts, since other load can only add to it.
    tries: usize,
    /// Of the turns of a loop, one in so many.
    part: u64,
    /// Bytes of the largest buffer.
    pub largest: usize,
}

impl Effort {
    /// Minutes at the most.
    pub const WHOLE: Effort = Effort { tries: 5, part: 1, largest: 1 << 30 };
    /// A few seconds, for a look at whether it works.
    pub const QUICK: Effort = Effort { tries: 2, part: 20, largest: 32 << 20 };

    /// So many turns, or fewer.
    pub fn turns(self, turns: u64) -> u64 {
        turns / self.part
    }

    /// The least of several figures; the argument is the number of the try.
    pub fn least<E>(self, mut once: impl FnMut(usize) -> Result<f64, E>) -> Result<f64, E> {
        (0..self.tries).try_fold(f64::INFINITY, |least, number| Ok(once(number)?.min(least)))
    }

    /// Nanoseconds for one of so many turns, at the least.
    pub fn time(self, turns: u64, mut step: impl FnMut(u64)) -> f64 {
        let turns = self.turns(turns);
        let once = |_| {
            let start = Instant::now();
            (0..turns).for_each(&mut step);
            Ok::<_, core::convert::Infallible>(start.elapsed().as_nanos() as f64 / turns as f64)
        };
        let Ok(time) = self.least(once);
        time
    }
}
