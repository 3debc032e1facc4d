//! Caches of records of 1,000 bytes by number: ours by policy, Kyoto Cabinet's scheme as a rival, and what the papers made of that.

mod kyoto;
mod slotted;

use archipelago_cache::{Cache, Policy, S3Fifo, SampledLru, Sieve};
use archipelago_platform::touch;
use foldhash::quality::FixedState;

pub use kyoto::{Kyoto, slot_of};
pub use slotted::Slotted;

/// Bytes of a record.
pub const BYTES: usize = 1000;

/// A record: its first eight bytes are a number.
#[derive(Clone, Debug)]
pub struct Value(pub [u8; BYTES]);

impl Value {
    /// A record with this number.
    pub fn of(number: u64) -> Self {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Self(bytes)
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes"))
    }

    /// The number of a copy of it.
    pub fn copied(&self) -> u64 {
        touch(self, BYTES);
        core::hint::black_box(self.clone()).number()
    }
}

/// A cache.
pub trait Caching: Send + Sync {
    /// A way in, for one thread.
    fn client(&self) -> Box<dyn Client + '_>;
}

/// A thread's way into a cache.
pub trait Client {
    /// The number of the record that is kept under a key.
    fn get(&mut self, key: u64) -> Option<u64>;

    /// Keeps a record under a key.
    fn set(&mut self, key: u64, number: u64);
}

/// A cache that all threads use as it is.
pub trait Direct: Send + Sync {
    /// As [`Client::get`].
    fn get(&self, key: u64) -> Option<u64>;

    /// As [`Client::set`].
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

/// Ours, with the policy `P`.
struct Ours<P> {
    /// Hashed by a fixed seed, so that runs on the virtual machine repeat.
    cache: Cache<u64, Value, P, FixedState>,
    /// Whether what is found is copied, as Kyoto does.
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
            // Looked at where it is: each move of it would be a copy more.
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
    /// Makes one of so many records.
    pub make: fn(usize) -> Box<dyn Caching>,
}

/// All caches. Those that lend show the record in its place; the others copy it.
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

/// Hits of a trace on an empty cache, which keeps what it misses.
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

    /// Whatever is found is what was set last, and no cache keeps more than its bound, nor finds more than the best one could.
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
