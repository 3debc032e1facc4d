//! Clients that wait for keys (`BLPOP` and its kind): queues per key, over all loops, in the order of arrival.
//!
//! # Nothing is missed
//! A blocking command is carried out as any change; its client is registered when it was answered with nothing. Between the
//! two another client may have made the key ready, and found no one registered. So whoever registers a client then serves
//! its keys ([`crate::server`]): the command is carried out once more. Either this second time is behind the other's change and
//! finds the value, or the other's look into these queues, which comes after its change, is behind the registration.
//!
//! # Order
//! Clients of a key are served in the order of their tickets, and one thread at a time serves: the lock of the whole is held
//! from the choice of a client until its command was answered.

use std::collections::BTreeMap;

use crate::operation::Call;

/// A client: its loop, its place there, and its number, which no other client ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The loop.
    pub at: usize,
    /// The place among the loop's clients.
    pub slot: usize,
    /// The number.
    pub id: u64,
}

/// A database and a key of it.
pub type Key = (u32, Vec<u8>);

struct Waiter {
    ticket: u64,
    owner: Owner,
    call: Call,
}

/// All clients that wait.
#[derive(Default)]
pub struct Blocked {
    clients: BTreeMap<u64, Waiter>,
    queues: BTreeMap<Key, BTreeMap<u64, u64>>,
    tickets: u64,
}

/// The keys that a call waits for.
pub fn keys(call: &Call) -> Vec<Key> {
    call.command.keys.places(&call.args).into_iter().map(|place| (call.db, call.args[place].to_vec())).collect()
}

impl Blocked {
    /// Adds a client behind all others.
    pub fn register(&mut self, owner: Owner, call: Call) {
        self.tickets += 1;
        let ticket = self.tickets;
        for key in keys(&call) {
            self.queues.entry(key).or_default().insert(ticket, owner.id);
        }
        self.clients.insert(owner.id, Waiter { ticket, owner, call });
    }

    /// Lets a client go. Returns whether it waited.
    pub fn remove(&mut self, id: u64) -> bool {
        let Some(waiter) = self.clients.remove(&id) else { return false };
        for key in keys(&waiter.call) {
            if let Some(queue) = self.queues.get_mut(&key) {
                queue.remove(&waiter.ticket);
                if queue.is_empty() {
                    self.queues.remove(&key);
                }
            }
        }
        true
    }

    /// The first client behind `ticket` that waits for a key: its ticket, its owner, what it asked for.
    pub fn next(&self, key: &Key, ticket: u64) -> Option<(u64, Owner, &Call)> {
        let (ticket, id) = self.queues.get(key)?.range(ticket + 1..).next()?;
        self.clients.get(id).map(|waiter| (*ticket, waiter.owner, &waiter.call))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Returns whether none waits.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}
