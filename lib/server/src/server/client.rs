//! A client's socket, with its input and output buffers.
//!
//! # Limits
//! Bytes are read only when the parser needs more. So the input buffer holds at most one unfinished request and the bytes of
//! one read. Requests are processed only while the client reads its answers ([`Client::takes`]). The output buffer is
//! limited by `client-output-buffer-limit`. A client above the limit is ended ([`Client::limit`]).

use std::io;

use archipelago_platform::sync::Arc;
use archipelago_platform::time::Instant;

use super::access::Identity;
use super::clients::{Since, listen};
use super::params::Limits;
use super::shared::{Card, Shared};
use super::tracking::Mode;
use super::wire::{Got, Wire};
use crate::args::Args;
use crate::command::Command;
use crate::log::may_come_about;
use crate::operation::Write;
use crate::pubsub::Subscriptions;
use crate::reply::{Fault, Protocol, Reply};
use crate::resp::{Malformed, Parser};
use crate::session::Session;

/// The number of unsent bytes from which on no more requests are processed.
const ANSWERS: usize = 256 << 10;
/// The capacity that an empty input buffer keeps, in bytes. An empty output buffer keeps 16 times as much.
const KEPT: usize = 4 << 10;

/// The answers that are suppressed: `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mute {
    /// No answer is suppressed.
    #[default]
    Off,
    /// This number of further answers is suppressed.
    Next(u8),
    /// All answers are suppressed.
    All,
}

/// A change of what a client listens to, or of a setting.
#[derive(Clone, Copy, Debug)]
pub struct Listens {
    /// Whether the client begins to track keys.
    pub tracks: bool,
    /// Whether the client was answered already.
    pub answered: bool,
}

/// A client of an event loop.
pub struct Client {
    pub wire: Wire,
    pub session: Session,
    pub card: Arc<Card>,
    pub subscriptions: Subscriptions,
    /// A request that waits: for the answers to earlier changes, for space in a mailbox, or for the end of a pause.
    pub held: Option<Args>,
    /// An answer that waits until earlier changes are answered.
    pub late: Option<Reply>,
    /// The bytes of an answer that waits until the client's messages to itself are in the output.
    pub later: Vec<u8>,
    /// The last unanswered change, if the session must produce its answer (`WATCH`, `EXEC`, `UNWATCH`).
    pub special: Option<Write>,
    /// The number of operations that are not answered yet.
    pub waits: usize,
    /// `true` while the client waits for the answer to a long read, or for its messages to itself.
    pub aside: bool,
    /// If the client is blocked: the time at which its wait ends, and the answer at that time. `None` as the time means no
    /// end.
    pub blocked: Option<(Option<Instant>, Reply)>,
    /// Set if `CLIENT UNBLOCK` has removed the client from the queues before the client's loop learns that the client
    /// is blocked. The value is whether the command asked for an error.
    pub unblocked: Option<bool>,
    /// Whether the client waits only for a time, in no queue of a key.
    pub sleeps: bool,
    /// The mode in which the client tracks keys for its cache, if it does.
    pub tracking: Option<Mode>,
    /// The argument of the last `CLIENT CACHING`, as long as it applies: to the next command or transaction.
    pub caching: Option<bool>,
    /// `true` if the next request outside a transaction resets `caching`.
    pub caching_ends: bool,
    /// Whether the letters to the client's cache are kept to be sent again, see [`tracking`](super::tracking).
    pub keeps: bool,
    /// Changes of what the client listens to that the log has not taken yet, in order.
    pub listens: Vec<Listens>,
    /// Whether the client receives all requests (`MONITOR`).
    pub monitors: bool,
    /// Whether the client asked with `CLIENT NO-EVICT` to be kept when memory is short.
    pub no_evict: bool,
    /// The answers that are suppressed.
    pub mute: Mute,
    /// Set by `CLIENT REPLY SKIP` in a transaction: the answer that follows the transaction's is suppressed.
    pub skips_next: bool,
    /// Whether commands of a transaction are being carried out.
    pub in_transaction: bool,
    /// The time at which bytes were last received or sent, in milliseconds since 1970. A client that sends a long request,
    /// or receives a long answer, is not idle.
    pub last: u64,
    /// The last command.
    pub command: Option<&'static Command>,
    /// The time since which the output has been above the soft limit.
    beyond: Since,
    /// The client's user.
    pub identity: Identity,
    /// Whether the client may send commands that need authentication.
    pub known: bool,
    /// Whether the client is to be ended after its output is written.
    pub ends: bool,
    /// Whether the client is to be ended at once.
    pub dead: bool,
    /// Whether there may be bytes to read.
    pub readable: bool,
    /// Whether the other side has closed its direction of the connection, so that reading will reach an end.
    pub closed: bool,
    /// Whether the client is in the loop's list of active clients, which are processed in the next round.
    pub active: bool,
    parser: Parser,
    input: Vec<u8>,
    /// The index of the first byte of `input` that was not parsed.
    start: usize,
    /// Bytes to be sent.
    pub output: Vec<u8>,
    /// The index of the first byte of `output` that was not sent.
    sent: usize,
    /// The number of bytes of messages that were added to `output` since all output was last sent.
    told: usize,
}

