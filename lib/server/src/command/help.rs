//! The answers to `HELP` subcommands, and the errors for subcommands with wrong arguments.

use crate::args::Args;
use crate::command::Command;
use crate::family::groups::wrong_subcommand;
use crate::reply::{Fault, Reply, fault};

/// The subcommands: the command, the subcommand, the most words including both, and the line of help.
#[rustfmt::skip]
const PARTS: &[(&str, &str, usize, &str)] = &[
    ("acl", "cat", 3, "CAT [<category>]: categories, or the commands of one."),
    ("acl", "deluser", usize::MAX, "DELUSER <user> ...: removes users, and ends their connections."),
    ("acl", "dryrun", usize::MAX, "DRYRUN <user> <command> [<argument> ...]: whether a user may do this."),
    ("acl", "genpass", 3, "GENPASS [<bits>]: a random password."),
    ("acl", "getuser", 3, "GETUSER <user>: what a user may do."),
    ("acl", "list", 2, "LIST: a line for each user, as in a file."),
    ("acl", "load", 2, "LOAD: reads the file of users anew."),
    ("acl", "log", 3, "LOG [<count> | RESET]: what was refused."),
    ("acl", "save", 2, "SAVE: writes the file of users."),
    ("acl", "setuser", usize::MAX, "SETUSER <user> [<rule> ...]: changes or makes a user."),
    ("acl", "users", 2, "USERS: the names of all users."),
    ("acl", "whoami", 2, "WHOAMI: the connection's user."),
    ("client", "caching", 3, "CACHING (YES|NO): whether the keys of the next command are noted, in the modes OPTIN and OPTOUT."),
    ("client", "getname", 2, "GETNAME: the connection's name."),
    ("client", "getredir", 2, "GETREDIR: the number of the client that hears of changes in this one's place."),
    ("client", "id", 2, "ID: the connection's number."),
    ("client", "info", 2, "INFO: the connection's line of the list."),
    ("client", "kill", usize::MAX, "KILL <ip:port> | [ID <id>] [TYPE <type>] [ADDR <ip:port>] [LADDR <ip:port>] [USER <name>] [SKIPME (YES|NO)]: ends clients."),
    ("client", "list", usize::MAX, "LIST [TYPE <type> | ID <id> ...]: a line for each client."),
    ("client", "no-evict", 3, "NO-EVICT (ON|OFF): keeps the connection when memory is short."),
    ("client", "no-touch", 3, "NO-TOUCH (ON|OFF): does not change when keys were used last."),
    ("client", "pause", 4, "PAUSE <milliseconds> [WRITE|ALL]: has requests wait."),
    ("client", "reply", 3, "REPLY (ON|OFF|SKIP): whether requests are answered."),
    ("client", "setinfo", 4, "SETINFO <attribute> <value>: says which library the client is."),
    ("client", "setname", 3, "SETNAME <name>: names the connection."),
    ("client", "tracking", usize::MAX, "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> ...] [OPTIN] [OPTOUT] [NOLOOP]: client-side caching."),
    ("client", "trackinginfo", 2, "TRACKINGINFO: how the connection tracks keys."),
    ("client", "unblock", 4, "UNBLOCK <id> [TIMEOUT|ERROR]: lets a client that waits go on."),
    ("client", "unpause", 2, "UNPAUSE: ends a pause."),
    ("command", "count", 2, "COUNT: the number of commands."),
    ("command", "docs", usize::MAX, "DOCS [<name> ...]: what is documented of commands."),
    ("command", "getkeys", usize::MAX, "GETKEYS <command> [<argument> ...]: the keys of a request."),
    ("command", "getkeysandflags", usize::MAX, "GETKEYSANDFLAGS <command> [<argument> ...]: the keys of a request, and what it does to them."),
    ("command", "info", usize::MAX, "INFO [<name> ...]: rows of the table of commands."),
    ("command", "list", 5, "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]: names of commands."),
    ("config", "get", usize::MAX, "GET <pattern> ...: parameters and their values."),
    ("config", "resetstat", 2, "RESETSTAT: sets the counts of INFO to zero."),
    ("config", "rewrite", 2, "REWRITE: writes the file of parameters anew, where there is one."),
    ("config", "set", usize::MAX, "SET <name> <value> ...: changes parameters."),
    ("debug", "jmap", 2, "JMAP: does nothing."),
    ("debug", "object", 3, "OBJECT <key>: what is known of a key's value."),
    ("debug", "set-active-expire", 3, "SET-ACTIVE-EXPIRE (0|1): whether expired keys are looked for."),
    ("debug", "sleep", 3, "SLEEP <seconds>: stops the loop of the connection."),
    ("module", "list", 2, "LIST: modules: there are none."),
    ("latency", "doctor", 2, "DOCTOR: a report for people."),
    ("latency", "graph", 3, "GRAPH <event>: samples of an event as a drawing of characters."),
    ("latency", "histogram", usize::MAX, "HISTOGRAM [<command> ...]: times of commands, cumulative."),
    ("latency", "history", 3, "HISTORY <event>: samples of an event."),
    ("latency", "latest", 2, "LATEST: the last sample of each event."),
    ("latency", "reset", usize::MAX, "RESET [<event> ...]: forgets samples."),
    ("pubsub", "channels", 3, "CHANNELS [<pattern>]: channels with subscribers."),
    ("pubsub", "numpat", 2, "NUMPAT: the number of patterns."),
    ("pubsub", "numsub", usize::MAX, "NUMSUB [<channel> ...]: numbers of subscribers."),
    ("pubsub", "shardchannels", 3, "SHARDCHANNELS [<pattern>]: shard channels with subscribers."),
    ("pubsub", "shardnumsub", usize::MAX, "SHARDNUMSUB [<channel> ...]: numbers of subscribers of shard channels."),
    ("slowlog", "get", 3, "GET [<count>]: the last entries (10; -1: all): number, time, microseconds, words, address, name."),
    ("slowlog", "len", 2, "LEN: the number of entries."),
    ("slowlog", "reset", 2, "RESET: forgets all entries."),
    ("function", "delete", 3, "DELETE <library>: removes a library."),
    ("function", "dump", 2, "DUMP: all libraries as a payload."),
    ("function", "flush", 3, "FLUSH [ASYNC|SYNC]: removes all libraries."),
    ("function", "kill", 2, "KILL: nothing, since a function ends by its limits."),
    ("function", "list", 5, "LIST [LIBRARYNAME <pattern>] [WITHCODE]: libraries and their functions."),
    ("function", "load", 4, "LOAD [REPLACE] <code>: makes a library."),
    ("function", "restore", 4, "RESTORE <payload> [FLUSH|APPEND|REPLACE]: libraries of a payload."),
    ("function", "stats", 2, "STATS: what runs, and how many libraries there are."),
    ("memory", "doctor", 2, "DOCTOR: where to look."),
    ("memory", "malloc-stats", 2, "MALLOC-STATS: what the allocator tells."),
    ("memory", "purge", 2, "PURGE: does nothing."),
    ("memory", "stats", 2, "STATS: what the keys of each database take."),
    ("memory", "usage", usize::MAX, "USAGE <key> [SAMPLES <count>]: bytes of a key and its value, about."),
    ("object", "encoding", 3, "ENCODING <key>: how the value is kept."),
    ("object", "freq", 3, "FREQ <key>: how often it is used, with such a policy."),
    ("object", "idletime", 3, "IDLETIME <key>: seconds since it was used."),
    ("object", "refcount", 3, "REFCOUNT <key>: how many hold it: 1."),
    ("script", "debug", 3, "DEBUG NO: there is no debugger."),
    ("script", "exists", usize::MAX, "EXISTS <sha1> ...: whether scripts are known."),
    ("script", "flush", 3, "FLUSH [ASYNC|SYNC]: forgets all scripts."),
    ("script", "kill", 2, "KILL: nothing, since a script ends by its limits."),
    ("script", "load", 3, "LOAD <script>: has a script known."),
    ("xgroup", "create", usize::MAX, "CREATE <key> <group> <id|$> [MKSTREAM] [ENTRIESREAD <count>]: makes a group."),
    ("xgroup", "createconsumer", 5, "CREATECONSUMER <key> <group> <consumer>: makes a consumer."),
    ("xgroup", "delconsumer", 5, "DELCONSUMER <key> <group> <consumer>: removes a consumer."),
    ("xgroup", "destroy", 4, "DESTROY <key> <group>: removes a group."),
    ("xgroup", "setid", usize::MAX, "SETID <key> <group> <id|$> [ENTRIESREAD <count>]: what was delivered last."),
    ("xinfo", "consumers", 4, "CONSUMERS <key> <group>: consumers of a group."),
    ("xinfo", "groups", 3, "GROUPS <key>: groups of a stream."),
    ("xinfo", "stream", usize::MAX, "STREAM <key> [FULL [COUNT <count>]]: about a stream."),
];

/// Returns the answer to the subcommand `HELP` of a command.
pub fn of(command: &str) -> Reply {
    let title = format!("{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", command.to_uppercase());
    let parts = PARTS.iter().filter(|part| part.0 == command).map(|part| part.3.to_owned());
    let lines = [title].into_iter().chain(parts).chain(["HELP: this.".to_owned()]);
    Reply::Array(lines.map(|line| Reply::Line(line.into_bytes())).collect())
}

/// Returns the error for a known subcommand with wrong arguments: too many of them, or invalid ones.
pub fn wrong(command: &Command, args: &Args) -> Fault {
    match PARTS.iter().find(|part| part.0 == command.name && args.is(1, &part.1.to_uppercase())) {
        Some((_, _, most, _)) if args.len() <= *most => fault::SYNTAX,
        _ => wrong_subcommand(args),
    }
}
