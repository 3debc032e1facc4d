//! What `HELP` says of a command's parts, and the errors for parts that are none.

use crate::args::Args;
use crate::command::Command;
use crate::reply::{Fault, Reply};

/// Parts of commands: the command, the part, its least and greatest numbers of words (with both), and how it is said.
#[rustfmt::skip]
const PARTS: &[(&str, &str, usize, usize, &str)] = &[
    ("acl", "cat", 2, 3, "CAT [<category>]: categories, or the commands of one."),
    ("acl", "deluser", 3, usize::MAX, "DELUSER <user> ...: removes users, and ends their connections."),
    ("acl", "dryrun", 4, usize::MAX, "DRYRUN <user> <command> [<argument> ...]: whether a user may do this."),
    ("acl", "genpass", 2, 3, "GENPASS [<bits>]: a random password."),
    ("acl", "getuser", 3, 3, "GETUSER <user>: what a user may do."),
    ("acl", "list", 2, 2, "LIST: a line for each user, as in a file."),
    ("acl", "load", 2, 2, "LOAD: reads the file of users anew."),
    ("acl", "log", 2, 3, "LOG [<count> | RESET]: what was refused."),
    ("acl", "save", 2, 2, "SAVE: writes the file of users."),
    ("acl", "setuser", 3, usize::MAX, "SETUSER <user> [<rule> ...]: changes or makes a user."),
    ("acl", "users", 2, 2, "USERS: the names of all users."),
    ("acl", "whoami", 2, 2, "WHOAMI: the connection's user."),
    ("client", "caching", 3, 3, "CACHING (YES|NO): whether the keys of the next command are noted, in the modes OPTIN and OPTOUT."),
    ("client", "getname", 2, 2, "GETNAME: the connection's name."),
    ("client", "getredir", 2, 2, "GETREDIR: the number of the client that hears of changes in this one's place."),
    ("client", "id", 2, 2, "ID: the connection's number."),
    ("client", "info", 2, 2, "INFO: the connection's line of the list."),
    ("client", "kill", 3, usize::MAX, "KILL <ip:port> | [ID <id>] [TYPE <type>] [ADDR <ip:port>] [LADDR <ip:port>] [USER <name>] [SKIPME (YES|NO)]: ends clients."),
    ("client", "list", 2, usize::MAX, "LIST [TYPE <type> | ID <id> ...]: a line for each client."),
    ("client", "no-evict", 3, 3, "NO-EVICT (ON|OFF): keeps the connection when memory is short."),
    ("client", "no-touch", 3, 3, "NO-TOUCH (ON|OFF): does not change when keys were used last."),
    ("client", "pause", 3, 4, "PAUSE <milliseconds> [WRITE|ALL]: has requests wait."),
    ("client", "reply", 3, 3, "REPLY (ON|OFF|SKIP): whether requests are answered."),
    ("client", "setinfo", 4, 4, "SETINFO <attribute> <value>: says which library the client is."),
    ("client", "setname", 3, 3, "SETNAME <name>: names the connection."),
    ("client", "tracking", 3, usize::MAX, "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> ...] [OPTIN] [OPTOUT] [NOLOOP]: client-side caching."),
    ("client", "trackinginfo", 2, 2, "TRACKINGINFO: how the connection tracks keys."),
    ("client", "unblock", 3, 4, "UNBLOCK <id> [TIMEOUT|ERROR]: lets a client that waits go on."),
    ("client", "unpause", 2, 2, "UNPAUSE: ends a pause."),
    ("command", "count", 2, 2, "COUNT: the number of commands."),
    ("command", "docs", 2, usize::MAX, "DOCS [<name> ...]: what is documented of commands."),
    ("command", "getkeys", 4, usize::MAX, "GETKEYS <command> [<argument> ...]: the keys of a request."),
    ("command", "getkeysandflags", 4, usize::MAX, "GETKEYSANDFLAGS <command> [<argument> ...]: the keys of a request, and what it does to them."),
    ("command", "info", 2, usize::MAX, "INFO [<name> ...]: rows of the table of commands."),
    ("command", "list", 2, 5, "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]: names of commands."),
    ("config", "get", 3, usize::MAX, "GET <pattern> ...: parameters and their values."),
    ("config", "resetstat", 2, 2, "RESETSTAT: sets the counts of INFO to zero."),
    ("config", "rewrite", 2, 2, "REWRITE: writes the file of parameters anew, where there is one."),
    ("config", "set", 4, usize::MAX, "SET <name> <value> ...: changes parameters."),
    ("debug", "jmap", 2, 2, "JMAP: does nothing."),
    ("debug", "object", 3, 3, "OBJECT <key>: what is known of a key's value."),
    ("debug", "set-active-expire", 3, 3, "SET-ACTIVE-EXPIRE (0|1): whether expired keys are looked for."),
    ("debug", "sleep", 3, 3, "SLEEP <seconds>: stops the loop of the connection."),
    ("module", "list", 2, 2, "LIST: modules: there are none."),
    ("latency", "doctor", 2, 2, "DOCTOR: a report for people."),
    ("latency", "graph", 3, 3, "GRAPH <event>: samples of an event as a drawing of characters."),
    ("latency", "histogram", 2, usize::MAX, "HISTOGRAM [<command> ...]: times of commands, cumulative."),
    ("latency", "history", 3, 3, "HISTORY <event>: samples of an event."),
    ("latency", "latest", 2, 2, "LATEST: the last sample of each event."),
    ("latency", "reset", 2, usize::MAX, "RESET [<event> ...]: forgets samples."),
    ("pubsub", "channels", 2, 3, "CHANNELS [<pattern>]: channels with subscribers."),
    ("pubsub", "numpat", 2, 2, "NUMPAT: the number of patterns."),
    ("pubsub", "numsub", 2, usize::MAX, "NUMSUB [<channel> ...]: numbers of subscribers."),
    ("pubsub", "shardchannels", 2, 3, "SHARDCHANNELS [<pattern>]: shard channels with subscribers."),
    ("pubsub", "shardnumsub", 2, usize::MAX, "SHARDNUMSUB [<channel> ...]: numbers of subscribers of shard channels."),
    ("slowlog", "get", 2, 3, "GET [<count>]: the last entries (10; -1: all): number, time, microseconds, words, address, name."),
    ("slowlog", "len", 2, 2, "LEN: the number of entries."),
    ("slowlog", "reset", 2, 2, "RESET: forgets all entries."),
];

/// The answer to `HELP`.
pub fn of(command: &str) -> Reply {
    let title = format!("{} <part> [<argument> ...]. Parts are:", command.to_uppercase());
    let parts = PARTS.iter().filter(|part| part.0 == command).map(|part| part.4.to_owned());
    Reply::bulks([title].into_iter().chain(parts).chain(["HELP: this.".to_owned()]))
}

/// The error for a part that is none, or has another number of words.
pub fn part(command: &Command, args: &Args, unknown: impl Fn(&Args) -> Fault) -> Fault {
    let part = PARTS.iter().find(|part| part.0 == command.name && args.is(1, &part.1.to_uppercase()));
    match part {
        Some((_, name, least, most, _)) if !(*least..=*most).contains(&args.len()) => {
            crate::session::wrong_number(&format!("{}|{name}", command.name))
        }
        Some(_) => crate::reply::fault::SYNTAX,
        None => unknown(args),
    }
}
