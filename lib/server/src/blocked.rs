//! Clients that wait for keys (`BLPOP` and similar commands). Each key has two queues in the order of arrival: one for
//! clients that wait for a stream, one for all others. The clients of all event loops share the queues.
//!
//! # No wake-up is missed
//! A blocking command is first carried out like any change. If it finds nothing, its client is registered here. Between
//! the two steps another client may have filled the key and found no registered client. Therefore the thread that
//! registers a client then serves the client's keys ([`crate::server`]): it carries out the command once more, or finds
//! that an earlier client gets nothing at the same keys. One of two cases holds. If the second attempt comes after the
//! other client's change, the attempt finds the value. Otherwise the change comes after the registration. The thread that
//! made the change looks into these queues after the change, so this thread finds the registered client.
//!
//! # Order
//! Clients of a key are served in the order of their tickets, which are numbers in the order of arrival. One thread at
//! a time serves: it holds the lock of [`Blocked`] from the choice of a client until the client's command is answered.

pub mod rounds;

use std::collections::BTreeMap;

use crate::operation::Call;

/// A client: its event loop, its slot in this loop, and a number that is never reused for another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The index of the event loop.
    pub at: usize,
    /// The slot among the loop's clients.
    pub slot: usize,
    /// The client's number.
    pub id: u64,
}

/// A database's number, and a key in this database.
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
    /// For each key, the clients that wait for a list or sorted set, and those that wait for a stream: their tickets
    /// and numbers.
    queues: BTreeMap<Key, [BTreeMap<u64, u64>; 2]>,
    tickets: u64,
}

/// Returns whether a call waits for streams.
pub fn wants_streams(call: &Call) -> bool {
    call.command.name.starts_with('x')
}

/// Returns the keys that a call waits for.
pub fn keys(call: &Call) -> Vec<Key> {
    call.command.keys.places(&call.args).into_iter().map(|place| (call.db, call.args[place].to_vec())).collect()
}

impl Blocked {
    /// Adds a client after all clients that wait.
    pub fn register(&mut self, owner: Owner, call: Call) {
        self.tickets += 1;
        let ticket = self.tickets;
        for key in keys(&call) {
            self.queues.entry(key).or_default()[usize::from(wants_streams(&call))].insert(ticket, owner.id);
        }
        self.clients.insert(owner.id, Waiter { ticket, owner, call });
    }

    /// Removes a client. Returns whether the client waited.
    pub fn remove(&mut self, id: u64) -> bool {
        let Some(waiter) = self.clients.remove(&id) else { return false };
        for key in keys(&waiter.call) {
            if let Some(queues) = self.queues.get_mut(&key) {
                queues[usize::from(wants_streams(&waiter.call))].remove(&waiter.ticket);
                if queues.iter().all(BTreeMap::is_empty) {
                    self.queues.remove(&key);
                }
            }
        }
        true
    }

    /// Returns the first client after `ticket` in a queue of the key: its ticket, its owner, its call. If `streams`,
    /// the queue is that of the clients that wait for a stream, otherwise that of all others.
    pub fn next(&self, key: &Key, streams: bool, ticket: u64) -> Option<(u64, Owner, &Call)> {
        let (ticket, id) = self.queues.get(key)?[usize::from(streams)].range(ticket + 1..).next()?;
        self.clients.get(id).map(|waiter| (*ticket, waiter.owner, &waiter.call))
    }

    /// Returns the keys of a database that clients wait for. The flag tells whether a client waits for a stream at the key.
    pub fn keys_of(&self, database: u32) -> impl Iterator<Item = (&Key, bool)> {
        let keys = self.queues.range((database, Vec::new())..(database + 1, Vec::new()));
        keys.map(|(key, queues)| (key, !queues[1].is_empty()))
    }

    /// Returns the number of clients that wait.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Returns whether no client waits.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}
