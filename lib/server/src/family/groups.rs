//! Commands for the consumer groups of streams.

use archipelago_platform::sync::Arc;

use crate::args::Args;
use crate::command::{Command, Keys, ONE_KEY, category, flag, help};
use crate::db::stream::{Group, Id, Pending, Stream};
use crate::db::{Change, View};
use crate::family::generic::{arity, unknown_subcommand};
use crate::family::parse;
use crate::family::streams::{Asked, by_key, end, id, loose, start, told};
use crate::reply::{Answer, Fault, Reply, fault};
use category::STREAM;
use flag::{BLOCKING, DENYOOM, FAST};

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("xgroup", -2, DENYOOM, Keys::Range(2, 2, 1), STREAM, xgroup),
    Command::write("xreadgroup", -7, BLOCKING, Keys::Streams, STREAM, xreadgroup),
    Command::write("xack", -4, FAST, ONE_KEY, STREAM, xack),
    Command::write("xclaim", -6, FAST, ONE_KEY, STREAM, xclaim),
    Command::write("xautoclaim", -6, FAST, ONE_KEY, STREAM, xautoclaim),
    Command::read("xpending", -3, 0, ONE_KEY, STREAM, xpending),
];

/// Returns the text up to the first zero byte, as C prints it.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

fn no_group(key: &[u8], group: &[u8], where_: &str) -> Fault {
    Fault::made(format!("NOGROUP No such key '{}' or consumer group '{}'{where_}", shown(key), shown(group)))
}

/// Checks a subcommand of `XGROUP`. This check takes place before a transaction queues the command, like the check of a
/// command's number of arguments.
///
/// # Errors
/// Returns an error if the subcommand is unknown or its number of arguments is wrong.
pub fn part(args: &Args) -> Result<&'static str, Fault> {
    const PARTS: [(&str, usize, usize); 6] = [
        ("help", 2, 2),
        ("create", 5, usize::MAX),
        ("setid", 5, usize::MAX),
        ("destroy", 4, 4),
        ("createconsumer", 5, 5),
        ("delconsumer", 5, 5),
    ];
    let part = PARTS.into_iter().find(|(name, ..)| args.is(1, name));
    let (name, least, most) = part.ok_or_else(|| unknown_subcommand(args))?;
    arity(args, &format!("xgroup|{name}"), least, most)?;
    Ok(name)
}

/// Returns the error for a subcommand with options that it does not accept.
pub fn wrong_subcommand(args: &Args) -> Fault {
    let (part, name) = (shown(&args[1]), shown(&args[0]).to_ascii_uppercase());
    Fault::made(format!("ERR unknown subcommand or wrong number of arguments for '{part}'. Try {name} HELP."))
}

/// Parses the options of `XGROUP CREATE` and `XGROUP SETID`. Returns whether to create the stream, and how many entries
/// the group has read.
fn options(args: &Args, creates: bool) -> Result<(bool, Option<u64>), Fault> {
    let (mut make, mut read, mut at) = (false, None, 5);
    while at < args.len() {
        if creates && args.is(at, "MKSTREAM") {
            make = true;
        } else if args.is(at, "ENTRIESREAD") && at + 1 < args.len() {
            at += 1;
            let number = parse::integer(&args[at])?;
            if number < -1 {
                return Err(Fault::new("ERR value for ENTRIESREAD must be positive or -1"));
            }
            read = u64::try_from(number).ok();
        } else {
            return Err(wrong_subcommand(args));
        }
        at += 1;
    }
    Ok((make, read))
}

