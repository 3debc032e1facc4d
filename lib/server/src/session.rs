//! A client's state without its socket: database, protocol, the queue of a transaction, watched keys.
//!
//! A [`Session`] turns a request into a [`Step`] ([`Session::accept`]), and the outcome of an operation into an answer
//! ([`Session::answer`]). Commands that need the server (its clients, settings or channels) are returned as
//! [`Step::Server`].

use std::collections::BTreeMap;

use archipelago_platform::sync::Arc;

use crate::acl::check::{runs_lua, runs_script};
use crate::acl::user::User;
use crate::args::Args;
use crate::command::{self, Command, Run, catalog, flag};
use crate::db::{DATABASES, Outcome};
use crate::deadline::Deadline;
use crate::family::{parse, streams};
use crate::log;
use crate::operation::{Call, Read, Watched, Write, wish};
use crate::reply::{Fault, Protocol, Reply, fault};
use crate::resp::LONGEST_REQUEST;

/// The next step for a request.
#[derive(Debug)]
pub enum Step {
    /// Answer at once.
    Reply(Reply),
    /// Carry out an operation on the local replica.
    Read(Read),
    /// Carry out an operation that may change the database, or a read that may have to wait: it is appended to the
    /// replicas' log.
    Write(Write),
    /// Carry out a command of the server, with its arguments.
    Server(&'static Command, Args),
    /// Answer, then close the connection.
    Close(Reply),
}

/// The values that the server supplies for an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// The time, in milliseconds since 1970.
    pub now: u64,
    /// Random bits.
    pub seed: u64,
    /// Bits of [`wish`].
    pub wishes: u8,
}

/// The commands queued since `MULTI`.
#[derive(Debug)]
struct Queue {
    calls: Vec<Call>,
    /// How many bytes of memory further commands may take. All commands together may take as many as one request.
    room: usize,
    /// Whether a command was refused. If so, `EXEC` will be refused.
    refused: bool,
    /// The database that the next command will use.
    db: u32,
}

/// A client's state. See the module's documentation.
#[derive(Debug, Default)]
pub struct Session {
    /// The number of the client's database.
    pub db: u32,
    /// The client's protocol.
    pub protocol: Protocol,
    queue: Option<Queue>,
    /// The watched keys of each database, each with the number of the operation since which it is watched.
    watched: BTreeMap<u32, BTreeMap<Vec<u8>, u64>>,
    /// The database and the keys of a `WATCH` that is not answered yet.
    watching: Option<(u32, Vec<Vec<u8>>)>,
    /// Whether commands that need memory are refused.
    pub no_room: bool,
    /// The user whose rights the client has. `None` allows everything.
    pub rights: Option<Arc<User>>,
    /// The scripts that the server has stored.
    #[cfg(feature = "lua")]
    scripts: crate::script::table::Scripts,
    /// The last accepted command of the connection or of the server. The event loop takes it.
    pub own: Option<&'static Command>,
    /// For an `EXEC` that is not answered yet: the database that the client will have after it, or why the transaction is
    /// discarded.
    ends: Option<Result<u32, Fault>>,
}

/// Returns the error for a wrong number of arguments.
pub fn wrong_number(name: &str) -> Fault {
    Fault::made(format!("ERR wrong number of arguments for '{name}' command"))
}

/// Returns the answer to an `EXEC` that is refused itself.
fn because(fault: &Fault) -> Fault {
    let why = fault.0.strip_prefix("ERR ").unwrap_or(&fault.0);
    Fault::made(format!("EXECABORT Transaction discarded because of: {why}"))
}

