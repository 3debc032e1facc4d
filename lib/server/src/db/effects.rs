//! What an operation comes to: its answer, and what the server hears of besides.

use crate::args::Args;
use crate::reply::Reply;

/// A keyspace event, as clients hear of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The letter of its class in `notify-keyspace-events`.
    pub class: u8,
    /// What happened.
    pub name: &'static str,
    /// The database's number.
    pub db: u32,
    /// The key.
    pub key: Vec<u8>,
}

/// What the server hears of besides the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Keys that blocked clients may go on with: lists, sorted sets and streams that came to be or got more.
    pub ready: Vec<(u32, Vec<u8>)>,
    /// Keyspace events, if they were wished for.
    pub events: Vec<Event>,
    /// Keys that were changed, if they were wished for.
    pub changes: Vec<(u32, Vec<u8>)>,
    /// Commands that a script called, with the number of the database, if they were wished for: those that fit in [`MOST_CALLS`] and
    /// [`MOST_CALL_BYTES`].
    pub calls: Vec<(u32, Args)>,
    pub(super) call_bytes: usize,
    /// Messages that a script has published: in shards or not, the channel, the message.
    pub messages: Vec<(bool, Vec<u8>, Vec<u8>)>,
    pub(super) message_bytes: usize,
    /// A read was not carried out, since it would have taken long.
    pub long: bool,
    /// A read was not carried out, since it may change something.
    pub writes: bool,
    /// Whole databases were emptied or exchanged, if changes were wished for.
    pub flushed: bool,
    /// The arguments with which a command that waits is to be asked again, if they are others.
    pub again: Option<Args>,
}

/// Commands of an operation that monitors are shown at most, and the bytes of these: an operation's effects are in memory as a whole.
const MOST_CALLS: usize = 10_000;
const MOST_CALL_BYTES: usize = 4 << 20;
/// Bytes of messages that an operation's scripts may publish, and what each counts as besides its own.
const MOST_MESSAGE_BYTES: usize = 16 << 20;
const MESSAGE: usize = 64;

impl Effects {
    /// Notes a command that a script has called, if there is room for it.
    pub(super) fn called(&mut self, db: u32, args: &Args) {
        let bytes = self.call_bytes + args.bytes();
        if self.calls.len() < MOST_CALLS && bytes <= MOST_CALL_BYTES {
            self.call_bytes = bytes;
            self.calls.push((db, args.clone()));
        }
    }

    /// Notes a message that a script publishes. Returns whether there was room for it.
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
    /// What else happened, if there is anything to tell.
    pub effects: Option<Box<Effects>>,
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Self { reply, effects: None }
    }
}
