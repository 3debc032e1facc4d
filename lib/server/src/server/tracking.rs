//! Client-side caching: records which clients must be told when a key changes.
//!
//! # No cache stays stale
//! The keys of a read are recorded before the read ([`Tracking::note`]). The recorded clients of a changed key are
//! looked up after the change is carried out ([`Shared::invalidate`]). Both steps hold one lock, so one of two cases
//! holds. If the lookup comes before the recording, the change comes before the read, and the read returns the new
//! value. Otherwise the lookup finds the client and sends its event loop a letter (a message between threads). The
//! client's loop writes the answer to a read at once, so it processes the letter after the answer.
//! [`events`](super::events) explains why every change is looked up.
//!
//! Transactions and scripts read as operations of the log, after their keys were recorded. A change that is carried out
//! between the recording and the operation uses up the record: its letter may precede the operation's answer, and no
//! later change finds the client. The same holds for a change between the operation and its answer, if its letter comes
//! first. So the letters of that time are kept ([`Shared::keep`]), and are sent once more after the answer
//! ([`Shared::repeat`]).
//!
//! # Limits
//! At most `tracking-table-max-keys` keys are recorded. If there is one more, a key is forgotten, and the clients that had
//! read the forgotten key are told that it changed. A key's list of clients may contain clients that are gone. Such
//! clients are removed before an addition to a list whose length is a power of two of at least 16. When the key changes
//! or is forgotten, its whole list is removed.

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};
use archipelago_platform::sync::Mutex;
use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use super::events::both;
use super::shared::{Letter, Shared, lock};
use crate::blocked::Owner;
use crate::reply::{Protocol, Reply};

/// The mode in which a client tracks keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// The client is told about all changed keys with its prefixes. No keys are recorded for it.
    pub broadcast: bool,
    /// Only keys of the command or transaction after `CLIENT CACHING YES` are recorded.
    pub opt_in: bool,
    /// Keys of the command or transaction after `CLIENT CACHING NO` are not recorded.
    pub opt_out: bool,
    /// The client is not told about its own changes.
    pub no_loop: bool,
    /// The client that receives the messages instead; 0 if there is none.
    pub redirect: u64,
    /// The prefixes of `broadcast`, in order. No prefix begins with another one, except with the empty prefix, which
    /// stands for all keys.
    pub prefixes: Vec<Vec<u8>>,
}

impl Mode {
    /// Returns whether the keys of a read must be recorded. `caching` is the argument of the last `CLIENT CACHING`, as long
    /// as it applies.
    pub fn notes(&self, caching: Option<bool>) -> bool {
        let asked = (!self.opt_in || caching == Some(true)) && !(self.opt_out && caching == Some(false));
        !self.broadcast && asked
    }
}

struct Tracker {
    owner: Owner,
    mode: Mode,
    /// While operations of the log read for the client: the keys of the letters that were sent meanwhile. An element
    /// `None` stands for all keys. Each other element was a record of the client.
    kept: Option<Vec<Option<Vec<u8>>>>,
    /// Whether the client that receives the messages instead is gone.
    broken: bool,
}

#[derive(Default)]
struct Tables {
    clients: BTreeMap<u64, Tracker>,
    keys: BTreeMap<Vec<u8>, Vec<u64>>,
    /// The key that was forgotten last. The next key to be forgotten follows it in order.
    hand: Vec<u8>,
    prefixes: BTreeMap<Vec<u8>, BTreeSet<u64>>,
}

/// The state of tracking.
#[derive(Default)]
pub struct Tracking {
    clients: AtomicUsize,
    /// The maximum number of recorded keys; 0 if there is no limit.
    most: AtomicUsize,
    tables: Mutex<Tables>,
}

/// Counts for `INFO`.
pub struct Tracked {
    /// The number of recorded keys.
    pub keys: usize,
    /// The number of recorded clients, added up over all keys.
    pub items: usize,
    /// The number of prefixes.
    pub prefixes: usize,
}

impl Tracking {
    /// Returns whether any client tracks keys.
    pub fn is_on(&self) -> bool {
        self.clients.load(Relaxed) > 0
    }

    /// Returns the number of clients that track keys.
    pub fn clients(&self) -> usize {
        self.clients.load(Relaxed)
    }

    /// Sets the maximum number of recorded keys; 0 means no limit.
    pub fn limit(&self, most: usize) {
        self.most.store(most, Relaxed);
    }