fn xgroup(change: &mut Change<'_>, args: &Args) -> Answer {
    let name = part(args)?;
    if name == "help" {
        return Ok(help::of("xgroup"));
    }
    let (make, read) =
        if matches!(name, "create" | "setid") { options(args, name == "create")? } else { (false, None) };
    let (key, group) = (&args[2], &args[3]);
    let Some(stream) = change.get::<Stream>(key)? else {
        if make {
            return create(change, args, read);
        }
        return Err(Fault::new(
            "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
             option to create an empty stream automatically.",
        ));
    };
    if name == "create" {
        return create(change, args, read);
    }
    if name == "destroy" {
        let found = stream.remove_group(group).is_some();
        if found {
            change.changed(key, b't', "xgroup-destroy");
            // Consumers that are blocked on the key retry, and are then told that the group does not exist.
            change.ready(key);
        }
        return Ok(Reply::Int(found.into()));
    }
    let now = change.now;
    let stream = change.make::<Stream>(key)?;
    let last = stream.last;
    let Some(mut group) = stream.group(group) else {
        let text = format!("NOGROUP No such consumer group '{}' for key name '{}'", shown(group), shown(key));
        return Err(Fault::made(text));
    };
    match name {
        "setid" if args.len() > 7 => Err(wrong_subcommand(args)),
        "setid" => {
            group.last = if &args[4] == b"$" { last } else { loose(&args[4], 0)? };
            group.read = read;
            drop(group);
            change.changed(key, b't', "xgroup-setid");
            Ok(Reply::OK)
        }
        "createconsumer" => {
            let fresh = !group.consumers.contains_key(&args[4]) && group.seen(&args[4], now).1;
            drop(group);
            if fresh {
                change.changed(key, b't', "xgroup-createconsumer");
            }
            Ok(Reply::Int(fresh.into()))
        }
        _ => {
            let found = group.consumers.contains_key(&args[4]);
            let pending = group.dismiss(&args[4]);
            drop(group);
            if found {
                change.changed(key, b't', "xgroup-delconsumer");
            }
            Ok(Reply::count(pending))
        }
    }
}

fn create(change: &mut Change<'_>, args: &Args, read: Option<u64>) -> Answer {
    if args.len() > 8 {
        return Err(wrong_subcommand(args));
    }
    let (key, name) = (&args[2], &args[3]);
    let last = match &args[4] {
        b"$" => change.get::<Stream>(key)?.map_or(Id::MIN, |stream| stream.last),
        text => id(text, 0)?,
    };
    let stream = change.make::<Stream>(key)?;
    if stream.groups().contains_key(name) {
        return Err(Fault::new("BUSYGROUP Consumer Group name already exists"));
    }
    stream.add_group(name.to_vec(), Group::new(last, read));
    change.changed(key, b't', "xgroup-create");
    Ok(Reply::OK)
}

fn xreadgroup(change: &mut Change<'_>, args: &Args) -> Answer {
    let asked = Asked::parse(args)?;
    let (name, consumer) = asked.group.expect("it was asked for");
    let mut behind = Vec::new();
    for (key, text) in asked.streams(args) {
        let found = change.get::<Stream>(key).map(|stream| stream.map(|stream| stream.groups().contains_key(name)));
        if found != Ok(Some(true)) {
            change.unblocks(Fault::new(match found {
                Ok(Some(_)) => "NOGROUP the consumer group this client was blocked on no longer exists",
                _ => "UNBLOCKED the stream key no longer exists",
            }));
            found?;
            return Err(no_group(key, name, " in XREADGROUP with GROUP option"));
        }
        behind.push(match text {
            b"$" => {
                return Err(Fault::new(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                     consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return \
                     an empty result set.",
                ));
            }
            b">" => None,
            _ => Some(id(text, 0)?),
        });
    }
    let mut all = Vec::new();
    for ((key, _), behind) in asked.streams(args).zip(behind) {
        let entries = match behind.filter(|behind| *behind != Id::MAX) {
            Some(behind) => Some(history(change, key, name, consumer, behind, asked.count)?),
            None => deliver(change, key, name, consumer, &asked)?,
        };
        all.extend(entries.map(|entries| (key.to_vec(), entries)));
    }
    Ok(by_key(all))
}

