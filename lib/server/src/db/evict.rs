//! Records of when and how often keys were used, and the choice of keys to evict when memory is short.
//!
//! Each entry has 32 bits for this record. Under most policies the bits are the time of the last use in seconds. Under
//! a policy of frequencies (LFU) the bits are the time of the last use in minutes and a logarithmic count of uses. The
//! count is that of Redis: a use increases it with a probability that falls as the count rises, and each minute without
//! a use decreases it by one.
//!
//! Readers of one replica record uses concurrently with relaxed atomics, so two concurrent uses may count as one. The
//! records therefore differ between replicas, and no logged change depends on them: scripts that may change the database
//! cannot read them. One replica draws keys ([`Db::candidates`]), the records of all replicas decide which of them to evict
//! ([`Db::add_uses`], [`victims`]), and the names of these keys enter the log.

use super::table::Keyed;
use super::value::Entry;
use super::{Db, Random, Space};

/// The order in which keys are evicted when memory is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The least recently used key first.
    Lru,
    /// The least frequently used key first.
    Lfu,
    /// A random key.
    Random,
    /// The key that expires first.
    Ttl,
    /// No key is evicted: changes that need memory are refused.
    #[default]
    None,
}

/// A policy of `maxmemory-policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The order of eviction.
    pub order: Order,
    /// Whether only keys with an expiry time are evicted.
    pub volatile: bool,
}

impl Policy {
    /// All policies with their names.
    pub const NAMES: [(&'static str, Self); 8] = [
        ("noeviction", Self { order: Order::None, volatile: false }),
        ("allkeys-lru", Self { order: Order::Lru, volatile: false }),
        ("allkeys-lfu", Self { order: Order::Lfu, volatile: false }),
        ("allkeys-random", Self { order: Order::Random, volatile: false }),
        ("volatile-lru", Self { order: Order::Lru, volatile: true }),
        ("volatile-lfu", Self { order: Order::Lfu, volatile: true }),
        ("volatile-random", Self { order: Order::Random, volatile: true }),
        ("volatile-ttl", Self { order: Order::Ttl, volatile: true }),
    ];

    /// Returns the policy with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, policy)| *policy)
    }
}

/// The count of a new key. It is not 0, so that a new key is not the first to be evicted.
const BEGINNING: u8 = 5;
/// The factor by which the count's growth is slowed: the count reaches 255 after about a million uses.
const SLOWNESS: u64 = 10;

/// Returns the 32 bits of a new key.
pub(super) fn born(now: u64, lfu: bool) -> u32 {
    if lfu { rated(now, BEGINNING) } else { used_at(now) }
}

/// Returns the 32 bits of a key that is used at this time, under a policy other than one of frequencies.
pub fn used_at(now: u64) -> u32 {
    (now / 1000) as u32
}

/// Returns the 32 bits of a key with this count of uses, under a policy of frequencies.
pub fn rated(now: u64, count: u8) -> u32 {
    minute(now) << 8 | u32::from(count)
}

fn minute(now: u64) -> u32 {
    (now / 60_000) as u32 & 0xff_ffff
}

/// Returns the count of uses, decreased by the minutes since the last use.
pub fn frequency(access: u32, now: u64) -> u32 {
    let passed = minute(now).wrapping_sub(access >> 8) & 0xff_ffff;
    (access & 0xff).saturating_sub(passed)
}

/// Returns the 32 bits after a use.
pub(super) fn used(access: u32, now: u64, lfu: bool, seed: u64) -> u32 {
    if !lfu {
        return used_at(now);
    }
    let count = frequency(access, now);
    let chance = u64::from(count.saturating_sub(BEGINNING.into())) * SLOWNESS + 1;
    let rises = count < 255 && Random(seed).draw().is_multiple_of(chance);
    minute(now) << 8 | (count + u32::from(rises))
}

impl Space {
    /// Returns about `count` random entries. If the policy takes all keys, these entries are consecutive in the order
    /// of hashes (the first entry follows the last one), and an entry of a small table may be returned twice.
    fn some(&self, policy: Policy, random: &mut Random, count: usize) -> Vec<&Entry> {
        if policy.volatile {
            // Each key is drawn independently, since keys with nearly equal expiry times are likely to be of one kind.
            let times = self.due().len().max(1);
            return (0..count).flat_map(|_| self.due_from(random.below(times), 1)).collect();
        }
        let from = random.draw() as u32;
        self.keys.iter_from(from).chain(self.keys.iter_from(0)).take(count).collect()
    }
}

