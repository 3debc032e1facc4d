//! Commands for the entries of streams. Consumer groups are in the module `groups`, and information about streams is in
//! `xinfo`.

use crate::args::Args;
use crate::command::{Command, Keys, ONE_KEY, category, flag};
use crate::db::stream::{Entry, Id, Keep, NODE_ENTRIES, Stream, Trim};
use crate::db::{Change, View};
use crate::family::parse;
use crate::reply::{Answer, Fault, Reply, fault};
use category::STREAM;
use flag::{BLOCKING, DENYOOM, FAST};

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("xadd", -5, DENYOOM | FAST, ONE_KEY, STREAM, xadd),
    Command::write("xtrim", -4, 0, ONE_KEY, STREAM, xtrim),
    Command::write("xdel", -3, FAST, ONE_KEY, STREAM, xdel),
    Command::write("xsetid", -3, DENYOOM | FAST, ONE_KEY, STREAM, xsetid),
    Command::read("xlen", 2, FAST, ONE_KEY, STREAM, xlen),
    Command::read("xrange", -4, 0, ONE_KEY, STREAM, |v, a| xrange(v, a, false)),
    Command::read("xrevrange", -4, 0, ONE_KEY, STREAM, |v, a| xrange(v, a, true)),
    Command::read("xread", -4, BLOCKING, Keys::Streams, STREAM, xread),
];

const BAD_ID: Fault = Fault::new("ERR Invalid stream ID specified as stream command argument");

/// Parses an unsigned number as C does: leading zeros, a plus sign and leading blanks are allowed.
fn unsigned(text: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(text).ok()?.trim_ascii_start();
    text.parse().ok()
}

/// Parses an identifier. `missing` replaces a sequence number that is not given. The sequence number is `None` if the
/// server is to choose it ("5-*").
fn partial(text: &[u8], missing: u64) -> Result<(u64, Option<u64>), Fault> {
    if text.len() > 127 {
        return Err(BAD_ID);
    }
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let (time, number) = match text.iter().position(|byte| *byte == b'-') {
        Some(dash) => (&text[..dash], Some(&text[dash + 1..])),
        None => (text, None),
    };
    let time = unsigned(time).ok_or(BAD_ID)?;
    match number {
        None => Ok((time, Some(missing))),
        Some(b"*") => Ok((time, None)),
        Some(number) => unsigned(number).map(|number| (time, Some(number))).ok_or(BAD_ID),
    }
}

/// Parses an identifier. `missing` replaces a sequence number that is not given.
pub fn id(text: &[u8], missing: u64) -> Result<Id, Fault> {
    let (time, number) = partial(text, missing)?;
    number.map(|number| Id(time, number)).ok_or(BAD_ID)
}

/// Parses an identifier. "-" is the smallest identifier, and "+" is the largest.
pub fn loose(text: &[u8], missing: u64) -> Result<Id, Fault> {
    match text {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        _ => id(text, missing),
    }
}

/// Parses the first identifier of an interval. A leading "(" excludes the identifier itself.
pub fn start(text: &[u8]) -> Result<Id, Fault> {
    match text.strip_prefix(b"(").filter(|rest| !rest.is_empty()) {
        Some(rest) => id(rest, 0)?.next().ok_or(Fault::new("ERR invalid start ID for the interval")),
        None => loose(text, 0),
    }
}

/// Parses the last identifier of an interval. A leading "(" excludes the identifier itself.
pub fn end(text: &[u8]) -> Result<Id, Fault> {
    match text.strip_prefix(b"(").filter(|rest| !rest.is_empty()) {
        Some(rest) => id(rest, u64::MAX)?.previous().ok_or(Fault::new("ERR invalid end ID for the interval")),
        None => loose(text, u64::MAX),
    }
}

/// Returns the reply for an entry.
pub fn told(entry: Entry<'_>) -> Reply {
    let fields = entry.fields().map(|field| Reply::bulk(field.bytes())).collect();
    Reply::Array(vec![Reply::bulk(entry.id.to_string()), Reply::Array(fields)])
}

/// The options of `XADD` and `XTRIM`.
#[derive(Default)]
struct Options {
    keep: Option<Keep>,
    about: bool,
    limit: Option<u64>,
    no_stream: bool,
    /// For `XADD`: the time and the sequence number of the identifier. The sequence number is `None` if the server is
    /// to choose it. The whole is `None` if the server chooses both.
    id: Option<(u64, Option<u64>)>,
}

