//! Commands for features that this server lacks: modules, a cluster, followers. Clients send them when they connect. The
//! answers are those of a Redis on which none of these features is configured.

use crate::args::Args;
use crate::command::{Command, category, flag, help};
use crate::reply::{Answer, Fault, Reply, fault};
use flag::{ADMIN, FAST, NOSCRIPT};

/// The commands' rows in the registry.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::session("module", -2, 0, 0),
    Command::session("cluster", -2, 0, 0),
    Command::session("readonly", 1, FAST, category::CONNECTION),
    Command::session("readwrite", 1, FAST, category::CONNECTION),
    Command::session("asking", 1, FAST, category::CONNECTION),
    Command::session("failover", -1, ADMIN | NOSCRIPT, 0),
    Command::session("replicaof", 3, ADMIN | NOSCRIPT, 0),
    Command::session("slaveof", 3, ADMIN | NOSCRIPT, 0),
];

const NO_CLUSTER: Fault = Fault::new("ERR This instance has cluster support disabled");
const NO_MODULES: Fault = Fault::new(
    "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from a local \
     connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

/// Returns the answer to one of these commands.
pub fn answer(command: &Command, args: &Args) -> Answer {
    match command.name {
        "module" if args.is(1, "LIST") => Ok(Reply::Array(Vec::new())),
        "module" if args.is(1, "HELP") => Ok(help::of("module")),
        "module" => Err(NO_MODULES),
        "failover" if args.len() == 1 => Err(Fault::new("ERR FAILOVER requires connected replicas.")),
        "failover" if args.len() == 2 && args.is(1, "ABORT") => Err(Fault::new("ERR No failover in progress.")),
        "failover" => Err(fault::SYNTAX),
        "replicaof" | "slaveof" if args.is(1, "NO") && args.is(2, "ONE") => Ok(Reply::OK),
        "replicaof" | "slaveof" => Err(Fault::new("ERR this server follows no other")),
        _ => Err(NO_CLUSTER),
    }
}