/// Records that a consumer of a group is active. Creates the consumer if it does not exist. Returns the consumer's
/// name.
fn see(change: &mut Change<'_>, key: &[u8], group: &[u8], name: &[u8]) -> Result<Arc<[u8]>, Fault> {
    let now = change.now;
    let found = change.get::<Stream>(key)?.and_then(|stream| stream.group(group));
    let (name, fresh) = found.ok_or_else(|| no_group(key, group, ""))?.seen(name, now);
    if fresh {
        change.changed(key, b't', "xgroup-createconsumer");
    }
    Ok(name)
}

/// Delivers again the entries that are pending for a consumer, beginning after the identifier `behind`.
fn history(
    change: &mut Change<'_>,
    key: &[u8],
    group: &[u8],
    consumer: &[u8],
    behind: Id,
    count: usize,
) -> Result<Vec<Reply>, Fault> {
    let now = change.now;
    let consumer = see(change, key, group, consumer)?;
    let stream = change.make::<Stream>(key)?;
    let Some(from) = behind.next() else { return Ok(Vec::new()) };
    let pending = &stream.groups()[group].consumers[&consumer].pending;
    let found: Vec<(Id, Option<Reply>)> =
        pending.range(from..).take(count).map(|id| (*id, entry(stream, *id))).collect();
    let mut group = stream.group(group).expect("it was looked at");
    let mut all = Vec::new();
    for (id, entry) in found {
        if entry.is_some() {
            let pending = group.pending.get_mut(&id).expect("what a consumer has, its group has");
            (pending.delivered, pending.times) = (now, pending.times.wrapping_add(1));
        }
        all.push(entry.unwrap_or_else(|| Reply::Array(vec![Reply::bulk(id.to_string()), Reply::NullArray])));
    }
    Ok(all)
}

fn entry(stream: &Stream, id: Id) -> Option<Reply> {
    stream.range(id, id, false).next().map(told)
}

/// Delivers new entries to a consumer. Returns `None` if there are none.
fn deliver(
    change: &mut Change<'_>,
    key: &[u8],
    name: &[u8],
    consumer: &[u8],
    asked: &Asked<'_>,
) -> Result<Option<Vec<Reply>>, Fault> {
    let now = change.now;
    let (stream, group) = group(&change.view(), key, name)?;
    if stream.top().is_none_or(|top| top <= group.last) {
        // Without new entries, the consumer does not count as active.
        return Ok(None);
    }
    let consumer = see(change, key, name, consumer)?;
    let stream = change.make::<Stream>(key)?;
    let mut group = stream.remove_group(name).expect("it was looked at");
    let mut all = Vec::new();
    // The first entry is looked up once: a delivery does not change it, and it may have very many fields.
    let first = stream.first();
    if let Some(from) = group.last.next() {
        for entry in stream.range(from, Id::MAX, false).take(asked.count) {
            group.read = match group.read {
                Some(read) if !stream.has_holes_from(first, entry.id) => Some(read.wrapping_add(1)),
                read if stream.added == 0 => read,
                _ => stream.ordinal(first, entry.id),
            };
            group.last = entry.id;
            if !asked.noack {
                group.assign(entry.id, &consumer, now, 1);
            }
            all.push(told(entry));
        }
    }
    stream.add_group(name.to_vec(), group);
    Ok((!all.is_empty()).then_some(all))
}

fn xack(change: &mut Change<'_>, args: &Args) -> Answer {
    let found = change.get::<Stream>(&args[1])?.and_then(|stream| stream.group(&args[2]));
    let Some(mut group) = found else { return Ok(Reply::Int(0)) };
    let ids = args.from(3).map(|text| id(text, 0)).collect::<Result<Vec<Id>, Fault>>()?;
    Ok(Reply::count(ids.into_iter().filter(|id| group.release(*id)).count()))
}

