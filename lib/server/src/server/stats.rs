//! Counts of commands and their durations.
//!
//! A read is timed individually. Changes are carried out in batches; each change is assigned an equal share of its batch's
//! duration.
//!
//! Each thread that carries out commands has rows that only this thread writes. Readers add the rows up.

use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};
use archipelago_platform::time::Duration;

use crate::command::{self, Command};

/// The number of buckets of a histogram. Bucket `b` counts the durations of at most 2^b microseconds that no smaller bucket
/// counts. The last bucket counts all longer ones.
pub const BUCKETS: usize = 26;

#[derive(Default)]
struct Row {
    calls: AtomicU64,
    failed: AtomicU64,
    rejected: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// The counts of a command, summed over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The number of calls.
    pub calls: u64,
    /// The number of calls that failed.
    pub failed: u64,
    /// The number of requests that were refused before the call.
    pub rejected: u64,
    /// The duration of all calls, in nanoseconds.
    pub nanos: u64,
    /// The number of calls by duration.
    pub buckets: [u64; BUCKETS],
}

/// The rows of all threads.
pub struct Stats {
    threads: Vec<Vec<Row>>,
}

/// Adds to a counter that no other thread writes.
fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Relaxed).wrapping_add(more), Relaxed);
}

fn bucket(nanos: u64) -> usize {
    let micros = nanos.div_ceil(1000);
    (u64::BITS - micros.saturating_sub(1).leading_zeros()).min(BUCKETS as u32 - 1) as usize
}

impl Stats {
    /// Creates rows for this number of threads.
    pub fn new(threads: usize) -> Self {
        let rows = || command::all().map(|_| Row::default()).collect();
        Self { threads: (0..threads).map(|_| rows()).collect() }
    }

    /// Counts a call by a thread.
    pub fn note(&self, thread: usize, command: &'static Command, took: Duration, failed: bool) {
        let (row, nanos) = (&self.threads[thread][command.number()], took.as_nanos() as u64);
        add(&row.calls, 1);
        add(&row.nanos, nanos);
        add(&row.buckets[bucket(nanos)], 1);
        if failed {
            add(&row.failed, 1);
        }
    }

    /// Counts a request that a thread refused.
    pub fn reject(&self, thread: usize, command: &'static Command) {
        add(&self.threads[thread][command.number()].rejected, 1);
    }

    /// Returns a command's counts, summed over all threads.
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

    /// Returns all commands that were requested, with their counts.
    pub fn all(&self) -> impl Iterator<Item = (&'static Command, Sum)> {
        let sums = command::all().map(|command| (command, self.sum(command)));
        sums.filter(|(_, sum)| sum.calls + sum.rejected > 0)
    }

    /// Resets all counts. A counter to which its thread adds at the same time may keep its old value.
    pub fn reset(&self) {
        for row in self.threads.iter().flatten() {
            let Row { calls, failed, rejected, nanos, buckets } = row;
            [calls, failed, rejected, nanos].into_iter().chain(buckets).for_each(|count| count.store(0, Relaxed));
        }
    }
}

impl Sum {
    /// Returns the duration in whole microseconds that this share of the calls does not exceed, as precisely as the
    /// buckets allow.
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
