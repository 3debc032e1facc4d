//! Loom models of the table's orderings: a look-up concurrent with the writer.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --profile model --target-dir target/loom -p archipelago-cache --lib`

use archipelago_platform::cell::RaceCell;
use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sync::rcu::{Domain, Flavour};

use super::Table;
use crate::entry::{Entry, Shared};

/// A value whose accesses loom checks.
struct Value(RaceCell<u64>);

// SAFETY: loom ends the run when its accesses are not ordered.
unsafe impl Sync for Value {}

/// Makes an entry whose own bucket (the first on its way) is the table's first bucket.
fn entry(key: u64) -> Shared<u64, Value> {
    let entry = Entry::boxed(key, Value(RaceCell::new(0)), hash(key), 1);
    // SAFETY: made just now.
    unsafe { entry.as_ref().value().0.with_mut(|value| *value = key) };
    entry
}

/// Returns a hash whose tag is the key plus one.
fn hash(key: u64) -> u64 {
    (key + 1) << 32
}

struct World {
    domain: Domain,
    table: Table<u64, Value>,
    entries: Vec<Shared<u64, Value>>,
}

// SAFETY: entries are pointers to what the table owns.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl World {
    /// Makes a table of `len` entries.
    fn of(len: u64) -> Arc<Self> {
        let world = Self {
            domain: Domain::with_flavour(Flavour::Epoch),
            table: Table::new(),
            entries: (0..len).map(entry).collect(),
        };
        (0..len).for_each(|at| world.insert(world.entries[at as usize], at));
        Arc::new(world)
    }

    fn insert(&self, entry: Shared<u64, Value>, len: u64) {
        self.table.insert(&self.domain.pin(), entry, len as usize);
    }

    /// Removes an entry and leaks it.
    fn remove(&self, key: u64) {
        self.table.remove(&self.domain.pin(), self.entries[key as usize]);
    }

    /// Replaces an entry and leaks the old one.
    fn replace(&self, key: u64) {
        let guard = self.domain.pin();
        let at = self.table.place_of(&guard, self.entries[key as usize]).expect("it is there");
        self.table.replace(&guard, at, entry(key));
    }

    /// Returns the value of a key.
    fn find(&self, key: u64) -> Option<u64> {
        let guard = self.domain.pin();
        let found = self.table.find(&guard, hash(key), |other| *other == key);
        // SAFETY: found under the guard, and loom would report a race.
        found.map(|entry| unsafe { entry.as_ref().value().0.with(|value| *value) })
    }
}

/// Runs `write` concurrently with look-ups of `keys`. Each result must satisfy `is_right`.
fn beside(len: u64, write: fn(&World), keys: &'static [u64], is_right: fn(u64, Option<u64>) -> bool) {
    model(2, move || {
        let world = World::of(len);
        let writer = {
            let world = world.clone();
            thread::spawn(move || write(&world))
        };
        keys.iter().for_each(|key| assert!(is_right(*key, world.find(*key)), "{key}"));
        writer.join().unwrap();
    });
}

#[test]
fn what_is_found_is_whole() {
    beside(1, |world| world.insert(entry(1), 1), &[1, 0], |key, found| found.map_or(key == 1, |value| value == key));
}

#[test]
fn what_replaces_another_is_whole() {
    beside(1, |world| world.replace(0), &[0], |key, found| found == Some(key));
}

/// Nine entries belong to one bucket of seven places, so two of them are in the next bucket.
#[test]
fn what_has_passed_full_buckets_is_found_beside_a_removal() {
    beside(9, |world| world.remove(7), &[8], |key, found| found == Some(key));
}

/// The new entry has the tag and the place of the one that leaves, so a look-up of the new entry may load the old tag.
#[test]
fn what_comes_into_a_place_that_was_left_is_found_again() {
    const SAME_TAG: u64 = 256;
    model(2, || {
        let world = World::of(1);
        let writer = {
            let world = world.clone();
            thread::spawn(move || {
                world.remove(0);
                world.insert(entry(SAME_TAG), 0);
            })
        };
        let (first, second) = (world.find(SAME_TAG), world.find(SAME_TAG));
        assert!(first.is_none() || second.is_some(), "found, and then missed");
        writer.join().unwrap();
    });
}

#[test]
fn what_is_there_is_found_while_the_table_is_replaced() {
    beside(6, |world| world.insert(entry(6), 6), &[5], |key, found| found == Some(key));
}
