//! `maxmemory`: this module chooses the keys to evict. An operation that names the keys removes them.
//!
//! After each batch, keys are chosen and removed until the used memory is below the limit: at most [`ROUNDS`] times
//! [`AT_ONCE`] keys, so that no client waits for very many removals. If no key may be evicted, changes that need memory are
//! refused until memory is free. The limit is for the keys and values of one replica ([`Db::used`]). The clients' buffers
//! and the log's queue have limits of their own.

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use archipelago_platform::sync::Mutex;
use archipelago_replicate::Handle;

use super::now;
use super::shared::{Shared, lock};
use crate::config::keeping;
use crate::db::evict::{Order, Policy, victims};
use crate::db::{Db, Effects, Random};
use crate::operation::Write;

/// The number of keys that are chosen at a time.
const AT_ONCE: usize = 16;
/// How often keys are chosen after a batch, at most.
const ROUNDS: usize = 64;

/// The limit of memory, and the state of eviction.
#[derive(Default)]
pub struct Room {
    /// The limit in bytes; 0 if there is none.
    limit: AtomicU64,
    /// Whether changes that need memory are refused.
    full: AtomicBool,
    evicted: AtomicU64,
    chooser: Mutex<Chooser>,
}

/// The settings for choosing keys. One thread at a time chooses.
#[derive(Default)]
struct Chooser {
    /// The texts of the parameters in `CONFIG` that are in force.
    texts: [String; 3],
    policy: Policy,
    samples: usize,
    random: Option<Random>,
}

impl Room {
    /// Returns whether changes that need memory must be refused.
    pub fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Counts keys that an eviction has removed. (What was chosen is no measure: two threads may choose the same keys.)
    pub fn count_evicted(&self, keys: u64) {
        self.evicted.fetch_add(keys, Relaxed);
    }

    /// Returns the number of keys that were evicted.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }
}

impl Shared {
    /// Applies new settings of the limit; if this needs no operation, chooses keys to evict. Returns the operation to
    /// carry out. The first loop calls this function at intervals, so that keys are evicted even if there are no
    /// batches. It is also called after a change of a setting.
    pub fn keep_limit(&self) -> Option<Write> {
        self.apply_limit().or_else(|| self.choose_victims())
    }

    /// Applies new settings. Returns an operation that must be carried out before keys are chosen.
    ///
    /// Whether memory is counted, and for which policy, is read from the database itself. The last operation that this
    /// function returned is no substitute, for two reasons: the log may apply changes of two loops in another order
    /// than they were made, and the log contains the policies of earlier starts. If the database has another policy
    /// than the settings, the next call corrects it.
    fn apply_limit(&self) -> Option<Write> {
        let mut chooser = lock(&self.room.chooser);
        // The settings are read under the lock. Otherwise one loop could apply older settings after another loop has
        // applied newer ones.
        let texts = ["maxmemory", "maxmemory-policy", "maxmemory-samples"].map(|name| self.config.get(name));
        if chooser.texts != texts {
            let [limit, policy, samples] = &texts;
            let limit = keeping::bytes(limit).unwrap_or(0);
            chooser.policy = Policy::named(policy).unwrap_or_default();
            chooser.samples = samples.parse().unwrap_or(5);
            chooser.random.get_or_insert(Random(now()));
            chooser.texts = texts;
            self.room.limit.store(limit, Relaxed);
            if limit == 0 {
                self.room.full.store(false, Relaxed);
            }
        }
        let lfu = chooser.policy.order == Order::Lfu;
        let (counts, other) = self.store.db().inspect(0, |db| (db.counts(), db.lfu != lfu)).ok()?;
        let uncounted = !counts && self.room.limit.load(Relaxed) > 0;
        (uncounted || other).then_some(Write::Meter { lfu })
    }

    /// Chooses keys to evict. Returns the operation that removes them, if there are any. Notes whether changes must be
    /// refused.
    pub fn choose_victims(&self) -> Option<Write> {
        let limit = self.room.limit.load(Relaxed);
        if limit == 0 {
            return None;
        }
        let mut chooser = lock(&self.room.chooser);
        let Chooser { policy, samples, random, .. } = &mut *chooser;
        let random = random.as_mut()?;
        let now = now();
        let look = |db: &Db| {
            let over = db.used() as u64 > limit;
            (over, if over { db.candidates(*policy, random, *samples, AT_ONCE) } else { Vec::new() })
        };
        let db = self.store.db();
        let (over, mut groups) = db.inspect(0, look).unwrap_or_default();
        // Each replica records only the uses of its own readers.
        if matches!(policy.order, Order::Lru | Order::Lfu) && !groups.is_empty() {
            for replica in 1..db.replicas() {
                let _ = db.inspect(replica, |db| db.add_uses(policy.order, now, &mut groups));
            }
        }
        let keys = victims(policy.order, now, groups);
        self.room.full.store(over && keys.is_empty(), Relaxed);
        (!keys.is_empty()).then_some(Write::Evict { now, keys })
    }

    /// Evicts keys until the used memory is within the limit, in at most [`ROUNDS`] steps. Returns the effects of the
    /// removals.
    pub fn make_room(&self, handle: &mut Handle<Db>) -> Vec<Effects> {
        let mut told = Vec::new();
        if self.room.limit.load(Relaxed) == 0 {
            return told;
        }
        for _ in 0..ROUNDS {
            let Some(evict) = self.choose_victims() else { break };
            let mut outcomes = self.store.write_many(handle, vec![evict]);
            let refused = outcomes.iter().any(|outcome| outcome.reply.is_error());
            told.extend(outcomes.drain(..).filter_map(|outcome| Some(*outcome.effects?)));
            if refused {
                break;
            }
        }
        told
    }

    /// Returns the approximate memory of keys, values and libraries in bytes; 0 before a limit is set for the first
    /// time.
    pub fn counted(&self) -> usize {
        self.store.db().inspect(0, Db::used).unwrap_or(0)
    }
}
