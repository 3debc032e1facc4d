//! Commands of the connection and of the server as a whole.

use archipelago_platform::atomic::Ordering::Relaxed;
use std::collections::BTreeMap;

use super::client::Client;
use super::event_loop::Loop;
use super::shared::lock;
use crate::args::Args;
use crate::command::{self, Command, category, flag, help};
use crate::family::parse;
use crate::operation::Write;
use crate::pubsub::SubscriptionKind;
use crate::reply::{Fault, Protocol, Reply, fault};
use crate::session::{Session, Step};
use flag::{ADMIN, FAST, NO_AUTH, NOSCRIPT, PUBSUB};

/// The commands' rows in the registry. Some commands have theirs in [`connection`](crate::family::connection).
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::session("auth", -2, FAST | NOSCRIPT | NO_AUTH, category::CONNECTION),
    Command::session("acl", -2, NOSCRIPT, 0),
    Command::session("refused", 2, flag::INTERNAL | NOSCRIPT, 0),
    Command::session("subscribe", -2, PUBSUB | NOSCRIPT, 0),
    Command::session("psubscribe", -2, PUBSUB | NOSCRIPT, 0),
    Command::session("ssubscribe", -2, PUBSUB | NOSCRIPT, 0),
    Command::session("unsubscribe", -1, PUBSUB | NOSCRIPT, 0),
    Command::session("punsubscribe", -1, PUBSUB | NOSCRIPT, 0),
    Command::session("sunsubscribe", -1, PUBSUB | NOSCRIPT, 0),
    Command::session("publish", 3, PUBSUB | FAST, 0),
    Command::session("spublish", 3, PUBSUB | FAST, 0),
    Command::session("pubsub", -2, PUBSUB, 0),
    Command::session("slowlog", -2, ADMIN, 0),
    Command::session("latency", -2, ADMIN | NOSCRIPT, 0),
    Command::session("debug", -2, ADMIN | NOSCRIPT, 0),
    Command::session("lolwut", -1, FAST | flag::READONLY, category::READ),
    Command::session("monitor", 1, ADMIN | NOSCRIPT, 0),
    Command::session("wait", 3, NOSCRIPT, category::CONNECTION),
    Command::session("role", 1, FAST | NOSCRIPT, category::ADMIN | category::DANGEROUS),
];

/// The version of Redis whose commands this server has. Clients see it as the server's version.
const VERSION: &str = "7.0.15";

/// Arguments of `SHUTDOWN`. `NOW` has no effect, because there are no followers to wait for. `FORCE` has no effect either.
const SHUTDOWNS: [&str; 5] = ["SAVE", "NOSAVE", "NOW", "FORCE", "ABORT"];

/// Parses the arguments of `SHUTDOWN`. Returns whether it asks for a last snapshot, if it says so.
fn last_save(args: &Args) -> Result<Option<bool>, Fault> {
    if (1..args.len()).any(|at| !SHUTDOWNS.iter().any(|known| args.is(at, known))) {
        return Err(fault::SYNTAX);
    }
    let [save, nosave, now, force, abort] = SHUTDOWNS.map(|word| (1..args.len()).any(|at| args.is(at, word)));
    if save && nosave || abort && (save || nosave || now || force) {
        return Err(fault::SYNTAX);
    }
    // A server that shuts down carries out no request, so no shutdown is in progress here.
    if abort { Err(Fault::new("ERR No shutdown in progress.")) } else { Ok((save || nosave).then_some(save)) }
}

/// Returns an error if the client is not authenticated, or if it has a subscription in RESP2 and the command is not allowed
/// then.
pub fn refusal(client: &Client, args: &Args) -> Option<Reply> {
    if client.known && (client.subscriptions.is_empty() || client.session.protocol == Protocol::Resp3) {
        return None;
    }
    let command = command::find(&args[0]);
    if !client.known && command.is_none_or(|command| !command.has(NO_AUTH)) {
        return Some(Reply::Error(Fault::new("NOAUTH Authentication required.")));
    }
    let may =
        |command: &Command| command.name.ends_with("subscribe") || matches!(command.name, "ping" | "quit" | "reset");
    if client.subscriptions.is_empty() || command.is_none_or(may) {
        return None;
    }
    let name = command.map_or("", |command| command.name);
    Some(Reply::Error(Fault::made(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    ))))
}

