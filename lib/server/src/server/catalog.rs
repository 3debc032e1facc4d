//! `COMMAND`: the registry as clients see it.

use super::help;
use crate::args::Args;
use crate::command::{self, Command, category, flag};
use crate::family::generic::unknown_subcommand;
use crate::family::glob;
use crate::reply::{Fault, Reply, fault};

/// Groups of the documentation, by the category that says so; the first that fits.
const GROUPS: [(u32, &str); 15] = [
    (category::BITMAP, "bitmap"),
    (category::HYPERLOGLOG, "hyperloglog"),
    (category::GEO, "geo"),
    (category::STREAM, "stream"),
    (category::PUBSUB, "pubsub"),
    (category::SCRIPTING, "scripting"),
    (category::TRANSACTION, "transactions"),
    (category::STRING, "string"),
    (category::LIST, "list"),
    (category::SET, "set"),
    (category::SORTED_SET, "sorted-set"),
    (category::HASH, "hash"),
    (category::KEYSPACE, "generic"),
    (category::CONNECTION, "connection"),
    (category::FAST | category::SLOW, "server"),
];

fn shown() -> impl Iterator<Item = &'static Command> {
    command::all().filter(|command| !command.has(flag::INTERNAL))
}

/// `COMMAND`.
pub fn commands(command: &Command, args: &Args) -> Result<Reply, Fault> {
    match (args.get(1).map(<[u8]>::to_ascii_uppercase).as_deref(), args.len()) {
        (None, _) => Ok(Reply::Array(shown().map(row).collect())),
        (Some(b"COUNT"), 2) => Ok(Reply::count(shown().count())),
        (Some(b"LIST"), 2) => Ok(Reply::bulks(shown().map(|command| command.name))),
        (Some(b"LIST"), 5) if args.is(2, "FILTERBY") => list(args),
        (Some(b"LIST"), 3..) => Err(fault::SYNTAX),
        (Some(b"INFO"), 2) => Ok(Reply::Array(shown().map(row).collect())),
        (Some(b"INFO"), _) => {
            Ok(Reply::Array(args.from(2).map(|name| command::find(name).map_or(Reply::Null, row)).collect()))
        }
        (Some(b"DOCS"), 2) => Ok(Reply::Map(shown().flat_map(docs).collect())),
        (Some(b"DOCS"), _) => Ok(Reply::Map(args.from(2).filter_map(command::find).flat_map(docs).collect())),
        (Some(b"GETKEYS"), 4..) => Ok(Reply::bulks(keys(args)?.2)),
        (Some(b"GETKEYSANDFLAGS"), 4..) => keys_and_uses(args),
        (Some(b"HELP"), 2) => Ok(help::of("command")),
        _ => Err(help::part(command, args, unknown_subcommand)),
    }
}

fn list(args: &Args) -> Result<Reply, Fault> {
    let wanted = &args[4];
    let fits = |command: &Command| match () {
        () if args.is(3, "PATTERN") => glob::fits(&wanted.to_ascii_lowercase(), command.name.as_bytes()),
        () if args.is(3, "ACLCAT") => {
            let mut all = category::NAMES.iter().enumerate().filter(|(bit, _)| command.categories >> bit & 1 == 1);
            all.any(|(_, name)| wanted.eq_ignore_ascii_case(name.as_bytes()))
        }
        () => false,
    };
    if !["PATTERN", "ACLCAT", "MODULE"].iter().any(|word| args.is(3, word)) {
        return Err(fault::SYNTAX);
    }
    Ok(Reply::bulks(shown().filter(|command| fits(command)).map(|command| command.name)))
}

/// The command of a request that is an argument, the request, and its keys.
fn keys(args: &Args) -> Result<(&'static Command, Args, Vec<Vec<u8>>), Fault> {
    let call: Args = args.from(2).collect();
    let Some(command) = command::find(&call[0]) else {
        return Err(Fault::new("ERR Invalid command specified"));
    };
    if matches!(command.keys, command::Keys::None) {
        return Err(Fault::new("ERR The command has no key arguments"));
    }
    if !command.takes(call.len()) {
        return Err(Fault::new("ERR Invalid number of arguments specified for command"));
    }
    match command.keys.places(&call) {
        places if places.is_empty() => Err(Fault::new("ERR Invalid arguments specified for command")),
        places => {
            let keys = places.into_iter().map(|place| call[place].to_vec()).collect();
            Ok((command, call, keys))
        }
    }
}

