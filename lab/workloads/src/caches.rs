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
        // The clients' boxes may be neighbours of what others change.
        touch(self, size_of::<Self>());
        Direct::get(*self, key)
    }

    fn set(&mut self, key: u64, number: u64) {
        touch(self, size_of::<Self>());
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
    fn boxed(room: Room, copies: bool) -> Box<dyn Caching>
    where
        P: 'static,
    {
        let cache = Cache::builder().policy::<P>().hasher(FixedState::with_seed(1)).entries(room.most());
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

/// How many records a cache shall keep.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The number of records, in total. Tables have a size for this number.
    pub records: usize,
    /// By how many records a part of the cache may exceed its share.
    pub slack: usize,
}

impl Room {
    /// Returns room for this many records, and for no more in any part of the cache.
    pub const fn of(records: usize) -> Self {
        Self { records, slack: 0 }
    }

    /// Returns room for all of this many records. A hash deals keys out to the parts of a cache unevenly, so that some
    /// parts get more than their share. The slack is many times the standard deviation of a part's number of records.
    pub const fn for_all(records: usize) -> Self {
        Self { records, slack: records / 16 + 1024 }
    }

    /// Returns the most records of the cache as a whole.
    pub const fn most(self) -> usize {
        self.records + self.slack
    }
}

/// A cache by name.
#[derive(Clone, Copy)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// Makes a cache with this room.
    pub make: fn(Room) -> Box<dyn Caching>,
}

/// All caches. A look-up in `s3-fifo`, `sieve` or `sampled-lru` reads the record in the cache; in the others it copies
/// the record.
pub const CACHES: &[Known] = &[
    Known { name: "s3-fifo", make: |room| Ours::<S3Fifo>::boxed(room, false) },
    Known { name: "s3-fifo-copied", make: |room| Ours::<S3Fifo>::boxed(room, true) },
    Known { name: "sieve", make: |room| Ours::<Sieve>::boxed(room, false) },
    Known { name: "sampled-lru", make: |room| Ours::<SampledLru>::boxed(room, false) },
    Known { name: "kyoto", make: |room| Box::new(Kyoto::new(room)) },
    Known { name: "kyoto-rcu", make: |room| Box::new(Slotted::over_rcu(room)) },
    Known { name: "kyoto-rlu", make: |room| Box::new(Slotted::over_rlu(room)) },
    Known { name: "kyoto-mvrlu", make: |room| Box::new(Slotted::over_mvrlu(room)) },
    Known { name: "kyoto-rcx", make: |room| Box::new(Slotted::over_rcx(room)) },
    Known { name: "kyoto-rcu-slots", make: |room| Box::new(Slotted::over_rcu_slots(room)) },
    Known { name: "kyoto-rcx-slots", make: |room| Box::new(Slotted::over_rcx_slots(room)) },
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
            let cache = (known.make)(Room::of(500));
            let mut client = cache.client();
            for (at, &key) in trace.iter().enumerate() {
                assert!(client.get(key).is_none_or(|number| number % 5_000 == key), "{}", known.name);
                client.set(key, key + 5_000 * (at as u64 % 7));
                assert!(client.get(key).is_none_or(|number| number == key + 5_000 * (at as u64 % 7)), "{}", known.name);
            }
            let kept = (0..5_000).filter(|key| client.get(*key).is_some()).count();
            assert!((250..=500 + kyoto::SLOTS).contains(&kept), "{}: {kept}", known.name);
            let hits = hits(&*(known.make)(Room::of(500)), &trace);
            assert!(hits * 10 > best * 6 && hits <= best, "{}: {hits} of {best}", known.name);
        }
    }

    /// A cache with room for all of its keys' records evicts none of them, also if its parts have unequal shares.
    #[test]
    fn nothing_gives_way_where_everything_has_room() {
        for records in [2_000_u64, 20_000] {
            let share = records.div_ceil(kyoto::SLOTS as u64);
            let slots: Vec<usize> = (0..records).map(kyoto::slot_of).collect();
            let most = (0..kyoto::SLOTS).map(|slot| slots.iter().filter(|it| **it == slot).count()).max().unwrap();
            assert!(most as u64 > share, "{records}: the shares are unequal");
            for known in CACHES {
                let cache = (known.make)(Room::for_all(records as usize));
                let mut client = cache.client();
                (0..records).for_each(|key| client.set(key, key));
                let missing = (0..records).filter(|key| client.get(*key) != Some(*key)).count();
                assert_eq!(missing, 0, "{} of {records} records", known.name);
            }
        }
    }
}