impl Loop {
    /// Carries out a command. Returns whether the client's next request may be processed.
    pub(super) fn command(&mut self, client: &mut Client, command: &'static Command, args: Args) -> bool {
        let reply = match command.name {
            "subscribe" => return self.subscribe(client, SubscriptionKind::Channel, "subscribe", &args),
            "psubscribe" => return self.subscribe(client, SubscriptionKind::Pattern, "psubscribe", &args),
            // As in Redis, which is stricter here than with the other kinds.
            "ssubscribe" if client.in_transaction => {
                Reply::Error(Fault::new("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"))
            }
            "ssubscribe" => return self.subscribe(client, SubscriptionKind::Shard, "ssubscribe", &args),
            "unsubscribe" => return self.unsubscribe(client, SubscriptionKind::Channel, "unsubscribe", &args),
            "punsubscribe" => return self.unsubscribe(client, SubscriptionKind::Pattern, "punsubscribe", &args),
            "sunsubscribe" => return self.unsubscribe(client, SubscriptionKind::Shard, "sunsubscribe", &args),
            "publish" | "spublish" => {
                if self.shared.is_full() {
                    client.held = Some(args);
                    return false;
                }
                let begin = client.output.len();
                if self.publish(client, command, &args) {
                    self.answer_later(client, begin);
                    return false;
                }
                return true;
            }
            "pubsub" => self.pubsub(command, &args),
            "acl" => self.acl(client, command, &args).into(),
            "refused" => Reply::Error(Fault::made(String::from_utf8_lossy(&args[1]).into_owned())),
            "auth" => match args.len() {
                2 => self.auth(client, &args[1], None),
                3 => self.auth(client, &args[2], Some(&args[1])),
                _ => Reply::Error(fault::SYNTAX),
            },
            "hello" => self.hello(client, &args),
            "reset" => {
                self.unsubscribe_all(client);
                self.stop_listening(client);
                lock(&client.card.name).clear();
                if let Step::Write(write) = client.session.unwatch() {
                    self.commit((vec![None], vec![write]));
                }
                client.session = self.session();
                self.forget_user(client);
                Reply::Status("RESET")
            }
            "client" => return self.client_command(client, command, &args),
            "config" => match self.config(command, &args) {
                Ok(writes) => return self.listen(client, writes),
                Err(reply) => reply,
            },
            "info" => Reply::Text(super::info::text(&self.shared, &args)),
            "command" => super::catalog::commands(&args).into(),
            #[cfg(feature = "lua")]
            "script" => client.session.script(&args),
            "slowlog" => self.slowlog(command, &args).into(),
            "latency" => self.latency(command, &args).into(),
            "debug" => self.debug(client, command, &args).into(),
            "lolwut" => Reply::Text(format!("Islands, and boats between them. Redis ver. {VERSION}\n")),
            // The requests of others would come between the answers of the transaction.
            "monitor" if client.in_transaction => {
                Reply::Error(Fault::new("ERR MONITOR isn't allowed for DENY BLOCKING client"))
            }
            "monitor" => {
                client.monitors = true;
                self.shared.monitors.set(client.card.owner, true);
                Reply::OK
            }
            "wait" => return self.wait(client, &args),
            "role" => Reply::Array(vec![Reply::bulk("master"), Reply::Int(0), Reply::Array(Vec::new())]),
            "module" | "cluster" | "readonly" | "readwrite" | "asking" | "failover" | "replicaof" | "slaveof" => {
                super::lacking::answer(command, &args).into()
            }
            "save" | "bgsave" | "bgrewriteaof" | "lastsave" => return self.snapshots(client, command, &args),
            "shutdown" => match last_save(&args) {
                Err(fault) => Reply::Error(fault),
                Ok(last) => {
                    *lock(&self.shared.last_save) = last;
                    self.shared.end();
                    client.ends = true;
                    return false;
                }
            },
            _ => {
                Reply::Error(Fault::made(format!("ERR unknown command '{}', with args beginning with: ", command.name)))
            }
        };
        client.answer(&reply);
        true
    }

    /// Returns the session of a new client.
    pub(super) fn session(&self) -> Session {
        #[cfg(feature = "lua")]
        return Session::with_scripts(self.shared.scripts.clone());
        #[cfg(not(feature = "lua"))]
        Session::default()
    }

    fn subscribe(&mut self, client: &mut Client, kind: SubscriptionKind, word: &'static str, args: &Args) -> bool {
        for name in args.from(1) {
            lock(&self.shared.hub).subscribe(kind, name, client.card.owner);
            client.subscriptions.insert(kind, name);
            client.push(vec![Reply::bulk(word), Reply::bulk(name), counted(client, kind)]);
        }
        client.pushed();
        true
    }

    fn unsubscribe(&mut self, client: &mut Client, kind: SubscriptionKind, word: &'static str, args: &Args) -> bool {
        let mut names: Vec<Vec<u8>> = args.from(1).map(<[u8]>::to_vec).collect();
        if names.is_empty() {
            names = client.subscriptions.of(kind).map(<[u8]>::to_vec).collect();
        }
        if names.is_empty() {
            let count = counted(client, kind);
            client.push(vec![Reply::bulk(word), Reply::Null, count]);
        }
        for name in names {
            lock(&self.shared.hub).unsubscribe(kind, &name, client.card.owner);
            client.subscriptions.remove(kind, &name);
            client.push(vec![Reply::bulk(word), Reply::Bulk(name), counted(client, kind)]);
        }
        client.pushed();
        true
    }

    fn unsubscribe_all(&mut self, client: &mut Client) {
        let mut hub = lock(&self.shared.hub);
        for (kind, name) in core::mem::take(&mut client.subscriptions).iter() {
            hub.unsubscribe(kind, name, client.card.owner);
        }
    }