/// Returns a stream and its group with this name.
fn group<'d>(view: &View<'d>, key: &[u8], name: &[u8]) -> Result<(&'d Stream, &'d Group), Fault> {
    let stream = view.get::<Stream>(key)?;
    stream.and_then(|stream| Some((stream, stream.groups().get(name)?))).ok_or_else(|| no_group(key, name, ""))
}

fn xpending(view: &View<'_>, args: &Args) -> Answer {
    if args.len() == 3 {
        return group(view, &args[1], &args[2]).map(|(_, group)| summary(group));
    }
    if !(6..=9).contains(&args.len()) {
        return Err(fault::SYNTAX);
    }
    let (mut idle, mut at) = (0, 3);
    if args.is(3, "IDLE") {
        idle = parse::integer(&args[4])?;
        at = 5;
    }
    if args.len() < at + 3 {
        return Err(fault::SYNTAX);
    }
    let count = usize::try_from(parse::integer(&args[at + 2])?).unwrap_or(0);
    let (from, to) = (start(&args[at])?, end(&args[at + 1])?);
    let (_, group) = group(view, &args[1], &args[2])?;
    let ids: Box<dyn Iterator<Item = Id>> = match args.get(at + 3) {
        _ if from > to => Box::new(core::iter::empty()),
        Some(name) => match group.consumers.get(name) {
            Some(consumer) => Box::new(consumer.pending.range(from..=to).copied()),
            None => Box::new(core::iter::empty()),
        },
        None => Box::new(group.pending.range(from..=to).map(|(id, _)| *id)),
    };
    let rows = ids.filter_map(|id| {
        let Pending { consumer, delivered, times } = &group.pending[&id];
        let since = (view.now as i64).saturating_sub(*delivered as i64);
        let row = || {
            vec![
                Reply::bulk(id.to_string()),
                Reply::bulk(consumer),
                Reply::Int(since.max(0)),
                Reply::Int(*times as i64),
            ]
        };
        (idle == 0 || since >= idle).then(|| Reply::Array(row()))
    });
    Ok(Reply::Array(rows.take(count).collect()))
}

/// Returns the number of pending entries, the first and the last of them, and their number for each consumer.
fn summary(group: &Group) -> Reply {
    let id = |id: Option<&Id>| Reply::optional(id.map(Id::to_string));
    let some = group.consumers.iter().filter(|(_, consumer)| !consumer.pending.is_empty());
    let consumers = some
        .map(|(name, consumer)| Reply::Array(vec![Reply::bulk(name), Reply::bulk(consumer.pending.len().to_string())]));
    let consumers = if group.pending.is_empty() { Reply::NullArray } else { Reply::Array(consumers.collect()) };
    let (first, last) = (id(group.pending.keys().next()), id(group.pending.keys().next_back()));
    Reply::Array(vec![Reply::count(group.pending.len()), first, last, consumers])
}

/// The options of `XCLAIM`.
struct Claim {
    delivered: u64,
    times: Option<u64>,
    force: bool,
    just: bool,
    last: Id,
}

impl Claim {
    /// Parses the options from `at` on.
    fn parse(args: &Args, mut at: usize, now: u64) -> Result<Self, Fault> {
        let mut claim = Self { delivered: now, times: None, force: false, just: false, last: Id::MIN };
        let bad = |word| Fault::made(format!("ERR Invalid {word} option argument for XCLAIM"));
        while at < args.len() {
            let value = args.get(at + 1);
            let number = |word| value.map(|value| parse::integer_or(value, bad(word)));
            let mut step = 2;
            // An invalid or future time becomes the current time.
            let sane = |at: i64| u64::try_from(at).ok().filter(|at| *at <= now).unwrap_or(now);
            match () {
                () if args.is(at, "FORCE") => (claim.force, step) = (true, 1),
                () if args.is(at, "JUSTID") => (claim.just, step) = (true, 1),
                () if args.is(at, "IDLE") && value.is_some() => {
                    let idle = number("IDLE").expect("there is a value")?;
                    claim.delivered = sane((now as i64).wrapping_sub(idle));
                }
                () if args.is(at, "TIME") && value.is_some() => {
                    claim.delivered = sane(number("TIME").expect("there is a value")?);
                }
                () if args.is(at, "RETRYCOUNT") && value.is_some() => {
                    claim.times = u64::try_from(number("RETRYCOUNT").expect("there is a value")?).ok();
                }
                () if args.is(at, "LASTID") && value.is_some() => claim.last = id(&args[at + 1], 0)?,
                () => return Err(Fault::made(format!("ERR Unrecognized XCLAIM option '{}'", shown(&args[at])))),
            }
            at += step;
        }
        Ok(claim)
    }
}

