//! Commands for strings and counters.

use crate::args::Args;
use crate::command::{ALL_KEYS, Command, Keys, ONE_KEY, category, flag};
use crate::db::extended::Extended;
use crate::db::value::Value;
use crate::db::{Change, View};
use crate::family::generic::{deadline, invalid_expire};
use crate::family::parse;
use crate::reply::{Answer, Fault, Reply, fault};
use crate::session::wrong_number;
use category::STRING;
use flag::{DENYOOM, FAST};

const PAIRS: Keys = Keys::Range(1, -1, 2);

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::read("get", 2, FAST, ONE_KEY, STRING, get),
    Command::write("set", -3, DENYOOM, ONE_KEY, STRING, set),
    Command::write("setnx", 3, DENYOOM | FAST, ONE_KEY, STRING, setnx),
    Command::write("setex", 4, DENYOOM, ONE_KEY, STRING, setex),
    Command::write("psetex", 4, DENYOOM, ONE_KEY, STRING, psetex),
    Command::write("getset", 3, DENYOOM | FAST, ONE_KEY, STRING, getset),
    Command::write("getdel", 2, FAST, ONE_KEY, STRING, getdel),
    Command::write("getex", -2, FAST, ONE_KEY, STRING, getex),
    Command::read("getrange", 4, 0, ONE_KEY, STRING, getrange),
    Command::read("substr", 4, 0, ONE_KEY, STRING, getrange),
    Command::write("setrange", 4, DENYOOM, ONE_KEY, STRING, setrange),
    Command::read("mget", -2, FAST, ALL_KEYS, STRING, mget),
    Command::write("mset", -3, DENYOOM, PAIRS, STRING, mset),
    Command::write("msetnx", -3, DENYOOM, PAIRS, STRING, msetnx),
    Command::write("incr", 2, DENYOOM | FAST, ONE_KEY, STRING, incr),
    Command::write("decr", 2, DENYOOM | FAST, ONE_KEY, STRING, decr),
    Command::write("incrby", 3, DENYOOM | FAST, ONE_KEY, STRING, incrby),
    Command::write("decrby", 3, DENYOOM | FAST, ONE_KEY, STRING, decrby),
    Command::write("incrbyfloat", 3, DENYOOM | FAST, ONE_KEY, STRING, incrbyfloat),
    Command::write("append", 3, DENYOOM | FAST, ONE_KEY, STRING, append),
    Command::read("strlen", 2, FAST, ONE_KEY, STRING, strlen),
    Command::read("lcs", -3, 0, Keys::Range(1, 2, 1), STRING, lcs),
];

/// The most bytes of a string.
pub const LONGEST: usize = 512 << 20;

fn get(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::optional(view.string(&args[1])?))
}

/// Returns the bytes of a key's string before the caller changes the key.
pub fn old(change: &mut Change<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    match change.value(key) {
        Some(value) => value.bytes().map(|bytes| Some(bytes.into_owned())).ok_or(fault::WRONG_TYPE),
        None => Ok(None),
    }
}

/// Returns the length of a key's string before the caller changes the key. O(1).
///
/// # Errors
/// Returns an error if the key's value is not a string.
pub fn length(change: &mut Change<'_>, key: &[u8]) -> Result<Option<usize>, Fault> {
    change.value(key).map(|value| value.bytes().map(|bytes| bytes.len()).ok_or(fault::WRONG_TYPE)).transpose()
}

/// The options of `SET` and `GETEX`.
#[derive(Default)]
struct Options<'a> {
    nx: bool,
    xx: bool,
    get: bool,
    keep: bool,
    persist: bool,
    /// An expiry time: the text of the number, whether it is in seconds, and whether it is relative to now.
    expire: Option<(&'a [u8], bool, bool)>,
}