    fn pubsub(&mut self, command: &Command, args: &Args) -> Reply {
        let hub = lock(&self.shared.hub);
        let kind = if args[1].to_ascii_uppercase().starts_with(b"SHARD") {
            SubscriptionKind::Shard
        } else {
            SubscriptionKind::Channel
        };
        match args[1].to_ascii_uppercase().as_slice() {
            b"CHANNELS" | b"SHARDCHANNELS" if args.len() <= 3 => {
                let fits = |name: &[u8]| args.get(2).is_none_or(|pattern| crate::family::glob::fits(pattern, name));
                Reply::bulks(hub.channels(kind).map(|(name, _)| name).filter(|name| fits(name)))
            }
            b"NUMSUB" | b"SHARDNUMSUB" => {
                let told = |name| [Reply::bulk(name), Reply::count(hub.count(kind, name))];
                Reply::Array(args.from(2).flat_map(told).collect())
            }
            b"NUMPAT" => Reply::count(hub.patterns()),
            b"HELP" => help::of("pubsub"),
            _ => Reply::Error(help::wrong(command, args)),
        }
    }

    fn hello(&mut self, client: &mut Client, args: &Args) -> Reply {
        let wrong = Fault::new("ERR Protocol version is not an integer or out of range");
        let protocol = match args.get(1).map(|digits| parse::integer_or(digits, wrong)) {
            None => client.session.protocol,
            Some(Ok(2)) => Protocol::Resp2,
            Some(Ok(3)) => Protocol::Resp3,
            Some(Err(fault)) => return Reply::Error(fault),
            Some(_) => return Reply::Error(Fault::new("NOPROTO unsupported protocol version")),
        };
        let (mut at, mut name) = (2, None);
        while at < args.len() {
            if args.is(at, "AUTH") && at + 2 < args.len() {
                let reply = self.auth(client, &args[at + 2], Some(&args[at + 1]));
                if reply.is_error() {
                    return reply;
                }
                at += 3;
            } else if args.is(at, "SETNAME") && at + 1 < args.len() {
                if let Err(fault) = super::clients::named(&args[at + 1]) {
                    return Reply::Error(fault);
                }
                name = Some(args[at + 1].to_vec());
                at += 2;
            } else {
                let option = String::from_utf8_lossy(&args[at]);
                return Reply::Error(Fault::made(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        }
        if !client.known {
            return Reply::Error(Fault::new(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            ));
        }
        if let Some(name) = name {
            *lock(&client.card.name) = name;
        }
        client.session.protocol = protocol;
        let number = if protocol == Protocol::Resp3 { 3 } else { 2 };
        let pairs = [
            ("server", Reply::bulk("redis")),
            ("version", Reply::bulk(VERSION)),
            ("proto", Reply::Int(number)),
            ("id", Reply::Int(client.card.owner.id as i64)),
            ("mode", Reply::bulk("standalone")),
            ("role", Reply::bulk("master")),
            ("modules", Reply::Array(Vec::new())),
        ];
        Reply::Map(pairs.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect())
    }

    /// Carries out `CONFIG`. Returns operations that must reach the database before the answer "OK", or any other answer as
    /// the error.
    fn config(&mut self, command: &Command, args: &Args) -> Result<Vec<Write>, Reply> {
        match (args[1].to_ascii_uppercase().as_slice(), args.len()) {
            (b"GET", 3..) => {
                let all = args.from(2).flat_map(|pattern| self.shared.config.matching(pattern));
                let all: BTreeMap<&str, String> = all.collect();
                Err(Reply::Map(
                    all.into_iter().flat_map(|(name, value)| [Reply::bulk(name), Reply::bulk(value)]).collect(),
                ))
            }
            (b"SET", 4..) if args.len().is_multiple_of(2) => {
                let words: Vec<String> = args.from(2).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
                let pairs: Vec<_> = words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
                if let Err(what) = self.shared.config.set_all(&pairs) {
                    return Err(Reply::Error(Fault::made(format!("ERR {what}"))));
                }
                let told = pairs.iter().flat_map(|(name, _)| self.shared.configure(name));
                Ok(told.chain(self.shared.keep_limit()).collect())
            }
            (b"RESETSTAT", 2) => {
                self.shared.counts.commands.store(0, Relaxed);
                self.shared.stats.reset();
                Ok(Vec::new())
            }
            (b"REWRITE", 2) => Err(Reply::Error(Fault::new("ERR The server is running without a config file"))),
            (b"HELP", 2) => Err(help::of("config")),
            _ => Err(Reply::Error(help::wrong(command, args))),
        }
    }
}

/// Returns the count in the answer to a subscription.
fn counted(client: &Client, kind: SubscriptionKind) -> Reply {
    let [channels, patterns, shards] = client.subscriptions.counts();
    Reply::count(if kind == SubscriptionKind::Shard { shards } else { channels + patterns })
}
