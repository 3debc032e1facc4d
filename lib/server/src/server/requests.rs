//! The records that a loop keeps of the requests it carries out: durations, commands, and the keys of clients that track
//! keys.

use archipelago_platform::time::{Duration, Instant};

use super::client::Client;
use super::clients;
use super::event_loop::Loop;
use super::shared::Shared;
use crate::acl::check::runs_script;
use crate::args::Args;
use crate::command::{Command, Run, flag};
use crate::db::Outcome;
use crate::operation::{Call, Read, Write, wish};
use crate::reply::{Fault, Reply};
use crate::session::Step;

impl Client {
    /// Returns whether the keys that the client reads now must be recorded.
    fn notes(&self) -> bool {
        self.tracking.as_ref().is_some_and(|mode| mode.notes(self.caching))
    }

    /// Must be called before a request. As in Redis, `CLIENT CACHING` applies to the first request after it that is not
    /// `CLIENT`. A transaction, from `MULTI` on, is one request. A transaction may end in several ways, so `caching` is
    /// reset only at the beginning of the request that follows.
    pub fn end_caching(&mut self, args: &Args) {
        if self.session.queued().is_some() {
            return;
        }
        if core::mem::replace(&mut self.caching_ends, !args[0].eq_ignore_ascii_case(b"client")) {
            self.caching = None;
        }
    }
}

impl Shared {
    /// Ends the keeping of letters to a client's cache if all of the client's operations are answered.
    pub fn end_keeping(&self, client: &mut Client) {
        if client.waits == 0 && client.blocked.is_none() && core::mem::take(&mut client.keeps) {
            self.repeat(client.card.owner.id);
        }
    }
}

/// Returns whether a command may read its keys for the client. A script may read any of its keys, so all of them count
/// as read.
fn reads(command: &Command) -> bool {
    matches!(command.run, Run::Read(_)) || command.has(flag::READONLY) || runs_script(command)
}

/// The result of sending a read to the replica.
pub(super) enum Looked {
    /// The read was carried out: its answer.
    Answer(Reply),
    /// The read takes long. Its answer comes later, in a letter (a message from another thread).
    Aside,
    /// The call may change the database. It must become an operation of the log.
    Writes(Call),
}

impl Loop {
    /// Carries out a read on the local replica.
    pub(super) fn read(&mut self, client: &mut Client, mut call: Call) -> Looked {
        client.command = Some(call.command);
        if client.notes() {
            self.note_keys(client, &call);
        }
        // A thread for long reads could post its answer after the letter of a change that the read has not seen. The client
        // would then cache the old value. So reads of a client that tracks keys run here, where the answer is written before
        // the letter is processed.
        if client.tracking.is_none() {
            call.wishes |= wish::SHORT;
        }
        let read = Read::Call(call);
        let began = Instant::now();
        let outcome = self.handle.read(&read);
        let took = began.elapsed();
        let Read::Call(mut call) = read;
        call.wishes &= !wish::SHORT;
        match outcome {
            Ok(Outcome { effects: Some(effects), .. }) if effects.writes => Looked::Writes(call),
            Ok(Outcome { effects: Some(effects), .. }) if effects.long => {
                client.waits += 1;
                client.aside = true;
                self.shared.aside.submit(client.card.owner, call);
                Looked::Aside
            }
            Ok(outcome) => Looked::Answer(self.note_read(client, &call, outcome, took)),
            Err(poisoned) => Looked::Answer(Reply::Error(Fault::made(format!("ERR {poisoned}")))),
        }
    }

    /// Records a read that was carried out. Returns its answer.
    pub(super) fn note_read(&self, client: &Client, call: &Call, outcome: Outcome, took: Duration) -> Reply {
        if let Some(effects) = outcome.effects {
            self.shared.tell_events(&effects.events, effects.events_lost);
        }
        self.shared.stats.note(self.number, call.command, took, outcome.reply.is_error());
        if self.shared.slow.is_slow(took) {
            self.shared.slow.tell(Some(&client.card), call.command, Some(&call.args), took);
        }
        outcome.reply
    }

    /// Records the keys of a read. Must be called before the read.
    fn note_keys(&self, client: &Client, call: &Call) {
        let is_usage = call.command.name == "memory" && call.args.is(1, "USAGE");
        let places = if is_usage { vec![2] } else { call.command.keys.places(&call.args) };
        self.shared.note(client.card.owner.id, places.into_iter().filter_map(|place| call.args.get(place)));
    }

    /// Records the keys that an operation of the log reads. Must be called before the operation is handed on.
    pub(super) fn note_reads(&self, client: &mut Client, write: &Write) {
        client.command = match write {
            Write::Call(call) => Some(call.command),
            _ => client.command,
        };
        let Some(mode) = &client.tracking else { return };
        let calls = match write {
            Write::Exec { calls, .. } => &calls[..],
            Write::Call(call) => core::slice::from_ref(call),
            _ => &[],
        };
        // The database does not carry out the `CLIENT CACHING` of a transaction. Here the order of the transaction's
        // calls is known, so `CLIENT CACHING` is applied to the reads after it.
        let mut caching = client.caching;
        let noted: Vec<&Call> = calls
            .iter()
            .filter(|call| {
                if call.command.name == "client" && call.args.is(1, "CACHING") && call.args.len() == 3 {
                    caching = clients::caching(Some(mode), &call.args[2]).ok().or(caching);
                }
                mode.notes(caching) && reads(call.command)
            })
            .collect();
        if noted.is_empty() {
            return;
        }
        client.keeps = true;
        self.shared.keep(client.card.owner.id);
        noted.into_iter().for_each(|call| self.note_keys(client, call));
    }

    /// Records a command of the session itself, with a duration of zero. (`EXEC` and commands of the server are
    /// recorded when they are carried out.)
    pub(super) fn note_own(&self, client: &mut Client, step: &Step) {
        let Some(command) = client.session.own.take() else { return };
        client.command = Some(command);
        if !matches!(step, Step::Server(..) | Step::Write(Write::Exec { .. })) {
            let failed = matches!(step, Step::Reply(reply) if reply.is_error());
            self.shared.stats.note(self.number, command, Duration::ZERO, failed);
        }
    }

    /// Carries out a command of the server, and records its duration. Returns whether the client's next request may be
    /// processed.
    pub(super) fn serve_timed(&mut self, client: &mut Client, command: &'static Command, args: Args) -> bool {
        client.command = Some(command);
        let kept = args.clone();
        let began = Instant::now();
        let more = self.command(client, command, args);
        let took = began.elapsed();
        self.shared.stats.note(self.number, command, took, false);
        if self.shared.slow.is_slow(took) {
            self.shared.slow.tell(Some(&client.card), command, Some(&kept), took);
        }
        more
    }
}
