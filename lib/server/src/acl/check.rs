//! Decides whether a user may make a request.
//!
//! A request is allowed if one selector allows all of it: its command, the use of each of its keys, and its channels. If no
//! selector does, the error is that of the selector that allowed the most.

use super::selector::{READ, Selector, WRITE};
use super::units;
use super::user::User;
use crate::args::Args;
use crate::command::{Command, Keys, flag};
use crate::pubsub::SubscriptionKind;
use crate::reply::Fault;

/// Why a request is refused. The variants are ordered: a later variant means that more of the request was allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The command is not allowed: its name.
    Command(String),
    /// A key is not allowed.
    Key(Vec<u8>),
    /// An option of `SORT` is not allowed: it forms keys from a pattern.
    Pattern(&'static str),
    /// A channel is not allowed.
    Channel(Vec<u8>),
}

impl Denied {
    /// Returns the answer to a client.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Command(name) => {
                Fault::made(format!("NOPERM this user has no permissions to run the '{name}' command"))
            }
            Self::Key(_) => {
                Fault::new("NOPERM this user has no permissions to access one of the keys used as arguments")
            }
            Self::Pattern(word) => {
                Fault::made(format!("ERR {word} option of SORT denied due to insufficient ACL permissions."))
            }
            Self::Channel(_) => {
                Fault::new("NOPERM this user has no permissions to access one of the channels used as arguments")
            }
        }
    }

    /// Returns the error for a command that a script calls.
    pub fn within(&self) -> Fault {
        match self {
            Self::Command(_) => Fault::new("ERR The user executing the script can't run this command or subcommand"),
            Self::Key(_) => Fault::new(
                "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
            ),
            Self::Channel(_) => {
                Fault::new("ERR The user executing the script can't publish to the channel mentioned in the command")
            }
            Self::Pattern(_) => self.fault(),
        }
    }

    /// Returns the answer to `ACL DRYRUN`.
    pub fn told(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Self::Command(name) => format!("This user has no permissions to run the '{name}' command"),
            Self::Key(key) => format!("This user has no permissions to access the '{}' key", text(key)),
            Self::Channel(channel) => format!("This user has no permissions to access the '{}' channel", text(channel)),
            Self::Pattern(word) => format!("{word} option of SORT denied due to insufficient ACL permissions."),
        }
    }

    /// Returns the kind of refusal and the refused object, for the log.
    pub fn logged(&self) -> (&'static str, Vec<u8>) {
        match self {
            Self::Command(name) => ("command", name.clone().into_bytes()),
            Self::Key(key) => ("key", key.clone()),
            Self::Pattern(word) => ("key", word.as_bytes().to_vec()),
            Self::Channel(channel) => ("channel", channel.clone()),
        }
    }
}

/// Commands that write their first key and read the other keys.
const STORES: &[&str] = &[
    "bitop",
    "sdiffstore",
    "sinterstore",
    "sunionstore",
    "zdiffstore",
    "zinterstore",
    "zrangestore",
    "zunionstore",
    "geosearchstore",
];
/// Commands that read and write their first key, and write their second key.
const MOVES: &[&str] = &["blmove", "brpoplpush", "lmove", "rename", "renamenx", "rpoplpush", "smove"];
/// Commands that write and return nothing of the old value.
const BLIND: &[&str] = &[
    "append",
    "del",
    "expire",
    "expireat",
    "hdel",
    "hexpire",
    "hexpireat",
    "hmset",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hset",
    "hsetex",
    "hsetnx",
    "linsert",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "psetex",
    "rpush",
    "rpushx",
    "sadd",
    "setex",
    "setnx",
    "setrange",
    "srem",
    "unlink",
    "xack",
    "xadd",
    "xautoclaim",
    "xclaim",
    "xdel",
    "xsetid",
    "xtrim",
    "zadd",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
    "restore",
    "geoadd",
    "pfadd",
    "xgroup",
];
/// Commands that return no content of a value: only its type, size or encoding, or whether it or an element exists. Any
/// pattern that matches the key allows them.
const SHAPES: &[&str] = &[
    "exists",
    "hexists",
    "hlen",
    "hstrlen",
    "llen",
    "scard",
    "sismember",
    "strlen",
    "touch",
    "type",
    "xlen",
    "zcard",
    "object",
    "watch",
    "memory",
];

/// Commands that run scripts. Their log entries carry the user's rights, because each command that a script calls is checked
/// as well.
const SCRIPTS: &[&str] = &["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"];

/// Returns whether a command runs a script.
pub fn runs_script(command: &Command) -> bool {
    SCRIPTS.contains(&command.name)
}