/// Parses the least time in milliseconds that an entry must have been idle to be claimed.
fn least_idle(text: &[u8], command: &str) -> Result<i64, Fault> {
    let bad = Fault::made(format!("ERR Invalid min-idle-time argument for {command}"));
    parse::integer_or(text, bad).map(|idle| idle.max(0))
}

/// Makes an entry pending for the consumer that claims it. The consumer is created when it gets its first entry.
fn assign(
    change: &mut Change<'_>,
    args: &Args,
    consumer: &mut Option<Arc<[u8]>>,
    id: Id,
    delivered: u64,
    times: u64,
) -> Result<(), Fault> {
    let to = match consumer {
        Some(consumer) => consumer,
        None => consumer.insert(see(change, &args[1], &args[2], &args[3])?),
    };
    let mut group = change.make::<Stream>(&args[1])?.group(&args[2]).expect("it was looked at");
    group.assign(id, to, delivered, times);
    Ok(())
}

fn xclaim(change: &mut Change<'_>, args: &Args) -> Answer {
    let (key, name, now) = (&args[1], &args[2], change.now);
    group(&change.view(), key, name)?;
    let idle = least_idle(&args[4], "XCLAIM")?;
    let ids: Vec<Id> = args.from(5).map_while(|text| id(text, 0).ok()).collect();
    let claim = Claim::parse(args, 5 + ids.len(), now)?;
    let (mut consumer, mut all) = (None, Vec::new());
    if let Some(stream) = change.get::<Stream>(key)? {
        let mut group = stream.group(name).expect("it was looked at");
        group.last = group.last.max(claim.last);
    }
    for id in ids {
        let stream = change.make::<Stream>(key)?;
        let entry = entry(stream, id);
        let mut group = stream.group(name).expect("it was looked at");
        let Some(entry) = entry else {
            group.release(id);
            continue;
        };
        let before = group.pending.get(&id).map(|pending| (pending.delivered, pending.times));
        drop(group);
        let times = match before {
            Some((delivered, _)) if idle > 0 && (now as i64).saturating_sub(delivered as i64) < idle => continue,
            Some((_, times)) => times,
            None if claim.force => 1,
            None => continue,
        };
        let times = claim.times.unwrap_or(times.wrapping_add(u64::from(!claim.just)));
        assign(change, args, &mut consumer, id, claim.delivered, times)?;
        all.push(if claim.just { Reply::bulk(id.to_string()) } else { entry });
    }
    Ok(Reply::Array(all))
}