/// Checks a command's subcommand when the request arrives, also within `MULTI`, as the number of arguments is checked.
/// Returns the command that carries the subcommand out.
fn part(command: &'static Command, args: &Args) -> Result<&'static Command, Fault> {
    catalog::check(command, args)?;
    #[cfg(feature = "lua")]
    if command.name == "function" {
        return crate::script::functions::part(args);
    }
    Ok(command)
}

/// Returns the database that a call selects for the calls after it. Returns `None` if it is no valid `SELECT`.
fn selected(call: &Call) -> Option<u32> {
    let number = (call.command.name == "select").then(|| parse::integer(&call.args[1]).ok()).flatten();
    number.and_then(|number| u32::try_from(number).ok()).filter(|db| *db < DATABASES)
}

fn unknown(args: &Args) -> Fault {
    let shown = |bytes: &[u8], most: usize| {
        let bytes = parse::before_zero(bytes);
        String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned()
    };
    let mut beginning = String::new();
    for argument in args.from(1) {
        if beginning.len() >= 128 {
            break;
        }
        beginning += &format!("'{}' ", shown(argument, 128 - beginning.len()));
    }
    let name = shown(&args[0], 128);
    Fault::made(format!("ERR unknown command '{name}', with args beginning with: {beginning}"))
}

impl Queue {
    fn new(db: u32) -> Self {
        Self { calls: Vec::new(), room: LONGEST_REQUEST, refused: false, db }
    }
}

impl Session {
    /// Creates a session of a server that has stored these scripts.
    #[cfg(feature = "lua")]
    pub fn with_scripts(scripts: crate::script::table::Scripts) -> Self {
        Self { scripts, ..Self::default() }
    }

    /// Returns the next step for a request. `args` must not be empty.
    pub fn accept(&mut self, args: Args, moment: Moment) -> Step {
        let command = command::find(&args[0]).filter(|command| !command.has(flag::INTERNAL));
        let found = command.ok_or_else(|| unknown(&args)).and_then(|command| match command.takes(args.len()) {
            true => part(command, &args),
            false => Err(wrong_number(command.name)),
        });
        let found = found.and_then(|command| match self.no_room && command.has(flag::DENYOOM) {
            true => Err(fault::NO_ROOM),
            false => Ok(command),
        });
        let command = match found {
            Ok(command) => command,
            Err(fault) => return self.refuse(command, fault, moment),
        };
        #[cfg(feature = "lua")]
        let (command, args) = self.scripts.resolve(command, args);
        if self.queue.is_some() && !matches!(command.name, "exec" | "discard" | "quit" | "reset") {
            return self.enqueue(command, args, moment);
        }
        match command.run {
            // The read may have to wait for an entry. It is an operation of the log, so it has a position among the changes.
            Run::Read(_) if command.has(flag::BLOCKING) && streams::block(&args).is_some() => {
                Step::Write(Write::Call(self.call(command, args, moment)))
            }
            Run::Read(_) => Step::Read(Read::Call(self.call(command, args, moment))),
            Run::Write(_) => Step::Write(Write::Call(self.call(command, args, moment))),
            Run::Session => {
                self.own = Some(command);
                self.own(command, args, moment)
            }
        }
    }

    fn call(&self, command: &'static Command, args: Args, moment: Moment) -> Call {
        let Moment { now, seed, wishes } = moment;
        let rights = self.rights.clone().filter(|_| runs_script(command));
        let wishes = wishes | self.full(command);
        let deadline = if runs_lua(command) { self.deadline() } else { None };
        let db = self.queue.as_ref().map_or(self.db, |queue| queue.db);
        Call { command, args, db, now, seed, wishes, rights, deadline }
    }

    /// Returns the time limit of a script that is called now.
    fn deadline(&self) -> Option<Arc<Deadline>> {
        #[cfg(feature = "lua")]
        return self.scripts.deadline();
        #[cfg(not(feature = "lua"))]
        None
    }

    /// Returns a bit that tells a script whether commands that need memory are refused.
    fn full(&self, command: &Command) -> u8 {
        if self.no_room && runs_script(command) { wish::FULL } else { 0 }
    }

    /// Returns the step for a request that is refused before it runs. A refused `EXEC` discards its transaction. After
    /// any other refused command, the `EXEC` of the transaction that is being queued will be refused.
    pub fn refuse(&mut self, command: Option<&'static Command>, fault: Fault, moment: Moment) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Reply(Reply::Error(fault)) };
        if command.is_some_and(|command| command.name == "exec") {
            self.queue = None;
            return self.conclude(Vec::new(), Err(because(&fault)), moment);
        }
        queue.refused = true;
        Step::Reply(Reply::Error(fault))
    }

    fn enqueue(&mut self, command: &'static Command, args: Args, moment: Moment) -> Step {
        if command.name == "multi" {
            return Step::Reply(Reply::Error(Fault::new("ERR MULTI calls can not be nested")));
        }
        if command.name == "watch" {
            return Step::Reply(Reply::Error(Fault::new("ERR WATCH inside MULTI is not allowed")));
        }
        if command.has(flag::NO_MULTI) {
            return self.refuse(Some(command), Fault::new("ERR Command not allowed inside a transaction"), moment);
        }
        let call = self.call(command, args, moment);
        let queue = self.queue.as_mut().expect("it was looked at");
        // As in Redis, queued commands count as a part of what the client has sent and the server has not carried out.
        let Some(room) = queue.room.checked_sub(size_of::<Call>() + call.args.memory()) else {
            self.queue = None;
            return Step::Close(Reply::Error(Fault::new("ERR the commands of the transaction are too long")));
        };
        queue.room = room;
        queue.db = selected(&call).unwrap_or(queue.db);
        queue.calls.push(call);
        Step::Reply(Reply::Status("QUEUED"))
    }

    fn own(&mut self, command: &'static Command, args: Args, moment: Moment) -> Step {
        match command.name {
            "select" => Step::Reply(match parse::integer(&args[1]).map(u32::try_from) {
                Ok(Ok(db)) if db < DATABASES => {
                    self.db = db;
                    Reply::OK
                }
                Ok(_) if parse::integer(&args[1]).is_ok_and(|number| i32::try_from(number).is_err()) => {
                    Reply::Error(fault::NOT_SHORT)
                }
                Ok(_) => Reply::Error(fault::DB_INDEX),
                Err(fault) => Reply::Error(fault),
            }),
            "quit" => Step::Close(Reply::OK),
            "multi" => {
                self.queue = Some(Queue::new(self.db));
                Step::Reply(Reply::OK)
            }
            "discard" => match self.queue.take() {
                Some(_) => self.unwatch(),
                None => Step::Reply(Reply::Error(Fault::new("ERR DISCARD without MULTI"))),
            },
            "exec" => self.exec(moment),
            "watch" => {
                // As in Redis, a second `WATCH` of a key changes nothing. An entry for each `WATCH` would need memory
                // without a limit.
                let mut keys: Vec<Vec<u8>> = args.from(1).map(<[u8]>::to_vec).collect();
                if let Some(known) = self.watched.get(&self.db) {
                    keys.retain(|key| !known.contains_key(key));
                }
                keys.sort();
                keys.dedup();
                if keys.is_empty() {
                    return Step::Reply(Reply::OK);
                }
                self.watching = Some((self.db, keys.clone()));
                Step::Write(Write::Watch { db: self.db, keys, now: moment.now })
            }
            "unwatch" => self.unwatch(),
            #[cfg(feature = "lua")]
            "script" => Step::Reply(self.script(&args)),
            _ => Step::Server(command, args),
        }
    }

    /// Carries out `SCRIPT`.
    #[cfg(feature = "lua")]
    pub fn script(&self, args: &Args) -> Reply {
        self.scripts.command(args).into()
    }

    /// Returns the number of queued commands, if a transaction is being queued.
    pub fn queued(&self) -> Option<usize> {
        self.queue.as_ref().map(|queue| queue.calls.len())
    }

    /// Returns the queued commands, if a transaction is being queued.
    pub fn calls(&self) -> &[Call] {
        self.queue.as_ref().map_or(&[], |queue| &queue.calls)
    }

    /// Releases the watched keys: at `UNWATCH`, and when the connection ends.
    pub fn unwatch(&mut self) -> Step {
        match self.take_watched() {
            watched if watched.is_empty() => Step::Reply(Reply::OK),
            watched => Step::Write(Write::Unwatch { watched }),
        }
    }

    fn take_watched(&mut self) -> Vec<Watched> {
        let all = core::mem::take(&mut self.watched).into_iter();
        all.flat_map(|(db, keys)| keys.into_iter().map(move |(key, since)| Watched { db, key, since })).collect()
    }

    fn exec(&mut self, moment: Moment) -> Step {
        let Some(Queue { calls, refused, db, .. }) = self.queue.take() else {
            return Step::Reply(Reply::Error(Fault::new("ERR EXEC without MULTI")));
        };
        let end = match () {
            // Memory may have become short after the commands were queued.
            () if self.no_room && calls.iter().any(|call| call.command.has(flag::DENYOOM)) => {
                Err(because(&fault::NO_ROOM))
            }
            () if refused => Err(Fault::new("EXECABORT Transaction discarded because of previous errors.")),
            () => Ok(db),
        };
        self.conclude(calls, end, moment)
    }

    /// Ends a transaction: carries it out or discards it.
    fn conclude(&mut self, mut calls: Vec<Call>, end: Result<u32, Fault>, moment: Moment) -> Step {
        let watched = self.take_watched();
        if end.is_err() {
            // An empty transaction releases the watched keys.
            calls.clear();
        }
        for call in &mut calls {
            (call.now, call.wishes) = (moment.now, moment.wishes | self.full(call.command));
        }
        self.ends = Some(end);
        Step::Write(Write::Exec { calls, watched, now: moment.now })
    }

    /// Gives the calls of an `EXEC` their databases anew, after some of its `SELECT`s were replaced by other commands.
    pub fn select_again(&mut self, calls: &mut [Call]) {
        let mut db = self.db;
        for call in calls {
            call.db = db;
            db = selected(call).unwrap_or(db);
        }
        self.ends = self.ends.take().map(|end| end.and(Ok(db)));
    }

    /// Returns the answer to an operation that [`accept`](Self::accept) returned. Operations of a session must be answered
    /// in order. After a `WATCH` or an `EXEC`, the next request must be accepted only after this answer.
    pub fn answer(&mut self, operation: &Write, outcome: &mut Outcome) -> Reply {
        let reply = core::mem::replace(&mut outcome.reply, Reply::Null);
        match (operation, &reply) {
            (Write::Watch { .. }, Reply::Int(since)) => {
                let (db, keys) = self.watching.take().unwrap_or_default();
                let since = *since as u64;
                self.watched.entry(db).or_default().extend(keys.into_iter().map(|key| (key, since)));
                Reply::OK
            }
            (Write::Exec { .. }, _) => match (self.ends.take(), reply) {
                (Some(Err(fault)), _) => Reply::Error(fault),
                // The log has refused the whole transaction. (An error of one of its commands is in an array.)
                (_, Reply::Error(fault)) if !log::may_come_about(&fault) => Reply::Error(because(&fault)),
                (Some(Ok(db)), reply @ Reply::Array(_)) => {
                    self.db = db;
                    reply
                }
                (_, reply) => reply,
            },
            // The client watches nothing any more, even if the log has refused the operation. The server then repeats
            // the operation later.
            (Write::Unwatch { .. }, _) => Reply::OK,
            _ => reply,
        }
    }

    /// Returns whether the next request must wait for the answer to this operation.
    pub fn must_wait(operation: &Write) -> bool {
        matches!(operation, Write::Watch { .. } | Write::Exec { .. } | Write::Unwatch { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_of_commands_is_bounded() {
        let mut session = Session::default();
        let accept = |session: &mut Session, words: &str| session.accept(words.split(' ').collect(), Moment::default());
        let long = format!("SET a {}", "v".repeat(100_000));
        accept(&mut session, "MULTI");
        assert_eq!(session.queue.as_ref().unwrap().room, 1 << 30);
        session.queue.as_mut().unwrap().room = 1_000_000;
        for _ in 0..9 {
            assert!(matches!(accept(&mut session, &long), Step::Reply(Reply::Status("QUEUED"))));
        }
        let mut short = 0;
        while short < 2_000 && matches!(accept(&mut session, "GET a"), Step::Reply(Reply::Status("QUEUED"))) {
            short += 1;
        }
        assert!((100..2_000).contains(&short), "{short} short commands take 100 kB");
        assert!(session.queued().is_none(), "the commands need no memory any more");
        accept(&mut session, "MULTI");
        assert!(matches!(accept(&mut session, &long), Step::Reply(Reply::Status("QUEUED"))));
        session.queue.as_mut().unwrap().room = 100;
        assert!(matches!(accept(&mut session, "GET a"), Step::Close(Reply::Error(_))));
    }

    #[test]
    fn a_key_is_watched_once() {
        let mut session = Session::default();
        let accept = |session: &mut Session, words: &str| session.accept(words.split(' ').collect(), Moment::default());
        let Step::Write(watch) = accept(&mut session, "WATCH a b a") else { panic!("it is an operation") };
        let mut outcome = Outcome { reply: Reply::Int(1), effects: None };
        assert_eq!(session.answer(&watch, &mut outcome), Reply::OK);
        assert_eq!(session.watched[&0].len(), 2);
        assert!(matches!(accept(&mut session, "WATCH b a"), Step::Reply(Reply::Status("OK"))));
        let Step::Write(Write::Watch { keys, .. }) = accept(&mut session, "WATCH a c") else { panic!("c is new") };
        assert_eq!(keys, [b"c"]);
        session.watching = None;
        session.db = 1;
        let Step::Write(watch) = accept(&mut session, "WATCH a") else { panic!("it is another key") };
        outcome.reply = Reply::Int(2);
        session.answer(&watch, &mut outcome);
        let Step::Write(Write::Unwatch { watched }) = session.unwatch() else { panic!("keys are watched") };
        let known: Vec<_> = watched.iter().map(|it| (it.db, &*it.key, it.since)).collect();
        assert_eq!(known, [(0, &b"a"[..], 1), (0, b"b", 1), (1, b"a", 2)]);
        assert!(matches!(session.unwatch(), Step::Reply(_)));
    }
}