    /// Starts a client's tracking, or changes its mode.
    pub fn begin(&self, owner: Owner, mode: Mode) {
        let mut tables = lock(&self.tables);
        for prefix in mode.prefixes.iter().cloned() {
            tables.prefixes.entry(prefix).or_default().insert(owner.id);
        }
        // A transaction may begin the tracking anew, after it has read.
        let kept = tables.clients.remove(&owner.id).and_then(|tracker| tracker.kept);
        tables.clients.insert(owner.id, Tracker { owner, mode, kept, broken: false });
        self.clients.store(tables.clients.len(), Relaxed);
    }

    /// Ends a client's tracking. O(prefixes): the client's number stays with recorded keys.
    pub fn end(&self, id: u64) {
        let mut tables = lock(&self.tables);
        tables.clients.remove(&id);
        tables.prefixes.retain(|_, clients| {
            clients.remove(&id);
            !clients.is_empty()
        });
        if tables.clients.is_empty() {
            tables.keys.clear();
        }
        self.clients.store(tables.clients.len(), Relaxed);
    }

    /// Returns whether the client that receives the messages instead is gone.
    pub fn is_broken(&self, id: u64) -> bool {
        lock(&self.tables).clients.get(&id).is_some_and(|tracker| tracker.broken)
    }

    /// Counts the recorded keys and prefixes. O(keys).
    pub fn tracked(&self) -> Tracked {
        let tables = lock(&self.tables);
        let items = tables.keys.values().map(Vec::len).sum();
        Tracked { keys: tables.keys.len(), items, prefixes: tables.prefixes.len() }
    }

    /// Records that a client is about to read keys. Returns the keys that were forgotten to make room, with the clients
    /// that must be told. O(log keys + clients recorded for the key) for each key.
    pub fn note<'k>(&self, id: u64, keys: impl Iterator<Item = &'k [u8]>) -> Vec<(Vec<u8>, Vec<u64>)> {
        let most = self.most.load(Relaxed);
        let mut tables = lock(&self.tables);
        let Tables { clients, keys: noted, hand, .. } = &mut *tables;
        let mut forgotten = Vec::new();
        for key in keys {
            match noted.get_mut(key) {
                Some(ids) if ids.contains(&id) => {}
                Some(ids) => {
                    if ids.len() >= 16 && ids.len().is_power_of_two() {
                        ids.retain(|id| clients.contains_key(id));
                    }
                    ids.push(id);
                }
                None => {
                    while most > 0 && noted.len() >= most {
                        let behind = (Bound::Excluded(&*hand), Bound::Unbounded);
                        let next = noted.range::<Vec<u8>, _>(behind).next().or_else(|| noted.iter().next());
                        let Some(other) = next.map(|(key, _)| key.clone()) else { break };
                        hand.clone_from(&other);
                        let ids = noted.remove(&other).unwrap_or_default();
                        forgotten.push((other, ids));
                    }
                    noted.insert(key.to_vec(), vec![id]);
                }
            }
        }
        forgotten
    }
}

impl Shared {
    /// Tells clients about changed keys. Each change has the number of the client that made it. If `all`, tells all clients
    /// that any key may have changed.
    pub fn invalidate(&self, changes: &[(u64, Vec<u8>)], all: bool) {
        let mut tables = lock(&self.tracking.tables);
        let Tables { clients, keys: noted, prefixes, .. } = &mut *tables;
        if all {
            noted.clear();
            let owners: Vec<u64> = clients.keys().copied().collect();
            owners.into_iter().for_each(|id| self.send(clients, id, None));
        }
        let mut heard: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
        let mut pairs: BTreeSet<(u64, &[u8])> = BTreeSet::new();
        for (by, key) in changes {
            let noted = noted.remove(key).unwrap_or_default();
            let begin = prefixes.iter().filter(|(prefix, _)| key.starts_with(prefix)).flat_map(|(_, ids)| ids);
            for id in noted.iter().chain(begin) {
                let Some(tracker) = clients.get(id) else { continue };
                if !(tracker.mode.no_loop && by == id) && pairs.insert((*id, key)) {
                    heard.entry(*id).or_default().push(key);
                }
            }
        }
        for (id, keys) in heard {
            let broadcast = clients.get(&id).is_some_and(|tracker| tracker.mode.broadcast);
            // One message for each key, as in Redis; in broadcasting mode, one message for all keys.
            for keys in keys.chunks(if broadcast { keys.len().max(1) } else { 1 }) {
                self.send(clients, id, Some(keys));
            }
        }
    }

