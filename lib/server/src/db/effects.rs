//! The outcome of an operation: its reply, and the effects that the server has to process in addition.

use crate::args::Args;
use crate::reply::{Fault, Reply};

/// A keyspace event, as clients receive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The letter of the event's class in `notify-keyspace-events`.
    pub class: u8,
    /// The name of the event.
    pub name: &'static str,
    /// The database's number.
    pub db: u32,
    /// The key.
    pub key: Vec<u8>,
}

/// The effects of an operation: what the server has to process in addition to the reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Keys on which blocked clients may continue: lists, sorted sets and streams that were created or grew, and streams
    /// with consumer groups that were removed or replaced. Each key comes with the number of its database.
    pub ready: Vec<(u32, Vec<u8>)>,
    /// A bit for each database on any of whose keys blocked clients may continue: the database was emptied or swapped,
    /// or has more ready keys than one operation records.
    pub replaced: u16,
    /// The error that ends the wait of a blocked client, if the operation repeats the client's command.
    pub unblocks: Option<Fault>,
    /// Keyspace events, if they were requested.
    pub events: Vec<Event>,
    /// The keys that were changed, if changes were requested. Each key comes with the number of its database.
    pub changes: Vec<(u32, Vec<u8>)>,
    /// Commands that a script called, if they were requested. Each command comes with the number of its database.
    /// Commands beyond [`MOST_CALLS`] or [`MOST_CALL_BYTES`] are left out.
    pub calls: Vec<(u32, Args)>,
    pub(super) call_bytes: usize,
    /// Messages that a script published. Each item has a boolean that is `true` for a shard channel, the channel, and
    /// the message.
    pub messages: Vec<(bool, Vec<u8>, Vec<u8>)>,
    pub(super) message_bytes: usize,
    /// More events were requested than one operation records: later events are missing.
    pub events_lost: bool,
    /// The bytes of events, changes and ready keys.
    pub(super) key_bytes: [usize; 3],
    /// The read was not carried out, because it would have taken long.
    pub long: bool,
    /// The read was not carried out, because the command may change something.
    pub writes: bool,
    /// Whole databases were emptied or swapped, or more keys were changed than one operation records; and changes were
    /// requested.
    pub flushed: bool,
    /// The arguments with which a blocked command is to be retried, if they differ from the command's own arguments.
    pub again: Option<Args>,
    /// The number of keys that were removed because memory was short.
    pub evicted: u64,
}

/// The most commands that one operation reports to monitors. Together with `MOST_CALL_BYTES` it bounds memory, because
/// all effects of an operation are in memory at the same time.
const MOST_CALLS: usize = 10_000;
const MOST_CALL_BYTES: usize = 4 << 20;
/// The most bytes of messages that the scripts of one operation may publish. Each message counts as its bytes and
/// [`MESSAGE`] bytes more.
const MOST_MESSAGE_BYTES: usize = 16 << 20;
const MESSAGE: usize = 64;
/// The most bytes of keys in each of an operation's lists of events, changes and ready keys. Each key counts as its bytes
/// and the size of its list's item.
const MOST_KEY_BYTES: usize = 16 << 20;

impl Effects {
    /// Counts a key in one of the three lists. Returns whether the list has room for it.
    fn has_room(&mut self, list: usize, bytes: usize) -> bool {
        self.key_bytes[list] += bytes;
        self.key_bytes[list] <= MOST_KEY_BYTES
    }

    /// Records a keyspace event. Beyond the limit, only the fact that events are missing is recorded.
    pub(super) fn happened(&mut self, class: u8, name: &'static str, db: u32, key: &[u8]) {
        if self.has_room(0, size_of::<Event>() + key.len()) {
            self.events.push(Event { class, name, db, key: key.to_vec() });
        } else {
            self.events_lost = true;
        }
    }

    /// Records that a key was changed. Beyond the limit, the operation counts as a change of all keys.
    pub(super) fn changed(&mut self, db: u32, key: &[u8]) {
        if self.has_room(1, size_of::<(u32, Vec<u8>)>() + key.len()) {
            self.changes.push((db, key.to_vec()));
        } else {
            self.flushed = true;
            self.changes = Vec::new();
        }
    }

    /// Records that clients blocked on a key may continue. Beyond the limit, records this for all keys of the database.
    pub(super) fn readied(&mut self, db: u32, key: &[u8]) {
        if self.has_room(2, size_of::<(u32, Vec<u8>)>() + key.len()) {
            self.ready.push((db, key.to_vec()));
        } else {
            self.replaced |= 1 << db;
        }
    }

    /// Records a command that a script called, unless a limit is reached.
    pub(super) fn called(&mut self, db: u32, args: &Args) {
        let bytes = self.call_bytes + args.bytes();
        if self.calls.len() < MOST_CALLS && bytes <= MOST_CALL_BYTES {
            self.call_bytes = bytes;
            self.calls.push((db, args.clone()));
        }
    }

    /// Records a message that a script publishes. Returns `false` if the limit is reached: the message is then not
    /// recorded.
    pub(super) fn published(&mut self, shard: bool, channel: &[u8], body: &[u8]) -> bool {
        let bytes = self.message_bytes + MESSAGE + channel.len() + body.len();
        if bytes > MOST_MESSAGE_BYTES {
            return false;
        }
        self.message_bytes = bytes;
        self.messages.push((shard, channel.to_vec(), body.to_vec()));
        true
    }
}

/// The response to an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The answer.
    pub reply: Reply,
    /// The operation's effects, if it has any.
    pub effects: Option<Box<Effects>>,
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Self { reply, effects: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effects_of_one_operation_are_bounded() {
        let mut effects = Effects::default();
        let key = [b'k'; 1000];
        for _ in 0..100_000 {
            effects.happened(b'g', "del", 1, &key);
            effects.changed(1, &key);
            effects.readied(1, &key);
        }
        assert!((15_000..17_000).contains(&effects.events.len()) && effects.events_lost);
        assert!(effects.changes.is_empty() && effects.flushed, "all keys count as changed");
        assert!(effects.ready.len() < 17_000);
        assert_eq!(effects.replaced, 1 << 1, "clients of all keys may continue");
    }
}
