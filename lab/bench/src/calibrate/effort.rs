//! The effort of the measurements: the number of repetitions, the number of turns, and the size of buffers.

use std::time::Instant;

/// How often measurements are repeated, and how long each is.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How often [`least`](Self::least) and [`time`](Self::time) repeat a measurement. The least time counts, since
    /// other load can only add to it.
    tries: usize,
    /// The number of a loop's turns is divided by this.
    part: u64,
    /// Bytes of the largest buffer.
    pub largest: usize,
}

impl Effort {
    /// The whole measurement, which takes at most a few minutes.
    pub const WHOLE: Effort = Effort { tries: 5, part: 1, largest: 1 << 30 };
    /// A measurement of a few seconds, which only shows whether the command works.
    pub const QUICK: Effort = Effort { tries: 2, part: 20, largest: 32 << 20 };

    /// Returns the number of turns to make for this effort, out of the given number for the whole measurement.
    pub fn turns(self, turns: u64) -> u64 {
        turns / self.part
    }

    /// Calls `once` with the number of each try, and returns the least figure.
    pub fn least<E>(self, mut once: impl FnMut(usize) -> Result<f64, E>) -> Result<f64, E> {
        (0..self.tries).try_fold(f64::INFINITY, |least, number| Ok(once(number)?.min(least)))
    }

    /// Measures a loop of `step`, several times, and returns the least time per turn in nanoseconds. The whole
    /// measurement has `turns` turns.
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
