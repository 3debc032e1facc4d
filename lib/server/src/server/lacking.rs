//! Commands of what this server does not have: modules, a cluster, followers. They answer as a Redis does that has none set up, since
//! clients ask for it when they come.

use crate::args::Args;
use crate::command::{Command, category, flag};
use crate::family::generic::unknown_subcommand;
use crate::reply::{Answer, Fault, Reply, fault};
use crate::session::wrong_number;
use flag::{ADMIN, FAST, NOSCRIPT};

/// Their rows in the registry.
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

/// Parts of `MODULE` and `CLUSTER`, with their arities in Redis.
#[rustfmt::skip]
const PARTS: &[(&str, &str, i32)] = &[
    ("module", "list", 2), ("module", "load", -3), ("module", "loadex", -3), ("module", "unload", 3), ("module", "help", 2),
    ("cluster", "addslots", -3), ("cluster", "addslotsrange", -4), ("cluster", "bumpepoch", 2),
    ("cluster", "count-failure-reports", 3), ("cluster", "countkeysinslot", 3), ("cluster", "delslots", -3),
    ("cluster", "delslotsrange", -4), ("cluster", "failover", -2), ("cluster", "flushslots", 2), ("cluster", "forget", 3),
    ("cluster", "getkeysinslot", 4), ("cluster", "help", 2), ("cluster", "info", 2), ("cluster", "keyslot", 3),
    ("cluster", "links", 2), ("cluster", "meet", -4), ("cluster", "myid", 2), ("cluster", "nodes", 2),
    ("cluster", "replicas", 3), ("cluster", "replicate", 3), ("cluster", "reset", -2), ("cluster", "saveconfig", 2),
    ("cluster", "set-config-epoch", 3), ("cluster", "setslot", -4), ("cluster", "shards", 2), ("cluster", "slaves", 3),
    ("cluster", "slots", 2),
];

const NO_CLUSTER: Fault = Fault::new("ERR This instance has cluster support disabled");
const NO_MODULES: Fault = Fault::new(
    "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from a local \
     connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

/// The part that is asked for.
fn part(command: &Command, args: &Args) -> Result<&'static str, Fault> {
    let known = PARTS.iter().find(|(of, part, _)| *of == command.name && args.is(1, &part.to_uppercase()));
    let (_, part, arity) = known.ok_or_else(|| unknown_subcommand(args))?;
    let row = Command { arity: *arity, ..*command };
    if row.takes(args.len()) { Ok(part) } else { Err(wrong_number(&format!("{}|{part}", command.name))) }
}

/// The answer to one of these commands.
pub fn answer(command: &Command, args: &Args) -> Answer {
    match command.name {
        "module" => match part(command, args)? {
            "list" => Ok(Reply::Array(Vec::new())),
            "help" => Ok(super::help::of("module")),
            _ => Err(NO_MODULES),
        },
        "cluster" => part(command, args).and(Err(NO_CLUSTER)),
        "failover" if args.len() == 1 => Err(Fault::new("ERR FAILOVER requires connected replicas.")),
        "failover" if args.len() == 2 && args.is(1, "ABORT") => Err(Fault::new("ERR No failover in progress.")),
        "failover" => Err(fault::SYNTAX),
        "replicaof" | "slaveof" if args.is(1, "NO") && args.is(2, "ONE") => Ok(Reply::OK),
        "replicaof" | "slaveof" => Err(Fault::new("ERR this server follows no other")),
        _ => Err(NO_CLUSTER),
    }
}