/// What commands do to their first key, and to the others: as Redis 7.0's table says.
#[rustfmt::skip]
const USES: &[(&str, &str, &[&str])] = &[
    ("OW insert", "OW insert", &["setnx", "msetnx"]),
    ("OW update", "OW update", &["set", "setex", "psetex", "mset", "restore"]),
    ("OW update", "RO access", &["zdiffstore", "zinterstore", "sdiffstore", "geosearchstore", "zunionstore", "bitop", "sunionstore", "zrangestore"]),
    ("RM delete", "RM delete", &["del", "unlink"]),
    ("RO", "RO", &["hexists", "xlen", "scard", "type", "touch", "sismember", "hstrlen", "llen", "exists", "zcard", "hlen", "strlen"]),
    ("RO access", "OW update", &["copy", "georadiusbymember", "georadius"]),
    ("RW access", "RW access", &["pfdebug", "pfcount"]),
    ("RW access delete", "RW access delete", &["brpop", "getdel", "blpop", "zmpop", "spop", "zpopmax", "lpop", "bzmpop", "rpop", "lmpop", "zpopmin", "bzpopmin", "bzpopmax", "blmpop", "hgetdel"]),
    ("RW access delete", "OW insert", &["renamenx"]),
    ("RW access delete", "OW update", &["rename"]),
    ("RW access delete", "RW insert", &["lmove", "smove", "rpoplpush", "brpoplpush", "blmove"]),
    ("RW access insert", "RO access", &["pfmerge"]),
    ("RW access update", "RW access update", &["incrbyfloat", "hincrby", "getex", "decr", "incrby", "setbit", "move", "fcall", "eval", "decrby", "evalsha", "zincrby", "incr", "hincrbyfloat", "getset", "bitfield", "hgetex"]),
    ("RW delete", "RW delete", &["lrem", "xautoclaim", "srem", "ltrim", "zremrangebylex", "zrem", "xtrim", "zremrangebyscore", "zremrangebyrank", "xdel", "hdel"]),
    ("RW insert", "RW insert", &["pfadd", "rpushx", "linsert", "rpush", "lpushx", "hsetnx", "sadd", "append", "lpush"]),
    ("RW update", "RO access", &["sinterstore"]),
    ("RO access", "OW update", &["sort"]),
];

/// `COMMAND GETKEYSANDFLAGS`.
fn keys_and_uses(args: &Args) -> Result<Reply, Fault> {
    let (command, call, keys) = keys(args)?;
    let usual = if command.has(flag::WRITE) { ("RW update", "RW update") } else { ("RO access", "RO access") };
    let row = USES.iter().find(|(_, _, names)| names.contains(&command.name));
    let (first, others) = match row.map_or(usual, |(first, others, _)| (*first, *others)) {
        _ if command.name == "set" && (3..call.len()).any(|at| call.is(at, "GET")) => ("RW access update", ""),
        // It changes nothing unless it is asked to set or to increase.
        _ if command.name == "bitfield" && !(2..call.len()).any(|at| call.is(at, "SET") || call.is(at, "INCRBY")) => {
            ("RO access", "")
        }
        uses => uses,
    };
    let told = |(at, key): (usize, &Vec<u8>)| {
        let uses = if at == 0 { first } else { others };
        let uses = uses.split(' ').map(Reply::Status).collect();
        Reply::Array(vec![Reply::bulk(key), Reply::Set(uses)])
    };
    Ok(Reply::Array(keys.iter().enumerate().map(told).collect()))
}

fn docs(command: &'static Command) -> [Reply; 2] {
    let group = GROUPS.iter().find(|(bits, _)| command.categories & bits != 0).map_or("generic", |(_, name)| name);
    [Reply::bulk(command.name), Reply::Map(vec![Reply::bulk("group"), Reply::bulk(group)])]
}

/// A command as `COMMAND` tells it.
fn row(command: &'static Command) -> Reply {
    let (first, last, step) = command.keys.told();
    let flags = flag::NAMES.iter().filter(|(bit, _)| command.has(*bit));
    let categories = category::NAMES.iter().enumerate().filter(|(bit, _)| command.categories & (1 << bit) != 0);
    Reply::Array(vec![
        Reply::bulk(command.name),
        Reply::Int(command.arity.into()),
        Reply::Set(flags.map(|(_, name)| Reply::Status(name)).collect()),
        Reply::Int(first.into()),
        Reply::Int(last.into()),
        Reply::Int(step.into()),
        Reply::Set(categories.map(|(_, name)| Reply::bulk(format!("@{name}"))).collect()),
        Reply::Set(Vec::new()),
        Reply::Set(Vec::new()),
        Reply::Array(Vec::new()),
    ])
}