fn xautoclaim(change: &mut Change<'_>, args: &Args) -> Answer {
    let (key, name, now) = (&args[1], &args[2], change.now);
    let idle = least_idle(&args[4], "XAUTOCLAIM")?;
    let from = start(&args[5])?;
    let (mut count, mut just, mut at) = (100, false, 6);
    while at < args.len() {
        if args.is(at, "COUNT") && at + 1 < args.len() {
            at += 1;
            let bad = || Fault::new("ERR COUNT must be > 0");
            let most = i64::MAX / 16;
            count =
                parse::integer_or(&args[at], bad()).ok().filter(|count| (1..=most).contains(count)).ok_or_else(bad)?;
        } else if args.is(at, "JUSTID") {
            just = true;
        } else {
            return Err(fault::SYNTAX);
        }
        at += 1;
    }
    group(&change.view(), key, name)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (mut all, mut gone, mut next, mut tried) = (Vec::new(), Vec::new(), Id::MIN, 0_usize);
    let mut consumer = None;
    let pending: Vec<Id> = {
        let (_, group) = group(&change.view(), key, name)?;
        group.pending.range(from..).take(count.saturating_mul(10).saturating_add(1)).map(|(id, _)| *id).collect()
    };
    for id in pending {
        if tried == count.saturating_mul(10) || all.len() + gone.len() == count {
            next = id;
            break;
        }
        tried += 1;
        let stream = change.make::<Stream>(key)?;
        let entry = entry(stream, id);
        let mut group = stream.group(name).expect("it was looked at");
        let Some(entry) = entry else {
            group.release(id);
            gone.push(Reply::bulk(id.to_string()));
            continue;
        };
        let (delivered, times) = (group.pending[&id].delivered, group.pending[&id].times);
        drop(group);
        if idle > 0 && (now as i64).saturating_sub(delivered as i64) < idle {
            continue;
        }
        assign(change, args, &mut consumer, id, now, times.wrapping_add(u64::from(!just)))?;
        all.push(if just { Reply::bulk(id.to_string()) } else { entry });
    }
    Ok(Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(all), Reply::Array(gone)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::db::stream::FIRSTS;
    use crate::db::value::Container;
    use crate::family::cost::tests::call;
    use crate::operation::Write;

    /// The first entry may have very many fields.
    #[test]
    fn entries_are_delivered_without_looking_at_the_first_for_each() {
        let mut db = Db::default();
        let mut asked = |line: &str| db.write(&Write::Call(call(line))).reply;
        (1..=1_000).for_each(|id| _ = asked(&format!("XADD s {id}-0 a b")));
        for line in ["XDEL s 1-0", "XGROUP CREATE s g 2-0", "XGROUP CREATE s h 0 ENTRIESREAD 1"] {
            assert!(!asked(line).is_error(), "{line}");
        }
        FIRSTS.set(0);
        for (group, count) in [("g", 998), ("h", 999)] {
            let Reply::Pairs(found) = asked(&format!("XREADGROUP GROUP {group} c STREAMS s >")) else {
                panic!("{group}")
            };
            assert!(matches!(&found[1], Reply::Array(entries) if entries.len() == count), "{group}");
        }
        asked("XINFO GROUPS s");
        assert!(FIRSTS.get() <= 3, "{} look-ups for two deliveries and a list of groups", FIRSTS.get());
    }

    /// A payload of `RESTORE` can contain any numbers.
    #[test]
    fn numbers_of_payloads_do_not_overflow() {
        let mut db = Db::default();
        let mut asked = |line: &str| db.write(&Write::Call(call(line))).reply;
        for line in ["XADD s 1-0 a b", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >"] {
            assert!(!asked(line).is_error(), "{line}");
        }
        let entry = db.spaces[0].keys.get_mut(b"s").unwrap();
        let stream = Stream::of_mut(&mut entry.value).unwrap();
        stream.added = u64::MAX;
        stream.group(b"g").unwrap().pending.values_mut().for_each(|it| it.delivered = 1 << 63);
        for line in ["XPENDING s g IDLE 1 - + 10", "XCLAIM s g d 1 1-0", "XADD s 2-0 a b"] {
            assert!(!db.write(&Write::Call(call(line))).reply.is_error(), "{line}");
        }
        let entry = db.spaces[0].keys.get_mut(b"s").unwrap();
        let stream = Stream::of_mut(&mut entry.value).unwrap();
        stream.group(b"g").unwrap().pending.values_mut().for_each(|it| it.delivered = 1 << 63);
        assert!(!db.write(&Write::Call(call("XAUTOCLAIM s g e 1 0"))).reply.is_error());
    }
}
