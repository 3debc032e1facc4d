//! Messages that follow from changes: keyspace events, and invalidations of client-side caches.
//!
//! # Order
//! If any client listens, the thread that carries out a batch holds one lock ([`Shared::in_order`]) until it has sent
//! the batch's messages. So all clients receive the messages in the order of the log. The batch's answers are written,
//! or posted to the same mailbox, before the messages. So a client that has read an old value receives the answer
//! first, and the message about the change after it.
//!
//! # Nothing is missed
//! Whether the database records effects of changes is part of its state. The operation [`Write::Listen`] changes this state:
//! the effects of all changes after this operation in the log are recorded. `CONFIG SET` and `CLIENT TRACKING` are answered
//! after this operation.

use archipelago_platform::atomic::{AtomicU32, Ordering::Relaxed};
use archipelago_platform::sync::{Arc, Mutex, MutexGuard};
use std::collections::BTreeMap;

use super::shared::{Encoded, Letter, Shared, Subscription, lock};
use crate::args::Args;
use crate::blocked::{Key, Owner};
use crate::db::{Effects, Event};
use crate::operation::{Write, wish};
use crate::pubsub::SubscriptionKind;
use crate::reply::{Protocol, Reply};

/// The letters of `notify-keyspace-events`, in Redis's order of output. A letter's index is the number of its bit.
const LETTERS: [u8; 14] = *b"g$lszhxetdnKEm";
/// The classes of the letter `A`: all classes except new keys and misses.
const ALL: u32 = (1 << 10) - 1;
const NEW: u32 = 1 << 10;
const KEYSPACE: u32 = 1 << 11;
const KEYEVENT: u32 = 1 << 12;
const MISS: u32 = 1 << 13;
/// The kinds of events that the database records, each with its classes.
const PARTS: [(u8, u32); 2] = [(wish::EVENTS, ALL | NEW), (wish::MISSES, MISS)];
/// The number of events that are published between two checks of the mailboxes.
const EVENTS: usize = 256;

fn bit(class: u8) -> u32 {
    LETTERS.iter().position(|letter| *letter == class).map_or(0, |place| 1 << place)
}

/// Parses a value of `notify-keyspace-events`. Returns the bits of its classes.
pub fn classes(text: &str) -> Option<u32> {
    text.bytes().try_fold(0, |all, letter| match (letter, bit(letter)) {
        (b'A', _) => Some(all | ALL),
        (_, 0) => None,
        (_, bit) => Some(all | bit),
    })
}

/// Formats classes as `CONFIG GET` shows them.
pub fn shown(classes: u32) -> String {
    let (begin, rest) = if classes & ALL == ALL { ("A", classes & !ALL) } else { ("", classes) };
    let letters = LETTERS.iter().filter(|letter| rest & bit(**letter) != 0).map(|letter| char::from(*letter));
    begin.chars().chain(letters).collect()
}

/// The classes of events that clients listen to, and the lock for the order of messages.
#[derive(Default)]
pub struct Events {
    classes: AtomicU32,
    order: Mutex<()>,
}

impl Events {
    /// Sets the classes of events. Returns the operations that set them in the database.
    pub fn listen(&self, classes: u32) -> Vec<Write> {
        // Without `K` or `E`, the kinds of channels, no client can receive events.
        let classes = if classes & (KEYSPACE | KEYEVENT) == 0 { 0 } else { classes };
        let before = self.classes.swap(classes, Relaxed);
        let changed = PARTS.into_iter().filter(|(_, of)| (before & of == 0) != (classes & of == 0));
        changed.map(|(what, of)| Write::Listen { what, begins: classes & of != 0 }).collect()
    }

    /// Notes that the log has refused the beginning of listening to a kind of events. The next setting tries again.
    pub fn forget(&self, what: u8) {
        let refused = PARTS.iter().filter(|(part, _)| *part == what);
        refused.for_each(|(_, of)| _ = self.classes.fetch_and(!of, Relaxed));
    }
}

/// What may unblock waiting clients.
#[derive(Default)]
pub struct Ready {
    /// Single keys.
    pub keys: Vec<Key>,
    /// A bit for each database that was replaced as a whole, so that any of its keys may unblock clients.
    pub replaced: u16,
}

