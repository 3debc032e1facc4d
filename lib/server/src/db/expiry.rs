//! Which keys of a database expire when: so that what is due is found without a look at anything else.
//!
//! # Invariant
//! There is an item (time, hash) if and only if a key with this hash expires at this time. Two keys may share one.

use super::Space;
use super::table::Keyed;
use super::tree::Tree;
use super::value::Entry;

/// Times at which keys expire, in milliseconds since 1970, with the keys' hashes: in order.
#[derive(Clone, Debug, Default)]
pub struct Due(Tree<(u64, u32)>);

impl Due {
    /// How many times and hashes are due by `now`. O(log n).
    pub fn count(&self, now: u64) -> usize {
        self.0.rank(|(at, _)| *at <= now)
    }

    /// Adds a time and a hash.
    pub(super) fn insert(&mut self, at: u64, hash: u32) {
        self.0.insert((at, hash));
    }

    /// Takes a time and a hash out.
    pub(super) fn remove(&mut self, at: u64, hash: u32) {
        self.0.remove(&(at, hash));
    }

    /// The first times and hashes that are due by `now`, at most `most`.
    pub(super) fn visit(&self, now: u64, most: usize, mut each: impl FnMut(u64, u32)) {
        self.0.visit(0, most.min(self.count(now)), |(at, hash)| each(*at, *hash));
    }

    /// How many times and hashes there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Space {
    /// Notes that a key with this hash, which expired at `before`, expires at `after`: when its entry says so already.
    pub(super) fn note_expiry(&mut self, hash: u32, before: Option<u64>, after: Option<u64>) {
        if before == after {
            return;
        }
        if let Some(at) = before {
            self.volatile -= 1;
            if !self.keys.with_hash(hash).any(|entry| entry.expires() == Some(at)) {
                self.due.0.remove(&(at, hash));
            }
        }
        if let Some(at) = after {
            self.volatile += 1;
            self.due.0.insert((at, hash));
        }
    }

    /// The keys that expired first by `now`: of at most `most` times.
    pub(super) fn expired(&self, now: u64, most: usize) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        self.due.visit(now, most, |at, hash| {
            let dead = self.keys.with_hash(hash).filter(|entry| entry.expires() == Some(at));
            keys.extend(dead.map(|entry| entry.key().to_vec()));
        });
        keys
    }

    /// The keys of at most `count` times, from that of a rank on.
    pub(super) fn due_from(&self, rank: usize, count: usize) -> Vec<&Entry> {
        let mut keys = Vec::new();
        self.due.0.visit(rank, count, |(at, hash)| {
            keys.extend(self.keys.with_hash(*hash).filter(|entry| entry.expires() == Some(*at)));
        });
        keys
    }

    /// Times at which keys expire.
    pub fn due(&self) -> &Due {
        &self.due
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::Value;
    use super::super::{Change, Db, Random};
    use super::Entry;

    #[test]
    fn what_is_due_is_what_the_entries_say() {
        let (mut db, mut random) = (Db::default(), Random(8));
        for step in 0..20_000_u64 {
            let key = random.below(500).to_string().into_bytes();
            let mut change =
                Change { db: &mut db, index: 3, now: step, random: Random(0), wishes: 0, rights: None, deadline: None };
            match random.below(5) {
                0 => change.set(&key, Value::Int(1)),
                1 => drop(change.remove(&key)),
                2 => change.expire_at(&key, None),
                _ => change.expire_at(&key, Some(step + random.below(300) as u64)),
            }
            if step % 100 == 0 {
                let space = &db.spaces[3];
                let mut dead = space.expired(step + 50, usize::MAX);
                assert_eq!(dead.len(), space.due.count(step + 50));
                let mut expected: Vec<(u64, Vec<u8>)> = Vec::new();
                let volatile = space.keys.iter().filter_map(|entry: &Entry| {
                    expected.push((entry.expires()?, super::Keyed::key(entry).to_vec()));
                    entry.expires()
                });
                assert_eq!(volatile.count(), space.volatile);
                expected.retain(|(at, _)| *at <= step + 50);
                let mut expected: Vec<Vec<u8>> = expected.into_iter().map(|(_, key)| key).collect();
                dead.sort();
                expected.sort();
                assert_eq!(dead, expected);
            }
        }
    }
}