impl Client {
    pub fn new(wire: Wire, card: Arc<Card>, identity: Identity, known: bool) -> Self {
        Self {
            wire,
            session: Session::default(),
            card,
            subscriptions: Subscriptions::default(),
            held: None,
            late: None,
            later: Vec::new(),
            special: None,
            waits: 0,
            aside: false,
            blocked: None,
            unblocked: None,
            sleeps: false,
            tracking: None,
            caching: None,
            caching_ends: false,
            keeps: false,
            listens: Vec::new(),
            monitors: false,
            no_evict: false,
            mute: Mute::Off,
            skips_next: false,
            in_transaction: false,
            last: super::now(),
            command: None,
            beyond: None,
            identity,
            known,
            ends: false,
            dead: false,
            readable: true,
            closed: false,
            active: false,
            parser: Parser::default(),
            input: Vec::new(),
            start: 0,
            output: Vec::new(),
            sent: 0,
            told: 0,
        }
    }

    /// Returns whether the client's next request may be processed.
    pub fn takes(&self) -> bool {
        !(self.ends || self.dead || self.blocked.is_some()) && self.output.len() - self.sent < ANSWERS
    }

    /// Returns whether the client has a subscription in RESP2. In RESP2, messages have the form of answers.
    pub fn hears_in_answers(&self) -> bool {
        self.session.protocol == Protocol::Resp2 && !self.subscriptions.is_empty()
    }

    /// Parses the next request from the input buffer.
    pub fn parse(&mut self) -> Result<Option<Args>, Malformed> {
        self.parser.is_strange = !self.known;
        let (args, taken) = self.parser.take(&self.input[self.start..])?;
        self.start += taken;
        if self.start == self.input.len() {
            self.start = 0;
            self.input.clear();
            if self.input.capacity() > KEPT {
                self.input = Vec::new();
            }
        }
        Ok(args)
    }

    /// Reads from the socket once. Returns whether there are new bytes. If not, and `readable` is still set, the socket
    /// is to be read again after other clients were processed.
    pub fn receive(&mut self, room: &mut [u8]) -> bool {
        if !self.readable || self.dead {
            return false;
        }
        loop {
            match self.wire.read(room) {
                Ok(Got::Later) => return false,
                Ok(Got::End) => {
                    self.readable = false;
                    self.ends = true;
                    return false;
                }
                Ok(Got::Bytes(count, more)) => {
                    self.last = super::now();
                    self.readable = more || self.closed;
                    // Parsed bytes are removed if they are at least half of the buffer. So at most as many bytes are
                    // moved as are removed.
                    if self.start * 2 >= self.input.len() {
                        self.input.drain(..self.start);
                        self.start = 0;
                    }
                    self.input.extend_from_slice(&room[..count]);
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.readable = false;
                    self.dead |= error.kind() != io::ErrorKind::WouldBlock;
                    return false;
                }
            }
        }
    }

    /// Appends an answer.
    pub fn answer(&mut self, reply: &Reply) {
        match self.mute {
            Mute::Off => reply.encode(self.session.protocol, &mut self.output),
            Mute::Next(_) => self.pushed(),
            Mute::All => {}
        }
    }

    /// Appends a message that confirms a subscription or its end. As in Redis, `CLIENT REPLY` suppresses only answers,
    /// and such a message is not an answer.
    pub fn push(&mut self, message: Vec<Reply>) {
        Reply::Push(message).encode(self.session.protocol, &mut self.output);
    }

