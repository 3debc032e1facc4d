//! A loom model of changes and look-ups of several shards.

use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sync::rcu::{Domain, Flavour};

use super::{Gone, Outcome, Seen, Shard};
use crate::budget::Budget;
use crate::clock::Clock;
use crate::entry::Entry;
use crate::few::Few;
use crate::policy::Sieve;

struct World {
    domain: Domain,
    budget: Budget,
    shards: [Shard<u64, (), Sieve>; 2],
}

impl World {
    /// Inserts an entry into one shard, and returns whether the other shard has one.
    fn insert_and_look(&self, own: usize, other: usize) -> bool {
        let (guard, seen) = (self.domain.pin(), Seen { same_hash: Few::new(), same_key: None });
        let entry = Entry::boxed(0, (), 0, 1);
        let (time, gone) = (Clock::new(), &mut Gone::new());
        let outcome = self.shards[own].lock().insert(&guard, &self.budget, &time, entry, &seen, gone);
        assert!(matches!(outcome, Outcome::Kept));
        self.shards[other].table().find(&guard, 0, |_| true).is_some()
    }
}

#[test]
fn one_of_two_threads_finds_what_the_other_has_inserted() {
    model(2, || {
        let world = Arc::new(World {
            domain: Domain::with_flavour(Flavour::Epoch),
            budget: Budget::new(1_000, 2),
            shards: [Shard::new(), Shard::new()],
        });
        let other = {
            let world = world.clone();
            thread::spawn(move || world.insert_and_look(1, 0))
        };
        let found = world.insert_and_look(0, 1);
        assert!(other.join().unwrap() || found, "both insertions came after the other thread's look-up");
    });
}
