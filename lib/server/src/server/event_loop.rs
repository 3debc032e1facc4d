//! An event loop.
//!
//! A loop works in rounds. In a round, up to [`REQUESTS`] requests of each *active* client (a client that may have
//! requests or answers) are processed. Their changes form one batch for the combiner (the thread that applies changes
//! to a replica, in node replication). Reads are carried out on the loop's replica, and long reads in other threads.
//! Answers are sent in the order of requests. So after a change, a client's further changes join the same batch, but
//! any other request waits for the next round. Between two rounds the loop polls for events. So a request of a client
//! that is not held up waits for at most one round of all other clients.

use std::collections::{BTreeSet, VecDeque};
use std::io;

use archipelago_platform::atomic::Ordering::{Relaxed, Release};
use archipelago_platform::sync::Arc;
use archipelago_platform::time::{Duration, Instant};
use archipelago_replicate::Handle;
use mio::net::{TcpListener as Listener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{SockRef, TcpKeepalive};

use super::access::Identity;
use super::client::Client;
use super::clients;
use super::now;
use super::requests::Looked;
use super::shared::{Card, Letter, Shared, Verdict, lock};
use super::wire::Wire;
use crate::args::Args;
use crate::blocked::Owner;
use crate::command::{self, flag};
use crate::db::{Db, Outcome, Random};
use crate::operation::{Read, Write};
use crate::reply::{Fault, Protocol, Reply};
use crate::session::{Moment, Session, Step};

/// The token of the waker for letters, which are messages from other threads.
pub const LETTERS: Token = Token(usize::MAX);
/// The token of the first listener. The tokens of further listeners are below it.
const LISTENER: usize = usize::MAX - 1;
/// The maximum number of listeners.
const LISTENERS: usize = 2;
/// The maximum number of requests of one client in a round.
const REQUESTS: usize = 64;
/// The number of bytes of one client's requests after which the client's round ends.
const REQUEST_BYTES: usize = 1 << 20;
/// The maximum number of bytes of one read.
const READ: usize = 64 << 10;
/// The maximum number of connections accepted in a row.
const ACCEPTS: usize = 64;
/// The interval at which the first loop checks for expired keys and due fields. If there are none, a check takes
/// O(log n), and nothing enters the log.
const TICK: Duration = Duration::from_millis(100);
/// The interval at which a loop with clients looks for idle clients.
const IDLE: Duration = Duration::from_secs(1);
/// The interval while more keys have expired than are removed at a time.
const BUSY_TICK: Duration = Duration::from_millis(1);
/// The most expired keys, and the most due fields, of a database that are removed at a time. Removing so many keys
/// takes a fraction of a millisecond.
const EXPIRED: u32 = 500;

/// The answer to a connection that is refused: in plain text, and as an alert of TLS (`access_denied`, `internal_error`).
type Refused = (&'static str, &'static [u8]);
const PROTECTED: Refused = (
    "-DENIED Running in protected mode: no password is set, so that only clients of this machine are let in. Start with --requirepass to let in others.\r\n",
    &[21, 3, 3, 0, 2, 2, 49],
);
const CROWDED: Refused = ("-ERR max number of clients reached\r\n", &[21, 3, 3, 0, 2, 2, 80]);

/// Makes the kernel probe a connection that was silent for this time, and end it if nothing answers: without probes a
/// connection whose other side has vanished stays for ever. As in Redis, there are three probes, at intervals of a
/// third of this time.
fn keep_alive(stream: &TcpStream, seconds: u64) {
    if seconds > 0 {
        let interval = Duration::from_secs((seconds / 3).max(1));
        let probes =
            TcpKeepalive::new().with_time(Duration::from_secs(seconds)).with_interval(interval).with_retries(3);
        let _ = SockRef::from(stream).set_tcp_keepalive(&probes);
    }
}

/// The changes of a round, each with the client that made it, or `None` if the server made it.
type Batch = (Vec<Option<Owner>>, Vec<Write>);

/// An event loop.
pub struct Loop {
    pub poll: Poll,
    /// The listeners, each with whether it is for TLS.
    pub listeners: Vec<(Listener, bool)>,
    pub shared: Arc<Shared>,
    pub number: usize,
    pub handle: Handle<Db>,
    pub clients: Vec<Option<Client>>,
    free: Vec<usize>,
    active: Vec<usize>,
    /// The times at which blocked clients stop waiting, with the clients' slots.
    pub deadlines: BTreeSet<(Instant, usize)>,
    pub random: Random,
    room: Vec<u8>,
    accepts: bool,
    accept_again: Option<Instant>,
    next_loop: usize,
    /// Clients whose handshake of TLS may still be running, with the times by which it must be complete.
    shaking: VecDeque<(Instant, Owner)>,
    /// The time of the next check for work that no request triggers.
    tick: Instant,
    /// The time of the next check for idle clients.
    idle: Instant,
    /// While a batch is carried out, the changes that must follow it.
    later: Option<Batch>,
    /// A client that is not in its slot while its change is carried out, and the result of the change.
    absent: Option<(Owner, Option<Verdict>)>,
}

impl Loop {
    pub fn new(poll: Poll, listeners: Vec<(Listener, bool)>, shared: Arc<Shared>, number: usize) -> Self {
        Self {
            poll,
            listeners,
            handle: shared.store.handle_of(number),
            shared,
            number,
            clients: Vec::new(),
            free: Vec::new(),
            active: Vec::new(),
            deadlines: BTreeSet::new(),
            random: Random(now() ^ (number as u64) << 56),
            room: vec![0; READ],
            accepts: false,
            accept_again: None,
            next_loop: 0,
            shaking: VecDeque::new(),
            tick: Instant::now(),
            idle: Instant::now(),
            later: None,
            absent: None,
        }
    }

    pub fn run(mut self) -> io::Result<()> {
        for (number, (listener, _)) in self.listeners.iter_mut().enumerate() {
            self.poll.registry().register(listener, Token(LISTENER - number), Interest::READABLE)?;
        }
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, self.patience()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                match event.token() {
                    LETTERS => {}
                    Token(token) if token > LISTENER - LISTENERS => self.accepts = true,
                    Token(slot) => {
                        let Some(client) = self.clients.get_mut(slot).and_then(Option::as_mut) else { continue };
                        client.readable |= event.is_readable();
                        client.closed |= event.is_read_closed();
                        // A blocked client is never read from, so reading would not notice the end of its connection.
                        client.dead |= client.closed && client.blocked.is_some();
                        self.wake(slot);
                    }
                }
            }
            self.letters();
            self.on_time();
            if self.accepts {
                self.accept();
            }
            if self.shared.stop.load(Relaxed) {
                return self.finish();
            }
            self.round();
        }
    }

    /// Returns the maximum time for which the loop may sleep. `None` means until an event.
    fn patience(&self) -> Option<Duration> {
        if !self.active.is_empty() || self.accepts {
            // An active client that waits for space in another loop's mailbox, or for the end of a pause, has nothing to do
            // for a moment.
            let waits = self.shared.is_full() || self.shared.pause.is_on(now());
            return Some(if waits { clients::MOMENT } else { Duration::ZERO });
        }
        let now = Instant::now();
        let tick = (self.number == 0).then_some(self.tick);
        let first = self.deadlines.first().map(|(at, _)| *at);
        let shaking = self.shaking.front().map(|(until, _)| *until);
        let idle = (self.clients.len() > self.free.len()).then_some(self.idle);
        let until = [first, self.accept_again, tick, shaking, idle].into_iter().flatten().min()?;
        // The time is rounded up, because the operating system counts in milliseconds.
        Some(until.saturating_duration_since(now) + Duration::from_millis(1))
    }

    /// Adds a client to the active clients of the next round.
    pub(super) fn wake(&mut self, slot: usize) {
        if let Some(client) = self.clients.get_mut(slot).and_then(Option::as_mut)
            && !core::mem::replace(&mut client.active, true)
        {
            self.active.push(slot);
        }
    }

    fn accept(&mut self) {
        self.accepts = false;
        (0..self.listeners.len()).for_each(|number| self.accept_at(number));
    }

    fn accept_at(&mut self, number: usize) {
        for _ in 0..ACCEPTS {
            let (listener, secure) = &self.listeners[number];
            match listener.accept() {
                Ok((stream, _)) => self.deal(stream, *secure),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                }
                // There are no descriptors or there is no memory; both may be available later. The connection stays in the
                // queue, so an immediate retry would repeat without end.
                Err(_) => {
                    self.accept_again = Some(Instant::now() + TICK);
                    return;
                }
            }
        }
        self.accepts = true;
    }

    /// Passes a connection to the next loop in turn.
    fn deal(&mut self, stream: TcpStream, secure: bool) {
        let to = self.next_loop % self.shared.mail.len();
        self.next_loop += 1;
        if to == self.number {
            self.admit(stream, secure);
        } else {
            self.shared.post(to, Letter::Client(stream, secure));
        }
    }

    fn admit(&mut self, mut stream: TcpStream, secure: bool) {
        let _ = stream.set_nodelay(true);
        keep_alive(&stream, self.shared.config.get("tcp-keepalive").parse().unwrap_or(0));
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
        let shared = &self.shared;
        let open = shared.acl.is_open();
        let most = shared.config.get("maxclients").parse().unwrap_or(usize::MAX);
        let refusal = if open && shared.config.get("protected-mode") == "yes" && !peer.ip().to_canonical().is_loopback()
        {
            Some(&PROTECTED)
        } else if lock(&shared.clients).len() >= most {
            Some(&CROWDED)
        } else {
            None
        };
        let id = shared.counts.connections.fetch_add(1, Relaxed) + 1;
        if let Some((plain, alert)) = refusal {
            shared.counts.rejected.fetch_add(1, Relaxed);
            let _ = io::Write::write(&mut stream, if secure { alert } else { plain.as_bytes() });
            return;
        }
        let terms = shared.terms.as_ref().filter(|_| secure);
        let Ok(mut wire) = Wire::new(stream, terms) else { return };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        if self.poll.registry().register(wire.source(), Token(slot), Interest::READABLE | Interest::WRITABLE).is_err() {
            self.free.push(slot);
            return;
        }
        let owner = Owner { at: self.number, slot, id };
        let card = Arc::new(Card::new(owner, peer, local));
        lock(&shared.clients).insert(id, card.clone());
        if secure {
            self.shaking.push_back((Instant::now() + shared.patience, owner));
        }
        let mut client = Client::new(wire, card, Identity::new(&self.shared.acl), open);
        client.session = self.session();
        self.clients[slot] = Some(client);
        self.wake(slot);
    }

    /// Processes the letters from other threads.
    fn letters(&mut self) {
        for letter in self.shared.mail[self.number].take() {
            match letter {
                Letter::Client(stream, secure) => self.admit(stream, secure),
                Letter::Answers(answers) => self.hear_all(answers),
                Letter::Message(owners, body, of) => {
                    let limits = self.shared.limits.all();
                    for owner in owners {
                        let takes = |client: &&mut Client| match &of {
                            Some(of) => client.subscriptions.contains(of.0, &of.1),
                            None => client.monitors,
                        };
                        if let Some(client) = self.client(owner).filter(takes) {
                            let three = client.session.protocol == Protocol::Resp3;
                            client.tell(if three { &body.1 } else { &body.0 }, limits);
                            self.wake(owner.slot);
                        }
                    }
                }
                Letter::Invalidate(owner, body) => {
                    let limits = self.shared.limits.all();
                    if let Some(client) = self.client(owner) {
                        let three = client.session.protocol == Protocol::Resp3;
                        // A RESP2 client without subscriptions would take the message for an answer.
                        let bytes = if three { &body.1[..] } else { &body.0[..] };
                        if three || !client.subscriptions.is_empty() {
                            client.tell(bytes, limits);
                            self.wake(owner.slot);
                        }
                    }
                }
                Letter::Unblocked(owner, error) => {
                    let Some(client) = self.client(owner) else { continue };
                    // The thread that waits for the disk registers a client in the queues before it posts that the
                    // client is blocked. So this letter may come first.
                    let Some((until, nothing)) = client.blocked.take() else {
                        client.unblocked = Some(error);
                        continue;
                    };
                    client.last = now();
                    client.answer_unblocked(error, nothing);
                    if let Some(until) = until {
                        self.deadlines.remove(&(until, owner.slot));
                    }
                    self.end_keeping(owner.slot);
                    self.wake(owner.slot);
                }
                Letter::Access => self.look_again(),
                Letter::Kill(owner) => {
                    if let Some(client) = self.client(owner) {
                        client.dead = true;
                        self.wake(owner.slot);
                    }
                }
            }
        }
    }

    /// Returns the client, if it still exists.
    pub fn client(&mut self, owner: Owner) -> Option<&mut Client> {
        self.clients.get_mut(owner.slot)?.as_mut().filter(|client| client.card.owner.id == owner.id)
    }

    /// Passes the results of a batch to its clients. The clock is read once, because a batch may have thousands of results.
    fn hear_all(&mut self, verdicts: Vec<(Owner, Verdict)>) {
        let now = now();
        verdicts.into_iter().for_each(|(owner, verdict)| self.hear(owner, verdict, now));
    }

    /// Passes the result of a client's operation to the client, at the time `now`.
    fn hear(&mut self, owner: Owner, verdict: Verdict, now: u64) {
        let Some(client) = self.clients.get_mut(owner.slot).and_then(Option::as_mut) else {
            if let Some((absent, result)) = &mut self.absent
                && *absent == owner
            {
                *result = Some(verdict);
            }
            return;
        };
        if client.card.owner.id != owner.id {
            return;
        }
        // The end of a wait counts as activity: the client is not idle before the answer was sent.
        client.last = now;
        // If `stopped` is set, the client must be woken. Otherwise this loop carries out changes itself, and the round
        // has noted which clients have more requests.
        let mut stopped = self.shared.store.waits() || client.special.is_some() || client.blocked.is_some();
        match verdict {
            Verdict::Blocks(millis) => {
                client.waits -= 1;
                client.dead |= client.closed;
                stopped = true;
                // All blocking commands have this answer after their timeout. In Redis, too, this includes commands that
                // otherwise answer with a single null.
                let nothing = Reply::NullArray;
                if let Some(error) = client.unblocked.take() {
                    client.answer_unblocked(error, nothing);
                } else {
                    let until = (millis > 0).then(|| Instant::now() + Duration::from_millis(millis.min(1 << 40)));
                    client.blocked = Some((until, nothing));
                    self.deadlines.extend(until.map(|until| (until, owner.slot)));
                }
            }
            // The call was a read when it was sent. Its function has been replaced by one that changes the database, so the
            // call becomes a change and the client waits on.
            Verdict::Read(read) if read.1.effects.as_ref().is_some_and(|effects| effects.writes) => {
                client.aside = false;
                self.commit((vec![Some(owner)], vec![Write::Call(read.0)]));
                stopped = true;
            }
            Verdict::Read(read) => {
                let (call, outcome, took) = *read;
                // The client is taken out of its slot, as in a round.
                if let Some(mut client) = self.clients[owner.slot].take() {
                    (client.waits, client.aside) = (client.waits - 1, false);
                    let reply = self.note_read(&client, &call, outcome, took);
                    client.answer(&reply);
                    self.clients[owner.slot] = Some(client);
                }
                stopped = true;
            }
            Verdict::Heard => {
                (client.waits, client.aside) = (client.waits - 1, false);
                // The vector is replaced, so that the memory of a long answer is freed.
                let later = core::mem::take(&mut client.later);
                client.output.extend_from_slice(&later);
                stopped = true;
            }
            Verdict::Done(outcome) if !client.listens.is_empty() => client.listened(&self.shared, &outcome.reply),
            Verdict::Done(mut outcome) => {
                if let Some((until, _)) = client.blocked.take() {
                    if let Some(until) = until {
                        self.deadlines.remove(&(until, owner.slot));
                    }
                } else {
                    client.waits -= 1;
                }
                let mut mixed = None;
                let reply = match client.special.take_if(|_| client.waits == 0) {
                    Some(write) => {
                        let reply = client.session.answer(&write, &mut outcome);
                        mixed = super::transaction::mixed(write);
                        reply
                    }
                    None => outcome.reply,
                };
                match (mixed, reply) {
                    (Some(calls), Reply::Array(replies)) => {
                        // The client is taken out of its slot, as in a round.
                        if let Some(mut client) = self.clients[owner.slot].take() {
                            self.answer_all(&mut client, calls, replies);
                            self.clients[owner.slot] = Some(client);
                        }
                    }
                    (_, reply) => client.answer(&reply),
                }
            }
        }
        self.end_keeping(owner.slot);
        if stopped {
            self.wake(owner.slot);
        }
    }

    /// Ends the keeping of letters to the cache of the client in a slot, if all of its operations are answered. Must be
    /// called after each answer that no request precedes: the client may send no further request for a long time.
    fn end_keeping(&mut self, slot: usize) {
        if let Some(client) = &mut self.clients[slot] {
            self.shared.end_keeping(client);
        }
    }

    /// Does the work whose time has come.
    fn on_time(&mut self) {
        let now = Instant::now();
        if self.accept_again.is_some_and(|again| again <= now) {
            (self.accepts, self.accept_again) = (true, None);
        }
        while let Some((_, owner)) = self.shaking.front().copied().filter(|(until, _)| *until <= now) {
            self.shaking.pop_front();
            if let Some(client) = self.client(owner) {
                client.dead |= client.wire.is_shaking();
                self.wake(owner.slot);
            }
        }
        while let Some((_, slot)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.pop_first();
            let Some(client) = self.clients.get_mut(slot).and_then(Option::as_mut) else { continue };
            // If the client neither sleeps nor waits in a queue, its answer is already on its way.
            if (core::mem::take(&mut client.sleeps) || self.shared.unblock(client.card.owner.id))
                && let Some((_, nothing)) = client.blocked.take()
            {
                client.last = super::now();
                client.answer(&nothing);
            }
            self.end_keeping(slot);
            self.wake(slot);
        }
        if self.idle <= now {
            self.idle = now + IDLE;
            self.end_idle();
        }
        if self.number == 0 && self.tick <= now {
            let stopped = self.shared.no_expiry.load(Relaxed) || self.shared.pause.is_on(super::now());
            let more = !stopped && self.expire();
            if let Some(write) = self.shared.keep_limit() {
                self.commit((vec![None], vec![write]));
            }
            let owed = self.shared.owed();
            self.commit((vec![None; owed.len()], owed));
            if !more {
                self.shared.save_on_time();
            }
            self.tick = now + if more { BUSY_TICK } else { TICK };
        }
    }

    /// Ends the clients that have neither sent nor received anything for `timeout` seconds. As in Redis, clients that wait
    /// for something are not idle: for an answer, a message or the requests of others.
    fn end_idle(&mut self) {
        let Some(seconds) = self.shared.config.get("timeout").parse().ok().filter(|seconds| *seconds > 0) else {
            return;
        };
        let now = now();
        let is_idle = |client: &Client| {
            let waits = client.waits > 0 || client.held.is_some() || client.blocked.is_some();
            let listens = client.monitors || !client.subscriptions.is_empty();
            !waits && !listens && now.saturating_sub(client.last) / 1_000 > seconds
        };
        for slot in 0..self.clients.len() {
            if let Some(client) = self.clients[slot].as_mut().filter(|client| is_idle(client)) {
                client.dead = true;
                self.wake(slot);
            }
        }
    }

    /// Removes expired keys and due fields. Returns whether some may be left.
    fn expire(&mut self) -> bool {
        let now = super::now();
        let expired = self.shared.store.db().inspect(0, |db| db.expired(now)).unwrap_or(0);
        if expired > 0 {
            self.commit((vec![None], vec![Write::Expire { now, most: EXPIRED }]));
        }
        expired > EXPIRED as usize
    }

    /// Processes each active client once.
    fn round(&mut self) {
        let slots = core::mem::take(&mut self.active);
        let mut batch = Batch::default();
        for slot in &slots {
            // The client is taken out of its slot, so that commands of the server can access the other clients.
            let Some(mut client) = self.clients[*slot].take() else { continue };
            client.active = false;
            let more = client.waits == 0 && self.take_requests(&mut client, &mut batch);
            let idle = client.waits == 0;
            self.clients[*slot] = Some(client);
            if more && (idle || !self.shared.store.waits()) {
                self.wake(*slot);
            }
        }
        self.commit(batch);
        for slot in slots {
            let Some(client) = self.clients[slot].as_mut() else { continue };
            let full = !client.takes();
            client.send();
            client.show();
            if client.waiting() > 0 {
                client.limit(self.shared.limits.all());
            }
            if client.is_over() {
                self.remove(slot);
            } else if full && client.takes() && client.waits == 0 {
                self.wake(slot);
            }
        }
    }

    /// Processes requests of a client. Changes are added to the batch. Reads are carried out only while the client has no
    /// change in the batch. Returns whether there may be more requests.
    fn take_requests(&mut self, client: &mut Client, batch: &mut Batch) -> bool {
        let mut bytes = 0;
        if let Some(reply) = client.late.take() {
            client.answer(&reply);
            // Bytes after a malformed request are not a request.
            if client.ends {
                return false;
            }
        }
        // Changes send messages to listeners, and all requests send messages to monitors, so requests wait while a mailbox is
        // full.
        if (self.shared.listens() || self.shared.is_monitored()) && self.shared.is_full() {
            return true;
        }
        for _ in 0..REQUESTS {
            if !client.takes() {
                return false;
            }
            if bytes > REQUEST_BYTES {
                return true;
            }
            let args = match client.held.take() {
                Some(args) => args,
                None => match client.parse() {
                    Ok(Some(args)) => args,
                    Ok(None) if client.receive(&mut self.room) => continue,
                    Ok(None) => return client.readable,
                    Err(malformed) => {
                        client.ends = true;
                        return !self.reply(client, Reply::Error(Fault::made(malformed.0)));
                    }
                },
            };
            bytes += args.bytes();
            // After a change, only further changes are processed; any other request waits. (If a change is refused, its
            // answer waits.)
            if client.waits > 0 && command::find(&args[0]).is_none_or(|command| !command.has(flag::WRITE)) {
                client.held = Some(args);
                return true;
            }
            if self.shared.pause.holds(&client.session, &args) {
                client.held = Some(args);
                return true;
            }
            if !self.request(client, args, batch) {
                return client.blocked.is_none() && !client.aside;
            }
        }
        true
    }

    /// Carries out a request. Returns whether the next request may be processed.
    fn request(&mut self, client: &mut Client, args: Args, batch: &mut Batch) -> bool {
        self.shared.counts.commands.fetch_add(1, Relaxed);
        self.shared.end_keeping(client);
        client.end_caching(&args);
        self.look(client);
        // The client's user was removed, or may no longer read one of the client's channels. This request is not
        // carried out, although the letter about the change of users may not have arrived yet.
        if client.ends {
            return false;
        }
        // The request comes from a browser that a page made connect to this port.
        if [&b"post"[..], b"host:"].iter().any(|word| args[0].eq_ignore_ascii_case(word)) {
            client.dead = true;
            return false;
        }
        let moment = Moment { now: now(), seed: self.random.draw(), wishes: self.shared.shown_wishes() };
        let step = match self.refused(client, &args, moment) {
            Some(step) => step,
            None => {
                client.session.no_room = self.shared.room.is_full();
                self.shared.show(client, &args);
                client.session.accept(args, moment)
            }
        };
        let step = match step {
            // Only the database knows whether the function changes anything.
            Step::Write(Write::Call(call)) if call.command.name == "fcall" => Step::Read(Read::Call(call)),
            step => step,
        };
        self.note_own(client, &step);
        let reply = match step {
            Step::Reply(reply) => reply,
            Step::Read(Read::Call(call)) if call.command.name == "ping" && client.hears_in_answers() => {
                super::transaction::pong(&call.args)
            }
            Step::Read(Read::Call(call)) => match self.read(client, call) {
                Looked::Answer(reply) => reply,
                Looked::Aside => return false,
                Looked::Writes(call) => return self.change(client, Write::Call(call), batch),
            },
            Step::Write(write) => return self.change(client, write, batch),
            Step::Server(command, args) => return self.serve_timed(client, command, args),
            Step::Close(reply) => {
                client.ends = true;
                reply
            }
        };
        self.reply(client, reply)
    }

    /// Returns the step for a request that the client may not send.
    fn refused(&self, client: &mut Client, args: &Args, moment: Moment) -> Option<Step> {
        let command = command::find(&args[0]);
        let step = match super::commands::refusal(client, args) {
            Some(reply) => Step::Reply(reply),
            None => {
                let fault = self.refusal_of(client, args)?;
                client.session.refuse(command, fault, moment)
            }
        };
        if let Some(command) = command {
            self.shared.stats.reject(self.number, command);
        }
        Some(step)
    }

    /// Appends an answer in the order of requests: if changes of the client are unanswered, the answer waits until they
    /// are answered. Returns whether the next request may be processed.
    fn reply(&self, client: &mut Client, reply: Reply) -> bool {
        if client.waits > 0 {
            client.late = Some(reply);
            return false;
        }
        client.answer(&reply);
        true
    }

    /// Adds a change to the batch. Returns whether the client's next request may be processed.
    fn change(&mut self, client: &mut Client, mut write: Write, batch: &mut Batch) -> bool {
        self.refuse_calls(client, &mut write);
        self.note_reads(client, &write);
        let special = Session::must_wait(&write);
        let last = special || super::shared::blocking(&write).is_some();
        client.special = special.then(|| write.clone());
        client.waits += 1;
        batch.0.push(Some(client.card.owner));
        batch.1.push(write);
        !last
    }

    /// Carries out changes of a client that is not in its slot. Returns the last change's outcome, if it is known already.
    pub(super) fn commit_of(&mut self, owner: Owner, batch: Batch) -> Option<Outcome> {
        self.absent = Some((owner, None));
        self.commit(batch);
        match self.absent.take() {
            Some((_, Some(Verdict::Done(outcome)))) => Some(outcome),
            _ => None,
        }
    }

    /// Carries out changes, or hands them to the thread that waits for the disk. A command of the server in a
    /// transaction makes its changes while its loop carries out a batch, possibly with the lock for the order of
    /// events. Such changes follow the batch.
    pub fn commit(&mut self, (owners, batch): Batch) {
        if batch.is_empty() {
            return;
        }
        if self.shared.store.waits() {
            return self.shared.submit(owners, batch);
        }
        if let Some(later) = &mut self.later {
            later.0.extend(owners);
            return later.1.extend(batch);
        }
        self.later = Some(Batch::default());
        let shared = self.shared.clone();
        let order = shared.in_order();
        let (verdicts, aftermath) = shared.carry_out(&mut self.handle, &owners, batch);
        self.hear_all(verdicts);
        shared.tell(&aftermath);
        drop(order);
        shared.serve(&mut self.handle, aftermath.ready);
        let later = self.later.take();
        self.commit(later.unwrap_or_default());
    }

    fn remove(&mut self, slot: usize) {
        let Some(mut client) = self.clients[slot].take() else { return };
        self.stop_listening(&mut client);
        self.free.push(slot);
        // A later letter for this client finds another client's number in the slot, or no client.
        let owner = client.card.owner;
        if let Some((until, _)) = client.blocked.take() {
            self.shared.unblock(owner.id);
            if let Some(until) = until {
                self.deadlines.remove(&(until, slot));
            }
        }
        let mut hub = lock(&self.shared.hub);
        client.subscriptions.iter().for_each(|(kind, name)| hub.unsubscribe(kind, name, owner));
        drop(hub);
        lock(&self.shared.clients).remove(&owner.id);
        let _ = self.poll.registry().deregister(client.wire.source());
        if let Some(why) = client.wire.close() {
            // Release, for `INFO`'s Acquire: it reads the count first, so it tells the reason of each failure that it counts.
            *lock(&self.shared.counts.last_unsecured) = why;
            self.shared.counts.unsecured.fetch_add(1, Release);
        }
        if let Step::Write(write) = client.session.unwatch() {
            self.commit((vec![None], vec![write]));
        }
    }

    /// Waits for unanswered operations and sends their answers. No more requests are processed.
    fn finish(mut self) -> io::Result<()> {
        self.listeners.clear();
        let mut events = Events::with_capacity(1024);
        while self.clients.iter().flatten().any(|client| client.waits > 0) {
            let _ = self.poll.poll(&mut events, Some(TICK));
            self.letters();
        }
        for client in self.clients.iter_mut().flatten() {
            client.send();
            let _ = client.wire.close();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
