//! What follows from changes, beside their answers: keyspace events, and which keys' caches are stale.
//!
//! # Order
//! While anybody listens, a loop carries a batch out and tells what follows from it under one lock
//! ([`Shared::in_order`]): all hear of changes in the order of the log. Answers are given before, or are on their way to
//! the same mailbox before, so that a client hears of a change behind the answer to its own read of what was there before.
//!
//! # Nothing is missed
//! Whether effects are gathered is part of the database ([`Write::Listen`]): all changes behind that operation in the log
//! are told, and `CONFIG SET` and `CLIENT TRACKING` are answered behind it.

use archipelago_platform::atomic::{AtomicU32, Ordering::Relaxed};
use archipelago_platform::sync::{Arc, Mutex, MutexGuard};
use std::collections::BTreeMap;

use super::shared::{Encoded, Letter, Shared, Subscription, lock};
use crate::args::Args;
use crate::blocked::{Key, Owner};
use crate::db::{Effects, Event};
use crate::operation::{Write, wish};
use crate::pubsub::Kind;
use crate::reply::{Protocol, Reply};

/// The letters of `notify-keyspace-events`, each with its bit, in the order in which Redis tells them.
const LETTERS: [u8; 14] = *b"g$lszhxetdnKEm";
/// What the letter `A` stands for: all classes but new keys and misses.
const ALL: u32 = (1 << 10) - 1;
const NEW: u32 = 1 << 10;
const KEYSPACE: u32 = 1 << 11;
const KEYEVENT: u32 = 1 << 12;
const MISS: u32 = 1 << 13;

fn bit(class: u8) -> u32 {
    LETTERS.iter().position(|letter| *letter == class).map_or(0, |place| 1 << place)
}

/// The classes that a value of `notify-keyspace-events` names.
pub fn classes(text: &str) -> Option<u32> {
    text.bytes().try_fold(0, |all, letter| match (letter, bit(letter)) {
        (b'A', _) => Some(all | ALL),
        (_, 0) => None,
        (_, bit) => Some(all | bit),
    })
}

/// How `CONFIG GET` tells classes.
pub fn shown(classes: u32) -> String {
    let (begin, rest) = if classes & ALL == ALL { ("A", classes & !ALL) } else { ("", classes) };
    let letters = LETTERS.iter().filter(|letter| rest & bit(**letter) != 0).map(|letter| char::from(*letter));
    begin.chars().chain(letters).collect()
}

/// Who listens to events, and the lock of their order.
#[derive(Default)]
pub struct Events {
    classes: AtomicU32,
    order: Mutex<()>,
}

impl Events {
    /// Listens to other classes. Returns the operations that say so to the database.
    pub fn listen(&self, classes: u32) -> Vec<Write> {
        // Without a kind of channel there is nobody to tell.
        let classes = if classes & (KEYSPACE | KEYEVENT) == 0 { 0 } else { classes };
        let before = self.classes.swap(classes, Relaxed);
        let parts = [(wish::EVENTS, ALL | NEW), (wish::MISSES, MISS)];
        let changed = parts.into_iter().filter(|(_, of)| (before & of == 0) != (classes & of == 0));
        changed.map(|(what, of)| Write::Listen { what, begins: classes & of != 0 }).collect()
    }
}

/// What follows from a batch.
#[derive(Default)]
pub struct Aftermath {
    /// Keys that blocked clients may go on with.
    pub ready: Vec<Key>,
    events: Vec<Event>,
    /// Keys that were changed, and the numbers of the clients that did it; 0: no client.
    pub changes: Vec<(u64, Vec<u8>)>,
    /// Whole databases were changed.
    pub flushed: bool,
    /// Commands that scripts called, and the numbers of the databases.
    calls: Vec<(u32, Args)>,
    /// What scripts published.
    messages: Vec<(bool, Vec<u8>, Vec<u8>)>,
}

impl Aftermath {
    /// Adds what follows from a client's change.
    pub fn add(&mut self, by: Option<Owner>, effects: Effects) {
        let by = by.map_or(0, |owner| owner.id);
        self.ready.extend(effects.ready);
        self.events.extend(effects.events);
        self.changes.extend(effects.changes.into_iter().map(|(_, key)| (by, key)));
        self.flushed |= effects.flushed;
        self.calls.extend(effects.calls);
        self.messages.extend(effects.messages);
    }
}

