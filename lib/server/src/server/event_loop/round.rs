//! A round: requests of each active client, and the batch of their changes.

use archipelago_platform::atomic::Ordering::Relaxed;

use super::{Batch, Loop};
use crate::args::Args;
use crate::blocked::Owner;
use crate::command::{self, flag};
use crate::db::Outcome;
use crate::operation::{Read, Write};
use crate::reply::{Fault, Reply};
use crate::server::client::Client;
use crate::server::now;
use crate::server::requests::Looked;
use crate::server::shared::{self, Verdict};
use crate::server::{commands, transaction};
use crate::session::{Moment, Session, Step};

/// The maximum number of requests of one client in a round.
const REQUESTS: usize = 64;
/// The number of bytes of one client's requests after which the client's round ends.
const REQUEST_BYTES: usize = 1 << 20;
impl Loop {
    /// Processes each active client once.
    pub(super) fn round(&mut self) {
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
                transaction::pong(&call.args)
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
        let step = match commands::refusal(client, args) {
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
        let last = special || shared::blocking(&write).is_some();
        client.special = special.then(|| write.clone());
        client.waits += 1;
        batch.0.push(Some(client.card.owner));
        batch.1.push(write);
        !last
    }

    /// Carries out changes of a client that is not in its slot. Returns the last change's outcome, if it is known already.
    pub(in crate::server) fn commit_of(&mut self, owner: Owner, batch: Batch) -> Option<Outcome> {
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
}
