//! Caches of records of 1,000 bytes, whose keys are numbers: this library's cache with each policy, a rival after Kyoto
//! Cabinet, and the papers' variants of that rival.

mod kyoto;
mod slotted;

use archipelago_cache::{Cache, Policy, S3Fifo, SampledLru, Sieve};
use archipelago_platform::touch;
use foldhash::quality::FixedState;

pub use kyoto::{Kyoto, slot_of};
pub use slotted::Slotted;

/// Bytes of a record.
pub const BYTES: usize = 1000;

/// A record, whose first eight bytes are a number.
#[derive(Clone, Debug)]
pub struct Value(pub [u8; BYTES]);

impl Value {
    /// Makes a record with this number.
    pub fn of(number: u64) -> Self {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Self(bytes)
    }

    /// Returns the record's number.
    pub fn number(&self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes"))
    }

    /// Copies the record, and returns the copy's number.
    pub fn copied(&self) -> u64 {
        touch(self, BYTES);
        core::hint::black_box(self.clone()).number()
    }
}

/// A cache.
pub trait Caching: Send + Sync {
    /// Returns a client for one thread.
    fn client(&self) -> Box<dyn Client + '_>;
}

/// A thread's access to a cache.
pub trait Client {
    /// Returns the number of the record that is stored under a key.
    fn get(&mut self, key: u64) -> Option<u64>;

    /// Stores a record under a key.
    fn set(&mut self, key: u64, number: u64);
}

/// A cache that all threads use directly, without a session.
pub trait Direct: Send + Sync {
    /// Returns the record's number; see [`Client::get`].
    fn get(&self, key: u64) -> Option<u64>;

    /// Stores a record; see [`Client::set`].
    fn set(&self, key: u64, number: u64);
}

impl<C: Direct> Caching for C {
    fn client(&self) -> Box<dyn Client + '_> {
        Box::new(self)
    }
}

impl<C: Direct> Client for &C {
    fn get(&mut self, key: u64) -> Option<u64> {
        Direct::get(*self, key)
    }

    fn set(&mut self, key: u64, number: u64) {
        Direct::set(*self, key, number);
    }
}

/// This library's cache, with the policy `P`.
struct Ours<P> {
    /// The hash has a fixed seed, so that runs on the virtual machine (a simulator) are reproducible.
    cache: Cache<u64, Value, P, FixedState>,
    /// Whether a look-up copies the record, as Kyoto Cabinet does.
    copies: bool,
}

impl<P: Policy> Ours<P> {
    fn boxed(entries: usize, copies: bool) -> Box<dyn Caching>
    where
        P: 'static,
    {
        let cache = Cache::builder().policy::<P>().hasher(FixedState::with_seed(1)).entries(entries);
        Box::new(Self { cache, copies })
    }
}

impl<P: Policy> Direct for Ours<P> {
    fn get(&self, key: u64) -> Option<u64> {
        if self.copies {
            // The record is read through a reference: each move of its value would copy it once more.
            let copy = self.cache.get(&key);
            return core::hint::black_box(&copy).as_ref().map(Value::number);
        }
        let read = |value: &Value| {
            touch(value, size_of::<u64>());
            value.number()
        };
        self.cache.with(&key, read)
    }

    fn set(&self, key: u64, number: u64) {
        self.cache.insert(key, Value::of(number));
    }
}

/// A cache by name.
#[derive(Clone, Copy)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// Makes a cache of this many records.
    pub make: fn(usize) -> Box<dyn Caching>,
}

/// All caches. A look-up in `s3-fifo`, `sieve` or `sampled-lru` reads the record in the cache; in the others it copies
/// the record.
pub const CACHES: &[Known] = &[
    Known { name: "s3-fifo", make: |entries| Ours::<S3Fifo>::boxed(entries, false) },
    Known { name: "s3-fifo-copied", make: |entries| Ours::<S3Fifo>::boxed(entries, true) },
    Known { name: "sieve", make: |entries| Ours::<Sieve>::boxed(entries, false) },
    Known { name: "sampled-lru", make: |entries| Ours::<SampledLru>::boxed(entries, false) },
    Known { name: "kyoto", make: |entries| Box::new(Kyoto::new(entries)) },
    Known { name: "kyoto-rcu", make: |entries| Box::new(Slotted::over_rcu(entries)) },
    Known { name: "kyoto-rlu", make: |entries| Box::new(Slotted::over_rlu(entries)) },
    Known { name: "kyoto-mvrlu", make: |entries| Box::new(Slotted::over_mvrlu(entries)) },
    Known { name: "kyoto-rcx", make: |entries| Box::new(Slotted::over_rcx(entries)) },
    Known { name: "kyoto-rcu-slots", make: |entries| Box::new(Slotted::over_rcu_slots(entries)) },
    Known { name: "kyoto-rcx-slots", make: |entries| Box::new(Slotted::over_rcx_slots(entries)) },
];

/// Returns the hits of a trace on an empty cache. A missing record is stored.
pub fn hits(cache: &dyn Caching, trace: &[u64]) -> usize {
    let mut client = cache.client();
    let ask = |key: &&u64| {
        let found = client.get(**key).is_some();
        if !found {
            client.set(**key, **key);
        }
        found
    };
    trace.iter().filter(ask).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces;

    /// A look-up finds the record that was stored last. No cache keeps more records than its bound, or has more hits
    /// than the optimum.
    #[test]
    fn caches_find_what_was_set() {
        let trace = traces::zipf(5_000, 0.9, 50_000, 1);
        let best = traces::optimum(&trace, 500);
        for known in CACHES {
            let cache = (known.make)(500);
            let mut client = cache.client();
            for (at, &key) in trace.iter().enumerate() {
                assert!(client.get(key).is_none_or(|number| number % 5_000 == key), "{}", known.name);
                client.set(key, key + 5_000 * (at as u64 % 7));
                assert!(client.get(key).is_none_or(|number| number == key + 5_000 * (at as u64 % 7)), "{}", known.name);
            }
            let kept = (0..5_000).filter(|key| client.get(*key).is_some()).count();
            assert!((250..=500 + kyoto::SLOTS).contains(&kept), "{}: {kept}", known.name);
            let hits = hits(&*(known.make)(500), &trace);
            assert!(hits * 10 > best * 6 && hits <= best, "{}: {hits} of {best}", known.name);
        }
    }
}
