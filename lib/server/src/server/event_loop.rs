//! An event loop.
//!
//! A loop works in rounds. In a round, up to [`round::REQUESTS`] requests of each *active* client (a client that may have
//! requests or answers) are processed. Their changes form one batch for the combiner (the thread that applies changes
//! to a replica, in node replication). Reads are carried out on the loop's replica, and long reads in other threads.
//! Answers are sent in the order of requests. So after a change, a client's further changes join the same batch, but
//! any other request waits for the next round. Between two rounds the loop polls for events. So a request of a client
//! that is not held up waits for at most one round of all other clients.

mod accept;
mod round;

use std::collections::{BTreeSet, VecDeque};
use std::io;

use archipelago_platform::atomic::Ordering::{Relaxed, Release};
use archipelago_platform::sync::Arc;
use archipelago_platform::time::{Duration, Instant};
use archipelago_replicate::Handle;
use mio::net::TcpListener as Listener;
use mio::{Events, Interest, Poll, Token};

use super::client::Client;
use super::clients;
use super::now;
use super::shared::{Letter, Shared, Verdict, lock};
use crate::blocked::Owner;
use crate::db::{Db, Random};
use crate::operation::Write;
use crate::reply::{Protocol, Reply};
use crate::session::Step;

/// The token of the waker for letters, which are messages from other threads.
pub const LETTERS: Token = Token(usize::MAX);
/// The token of the first listener. The tokens of further listeners are below it.
const LISTENER: usize = usize::MAX - 1;
/// The maximum number of listeners.
const LISTENERS: usize = 2;
/// The maximum number of bytes of one read.
const READ: usize = 64 << 10;
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