    /// Counts a finished command for `CLIENT REPLY SKIP`. Called directly for commands that are answered by messages
    /// only.
    pub fn pushed(&mut self) {
        if let Mute::Next(count) = self.mute {
            self.mute = if count > 1 { Mute::Next(count - 1) } else { Mute::Off };
        }
    }

    /// Answers a client that `CLIENT UNBLOCK` has removed from the queues: with an error, or with `nothing`.
    pub fn answer_unblocked(&mut self, error: bool, nothing: Reply) {
        let told = Fault::new("UNBLOCKED client unblocked via CLIENT UNBLOCK");
        self.answer(&if error { Reply::Error(told) } else { nothing });
    }

    /// Appends the header of an array. Its elements must follow.
    pub fn begin_array(&mut self, count: usize) {
        if self.mute == Mute::Off {
            self.output.extend_from_slice(format!("*{count}\r\n").as_bytes());
        }
    }

    /// Processes the outcome of the first of [`listens`](Self::listens). If the log has refused it, the client tracks no keys.
    pub fn listened(&mut self, shared: &Shared, reply: &Reply) {
        self.waits -= 1;
        let Listens { tracks, answered } = self.listens.remove(0);
        if !answered {
            self.answer(reply);
        }
        if let (true, Reply::Error(fault)) = (tracks, reply) {
            shared.tracking.end(self.card.owner.id);
            self.tracking = None;
            if may_come_about(fault) {
                shared.owe(listen(false));
            }
            // The client was told that it would hear of changes.
            self.dead |= answered;
        }
    }

    /// Appends a message that is not an answer to a request. `limits` are those of normal clients and of subscribers.
    pub fn tell(&mut self, bytes: &[u8], limits: [Limits; 2]) {
        self.output.extend_from_slice(bytes);
        self.told += bytes.len();
        self.limit(limits);
    }

    /// Marks the client to be ended if its output is above a limit. For a subscriber, the limits of subscribers apply
    /// to all output, as in Redis. For another client, they apply to its messages (`MONITOR`, `CLIENT TRACKING`), and
    /// the limits of normal clients apply to all output.
    pub fn limit(&mut self, [normal, subscriber]: [Limits; 2]) {
        let waiting = self.waiting();
        let told = self.told.min(waiting);
        let all = if self.subscriptions.is_empty() {
            [(normal, waiting), (subscriber, told)]
        } else {
            [(subscriber, waiting); 2]
        };
        let above = |limit: u64, bytes: usize| limit > 0 && bytes as u64 > limit;
        self.dead |= all.iter().any(|(limits, bytes)| above(limits.hard, *bytes));
        let beyond = all.iter().filter(|(limits, bytes)| above(limits.soft, *bytes));
        let Some(seconds) = beyond.map(|(limits, _)| limits.seconds).min() else {
            self.beyond = None;
            return;
        };
        let since = *self.beyond.get_or_insert_with(Instant::now);
        self.dead |= since.elapsed().as_secs() >= seconds;
    }

    /// Returns the number of bytes that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Returns the number of bytes that were received and not parsed.
    pub fn unread(&self) -> usize {
        self.input.len() - self.start
    }

    /// Writes as much output as the socket accepts.
    pub fn send(&mut self) {
        while self.sent < self.output.len() && !self.dead {
            match self.wire.write(&self.output[self.sent..]) {
                Ok(0) => self.dead = true,
                Ok(count) => {
                    self.sent += count;
                    self.last = super::now();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.sent * 2 >= self.output.len() {
                        self.output.drain(..self.sent);
                        self.sent = 0;
                    }
                    return;
                }
                Err(_) => self.dead = true,
            }
        }
        self.flush();
        (self.sent, self.told) = (0, 0);
        self.output.clear();
        if self.output.capacity() > 16 * KEPT {
            self.output = Vec::new();
        }
    }

    /// Sends bytes that the wire still holds.
    fn flush(&mut self) {
        if !self.dead
            && let Err(error) = self.wire.flush()
        {
            self.dead |= error.kind() != io::ErrorKind::WouldBlock;
        }
    }

    /// Returns whether the client is to be removed. A client with unanswered operations stays: their answers may tell which
    /// keys it watches.
    pub fn is_over(&self) -> bool {
        let told = self.late.is_none() && self.output.is_empty();
        self.waits == 0 && (self.dead || (self.ends && told && self.wire.is_flushed()))
    }
}

#[cfg(test)]
mod tests;