impl Shared {
    /// Returns whether anybody listens to what follows from changes.
    pub fn listens(&self) -> bool {
        self.events.classes.load(Relaxed) != 0 || self.tracking.is_on()
    }

    /// The lock under which a batch is carried out and told, while anybody listens. It comes before that of blocked
    /// clients.
    pub fn in_order(&self) -> Option<MutexGuard<'_, ()>> {
        self.listens().then(|| lock(&self.events.order))
    }

    /// Tells those who listen.
    pub fn tell(&self, aftermath: &Aftermath) {
        self.tell_events(&aftermath.events);
        aftermath.calls.iter().for_each(|(db, args)| self.show_call(*db, args));
        for (shard, channel, body) in &aftermath.messages {
            self.publish(*shard, channel, body);
        }
        if !aftermath.changes.is_empty() || aftermath.flushed {
            self.invalidate(&aftermath.changes, aftermath.flushed);
        }
    }

    /// Publishes events.
    pub fn tell_events(&self, events: &[Event]) {
        let classes = if events.is_empty() { 0 } else { self.events.classes.load(Relaxed) };
        for Event { name, db, key, .. } in events.iter().filter(|event| classes & bit(event.class) != 0) {
            if classes & KEYSPACE != 0 {
                let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
                self.publish(false, &channel, name.as_bytes());
            }
            if classes & KEYEVENT != 0 {
                self.publish(false, format!("__keyevent@{db}__:{name}").as_bytes(), key);
            }
        }
    }

    /// Sends a message to all subscribers; returns their number. The hub is locked until the letters are posted: all loops'
    /// subscribers hear the messages of a channel in one order.
    pub fn publish(&self, shard: bool, channel: &[u8], body: &[u8]) -> i64 {
        let hub = lock(&self.hub);
        let mut count = 0;
        let mut letters: BTreeMap<(Option<Vec<u8>>, usize), Vec<Owner>> = BTreeMap::new();
        hub.subscribers(shard, channel, |owner, pattern| {
            count += 1;
            letters.entry((pattern.map(<[u8]>::to_vec), owner.at)).or_default().push(owner);
        });
        let mut made: Option<(Option<Vec<u8>>, Encoded, Arc<Subscription>)> = None;
        for ((pattern, at), owners) in letters {
            let (bytes, of) = match &made {
                Some((of, bytes, subscription)) if *of == pattern => (bytes.clone(), subscription.clone()),
                _ => {
                    let (kind, bytes) = message(shard, pattern.as_deref(), channel, body);
                    (Arc::new(bytes), Arc::new((kind, pattern.as_deref().unwrap_or(channel).to_vec())))
                }
            };
            made = Some((pattern, bytes.clone(), of.clone()));
            self.post(at, Letter::Message(owners, bytes, Some(of)));
        }
        count
    }
}

/// A message's kind, and its bytes in both protocols.
fn message(shard: bool, pattern: Option<&[u8]>, channel: &[u8], body: &[u8]) -> (Kind, (Vec<u8>, Vec<u8>)) {
    let kind = match (shard, pattern) {
        (true, _) => Kind::Shard,
        (false, None) => Kind::Channel,
        (false, Some(_)) => Kind::Pattern,
    };
    let parts = [Some(kind.message().as_bytes()), pattern, Some(channel), Some(body)];
    (kind, both(&Reply::Push(parts.into_iter().flatten().map(Reply::bulk).collect())))
}

/// A reply's bytes in both protocols.
pub fn both(reply: &Reply) -> (Vec<u8>, Vec<u8>) {
    let mut bytes = (Vec::new(), Vec::new());
    reply.encode(Protocol::Resp2, &mut bytes.0);
    reply.encode(Protocol::Resp3, &mut bytes.1);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_told_as_redis_tells_them() {
        for (said, told) in
            [("KEA", "AKE"), ("KEAn", "AnKE"), ("KEAm", "AKEm"), ("Kg$n", "g$nK"), ("Exg", "gxE"), ("", "")]
        {
            assert_eq!(shown(classes(said).unwrap()), told);
        }
        assert_eq!(classes("KEq"), None);
    }
}