/// The consequences of a batch.
#[derive(Default)]
pub struct Aftermath {
    /// Keys that may unblock waiting clients.
    pub ready: Ready,
    events: Vec<Event>,
    /// Whether there were more events than are recorded.
    events_lost: bool,
    /// Keys that were changed, each with the number of the client that changed it; 0 if it was no client.
    pub changes: Vec<(u64, Vec<u8>)>,
    /// Whether whole databases were emptied.
    pub flushed: bool,
    /// Commands that scripts called, each with the number of its database.
    calls: Vec<(u32, Args)>,
    /// Messages that scripts published: whether the channel is a shard's, the channel, the message.
    messages: Vec<(bool, Vec<u8>, Vec<u8>)>,
    /// The number of keys that were removed because memory was short.
    pub evicted: u64,
}

impl Aftermath {
    /// Adds the consequences of one change.
    pub fn add(&mut self, by: Option<Owner>, effects: Effects) {
        let by = by.map_or(0, |owner| owner.id);
        self.ready.keys.extend(effects.ready);
        self.ready.replaced |= effects.replaced;
        self.events.extend(effects.events);
        self.events_lost |= effects.events_lost;
        self.changes.extend(effects.changes.into_iter().map(|(_, key)| (by, key)));
        self.flushed |= effects.flushed;
        self.calls.extend(effects.calls);
        self.messages.extend(effects.messages);
        self.evicted += effects.evicted;
    }
}

impl Shared {
    /// Returns whether any client listens to consequences of changes.
    pub fn listens(&self) -> bool {
        self.events.classes.load(Relaxed) != 0 || self.tracking.is_on()
    }

    /// Returns the lock that must be held while a batch is carried out and its messages are sent, if any client listens. It
    /// must be acquired before the lock of blocked clients.
    pub fn in_order(&self) -> Option<MutexGuard<'_, ()>> {
        self.listens().then(|| lock(&self.events.order))
    }

    /// Sends the messages that follow from a batch.
    pub fn tell(&self, aftermath: &Aftermath) {
        self.tell_events(&aftermath.events, aftermath.events_lost);
        aftermath.calls.iter().for_each(|(db, args)| self.show_call(*db, args));
        for (shard, channel, body) in &aftermath.messages {
            self.publish(*shard, channel, body);
        }
        if !aftermath.changes.is_empty() || aftermath.flushed {
            self.invalidate(&aftermath.changes, aftermath.flushed);
        }
    }

    /// Publishes keyspace events. If events are missing (`lost`), or too many messages wait for a loop, ends the clients that
    /// may listen to events: such a client cannot know that events are missing.
    pub fn tell_events(&self, events: &[Event], lost: bool) {
        // Publishers wait while a mailbox is full, but a batch cannot be divided. One check for many events is enough,
        // since an event has at most two messages.
        let full = |events: &[Event]| {
            let overflows = self.overflows();
            if !overflows {
                self.publish_events(events);
            }
            overflows
        };
        if events.chunks(EVENTS).any(full) || lost {
            let owners = lock(&self.hub).listeners(&[b"__keyspace@", b"__keyevent@"]);
            owners.into_iter().for_each(|owner| self.post(owner.at, Letter::Kill(owner)));
        }
    }

    fn publish_events(&self, events: &[Event]) {
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

    /// Sends a message to all subscribers. Returns their number. The lock of the subscriptions is held until the letters
    /// (messages to event loops) are posted, so the subscribers at all loops receive the messages of a channel in one order.
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

/// Returns the kind of a message, and its bytes in both protocols.
fn message(shard: bool, pattern: Option<&[u8]>, channel: &[u8], body: &[u8]) -> (SubscriptionKind, (Vec<u8>, Vec<u8>)) {
    let kind = match (shard, pattern) {
        (true, _) => SubscriptionKind::Shard,
        (false, None) => SubscriptionKind::Channel,
        (false, Some(_)) => SubscriptionKind::Pattern,
    };
    let parts = [Some(kind.message().as_bytes()), pattern, Some(channel), Some(body)];
    (kind, both(&Reply::Push(parts.into_iter().flatten().map(Reply::bulk).collect())))
}

/// Returns a reply's bytes in both protocols.
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