/// A key that may be evicted.
pub struct Candidate {
    index: u32,
    key: Vec<u8>,
    /// The record of the key's uses: the most recent one, or the greatest count, of the replicas that were asked.
    access: u32,
}

impl Db {
    /// Returns at most `most` groups of `samples` random keys. One key of each group is to be evicted. Under
    /// `volatile-ttl` a group is a single key, the next of a database's keys in the order of expiry times. Under the
    /// random policies a group is a single random key.
    pub fn candidates(&self, policy: Policy, random: &mut Random, samples: usize, most: usize) -> Vec<Vec<Candidate>> {
        let mut groups = Vec::new();
        let room = |space: &Space| if policy.volatile { space.volatile } else { space.keys.len() };
        let all: usize = self.spaces.iter().map(room).sum();
        if all == 0 || policy.order == Order::None {
            return groups;
        }
        let mut chosen = vec![0; self.spaces.len()];
        for _ in 0..most.min(all) {
            let mut place = random.below(all);
            let found = (0..).zip(&self.spaces).find(|(_, space)| {
                let here = place < room(space);
                place -= if here { 0 } else { room(space) };
                here
            });
            let Some((index, space)) = found else { break };
            let some = match policy.order {
                Order::Ttl => {
                    chosen[index] += 1;
                    space.due_from(chosen[index] - 1, 1)
                }
                Order::Random => space.some(policy, random, 1),
                _ => space.some(policy, random, samples.max(1)),
            };
            let candidate =
                |entry: &Entry| Candidate { index: index as u32, key: entry.key().to_vec(), access: entry.access() };
            groups.push(some.into_iter().map(candidate).collect());
        }
        groups
    }

    /// Updates each candidate's record of uses, if this replica has a record that suits eviction less.
    pub fn add_uses(&self, order: Order, now: u64, groups: &mut [Vec<Candidate>]) {
        for candidate in groups.iter_mut().flatten() {
            let space = self.spaces.get(candidate.index as usize);
            let Some(entry) = space.and_then(|space| space.keys.get(&candidate.key)) else { continue };
            candidate.access = [candidate.access, entry.access()]
                .into_iter()
                .min_by_key(|access| idleness(order, *access, now))
                .expect("there are two");
        }
    }
}

/// Returns how well a key suits eviction by its record of uses.
fn idleness(order: Order, access: u32, now: u64) -> u32 {
    match order {
        Order::Lru => used_at(now).saturating_sub(access),
        Order::Lfu => 255 - frequency(access, now).min(255),
        _ => 0,
    }
}

