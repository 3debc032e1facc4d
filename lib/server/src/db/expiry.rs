//! An index of the expiry times of a database's keys. Expired keys are found without looking at any other key.
//!
//! # Invariant
//! The index has an item (time, hash) if and only if a key whose name has this hash expires at this time. Two keys may
//! share one item.

use super::Space;
use super::table::Keyed;
use super::tree::Tree;
use super::value::Entry;

/// Expiry times of keys in milliseconds since 1970, with the hashes of the keys, in order.
#[derive(Clone, Debug, Default)]
pub struct Due(Tree<(u64, u32)>);

impl Due {
    /// Returns how many items are due at time `now`, that is, have a time of at most `now`. O(log n).
    pub fn count(&self, now: u64) -> usize {
        self.0.rank(|(at, _)| *at <= now)
    }

    /// Adds an item.
    pub(super) fn insert(&mut self, at: u64, hash: u32) {
        self.0.insert((at, hash));
    }

    /// Removes an item.
    pub(super) fn remove(&mut self, at: u64, hash: u32) {
        self.0.remove(&(at, hash));
    }

    /// Passes the first items that are due at time `now` to `each`, at most `most` of them.
    pub(super) fn visit(&self, now: u64, most: usize, mut each: impl FnMut(u64, u32)) {
        self.0.visit(0, most.min(self.count(now)), |(at, hash)| each(*at, *hash));
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Space {
    /// Updates the index: the expiry time of a key whose name has this hash changes from `before` to `after`. The
    /// caller has already changed the entry.
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

    /// Returns the keys that have expired at time `now`, the earliest first. Looks at no more than `most` items.
    pub(super) fn expired(&self, now: u64, most: usize) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        self.due.visit(now, most, |at, hash| {
            let dead = self.keys.with_hash(hash).filter(|entry| entry.expires() == Some(at));
            keys.extend(dead.map(|entry| entry.key().to_vec()));
        });
        keys
    }

    /// Returns the entries of at most `count` items, beginning with the item of rank `rank`.
    pub(super) fn due_from(&self, rank: usize, count: usize) -> Vec<&Entry> {
        let mut keys = Vec::new();
        self.due.0.visit(rank, count, |(at, hash)| {
            keys.extend(self.keys.with_hash(*hash).filter(|entry| entry.expires() == Some(*at)));
        });
        keys
    }

    /// Returns the index of expiry times.
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
