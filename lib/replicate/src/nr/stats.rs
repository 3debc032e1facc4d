//! Statistics of a replicated structure, counted by its combiners.

use archipelago_platform::atomic::{AtomicU64, Ordering};

/// The number of classes in which batch sizes are counted: 1, 2–3, 4–7, …, 128 and more.
pub const BATCH_CLASSES: usize = 8;

/// Counts since the structure was built, summed over all replicas. While other threads work, the counts are not of one
/// moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Changing operations that were carried out.
    pub writes: u64,
    /// Batches in which these operations were carried out.
    pub batches: u64,
    /// Batches by size: 1, 2–3, 4–7, …, 128 and more.
    pub batch_sizes: [u64; BATCH_CLASSES],
    /// Operations that replicas applied: `writes` times the number of replicas when all replicas are up to date.
    pub applied: u64,
    /// Times that a combiner waited for more requests because its batch was smaller than `min_batch`.
    pub batch_waits: u64,
    /// Times that a combiner found too little room in the log.
    pub room_waits: u64,
    /// Times that a combiner waited for an entry of the log that another combiner had reserved and not filled yet.
    pub entry_waits: u64,
    /// Times that a reader brought a replica up to date because no combiner was active.
    pub reader_refreshes: u64,
    /// Times that operations were replayed into a replica by its helper thread
    /// ([`Builder::helper`](super::Builder::helper)), or by [`sync`](super::Replicated::sync).
    pub helper_runs: u64,
    /// Times that operations were replayed into a replica by a combiner of another replica, to make room in the log.
    pub combiner_helps: u64,
    /// Times that a thread that helps skipped a replica because readers stayed inside it.
    pub passed_by: u64,
    /// Times that a dedicated combiner had nothing to do for long and slept until it was woken.
    pub naps: u64,
    /// Times that the log grew.
    pub log_growths: u64,
    /// Entries of the log's current segment.
    pub log_capacity: u64,
    /// Entries that were appended and not recycled yet. They are recycled when more than a quarter of the segment is in
    /// use, or by [`sync`](super::Replicated::sync), as far as the slowest replica has applied them.
    pub log_in_use: u64,
    /// Bytes of all segments of the log, without the memory that the operations own elsewhere.
    pub log_bytes: u64,
    /// Index of the replica that has applied the fewest operations.
    pub slowest_replica: usize,
}

/// A counter with one writer at a time.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Adds to the counter. The caller is the only writer: it holds the combiner's lock, or is the background
    /// thread, which counts its naps.
    #[inline]
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.get() + more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one replica, written under its combiner's lock.
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
    pub(super) combiner_helps: Count,
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
        stats.combiner_helps += self.combiner_helps.get();
        stats.passed_by += self.passed_by.get();
    }
}