fn options(args: &Args, first: usize, set: bool) -> Result<Options<'_>, Fault> {
    let mut options = Options::default();
    let mut at = first;
    while at < args.len() {
        let is = |word| args.is(at, word);
        let alone = options.expire.is_none() && !options.keep && !options.persist;
        let unit = [("EX", true, true), ("PX", false, true), ("EXAT", true, false), ("PXAT", false, false)];
        let unit = unit.into_iter().find(|(word, ..)| is(word) && alone && at + 1 < args.len());
        if let Some((_, seconds, relative)) = unit {
            options.expire = Some((&args[at + 1], seconds, relative));
            at += 1;
        } else if set && is("NX") && !options.xx {
            options.nx = true;
        } else if set && is("XX") && !options.nx {
            options.xx = true;
        } else if set && is("GET") {
            options.get = true;
        } else if set && is("KEEPTTL") && options.expire.is_none() {
            options.keep = true;
        } else if !set && is("PERSIST") && options.expire.is_none() {
            options.persist = true;
        } else {
            return Err(fault::SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

/// Returns the expiry time that the options request, in milliseconds since 1970. The number must be positive.
fn until(expire: Option<(&[u8], bool, bool)>, now: u64, command: &str) -> Result<Option<u64>, Fault> {
    let Some((number, seconds, relative)) = expire else { return Ok(None) };
    let number = parse::integer(number)?;
    if number <= 0 {
        return Err(invalid_expire(command));
    }
    deadline(number, seconds, relative, now, command).map(|at| Some(at as u64))
}

fn set(change: &mut Change<'_>, args: &Args) -> Answer {
    let options = options(args, 3, true)?;
    let at = until(options.expire, change.now, "set")?;
    let key = &args[1];
    let before = if options.get { Some(Reply::optional(old(change, key)?)) } else { None };
    let found = change.find(key).map(|entry| entry.expires());
    if (options.nx && found.is_some()) || (options.xx && found.is_none()) {
        return Ok(before.unwrap_or(Reply::Null));
    }
    change.set(key, Value::string(&args[2]));
    change.changed(key, b'$', "set");
    if at.is_some() {
        change.expire_at(key, at);
        change.event(key, b'g', "expire");
    } else if options.keep {
        change.expire_at(key, found.flatten());
    }
    Ok(before.unwrap_or(Reply::OK))
}

fn setnx(change: &mut Change<'_>, args: &Args) -> Answer {
    if change.find(&args[1]).is_some() {
        return Ok(Reply::Int(0));
    }
    change.set(&args[1], Value::string(&args[2]));
    change.changed(&args[1], b'$', "set");
    Ok(Reply::Int(1))
}

fn set_until(change: &mut Change<'_>, args: &Args, seconds: bool, command: &str) -> Answer {
    let at = until(Some((&args[2], seconds, true)), change.now, command)?;
    change.set(&args[1], Value::string(&args[3]));
    change.expire_at(&args[1], at);
    change.changed(&args[1], b'$', "set");
    change.event(&args[1], b'g', "expire");
    Ok(Reply::OK)
}

fn setex(change: &mut Change<'_>, args: &Args) -> Answer {
    set_until(change, args, true, "setex")
}

fn psetex(change: &mut Change<'_>, args: &Args) -> Answer {
    set_until(change, args, false, "psetex")
}

fn getset(change: &mut Change<'_>, args: &Args) -> Answer {
    let before = Reply::optional(old(change, &args[1])?);
    change.set(&args[1], Value::string(&args[2]));
    change.changed(&args[1], b'$', "set");
    Ok(before)
}

fn getdel(change: &mut Change<'_>, args: &Args) -> Answer {
    let before = old(change, &args[1])?;
    if before.is_some() {
        change.remove(&args[1]);
        change.changed(&args[1], b'g', "del");
    }
    Ok(Reply::optional(before))
}

fn getex(change: &mut Change<'_>, args: &Args) -> Answer {
    let options = options(args, 2, false)?;
    let key = &args[1];
    let Some(before) = old(change, key)? else { return Ok(Reply::Null) };
    let at = until(options.expire, change.now, "getex")?;
    if at.is_some_and(|at| at <= change.now) {
        change.remove(key);
        change.changed(key, b'g', "del");
    } else if at.is_some() {
        change.expire_at(key, at);
        change.changed(key, b'g', "expire");
    } else if options.persist && change.find(key).is_some_and(|entry| entry.expires().is_some()) {
        change.expire_at(key, None);
        change.changed(key, b'g', "persist");
    }
    Ok(Reply::Bulk(before))
}

fn getrange(view: &View<'_>, args: &Args) -> Answer {
    let (start, end) = (parse::integer(&args[2])?, parse::integer(&args[3])?);
    let Some(bytes) = view.string(&args[1])? else { return Ok(Reply::bulk("")) };
    let length = bytes.len() as i64;
    if start < 0 && end < 0 && start > end {
        return Ok(Reply::bulk(""));
    }
    let from_end = |place: i64| if place < 0 { (place + length).max(0) } else { place };
    let (start, end) = (from_end(start), from_end(end).min(length - 1));
    if start > end || length == 0 {
        return Ok(Reply::bulk(""));
    }
    Ok(Reply::bulk(&bytes[start as usize..=end as usize]))
}

/// Returns the bytes of a key's string, to be changed in place. Creates the key if it is missing.
///
/// # Errors
/// Returns an error if the key's value is not a string.
pub fn raw<'c>(change: &'c mut Change<'_>, key: &[u8]) -> Result<&'c mut Vec<u8>, Fault> {
    if change.value(key).is_none() {
        change.set(key, Value::Raw(Box::default()));
    }
    let value = change.value(key).expect("it was made");
    if let Value::Int(_) | Value::Str(_) = value {
        *value = Value::Raw(Box::new(value.bytes().expect("it is a string").into_owned()));
    }
    match value {
        Value::Raw(bytes) => Ok(bytes),
        _ => Err(fault::WRONG_TYPE),
    }
}

fn setrange(change: &mut Change<'_>, args: &Args) -> Answer {
    let offset = parse::integer(&args[2])?;
    if offset < 0 {
        return Err(Fault::new("ERR offset is out of range"));
    }
    let (key, piece) = (&args[1], &args[3]);
    let length = length(change, key)?.unwrap_or(0);
    if piece.is_empty() {
        return Ok(Reply::count(length));
    }
    let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(piece.len()));
    let end = end.filter(|end| *end <= LONGEST).ok_or(fault::TOO_LONG)?;
    let bytes = raw(change, key)?;
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[end - piece.len()..end].copy_from_slice(piece);
    let length = bytes.len();
    change.changed(key, b'$', "setrange");
    Ok(Reply::count(length))
}

fn mget(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::Array(args.from(1).map(|key| Reply::optional(view.string(key).ok().flatten())).collect()))
}

fn set_all(change: &mut Change<'_>, args: &Args) {
    for at in (1..args.len()).step_by(2) {
        change.set(&args[at], Value::string(&args[at + 1]));
        change.changed(&args[at], b'$', "set");
    }
}

fn mset(change: &mut Change<'_>, args: &Args) -> Answer {
    if args.len().is_multiple_of(2) {
        return Err(wrong_number("mset"));
    }
    set_all(change, args);
    Ok(Reply::OK)
}

fn msetnx(change: &mut Change<'_>, args: &Args) -> Answer {
    if args.len().is_multiple_of(2) {
        return Err(wrong_number("msetnx"));
    }
    if (1..args.len()).step_by(2).any(|at| change.find(&args[at]).is_some()) {
        return Ok(Reply::Int(0));
    }
    set_all(change, args);
    Ok(Reply::Int(1))
}

/// Adds to the integer that a key has.
fn add(change: &mut Change<'_>, key: &[u8], more: i64) -> Answer {
    let number = match change.value(key) {
        None => None,
        Some(Value::Int(number)) => Some(*number),
        Some(value) => Some(parse::integer(&value.bytes().ok_or(fault::WRONG_TYPE)?)?),
    };
    let overflow = Fault::new("ERR increment or decrement would overflow");
    let sum = number.unwrap_or(0).checked_add(more).ok_or(overflow)?;
    match number {
        Some(_) => *change.value(key).expect("it was there") = Value::Int(sum),
        None => change.set(key, Value::Int(sum)),
    }
    change.changed(key, b'$', "incrby");
    Ok(Reply::Int(sum))
}

fn incr(change: &mut Change<'_>, args: &Args) -> Answer {
    add(change, &args[1], 1)
}

fn decr(change: &mut Change<'_>, args: &Args) -> Answer {
    add(change, &args[1], -1)
}

fn incrby(change: &mut Change<'_>, args: &Args) -> Answer {
    let more = parse::integer(&args[2])?;
    add(change, &args[1], more)
}

fn decrby(change: &mut Change<'_>, args: &Args) -> Answer {
    let less = parse::integer(&args[2])?;
    let more = less.checked_neg().ok_or(Fault::new("ERR decrement would overflow"))?;
    add(change, &args[1], more)
}

/// Returns the sum of two numbers in the notation of Redis.
///
/// # Errors
/// Returns `bad` if the old text is not a number. Returns other errors if the new text is not a number, or if the sum
/// is infinite or out of range.
pub fn float_sum(before: Option<&[u8]>, more: &[u8], bad: Fault) -> Result<String, Fault> {
    let read = |text: &[u8], bad: Fault| {
        // A text that only the parser of doubles accepts is an infinity, or a zero with a long exponent.
        match Extended::parse(text) {
            Some(number) => Ok(Some(number)),
            None => match parse::float_or(text, bad)? {
                number if number.is_infinite() => Ok(None),
                number => Ok(Extended::parse(number.to_string().as_bytes())),
            },
        }
    };
    let before = read(before.unwrap_or(b"0"), bad)?;
    let more = read(more, fault::NOT_A_FLOAT)?;
    let (Some(before), Some(more)) = (before, more) else { return Err(fault::NAN_OR_INFINITY) };
    let sum = before.plus(more);
    if sum.is_huge() { Err(fault::NAN_OR_INFINITY) } else { Ok(sum.text()) }
}

fn incrbyfloat(change: &mut Change<'_>, args: &Args) -> Answer {
    let before = old(change, &args[1])?;
    let sum = float_sum(before.as_deref(), &args[2], fault::NOT_A_FLOAT)?;
    let value = Value::Str(sum.as_bytes().into());
    match before {
        Some(_) => *change.value(&args[1]).expect("it was there") = value,
        None => change.set(&args[1], value),
    }
    change.changed(&args[1], b'$', "incrbyfloat");
    Ok(Reply::bulk(sum))
}

fn append(change: &mut Change<'_>, args: &Args) -> Answer {
    let (key, piece) = (&args[1], &args[2]);
    let length = match length(change, key)? {
        None => {
            change.set(key, Value::string(piece));
            piece.len()
        }
        Some(before) if before + piece.len() > LONGEST => return Err(fault::TOO_LONG),
        Some(_) => {
            let bytes = raw(change, key)?;
            bytes.extend_from_slice(piece);
            bytes.len()
        }
    };
    change.changed(key, b'$', "append");
    Ok(Reply::count(length))
}

fn strlen(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::count(view.string(&args[1])?.map_or(0, |bytes| bytes.len())))
}

