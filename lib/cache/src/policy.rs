//! Which entry gives way to a new one.

mod fifo;
mod ghosts;
mod s3fifo;
mod sampled;
mod sieve;

use crate::entry::{Header, Resident};

pub use s3fifo::S3Fifo;
pub use sampled::SampledLru;
pub use sieve::Sieve;

/// A rule for which entry gives way to a new one: [`S3Fifo`], [`Sieve`] or [`SampledLru`].
///
/// What it knows of the entries of a shard lies beside the shard's lock; a hit tells it in the entry itself.
pub trait Policy: Default + Send + sealed::Queues {}

pub(crate) mod sealed {
    use super::{Header, Resident};

    /// What a policy does. All but `hit` is called with the lock of the entries' shard held.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "sealed: users name policies and do not call them")]
    pub trait Queues {
        /// An entry was found. `clock` counts what the shard has admitted.
        fn hit(header: &Header, clock: u32);

        /// An entry with this hash will come soon: what the policy looks at then is fetched.
        fn foresee(&mut self, _hash: u64) {}

        /// An entry has come.
        fn admit(&mut self, entry: Resident<'_>, clock: u32);

        /// An entry has been taken out.
        fn forget(&mut self, entry: Resident<'_>);

        /// `new` has come for the key of `old`, which has been taken out.
        fn replace(&mut self, old: Resident<'_>, new: Resident<'_>, clock: u32) {
            // It has been asked for as often.
            new.header().mark(old.header().marks());
            self.forget(old);
            self.admit(new, clock);
        }

        /// Takes out the entry that is to give way, if any is left. `room` is the weight that the shard may hold.
        fn evict(&mut self, room: usize, clock: u32) -> Option<Resident<'static>>;

        /// Returns the entry that probably gives way next, if the policy knows it and has its header fetched.
        fn next(&self) -> Option<Resident<'static>> {
            None
        }

        /// Bytes of memory held, beside the entries.
        fn bytes(&self) -> usize;
    }
}
