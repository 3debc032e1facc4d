//! Commands of the server inside `MULTI` and `EXEC`.
//!
//! A transaction is one operation of the log. The database returns a placeholder for commands of the server. When the loop
//! has the transaction's answers, it carries out these commands in their order. So they take effect after all changes of the
//! transaction; in Redis they take effect between the changes.

use super::client::{Client, Mute};
use super::event_loop::Loop;
use crate::command::Run;
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

impl Loop {
    /// Answers a transaction, and carries out its commands of the server.
    pub(super) fn answer_all(&mut self, client: &mut Client, calls: Vec<Call>, replies: Vec<Reply>) {
        let skips = matches!(client.mute, Mute::Next(_));
        if skips {
            client.mute = Mute::All;
        }
        client.begin_array(replies.len());
        client.in_transaction = true;
        for (call, reply) in calls.into_iter().zip(replies) {
            match call.command.name {
                _ if !is_of_the_server(&call) => client.answer(&reply),
                // If a mailbox is full, the client waits before its next publication, not before this one.
                "publish" | "spublish" => {
                    let shard = call.command.name == "spublish";
                    let count = self.shared.publish(shard, &call.args[1], &call.args[2]);
                    client.answer(&Reply::Int(count));
                }
                _ => _ = self.command(client, call.command, call.args),
            }
        }
        client.in_transaction = false;
        if skips && client.mute == Mute::All {
            client.mute = Mute::Off;
        }
    }
}
