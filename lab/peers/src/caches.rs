//! Caches. If a look-up clones the record, records are shared by `Arc`, as the caches' documentation advises for large
//! records. So a look-up reads the record without copying it.

use std::sync::Arc;

use archipelago_workloads::caches::{Direct, Known, Value};
use foyer_memory::{CacheBuilder, S3FifoConfig};

type Record = Arc<Value>;

fn record(number: u64) -> Record {
    Arc::new(Value::of(number))
}

/// moka's synchronous cache: W-TinyLFU.
struct Moka(moka::sync::Cache<u64, Record, foldhash::quality::RandomState>);

impl Direct for Moka {
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| value.number())
    }

    fn set(&self, key: u64, number: u64) {
        self.0.insert(key, record(number));
    }
}

/// quick_cache, whose policy is similar to Clock-PRO.
struct Quick(quick_cache::sync::Cache<u64, Record>);

impl Direct for Quick {
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| value.number())
    }

    fn set(&self, key: u64, number: u64) {
        self.0.insert(key, record(number));
    }
}

/// foyer's in-memory cache, with S3-FIFO. A look-up returns a counted reference.
struct Foyer(foyer_memory::Cache<u64, Value, foldhash::quality::RandomState>);

impl Direct for Foyer {
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|entry| entry.value().number())
    }

    fn set(&self, key: u64, number: u64) {
        self.0.insert(key, Value::of(number));
    }
}

/// All caches, with the same hasher as this library's cache.
pub const CACHES: &[Known] = &[
    Known {
        name: "moka",
        make: |room| {
            let builder = moka::sync::Cache::builder().max_capacity(room.most() as u64);
            Box::new(Moka(builder.build_with_hasher(foldhash::quality::RandomState::default())))
        },
    },
    Known { name: "quick-cache", make: |room| Box::new(Quick(quick_cache::sync::Cache::new(room.most()))) },
    Known {
        name: "foyer",
        make: |room| {
            let builder = CacheBuilder::new(room.most()).with_eviction_config(S3FifoConfig::default());
            Box::new(Foyer(builder.with_hash_builder(foldhash::quality::RandomState::default()).build()))
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_workloads::caches::Room;
    use archipelago_workloads::{caches, traces};

    /// Each cache finds the records that were stored, keeps about as many as it should, and has no more hits than the
    /// optimum.
    #[test]
    fn peers_are_caches() {
        let trace = traces::zipf(5_000, 0.9, 50_000, 1);
        let best = traces::optimum(&trace, 500);
        for known in CACHES {
            let cache = (known.make)(Room::of(500));
            cache.client().set(7, 70);
            assert_eq!((cache.client().get(7), cache.client().get(8)), (Some(70), None), "{}", known.name);
            let hits = caches::hits(&*(known.make)(Room::of(500)), &trace);
            assert!(hits * 10 > best * 6 && hits <= best, "{}: {hits} of {best}", known.name);
        }
    }
}
