//! Eviction policies.

mod fifo;
mod ghosts;
mod s3fifo;
mod sampled;
mod sieve;

use crate::entry::{Header, Resident};

pub use s3fifo::S3Fifo;
pub use sampled::SampledLru;
pub use sieve::Sieve;

/// An eviction policy: [`S3Fifo`], [`Sieve`] or [`SampledLru`].
///
/// Each shard of a cache has its own policy, whose data is protected by the shard's lock. A hit takes no lock: it
/// leaves a mark in the entry itself.
pub trait Policy: Default + Send + sealed::Queues {}

pub(crate) mod sealed {
    use super::{Header, Resident};

    /// The methods of a policy. All except `hit` are called with the lock of the entries' shard held.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "sealed: users name policies and do not call them")]
    pub trait Queues {
        /// Notes that an entry was found. `clock` counts the shard's insertions.
        fn hit(header: &Header, clock: u32);

        /// Prefetches the memory that the admission of an entry with this hash will read.
        fn foresee(&mut self, _hash: u64) {}

        /// Adds an entry.
        fn admit(&mut self, entry: Resident<'_>, clock: u32);

        /// Removes an entry that leaves the table without an eviction or a replacement.
        fn forget(&mut self, entry: Resident<'_>);

        /// Replaces `old`, which was removed from the table, by `new`, which has the same key.
        fn replace(&mut self, old: Resident<'_>, new: Resident<'_>, clock: u32) {
            // The new entry inherits the hits of the old one.
            new.header().mark(old.header().marks());
            self.forget(old);
            self.admit(new, clock);
        }

        /// Removes and returns the entry to evict, if any entry is left. `room` is the weight that the shard may hold.
        fn evict(&mut self, room: usize, clock: u32) -> Option<Resident<'static>>;

        /// Returns the entry that will probably be evicted next, if the policy knows this entry and has prefetched its
        /// header.
        fn next(&self) -> Option<Resident<'static>> {
            None
        }

        /// Returns the bytes of memory held in addition to the entries.
        fn bytes(&self) -> usize;
    }
}
