//! A client's socket, and the bytes on their way.
//!
//! # Bounds
//! Bytes are read only when the parser needs more, so that what waits here is one unfinished request and one read. Requests
//! are taken only while the client takes its answers ([`Client::takes`]). What waits for it has limits, those of
//! `client-output-buffer-limit`, beyond which the client is ended ([`Client::limit`]).

use std::collections::BTreeSet;
use std::io;

use archipelago_platform::sync::Arc;
use archipelago_platform::time::Instant;

use super::access::Identity;
use super::clients::Since;
use super::params::Limits;
use super::shared::Card;
use super::tracking::Mode;
use super::wire::{Got, Wire};
use crate::args::Args;
use crate::command::Command;
use crate::operation::Write;
use crate::pubsub::Kind;
use crate::reply::{Protocol, Reply};
use crate::resp::{Malformed, Parser};
use crate::session::Session;

/// Answers that may wait before no more requests are taken.
const ANSWERS: usize = 256 << 10;
/// Room that an idle client keeps for its next request.
const KEPT: usize = 4 << 10;

/// Which answers are left out: `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mute {
    /// None.
    #[default]
    Off,
    /// So many.
    Next(u8),
    /// All.
    All,
}

/// A client of a loop.
pub struct Client {
    pub wire: Wire,
    pub session: Session,
    pub card: Arc<Card>,
    pub subscriptions: BTreeSet<(Kind, Vec<u8>)>,
    /// A request that waits for the changes before it.
    pub held: Option<Args>,
    /// An answer that waits for those of the changes before it.
    pub late: Option<Reply>,
    /// The change that only the session can answer, the last of those that are under way.
    pub special: Option<Write>,
    /// Changes that are under way.
    pub waits: usize,
    /// It waits for the answer to a long read.
    pub aside: bool,
    /// When it waits for keys: until when, and what it is then answered with.
    pub blocked: Option<(Option<Instant>, Reply)>,
    /// It waits for the time only, in no queue.
    pub sleeps: bool,
    /// How it tracks keys for its cache.
    pub tracking: Option<Mode>,
    /// What `CLIENT CACHING` said of the next command.
    pub caching: Option<bool>,
    /// It sees all requests.
    pub monitors: bool,
    /// It asked to be kept when memory is short.
    pub no_evict: bool,
    /// Which answers are left out.
    pub mute: Mute,
    /// Commands of a transaction are being carried out.
    pub in_transaction: bool,
    /// When the last request came, in milliseconds since 1970.
    pub last: u64,
    /// The last command.
    pub command: Option<&'static Command>,
    /// Since when the output is beyond the soft limit.
    beyond: Since,
    /// Who it is.
    pub identity: Identity,
    /// It has said the password, or need not.
    pub known: bool,
    /// Ends when the output is written.
    pub ends: bool,
    /// Ends now.
    pub dead: bool,
    /// There may be bytes to read.
    pub readable: bool,
    /// The other side writes no more: what is read ends.
    pub closed: bool,
    /// It is in the loop's list of clients to turn to.
    pub active: bool,
    parser: Parser,
    input: Vec<u8>,
    /// The first byte of the input that was not taken.
    start: usize,
    /// What it is to be sent.
    pub output: Vec<u8>,
    /// The first byte of the output that was not sent.
    sent: usize,
}

impl Client {
    pub fn new(wire: Wire, card: Arc<Card>, identity: Identity, known: bool) -> Self {
        Self {
            wire,
            session: Session::default(),
            card,
            subscriptions: BTreeSet::new(),
            held: None,
            late: None,
            special: None,
            waits: 0,
            aside: false,
            blocked: None,
            sleeps: false,
            tracking: None,
            caching: None,
            monitors: false,
            no_evict: false,
            mute: Mute::Off,
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
        }
    }

    /// Returns whether its next request may be taken.
    pub fn takes(&self) -> bool {
        !(self.ends || self.dead || self.blocked.is_some()) && self.output.len() - self.sent < ANSWERS
    }

    /// Returns whether it subscribes to something in RESP2, which has no form of its own for messages.
    pub fn hears_in_answers(&self) -> bool {
        self.session.protocol == Protocol::Resp2 && !self.subscriptions.is_empty()
    }

    /// The next request, of what was read.
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

    /// Reads once. Returns whether there is something new; if not, there may be later, when it is still readable.
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
                    self.readable = more || self.closed;
                    // What was taken makes room first; it is at least half, so that each byte is moved once at most.
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
            Mute::Next(count) => self.mute = if count > 1 { Mute::Next(count - 1) } else { Mute::Off },
            Mute::All => {}
        }
    }

    /// Appends the beginning of an answer of several: they follow.
    pub fn begin_array(&mut self, count: usize) {
        if self.mute == Mute::Off {
            self.output.extend_from_slice(format!("*{count}\r\n").as_bytes());
        }
    }

    /// Appends a message that answers no request.
    pub fn tell(&mut self, bytes: &[u8], limits: Limits) {
        self.output.extend_from_slice(bytes);
        self.limit(limits);
    }

    /// Ends a client that leaves too much of its output.
    pub fn limit(&mut self, limits: Limits) {
        let waiting = self.waiting() as u64;
        self.dead |= limits.hard > 0 && waiting > limits.hard;
        if limits.soft == 0 || waiting <= limits.soft {
            self.beyond = None;
            return;
        }
        let since = *self.beyond.get_or_insert_with(Instant::now);
        self.dead |= since.elapsed().as_secs() >= limits.seconds;
    }

    /// Bytes that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Bytes that were received and not taken.
    pub fn unread(&self) -> usize {
        self.input.len() - self.start
    }

    /// Writes what it can.
    pub fn send(&mut self) {
        while self.sent < self.output.len() && !self.dead {
            match self.wire.write(&self.output[self.sent..]) {
                Ok(0) => self.dead = true,
                Ok(count) => self.sent += count,
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
        self.sent = 0;
        self.output.clear();
        if self.output.capacity() > 16 * KEPT {
            self.output = Vec::new();
        }
    }

    /// Sends what the socket did not take before.
    fn flush(&mut self) {
        if !self.dead
            && let Err(error) = self.wire.flush()
        {
            self.dead |= error.kind() != io::ErrorKind::WouldBlock;
        }
    }

    /// Returns whether it is to be removed. Not while changes are under way: their answers say what it watches.
    pub fn is_over(&self) -> bool {
        let told = self.late.is_none() && self.output.is_empty();
        self.waits == 0 && (self.dead || (self.ends && told && self.wire.is_flushed()))
    }
}