    /// Records that a client is about to read keys, and tells the clients whose keys were forgotten to make room.
    pub fn note<'k>(&self, id: u64, keys: impl Iterator<Item = &'k [u8]>) {
        let forgotten = self.tracking.note(id, keys);
        if forgotten.is_empty() {
            return;
        }
        let mut tables = lock(&self.tracking.tables);
        for (key, ids) in forgotten {
            ids.into_iter().for_each(|id| self.send(&mut tables.clients, id, Some(&[&key])));
        }
    }

    /// From now on, keeps the letters to a client for [`repeat`](Self::repeat). Must be called before the keys of an
    /// operation of the log are recorded.
    pub fn keep(&self, id: u64) {
        if let Some(tracker) = lock(&self.tracking.tables).clients.get_mut(&id) {
            tracker.kept.get_or_insert_default();
        }
    }

    /// Sends the kept letters to a client once more, and keeps no further letters. Must be called after the answers to
    /// the client's operations of the log were written.
    pub fn repeat(&self, id: u64) {
        let mut tables = lock(&self.tracking.tables);
        let kept = tables.clients.get_mut(&id).and_then(|tracker| tracker.kept.take());
        for key in kept.unwrap_or_default() {
            self.send(&mut tables.clients, id, key.as_ref().map(|key| [&key[..]]).as_ref().map(|keys| &keys[..]));
        }
    }

    fn send(&self, clients: &mut BTreeMap<u64, Tracker>, id: u64, keys: Option<&[&[u8]]>) {
        let Some(tracker) = clients.get_mut(&id) else { return };
        if let Some(kept) = &mut tracker.kept {
            match keys {
                Some(keys) => kept.extend(keys.iter().map(|key| Some(key.to_vec()))),
                None => *kept = vec![None],
            }
        }
        let keys = keys.map_or(Reply::Null, Reply::bulks);
        let to = match tracker.mode.redirect {
            0 => Some(tracker.owner),
            other => lock(&self.clients).get(&other).map(|card| card.owner),
        };
        let Some(to) = to else {
            tracker.broken = true;
            let told = vec![Reply::bulk("tracking-redir-broken"), Reply::Int(tracker.mode.redirect as i64)];
            let bytes = (Vec::new(), both(&Reply::Push(told)).1);
            return self.post(tracker.owner.at, Letter::Invalidate(tracker.owner, bytes));
        };
        // A RESP2 client receives the message on a channel, and only if it receives messages for another client.
        let mut bytes = (Vec::new(), Vec::new());
        if tracker.mode.redirect != 0 {
            let named = [Reply::bulk("message"), Reply::bulk("__redis__:invalidate"), keys.clone()];
            Reply::Push(named.into()).encode(Protocol::Resp2, &mut bytes.0);
        }
        Reply::Push(vec![Reply::bulk("invalidate"), keys]).encode(Protocol::Resp3, &mut bytes.1);
        self.post(to.at, Letter::Invalidate(to, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_bounded_and_rid_of_clients_that_are_gone() {
        let tracking = Tracking::default();
        let owner = |id| Owner { at: 0, slot: 0, id };
        for id in 1..=100 {
            tracking.begin(owner(id), Mode::default());
            tracking.note(id, [&b"hot"[..]].into_iter());
            if id > 1 {
                tracking.end(id);
            }
        }
        assert!(tracking.tracked().items <= 17, "{} are noted for a key", tracking.tracked().items);
        let mut forgotten = 0;
        tracking.limit(10);
        for number in 0..50_u8 {
            forgotten += tracking.note(1, [&[number][..]].into_iter()).len();
        }
        assert_eq!(forgotten, 41);
    }

    #[test]
    fn a_new_mode_drops_no_kept_letter() {
        let tracking = Tracking::default();
        let owner = Owner { at: 0, slot: 0, id: 1 };
        tracking.begin(owner, Mode::default());
        let kept = || lock(&tracking.tables).clients[&1].kept.clone();
        lock(&tracking.tables).clients.get_mut(&1).unwrap().kept = Some(vec![Some(b"a".to_vec())]);
        tracking.begin(owner, Mode { no_loop: true, ..Mode::default() });
        assert_eq!(kept(), Some(vec![Some(b"a".to_vec())]));
    }
}
