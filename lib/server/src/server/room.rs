//! `maxmemory`: what goes when memory is short is chosen here, and goes by an operation that names it.
//!
//! After each batch, keys are chosen and removed until what is left is below the limit: up to [`ROUNDS`] times [`AT_ONCE`] keys, so that no
//! client waits for a flood of them. If nothing may go, changes that need memory are refused until there is room. The
//! limit is for the keys and values of one replica ([`Db::used`]); clients' buffers and the log's queue have bounds of their own.

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use archipelago_platform::sync::Mutex;
use archipelago_replicate::Handle;

use super::now;
use super::shared::{Shared, lock};
use crate::config::keeping;
use crate::db::evict::{Order, Policy};
use crate::db::{Db, Effects, Random};
use crate::operation::Write;

/// Keys that are chosen at a time.
const AT_ONCE: usize = 16;
/// How often keys are chosen after a batch.
const ROUNDS: usize = 64;

/// What is known of the limit.
#[derive(Default)]
pub struct Room {
    /// Bytes; 0: there is none.
    limit: AtomicU64,
    /// Says that changes which need memory are refused.
    full: AtomicBool,
    evicted: AtomicU64,
    chooser: Mutex<Chooser>,
}

/// How keys are chosen: by one thread at a time.
#[derive(Default)]
struct Chooser {
    /// As `CONFIG` has them: what is in force.
    texts: [String; 3],
    policy: Policy,
    samples: usize,
    random: Option<Random>,
}

impl Room {
    /// Returns whether changes that need memory are to be refused.
    pub fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Keys that were removed for the limit's sake.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }
}

impl Shared {
    /// Puts a new limit of memory in force, and keeps to it where no batch does. Returns what has to be done. Called by one loop now and
    /// then, and when a setting is changed.
    pub fn keep_limit(&self) -> Option<Write> {
        self.apply_limit().or_else(|| self.choose_victims())
    }

    /// Puts new settings in force. Returns an operation that has to come before them.
    ///
    /// The database itself tells whether it counts memory, and for which policy. What this function last asked for is no answer: the log
    /// may apply the changes of two loops in another order than they were made in, and it contains the policies of earlier starts.
    /// If the database has another policy than the settings, the next call corrects it.
    fn apply_limit(&self) -> Option<Write> {
        let mut chooser = lock(&self.room.chooser);
        // Read under the lock: of two loops, neither puts older settings in force after the other's.
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

    /// What is to be removed for the limit's sake, if anything is. Notes whether changes are refused.
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
            (over, if over { db.victims(*policy, now, random, *samples, AT_ONCE) } else { Vec::new() })
        };
        let (over, keys) = self.store.db().inspect(0, look).unwrap_or_default();
        self.room.full.store(over && keys.is_empty(), Relaxed);
        self.room.evicted.fetch_add(keys.len() as u64, Relaxed);
        (!keys.is_empty()).then_some(Write::Evict { now, keys })
    }

    /// Removes keys until what is left is below the limit. Returns what is to be told of that.
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

    /// Bytes of keys and values, about; 0 while there is no limit.
    pub fn counted(&self) -> usize {
        self.store.db().inspect(0, Db::used).unwrap_or(0)
    }
}