/// Returns the longest common subsequence, by dynamic programming over a table of lengths.
fn lcs(view: &View<'_>, args: &Args) -> Answer {
    let texts =
        |key: &[u8]| view.string(key).map_err(|_| Fault::new("ERR The specified keys must contain string values"));
    let (one, other) = (texts(&args[1])?.unwrap_or_default(), texts(&args[2])?.unwrap_or_default());
    let (mut len, mut idx, mut with_length, mut least) = (false, false, false, 0);
    let mut at = 3;
    while at < args.len() {
        match () {
            () if args.is(at, "IDX") => idx = true,
            () if args.is(at, "LEN") => len = true,
            () if args.is(at, "WITHMATCHLEN") => with_length = true,
            () if args.is(at, "MINMATCHLEN") && at + 1 < args.len() => {
                least = parse::integer(&args[at + 1])?.max(0) as usize;
                at += 1;
            }
            () => return Err(fault::SYNTAX),
        }
        at += 1;
    }
    if idx && len {
        return Err(Fault::new("ERR If you want both the length and indexes, please just use IDX."));
    }
    let width = other.len() + 1;
    if (one.len() + 1).saturating_mul(width) > LONGEST / 4 {
        return Err(Fault::new("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"));
    }
    let mut lengths = vec![0_u32; (one.len() + 1) * width];
    for i in 1..=one.len() {
        for j in 1..=other.len() {
            lengths[i * width + j] = if one[i - 1] == other[j - 1] {
                lengths[(i - 1) * width + j - 1] + 1
            } else {
                lengths[(i - 1) * width + j].max(lengths[i * width + j - 1])
            };
        }
    }
    let total = lengths[one.len() * width + other.len()] as usize;
    if len {
        return Ok(Reply::count(total));
    }
    let (mut i, mut j) = (one.len(), other.len());
    let (mut text, mut matches, mut run) = (Vec::with_capacity(total), Vec::new(), 0);
    let tell = |i: usize, j: usize, run: usize, matches: &mut Vec<Reply>| {
        if run == 0 || run < least {
            return;
        }
        let range = |start: usize| Reply::Array(vec![Reply::count(start), Reply::count(start + run - 1)]);
        let mut told = vec![range(i), range(j)];
        told.extend(with_length.then(|| Reply::count(run)));
        matches.push(Reply::Array(told));
    };
    while i > 0 && j > 0 {
        if one[i - 1] == other[j - 1] {
            text.push(one[i - 1]);
            (i, j, run) = (i - 1, j - 1, run + 1);
            continue;
        }
        tell(i, j, core::mem::take(&mut run), &mut matches);
        if lengths[(i - 1) * width + j] > lengths[i * width + j - 1] { i -= 1 } else { j -= 1 }
    }
    tell(i, j, run, &mut matches);
    if idx {
        let told = vec![Reply::bulk("matches"), Reply::Array(matches), Reply::bulk("len"), Reply::count(total)];
        return Ok(Reply::Map(told));
    }
    text.reverse();
    Ok(Reply::Bulk(text))
}
