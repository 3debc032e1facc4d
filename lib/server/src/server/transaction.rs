//! Commands of the server inside `MULTI` and `EXEC`.
//!
//! A transaction is one operation of the log. The database returns a placeholder for commands of the server. When the loop
//! has the transaction's answers, it carries out these commands in their order. So they take effect after all changes of the
//! transaction; in Redis they take effect between the changes.

use super::client::{Client, Mute};
use super::event_loop::Loop;
use super::shared::{Letter, Verdict};
use crate::args::Args;
use crate::command::{Command, Run};
use crate::operation::{Call, Write};
use crate::reply::Reply;

/// Returns the calls of a transaction, if any of them is a command of the server.
pub fn mixed(write: Write) -> Option<Vec<Call>> {
    match write {
        Write::Exec { calls, .. } if calls.iter().any(is_of_the_server) => Some(calls),
        _ => None,
    }
}

fn is_of_the_server(call: &Call) -> bool {
    matches!(call.command.run, Run::Session) && !matches!(call.command.name, "select" | "unwatch")
}

/// Returns the answer to `PING` of a RESP2 client with subscriptions, which distinguishes messages from answers by their
/// form.
pub fn pong(args: &Args) -> Reply {
    Reply::bulks([&b"pong"[..], args.get(1).unwrap_or_default()])
}

impl Loop {
    /// Answers a transaction, and carries out its commands of the server.
    pub(super) fn answer_all(&mut self, client: &mut Client, calls: Vec<Call>, replies: Vec<Reply>) {
        let skips = matches!(client.mute, Mute::Next(_));
        if skips {
            client.mute = Mute::All;
        }
        let (begin, mut hears) = (client.output.len(), false);
        let subscribes = calls.iter().any(|call| call.command.name.ends_with("subscribe"));
        client.begin_array(replies.len());
        client.in_transaction = true;
        for (call, reply) in calls.into_iter().zip(replies) {
            match call.command.name {
                // Among the answers is the confirmation of the client's first subscription.
                "ping" if !reply.is_error() && client.hears_in_answers() => client.answer(&pong(&call.args)),
                _ if !is_of_the_server(&call) => client.answer(&reply),
                // If a mailbox is full, the client waits before its next publication, not before this one.
                "publish" | "spublish" => hears |= self.publish(client, call.command, &call.args),
                _ => _ = self.command(client, call.command, call.args),
            }
        }
        client.in_transaction = false;
        if skips && client.mute == Mute::All {
            client.mute = Mute::Off;
        }
        if core::mem::take(&mut client.skips_next) && client.mute == Mute::Off {
            client.mute = Mute::Next(1);
        }
        // A message must not come before the confirmation of its subscription, which is among the answers.
        if hears && !subscribes {
            self.answer_later(client, begin);
        }
    }

    /// Carries out `PUBLISH` or `SPUBLISH`, and appends its answer. Returns whether the client gets the message itself.
    pub(super) fn publish(&self, client: &mut Client, command: &Command, args: &Args) -> bool {
        let shard = command.name == "spublish";
        let count = self.shared.publish(shard, &args[1], &args[2]);
        client.answer(&Reply::Int(count));
        client.subscriptions.hears(shard, &args[1])
    }

    /// Holds back what was appended to a client's output from `begin` on, until this loop has processed the letters (messages
    /// between threads) that were posted to it so far. The letters include the messages that the client has sent to
    /// itself: as in Redis, such a message comes before the answer. It is a letter, and not appended directly, because
    /// it must not overtake messages of other clients to the same channel. The client's next request waits.
    pub(super) fn answer_later(&self, client: &mut Client, begin: usize) {
        client.later = client.output.split_off(begin);
        client.waits += 1;
        client.aside = true;
        self.shared.post(self.number, Letter::Answers(vec![(client.card.owner, Verdict::Heard)]));
    }
}
