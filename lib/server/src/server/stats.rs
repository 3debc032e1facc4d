//! How often commands came, and how long they took.
//!
//! A read's time is its own. Changes are carried out in batches: each is given an even share of its batch's time.
//!
//! Each thread that carries commands out has rows of its own, which it alone writes; others add them up.

use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};
use archipelago_platform::time::Duration;

use crate::command::{self, Command};

/// Buckets of a histogram: the one of number `b` has the times of at most 2^b microseconds, the last all that are longer.
pub const BUCKETS: usize = 26;

#[derive(Default)]
struct Row {
    calls: AtomicU64,
    failed: AtomicU64,
    rejected: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// Sums of all threads for a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How often it was carried out.
    pub calls: u64,
    /// How often with an error.
    pub failed: u64,
    /// How often it was refused before.
    pub rejected: u64,
    /// Nanoseconds of all calls.
    pub nanos: u64,
    /// Calls by their times.
    pub buckets: [u64; BUCKETS],
}

/// The rows of all threads.
pub struct Stats {
    threads: Vec<Vec<Row>>,
}

/// Adds where no other thread writes.
fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Relaxed).wrapping_add(more), Relaxed);
}

fn bucket(nanos: u64) -> usize {
    let micros = nanos.div_ceil(1000);
    (u64::BITS - micros.saturating_sub(1).leading_zeros()).min(BUCKETS as u32 - 1) as usize
}

impl Stats {
    /// Of so many threads.
    pub fn new(threads: usize) -> Self {
        let rows = || command::all().map(|_| Row::default()).collect();
        Self { threads: (0..threads).map(|_| rows()).collect() }
    }

    /// A command was carried out by a thread.
    pub fn note(&self, thread: usize, command: &'static Command, took: Duration, failed: bool) {
        let (row, nanos) = (&self.threads[thread][command.number()], took.as_nanos() as u64);
        add(&row.calls, 1);
        add(&row.nanos, nanos);
        add(&row.buckets[bucket(nanos)], 1);
        if failed {
            add(&row.failed, 1);
        }
    }

    /// A command was refused by a thread.
    pub fn reject(&self, thread: usize, command: &'static Command) {
        add(&self.threads[thread][command.number()].rejected, 1);
    }

    /// A command's sums.
    pub fn sum(&self, command: &'static Command) -> Sum {
        let mut sum = Sum::default();
        for row in self.threads.iter().map(|rows| &rows[command.number()]) {
            sum.calls += row.calls.load(Relaxed);
            sum.failed += row.failed.load(Relaxed);
            sum.rejected += row.rejected.load(Relaxed);
            sum.nanos += row.nanos.load(Relaxed);
            sum.buckets.iter_mut().zip(&row.buckets).for_each(|(sum, one)| *sum += one.load(Relaxed));
        }
        sum
    }

    /// All commands that came, with their sums.
    pub fn all(&self) -> impl Iterator<Item = (&'static Command, Sum)> {
        let sums = command::all().map(|command| (command, self.sum(command)));
        sums.filter(|(_, sum)| sum.calls + sum.rejected > 0)
    }

    /// Begins anew. What threads add at the same time may stay.
    pub fn reset(&self) {
        for row in self.threads.iter().flatten() {
            let Row { calls, failed, rejected, nanos, buckets } = row;
            [calls, failed, rejected, nanos].into_iter().chain(buckets).for_each(|count| count.store(0, Relaxed));
        }
    }
}

impl Sum {
    /// Whole microseconds below which this share of calls lies, as far as buckets tell.
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = (self.calls as f64 * share).ceil() as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        1 << found.unwrap_or(BUCKETS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_the_buckets_that_they_fit() {
        let stats = Stats::new(2);
        let get = command::find(b"get").unwrap();
        for (thread, nanos) in [(0, 1), (0, 1000), (1, 1001), (1, 4000), (1, 4001), (0, u64::MAX)] {
            stats.note(thread, get, Duration::from_nanos(nanos), nanos == 1);
        }
        let sum = stats.sum(get);
        assert_eq!((sum.calls, sum.failed, sum.rejected), (6, 1, 0));
        assert_eq!(sum.buckets[..4], [2, 1, 1, 1]);
        assert_eq!(sum.buckets[BUCKETS - 1], 1);
        assert_eq!((sum.percentile(0.5), sum.percentile(0.8)), (2, 8));
        assert_eq!(stats.all().count(), 1);
        stats.reset();
        assert_eq!(stats.sum(get), Sum::default());
    }
}