/// Returns the key of each group that the policy evicts first, with the numbers of their databases.
pub fn victims(order: Order, now: u64, groups: Vec<Vec<Candidate>>) -> Vec<(u32, Vec<u8>)> {
    let first = |group: Vec<Candidate>| group.into_iter().max_by_key(|one| idleness(order, one.access, now));
    let mut victims: Vec<_> = groups.into_iter().filter_map(first).map(|one| (one.index, one.key)).collect();
    victims.sort();
    victims.dedup();
    victims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_rise_with_uses_and_fall_with_minutes() {
        let mut access = born(0, true);
        assert_eq!(frequency(access, 0), 5);
        let mut counts = Vec::new();
        for uses in 1..=100_000_u64 {
            access = used(access, 0, true, uses);
            if [100, 1_000, 100_000].contains(&uses) {
                counts.push(frequency(access, 0));
            }
        }
        // Redis's documentation gives 10, 18 and 142 for a factor of 10.
        assert!((7..14).contains(&counts[0]) && (14..24).contains(&counts[1]) && (120..165).contains(&counts[2]));
        assert_eq!(frequency(access, 60_000 * 20), counts[2] - 20);
        assert_eq!(frequency(access, 60_000 * 400), 0);
        assert_eq!(used(7, 5_999, false, 1), 5);
    }

    use super::super::value::Value;
    use super::super::{Change, View};

    fn key(number: usize) -> Vec<u8> {
        format!("key:{number}").into_bytes()
    }

    /// Returns a thousand keys in two databases. Every third key expires. The first 50 keys are used repeatedly.
    fn used_keys(lfu: bool) -> Db {
        let mut db = Db { lfu, ..Db::default() };
        for number in 0..1_000 {
            let index = (number % 2) as u32;
            let mut change =
                Change { db: &mut db, index, now: 1_000, random: Random(0), wishes: 0, rights: None, deadline: None };
            change.set(&key(number), Value::string(b"x"));
            if number % 3 == 0 {
                change.expire_at(&key(number), Some(1_000_000_000 - number as u64));
            }
        }
        for step in 0..20_000 {
            let (number, seed) = (step % 50, step as u64);
            let view = View { db: &db, index: (number % 2) as u32, now: 90_000, seed, rights: None, deadline: None };
            view.string(&key(number)).unwrap().unwrap();
        }
        db
    }

    #[test]
    fn commands_that_read_a_value_use_its_key() {
        use crate::operation::{Call, Read, Write};
        let call = |words: &str, now| {
            let args: crate::args::Args = words.split(' ').collect();
            let command = crate::command::find(&args[0]).unwrap();
            Call { command, args, db: 0, now, seed: 7, wishes: 0, rights: None, deadline: None }
        };
        for (make, words) in [
            ("set k 1", "get k"),
            ("set k 1", "touch none k"),
            ("set k 1", "dump k"),
            ("rpush k 1 2", "sort_ro k"),
            ("zadd k 1 a", "zunion 1 k"),
            ("zadd k 1 a", "zinter 1 k"),
            ("sadd k a", "zdiff 1 k"),
            ("zadd k 1 a", "zintercard 1 k"),
        ] {
            let mut db = Db::default();
            let _ = db.write(&Write::Call(call(make, 1_000)));
            let idle = |db: &Db| db.read(&Read::Call(call("object idletime k", 9_000))).reply;
            let _ = db.read(&Read::Call(call("exists k", 9_000)));
            assert_eq!(idle(&db), crate::reply::Reply::Int(8), "{words}");
            let _ = db.read(&Read::Call(call(words, 9_000)));
            assert_eq!(idle(&db), crate::reply::Reply::Int(0), "{words}");
        }
    }

    fn victims(db: &Db, name: &str) -> Vec<usize> {
        let mut random = Random(3);
        let policy = Policy::named(name).unwrap();
        let chosen = super::victims(policy.order, 100_000, db.candidates(policy, &mut random, 5, 100));
        let number = |(_, key): &(u32, Vec<u8>)| std::str::from_utf8(&key[4..]).unwrap().parse().unwrap();
        let chosen: Vec<usize> = chosen.iter().map(number).collect();
        assert!(name == "noeviction" || chosen.len() > 60, "{name}: {}", chosen.len());
        chosen
    }

    #[test]
    fn what_is_used_stays() {
        for (name, lfu) in
            [("allkeys-lru", false), ("volatile-lru", false), ("allkeys-lfu", true), ("volatile-lfu", true)]
        {
            let chosen = victims(&used_keys(lfu), name);
            assert!(chosen.iter().all(|number| *number >= 50), "{name}: one of five that were looked at was used less");
            let volatile = chosen.iter().filter(|number| *number % 3 == 0).count();
            assert_eq!(volatile == chosen.len(), name.starts_with("volatile"), "{name}");
        }
        let db = used_keys(false);
        assert!(victims(&db, "allkeys-random").iter().any(|number| *number < 50));
        assert!(victims(&db, "volatile-random").iter().all(|number| number % 3 == 0));
        // The keys that were added last expire first.
        assert!(victims(&db, "volatile-ttl").iter().all(|number| number % 3 == 0 && *number > 200));
        assert!(victims(&db, "noeviction").is_empty());
        assert!(Db::default().candidates(Policy::named("allkeys-lru").unwrap(), &mut Random(1), 5, 9).is_empty());
    }

    #[test]
    fn what_another_replica_uses_stays() {
        for (name, lfu) in [("allkeys-lru", false), ("allkeys-lfu", true)] {
            let policy = Policy::named(name).unwrap();
            let (drawn, other) = (used_keys(lfu), used_keys(lfu));
            for number in 500..550 {
                for seed in 0..200 {
                    let view = View { db: &other, index: number % 2, now: 95_000, seed, rights: None, deadline: None };
                    view.string(&key(number as usize)).unwrap().unwrap();
                }
            }
            let mut groups = drawn.candidates(policy, &mut Random(3), 5, 300);
            other.add_uses(policy.order, 100_000, &mut groups);
            let chosen = super::victims(policy.order, 100_000, groups);
            let used: Vec<_> = (0..50).chain(500..550).map(|number| ((number % 2) as u32, key(number))).collect();
            assert!(chosen.len() > 150 && used.iter().all(|key| !chosen.contains(key)), "{name}: {}", chosen.len());
        }
    }
}
