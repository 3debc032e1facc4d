//! What a replicated structure did so far, counted by its combiners.

use archipelago_platform::atomic::{AtomicU64, Ordering};

/// How batch sizes are counted: 1, 2–3, 4–7, …, 128 and more.
pub const BATCH_CLASSES: usize = 8;

/// Counts since the structure was built: all replicas together. Taken while threads work, they need not fit together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Changing operations appended to the log.
    pub writes: u64,
    /// Batches in which they were appended.
    pub batches: u64,
    /// Batches by size: 1, 2–3, 4–7, …, 128 and more.
    pub batch_sizes: [u64; BATCH_CLASSES],
    /// Operations that replicas applied: `writes` times the number of replicas when all are up to date.
    pub applied: u64,
    /// Looks for more requests because a batch was smaller than `min_batch`.
    pub batch_waits: u64,
    /// Times that a combiner found no room in the log.
    pub room_waits: u64,
    /// Times that a combiner met an entry that another had reserved and not filled yet.
    pub entry_waits: u64,
    /// Replicas brought up to date by readers, since no combiner was there.
    pub reader_refreshes: u64,
    /// Replicas brought up to date on behalf of others: by the helper thread, or by a combiner that needed room.
    pub helper_runs: u64,
    /// Times that a replica was not brought up to date on behalf of others since its readers stayed.
    pub passed_by: u64,
    /// Times that a dedicated combiner found nothing to do for long, and went to sleep until it is woken.
    pub naps: u64,
    /// Times that the log grew.
    pub log_growths: u64,
    /// Entries of the log's present segment.
    pub log_capacity: u64,
    /// Entries appended and not taken back yet. They are taken back when more than a quarter of the segment is in use, or
    /// at [`sync`](super::Replicated::sync), as far as the slowest replica has applied them.
    pub log_in_use: u64,
    /// Bytes of all the log's segments. What the operations own elsewhere comes to that.
    pub log_bytes: u64,
    /// Index of the replica that has applied the fewest operations.
    pub slowest_replica: usize,
}

/// A count of one writer at a time.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Adds; the caller is the only one who does, since it has the combiner's lock.
    #[inline]
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.get() + more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One replica's counts, written under its combiner's lock.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) writes: Count,
    pub(super) batches: Count,
    pub(super) batch_sizes: [Count; BATCH_CLASSES],
    pub(super) applied: Count,
    pub(super) batch_waits: Count,
    pub(super) room_waits: Count,
    pub(super) entry_waits: Count,
    pub(super) reader_refreshes: Count,
    pub(super) helper_runs: Count,
    pub(super) passed_by: Count,
}

impl Counts {
    #[inline]
    pub(super) fn batch(&self, size: usize) {
        self.batches.add(1);
        self.writes.add(size as u64);
        self.batch_sizes[(size.ilog2() as usize).min(BATCH_CLASSES - 1)].add(1);
    }

    pub(super) fn add_to(&self, stats: &mut Stats) {
        stats.writes += self.writes.get();
        stats.batches += self.batches.get();
        for (sum, count) in stats.batch_sizes.iter_mut().zip(&self.batch_sizes) {
            *sum += count.get();
        }
        stats.applied += self.applied.get();
        stats.batch_waits += self.batch_waits.get();
        stats.room_waits += self.room_waits.get();
        stats.entry_waits += self.entry_waits.get();
        stats.reader_refreshes += self.reader_refreshes.get();
        stats.helper_runs += self.helper_runs.get();
        stats.passed_by += self.passed_by.get();
    }
}
