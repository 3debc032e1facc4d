//! `XINFO`: information about streams.

use std::collections::BTreeSet;

use crate::args::Args;
use crate::command::{Command, Keys, category, help};
use crate::db::View;
use crate::db::stream::{Group, Id, Stream};
use crate::family::generic::{arity, unknown_subcommand};
use crate::family::groups::wrong_subcommand;
use crate::family::parse;
use crate::family::streams::told;
use crate::reply::{Answer, Fault, Reply, fault};

/// The command of this family.
pub const COMMANDS: &[Command] = &[Command::read("xinfo", -2, 0, Keys::Range(2, 2, 1), category::STREAM, xinfo)];

/// Checks a subcommand of `XINFO`. This check takes place before a transaction queues the command, like the check of a
/// command's number of arguments.
///
/// # Errors
/// Returns an error if the subcommand is unknown or its number of arguments is wrong.
pub fn part(args: &Args) -> Result<&'static str, Fault> {
    let parts = [("help", 2, 2), ("stream", 3, usize::MAX), ("groups", 3, 3), ("consumers", 4, 4)];
    let part = parts.into_iter().find(|(name, ..)| args.is(1, name));
    let (name, least, most) = part.ok_or_else(|| unknown_subcommand(args))?;
    arity(args, &format!("xinfo|{name}"), least, most)?;
    Ok(name)
}

fn xinfo(view: &View<'_>, args: &Args) -> Answer {
    let part = part(args)?;
    if part == "help" {
        return Ok(help::of("xinfo"));
    }
    let stream = view.get::<Stream>(&args[2])?.ok_or(fault::NO_SUCH_KEY)?;
    match part {
        "stream" => about_stream(stream, args),
        "groups" => {
            let first = stream.first();
            let groups = stream.groups().iter().map(|(name, group)| about_group(stream, first, name, group));
            Ok(Reply::Array(groups.collect()))
        }
        _ => {
            let group = stream.groups().get(&args[3]).ok_or_else(|| {
                let shown = |at: usize| String::from_utf8_lossy(&args[at]).into_owned();
                Fault::made(format!("NOGROUP No such consumer group '{}' for key name '{}'", shown(3), shown(2)))
            })?;
            let rows = group.consumers.iter().map(|(name, consumer)| {
                let idle = view.now.saturating_sub(consumer.seen);
                map([
                    ("name", Reply::bulk(name)),
                    ("pending", Reply::count(consumer.pending.len())),
                    ("idle", Reply::Int(idle as i64)),
                ])
            });
            Ok(Reply::Array(rows.collect()))
        }
    }
}

fn map(rows: impl IntoIterator<Item = (&'static str, Reply)>) -> Reply {
    Reply::Map(rows.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect())
}

fn id(id: Id) -> Reply {
    Reply::bulk(id.to_string())
}

fn number(number: u64) -> Reply {
    Reply::Int(number as i64)
}

/// Returns how many entries the group has not read yet, if this number can be determined. `first` is the
/// identifier of the stream's first entry.
fn lag(stream: &Stream, first: Id, group: &Group) -> Reply {
    let read = match group.read {
        _ if stream.added == 0 => Some(0),
        Some(read) if !stream.has_holes_from(first, group.last) => Some(read),
        _ => stream.ordinal(first, group.last),
    };
    read.map_or(Reply::Null, |read| Reply::Int(stream.added.wrapping_sub(read) as i64))
}

fn about_group(stream: &Stream, first: Id, name: &[u8], group: &Group) -> Reply {
    map([
        ("name", Reply::bulk(name)),
        ("consumers", Reply::count(group.consumers.len())),
        ("pending", Reply::count(group.pending.len())),
        ("last-delivered-id", id(group.last)),
        ("entries-read", group.read.map_or(Reply::Null, number)),
        ("lag", lag(stream, first, group)),
    ])
}

fn about_stream(stream: &Stream, args: &Args) -> Answer {
    let count = match args.len() {
        3 => None,
        4 if args.is(3, "FULL") => Some(10),
        6 if args.is(3, "FULL") && args.is(4, "COUNT") => match parse::integer(&args[5])? {
            0 => Some(usize::MAX),
            count => Some(usize::try_from(count).unwrap_or(10)),
        },
        _ => return Err(wrong_subcommand(args)),
    };
    let first = stream.first();
    let keys: Vec<[u8; 16]> = stream.nodes.keys().map(|id| id.bytes()).collect();
    let mut rows = vec![
        ("length", number(stream.len())),
        ("radix-tree-keys", Reply::count(keys.len())),
        ("radix-tree-nodes", Reply::count(if keys.is_empty() { 1 } else { radix_nodes(&keys, 0) })),
        ("last-generated-id", id(stream.last)),
        ("max-deleted-entry-id", id(stream.deleted)),
        ("entries-added", number(stream.added)),
        ("recorded-first-entry-id", id(first)),
    ];
    let Some(count) = count else {
        let edge = |reverse| stream.range(Id::MIN, Id::MAX, reverse).next().map_or(Reply::Null, told);
        rows.push(("groups", Reply::count(stream.groups().len())));
        rows.push(("first-entry", edge(false)));
        rows.push(("last-entry", edge(true)));
        return Ok(map(rows));
    };
    let groups = stream.groups().iter().map(|(name, group)| full_group(stream, first, name, group, count)).collect();
    rows.push(("entries", Reply::Array(stream.entries().take(count).map(told).collect())));
    rows.push(("groups", Reply::Array(groups)));
    Ok(map(rows))
}

fn full_group(stream: &Stream, first: Id, name: &[u8], group: &Group, count: usize) -> Reply {
    let pending = group.pending.iter().take(count).map(|(key, pending)| {
        Reply::Array(vec![id(*key), Reply::bulk(&pending.consumer), number(pending.delivered), number(pending.times)])
    });
    let consumers = group.consumers.iter().map(|(name, consumer)| {
        let pending = consumer.pending.iter().take(count).map(|key| {
            let pending = &group.pending[key];
            Reply::Array(vec![id(*key), number(pending.delivered), number(pending.times)])
        });
        map([
            ("name", Reply::bulk(name)),
            ("seen-time", number(consumer.seen)),
            ("pel-count", Reply::count(consumer.pending.len())),
            ("pending", Reply::Array(pending.collect())),
        ])
    });
    map([
        ("name", Reply::bulk(name)),
        ("last-delivered-id", id(group.last)),
        ("entries-read", group.read.map_or(Reply::Null, number)),
        ("lag", lag(stream, first, group)),
        ("pel-count", Reply::count(group.pending.len())),
        ("pending", Reply::Array(pending.collect())),
        ("consumers", Reply::Array(consumers.collect())),
    ])
}

/// Returns how many nodes a path-compressed radix tree would have for these keys. The keys are sorted, at least one
/// exists, and they agree in all bytes before `from`.
fn radix_nodes(keys: &[[u8; 16]], from: usize) -> usize {
    let (first, last) = (&keys[0], &keys[keys.len() - 1]);
    let common = (from..first.len()).take_while(|at| first[*at] == last[*at]).count();
    let inner = usize::from(common > 0);
    let at = from + common;
    if at == first.len() {
        return inner + 1;
    }
    let children: BTreeSet<u8> = keys.iter().map(|key| key[at]).collect();
    let below = children.into_iter().map(|byte| {
        let (start, end) = (keys.partition_point(|key| key[at] < byte), keys.partition_point(|key| key[at] <= byte));
        radix_nodes(&keys[start..end], at + 1)
    });
    inner + 1 + below.sum::<usize>()
}