impl Options {
    /// Parses the options. Also returns the index after the options, at which `XADD` has its identifier.
    fn parse(args: &Args, adds: bool) -> Result<(Self, usize), Fault> {
        let (mut options, mut at) = (Self::default(), 2);
        while at < args.len() {
            let more = args.len() - 1 - at;
            match () {
                () if adds && &args[at] == b"*" => break,
                () if args.is(at, "MAXLEN") && more > 0 => {
                    at = options.about(args, at, more)?;
                    let most = parse::integer(&args[at])?;
                    let most = u64::try_from(most).map_err(|_| Fault::new("ERR The MAXLEN argument must be >= 0."))?;
                    options.keep = Some(Keep::Newest(most));
                }
                () if args.is(at, "MINID") && more > 0 => {
                    at = options.about(args, at, more)?;
                    options.keep = Some(Keep::From(id(&args[at], 0)?));
                }
                () if args.is(at, "LIMIT") && more > 0 => {
                    at += 1;
                    let limit = parse::integer(&args[at])?;
                    let limit = u64::try_from(limit).map_err(|_| Fault::new("ERR The LIMIT argument must be >= 0."))?;
                    options.limit = Some(limit);
                }
                () if adds && args.is(at, "NOMKSTREAM") => options.no_stream = true,
                () if adds => {
                    options.id = Some(partial(&args[at], 0)?);
                    break;
                }
                () => return Err(fault::SYNTAX),
            }
            at += 1;
        }
        options.check(adds).map(|()| (options, at))
    }

    /// Parses the optional "~" or "=" before the number of `MAXLEN` or `MINID`. Returns the index of the number.
    fn about(&mut self, args: &Args, at: usize, more: usize) -> Result<usize, Fault> {
        if self.keep.is_some() {
            let text = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
            return Err(Fault::new(text));
        }
        self.about = more >= 2 && &args[at + 1] == b"~";
        Ok(if self.about || (more >= 2 && &args[at + 1] == b"=") { at + 2 } else { at + 1 })
    }

    fn check(&self, adds: bool) -> Result<(), Fault> {
        let text = match () {
            () if self.keep.is_none() && self.limit.is_some_and(|limit| limit > 0) => {
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
            }
            () if self.keep.is_none() && !adds => "ERR syntax error, XTRIM must be called with a trimming strategy",
            () if self.limit.is_some() && !self.about => {
                "ERR syntax error, LIMIT cannot be used without the special ~ option"
            }
            () => return Ok(()),
        };
        Err(Fault::new(text))
    }

    fn trim(&self) -> Option<Trim> {
        let about = self.about;
        // Approximate trimming removes a bounded number of entries at once, unless `LIMIT 0` is given.
        let limit = self.limit.unwrap_or(if about { 100 * u64::from(NODE_ENTRIES) } else { 0 });
        self.keep.map(|keep| Trim { keep, about, limit })
    }
}