/// Returns whether a command runs Lua text: a script, or a library that is loaded.
pub fn runs_lua(command: &Command) -> bool {
    runs_script(command) || matches!(command.name, "function|load" | "function|restore")
}

/// Returns how a command uses its key with index `number`. A command that is in no list reads its keys; if it has the flag
/// `WRITE`, it reads and writes them.
fn modes(command: &Command, args: &Args, number: usize) -> u8 {
    let name = command.name;
    let is = |list: &[&str]| list.contains(&name);
    match (name, number) {
        _ if is(SHAPES) => 0,
        _ if is(BLIND) => WRITE,
        ("copy", 0) | ("xreadgroup", _) => READ,
        ("copy", _) => WRITE,
        ("pfmerge", 1..) => READ,
        // `SET` returns the old value only with the option `GET`.
        ("set", _) if (3..args.len()).all(|at| !args.is(at, "GET")) => WRITE,
        ("bitfield", _) if !bits_change(args) => READ,
        ("sort" | "georadius" | "georadiusbymember", 0) => READ,
        ("sort" | "georadius" | "georadiusbymember", _) => WRITE,
        _ if is(STORES) => {
            if number == 0 {
                WRITE
            } else {
                READ
            }
        }
        // How the script uses its keys is unknown.
        ("eval" | "evalsha" | "fcall", _) => READ | WRITE,
        _ if is(MOVES) && number > 0 => WRITE,
        _ if command.has(flag::WRITE) => READ | WRITE,
        _ => READ,
    }
}

/// Returns whether a `BITFIELD` command has operations that change the value.
fn bits_change(args: &Args) -> bool {
    (2..args.len()).any(|at| args.is(at, "SET") || args.is(at, "INCRBY"))
}

/// Returns the indices of a request's arguments that are keys.
fn keys(command: &Command, args: &Args) -> Vec<usize> {
    match (command.name, command.keys) {
        ("watch", _) => (1..args.len()).collect(),
        ("memory", Keys::None) if args.is(1, "USAGE") => (2..args.len().min(3)).collect(),
        _ => command.keys.places(args),
    }
}

/// Returns the indices of a request's arguments that are channels, and whether these channels are patterns.
fn channels(command: &Command, args: &Args) -> (core::ops::Range<usize>, bool) {
    match command.name {
        "publish" | "spublish" => (1..2, false),
        "subscribe" | "ssubscribe" => (1..args.len(), false),
        "psubscribe" => (1..args.len(), true),
        _ => (0..0, false),
    }
}

/// Returns the first option of `SORT` that forms keys from a pattern.
fn sorted_by(command: &Command, args: &Args) -> Option<&'static str> {
    if !matches!(command.name, "sort" | "sort_ro") {
        return None;
    }
    (2..args.len().saturating_sub(1)).find_map(|at| match () {
        () if args.is(at, "BY") && args[at + 1].contains(&b'*') => Some("BY"),
        // `GET #`, which returns the element itself, counts as well, as in Redis.
        () if args.is(at, "GET") => Some("GET"),
        () => None,
    })
}

fn selected(selector: &Selector, command: &'static Command, args: &Args) -> Result<(), Denied> {
    let unit = units::asked(command, args);
    let free = command.has(flag::NO_AUTH);
    let allowed = unit.is_some_and(|unit| selector.allows(unit))
        || args.get(1).is_some_and(|first| selector.allows_first(command.name, first));
    if !free && !allowed {
        let name = unit.map_or_else(|| command.name.to_owned(), |unit| units::all()[unit].name());
        return Err(Denied::Command(name));
    }
    for (number, place) in keys(command, args).into_iter().enumerate() {
        if !selector.allows_key(&args[place], modes(command, args, number)) {
            return Err(Denied::Key(args[place].to_vec()));
        }
    }
    if let Some(word) = sorted_by(command, args).filter(|_| !selector.reads_all()) {
        return Err(Denied::Pattern(word));
    }
    let (channels, are_patterns) = channels(command, args);
    for channel in channels.filter_map(|place| args.get(place)) {
        if !selector.allows_channel(channel, are_patterns) {
            return Err(Denied::Channel(channel.to_vec()));
        }
    }
    Ok(())
}

impl User {
    /// Checks whether a request is allowed. Precondition: the request has a valid number of arguments.
    ///
    /// # Errors
    /// The refused part of the request.
    pub fn check(&self, command: &'static Command, args: &Args) -> Result<(), Denied> {
        if self.is_all {
            return Ok(());
        }
        let mut furthest = None;
        for selector in &self.selectors {
            match selected(selector, command, args) {
                Ok(()) => return Ok(()),
                Err(denied) => furthest = furthest.max(Some(denied)),
            }
        }
        furthest.map_or(Ok(()), Err)
    }