fn xadd(change: &mut Change<'_>, args: &Args) -> Answer {
    let (options, at) = Options::parse(args, true)?;
    let fields = args.len().saturating_sub(at + 1);
    if fields < 2 || fields % 2 == 1 {
        return Err(crate::session::wrong_number("xadd"));
    }
    if options.id == Some((0, Some(0))) {
        return Err(Fault::new("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let (key, now) = (&args[1], change.now);
    let Some((stream, _)) = change.make_if::<Stream>(key, !options.no_stream)? else { return Ok(Reply::Null) };
    if stream.last == Id::MAX {
        let text = "ERR The stream has exhausted the last possible ID, unable to add more items";
        return Err(Fault::new(text));
    }
    let id = match options.id {
        None => stream.next_id(now),
        Some((time, Some(number))) => Some(Id(time, number)),
        Some((time, None)) if time == stream.last.0 => stream.last.1.checked_add(1).map(|number| Id(time, number)),
        Some((time, None)) => Some(Id(time, 0)),
    };
    let Some(id) = id.filter(|id| *id > stream.last) else {
        let text = "ERR The ID specified in XADD is equal or smaller than the target stream top item";
        return Err(Fault::new(text));
    };
    stream.append(id, args.from(at + 1));
    let trimmed = options.trim().is_some_and(|trim| stream.trim(trim) > 0);
    change.changed(key, b't', "xadd");
    if trimmed {
        change.event(key, b't', "xtrim");
    }
    change.ready(key);
    Ok(Reply::bulk(id.to_string()))
}

fn xtrim(change: &mut Change<'_>, args: &Args) -> Answer {
    let (options, _) = Options::parse(args, false)?;
    let trim = options.trim().expect("it was checked");
    let Some(stream) = change.get::<Stream>(&args[1])? else { return Ok(Reply::Int(0)) };
    let removed = stream.trim(trim);
    if removed > 0 {
        change.changed(&args[1], b't', "xtrim");
    }
    Ok(Reply::Int(removed as i64))
}

fn xdel(change: &mut Change<'_>, args: &Args) -> Answer {
    let key = &args[1];
    if change.get::<Stream>(key)?.is_none() {
        return Ok(Reply::Int(0));
    }
    let ids = args.from(2).map(|text| id(text, 0)).collect::<Result<Vec<Id>, Fault>>()?;
    let stream = change.make::<Stream>(key)?;
    let deleted = ids.into_iter().filter(|id| stream.delete(*id)).count();
    if deleted > 0 {
        change.changed(key, b't', "xdel");
    }
    Ok(Reply::count(deleted))
}

fn xsetid(change: &mut Change<'_>, args: &Args) -> Answer {
    let last = id(&args[2], 0)?;
    let (mut added, mut deleted) = (None, Id::MIN);
    for at in (3..args.len()).step_by(2) {
        let value = args.get(at + 1).ok_or(fault::SYNTAX)?;
        if args.is(at, "ENTRIESADDED") {
            let count = u64::try_from(parse::integer(value)?);
            added = Some(count.map_err(|_| Fault::new("ERR entries_added must be positive"))?);
        } else if args.is(at, "MAXDELETEDID") {
            deleted = id(value, 0)?;
            if last < deleted {
                let text = "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id";
                return Err(Fault::new(text));
            }
        } else {
            return Err(fault::SYNTAX);
        }
    }
    let stream = change.get::<Stream>(&args[1])?.ok_or(fault::NO_SUCH_KEY)?;
    if let Some(top) = stream.top() {
        if last < top {
            return Err(Fault::new("ERR The ID specified in XSETID is smaller than the target stream top item"));
        }
        if added.is_some_and(|added| added < stream.len()) {
            let text = "ERR The entries_added specified in XSETID is smaller than the target stream length";
            return Err(Fault::new(text));
        }
    }
    stream.last = last;
    stream.added = added.unwrap_or(stream.added);
    if deleted != Id::MIN {
        stream.deleted = deleted;
    }
    change.changed(&args[1], b't', "xsetid");
    Ok(Reply::OK)
}

fn xlen(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::Int(view.get::<Stream>(&args[1])?.map_or(0, Stream::len) as i64))
}

fn xrange(view: &View<'_>, args: &Args, reverse: bool) -> Answer {
    let (first, last) = if reverse { (3, 2) } else { (2, 3) };
    let (from, to) = (start(&args[first])?, end(&args[last])?);
    let mut count = None;
    for at in (4..args.len()).step_by(2) {
        let value = args.get(at + 1).filter(|_| args.is(at, "COUNT")).ok_or(fault::SYNTAX)?;
        count = Some(usize::try_from(parse::integer(value)?).unwrap_or(0));
    }
    let Some(stream) = view.get::<Stream>(&args[1])? else { return Ok(Reply::Array(Vec::new())) };
    if count == Some(0) {
        return Ok(Reply::NullArray);
    }
    Ok(Reply::Array(stream.range(from, to, reverse).take(count.unwrap_or(usize::MAX)).map(told).collect()))
}

/// The arguments of `XREAD` and `XREADGROUP`.
pub struct Asked<'a> {
    /// The most entries of each stream.
    pub count: usize,
    /// The longest time to wait, in milliseconds. 0 means no limit. `None` means that the command does not wait.
    pub block: Option<u64>,
    /// The names of the group and of the consumer.
    pub group: Option<(&'a [u8], &'a [u8])>,
    /// Whether delivered entries need no acknowledgement.
    pub noack: bool,
    /// The index of the first key, and the number of keys. As many identifiers follow.
    pub keys: (usize, usize),
}

impl<'a> Asked<'a> {
    /// Parses the arguments.
    pub fn parse(args: &'a Args) -> Result<Self, Fault> {
        let grouped = args.is(0, "XREADGROUP");
        let mut asked = Self { count: usize::MAX, block: None, group: None, noack: false, keys: (0, 0) };
        let only = |word| {
            Fault::made(format!("ERR The {word} option is only supported by XREADGROUP. You called XREAD instead."))
        };
        let mut at = 1;
        while at < args.len() && asked.keys.0 == 0 {
            let more = args.len() - 1 - at;
            match () {
                () if args.is(at, "BLOCK") && more > 0 => {
                    at += 1;
                    let bad = Fault::new("ERR timeout is not an integer or out of range");
                    let block = u64::try_from(parse::integer_or(&args[at], bad)?);
                    asked.block = Some(block.map_err(|_| Fault::new("ERR timeout is negative"))?);
                }
                () if args.is(at, "COUNT") && more > 0 => {
                    at += 1;
                    let count = usize::try_from(parse::integer(&args[at])?).unwrap_or(0);
                    asked.count = if count == 0 { usize::MAX } else { count };
                }
                () if args.is(at, "STREAMS") && more > 0 => {
                    if more % 2 == 1 {
                        return Err(Fault::new(
                            "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
                        ));
                    }
                    asked.keys = (at + 1, more / 2);
                }
                () if args.is(at, "GROUP") && more >= 2 => {
                    if !grouped {
                        return Err(only("GROUP"));
                    }
                    asked.group = Some((&args[at + 1], &args[at + 2]));
                    at += 2;
                }
                () if args.is(at, "NOACK") => {
                    if !grouped {
                        return Err(only("NOACK"));
                    }
                    asked.noack = true;
                }
                () => return Err(fault::SYNTAX),
            }
            at += 1;
        }
        if asked.keys.0 == 0 {
            return Err(fault::SYNTAX);
        }
        if grouped && asked.group.is_none() {
            return Err(Fault::new("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(asked)
    }

    /// Returns each key with the text of its identifier.
    pub fn streams(&self, args: &'a Args) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (first, count) = self.keys;
        (first..first + count).map(move |place| (&args[place], &args[place + count]))
    }
}

/// Returns how long `XREAD` or `XREADGROUP` would wait, in milliseconds. 0 means no limit. Returns `None` if the
/// command does not wait.
pub fn block(args: &Args) -> Option<u64> {
    Asked::parse(args).ok()?.block
}

/// Returns a reply with each key and its entries, which is a map in RESP3. Returns `NullArray` if no key has entries.
pub fn by_key(all: Vec<(Vec<u8>, Vec<Reply>)>) -> Reply {
    if all.is_empty() {
        return Reply::NullArray;
    }
    Reply::Pairs(all.into_iter().flat_map(|(key, entries)| [Reply::Bulk(key), Reply::Array(entries)]).collect())
}

fn xread(view: &View<'_>, args: &Args) -> Answer {
    let asked = Asked::parse(args)?;
    let mut behind = Vec::new();
    for (key, text) in asked.streams(args) {
        let stream = view.get::<Stream>(key)?;
        behind.push(match text {
            b"$" => stream.map_or(Id::MIN, |stream| stream.last),
            b">" => {
                let text =
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.";
                return Err(Fault::new(text));
            }
            _ => id(text, 0)?,
        });
    }
    let mut all = Vec::new();
    for ((key, _), behind) in asked.streams(args).zip(behind) {
        let Some((stream, from)) = view.get::<Stream>(key)?.zip(behind.next()) else { continue };
        let entries: Vec<Reply> = stream.range(from, Id::MAX, false).take(asked.count).map(told).collect();
        if !entries.is_empty() {
            all.push((key.to_vec(), entries));
        }
    }
    Ok(by_key(all))
}

/// Returns the arguments with which a blocked `XREAD` is to be retried. Each "$" is replaced by the stream's current
/// last identifier.
pub fn again(view: &View<'_>, args: &Args) -> Option<Args> {
    let asked = Asked::parse(args).ok()?;
    let (first, count) = asked.keys;
    let words = (0..args.len()).map(|place| {
        if place < first + count || &args[place] != b"$" {
            return args[place].to_vec();
        }
        let stream = view.get::<Stream>(&args[place - count]).ok().flatten();
        stream.map_or(Id::MIN, |stream| stream.last).to_string().into_bytes()
    });
    Some(words.collect())
}