    /// Returns whether the user may keep an existing subscription.
    pub fn may_hear(&self, kind: SubscriptionKind, channel: &[u8]) -> bool {
        self.selectors.iter().any(|selector| selector.allows_channel(channel, kind == SubscriptionKind::Pattern))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    fn asked(rules: &str, request: &str) -> Result<(), Denied> {
        let mut user = User::none();
        let rules = super::super::user::joined(rules.split(' ').map(str::as_bytes)).unwrap();
        rules.iter().for_each(|rule| user.apply(rule).unwrap());
        let args: Args = request.split(' ').collect();
        user.check(command::find(&args[0]).unwrap(), &args)
    }

    #[test]
    fn keys_are_used_in_ways() {
        let rules = "+@all %R~r* %W~w* ~b*";
        for (request, allowed) in [
            ("get r", true),
            ("get w", false),
            ("get b", true),
            ("set r 1", false),
            ("set w 1", true),
            ("set w 1 get", false),
            ("set b 1 get", true),
            ("copy r w", true),
            ("copy w r", false),
            ("copy w w2", false),
            ("rename b w", true),
            ("rename w w2", false),
            ("rename b r", false),
            ("exists w r b", true),
            ("exists x", false),
            ("incr w", false),
            ("incr b", true),
            ("sinterstore w r r2", true),
            ("sinterstore w w2", false),
            ("hexpire w 1 fields 1 f", true),
            ("hexpire r 1 fields 1 f", false),
            ("httl r fields 1 f", true),
            ("hsetex w fields 1 f v", true),
            ("hgetex w fields 1 f", false),
            ("hgetdel r fields 1 f", false),
            ("hgetdel b fields 1 f", true),
            ("bitfield r get u8 0", true),
            ("bitfield r set u8 0 1", false),
            ("mget r b", true),
            ("mget r w", false),
            ("object encoding x", false),
            ("object encoding w", true),
            ("watch x", false),
            ("watch w", true),
            ("zunionstore w 1 r", true),
            ("zunionstore w 1 x", false),
            ("lmpop 2 b x left", false),
            ("dbsize", true),
        ] {
            assert_eq!(asked(rules, request).is_ok(), allowed, "{request}");
        }
    }

    #[test]
    fn one_selector_allows_all_of_a_request() {
        let rules = "+set ~a (+get ~b &c +publish)";
        assert_eq!(asked(rules, "get a"), Err(Denied::Key(b"a".to_vec())));
        assert_eq!(asked(rules, "set b 1"), Err(Denied::Key(b"b".to_vec())));
        assert_eq!(asked(rules, "get b"), Ok(()));
        assert_eq!(asked(rules, "publish c 1"), Ok(()));
        assert_eq!(asked(rules, "publish d 1"), Err(Denied::Channel(b"d".to_vec())));
        assert_eq!(asked(rules, "del a"), Err(Denied::Command("del".into())));
    }

    #[test]
    fn a_scripts_keys_are_used_in_both_ways() {
        for (request, allowed) in [
            ("eval return 1 a", true),
            ("eval return 1 r", false),
            ("eval_ro return 1 r", true),
            ("eval_ro return 1 x", false),
            ("fcall f 1 a", true),
            ("fcall f 1 r", false),
            ("fcall_ro f 1 r", true),
            ("fcall_ro f 1 x", false),
        ] {
            assert_eq!(asked("+@scripting ~a %R~r", request).is_ok(), allowed, "{request}");
        }
        assert_eq!(asked("+get ~*", "eval return 0"), Err(Denied::Command("eval".into())));
    }

    #[test]
    fn parts_and_first_arguments() {
        assert_eq!(asked("+config|get", "config get a"), Ok(()));
        assert_eq!(asked("+config|get", "config set a b"), Err(Denied::Command("config|set".into())));
        assert_eq!(asked("+@all -config|set", "config set a b"), Err(Denied::Command("config|set".into())));
        assert_eq!(asked("+config|get", "config nothing"), Err(Denied::Command("config".into())));
        assert_eq!(asked("+select|1", "select 1"), Ok(()));
        assert!(asked("+select|1", "select 2").is_err());
        assert!(asked("+select|1 -select", "select 1").is_err());
        assert!(asked("+select|1 -@connection", "select 1").is_err());
        assert_eq!(asked("+@connection", "client kill a"), Ok(()));
        assert_eq!(asked("+@connection -@admin", "client kill a"), Err(Denied::Command("client|kill".into())));
        assert_eq!(asked("+@all -@all", "hello"), Ok(()));
    }
}
