//! Commands for lists. A command that can block answers with a null array (or null) if it finds nothing. The server
//! carries the command out again when one of its keys is ready.

use crate::args::Args;
use crate::command::{Command, Keys, ONE_KEY, category, flag};
use crate::db::list::{End, List};
use crate::db::{Change, View};
use crate::family::parse;
use crate::family::sets::counted;
use crate::reply::{Answer, Fault, Reply, fault};
use End::{Left, Right};
use category::LIST;
use flag::{BLOCKING, DENYOOM, FAST, NOSCRIPT};

const TWO: Keys = Keys::Range(1, 2, 1);
const BUT_LAST: Keys = Keys::Range(1, -2, 1);

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("lpush", -3, DENYOOM | FAST, ONE_KEY, LIST, |c, a| push(c, a, Left, true)),
    Command::write("rpush", -3, DENYOOM | FAST, ONE_KEY, LIST, |c, a| push(c, a, Right, true)),
    Command::write("lpushx", -3, DENYOOM | FAST, ONE_KEY, LIST, |c, a| push(c, a, Left, false)),
    Command::write("rpushx", -3, DENYOOM | FAST, ONE_KEY, LIST, |c, a| push(c, a, Right, false)),
    Command::write("lpop", -2, FAST, ONE_KEY, LIST, |c, a| pop(c, a, Left)),
    Command::write("rpop", -2, FAST, ONE_KEY, LIST, |c, a| pop(c, a, Right)),
    Command::read("llen", 2, FAST, ONE_KEY, LIST, llen),
    Command::read("lindex", 3, 0, ONE_KEY, LIST, lindex),
    Command::read("lrange", 4, 0, ONE_KEY, LIST, lrange),
    Command::read("lpos", -3, 0, ONE_KEY, LIST, lpos),
    Command::write("lset", 4, DENYOOM, ONE_KEY, LIST, lset),
    Command::write("linsert", 5, DENYOOM, ONE_KEY, LIST, linsert),
    Command::write("lrem", 4, 0, ONE_KEY, LIST, lrem),
    Command::write("ltrim", 4, 0, ONE_KEY, LIST, ltrim),
    Command::write("rpoplpush", 3, DENYOOM, TWO, LIST, |c, a| relocate(c, a, Right, Left)),
    Command::write("lmove", 5, DENYOOM, TWO, LIST, |c, a| { let (from, to) = ends(a)?; relocate(c, a, from, to) }),
    Command::write("lmpop", -4, 0, Keys::Counted { first: 0, count: 1 }, LIST, |c, a| lmpop(c, a, 1)),
    Command::write("blpop", -3, BLOCKING | NOSCRIPT, BUT_LAST, LIST, |c, a| blocking_pop(c, a, Left)),
    Command::write("brpop", -3, BLOCKING | NOSCRIPT, BUT_LAST, LIST, |c, a| blocking_pop(c, a, Right)),
    Command::write("brpoplpush", 4, DENYOOM | BLOCKING | NOSCRIPT, TWO, LIST, |c, a| { timeout(&a[3])?; relocate(c, a, Right, Left) }),
    Command::write("blmove", 6, DENYOOM | BLOCKING | NOSCRIPT, TWO, LIST, |c, a| { let (from, to) = ends(a)?; timeout(&a[5])?; relocate(c, a, from, to) }),
    Command::write("blmpop", -5, BLOCKING, Keys::Counted { first: 0, count: 2 }, LIST, |c, a| lmpop(c, a, 2)),
];

/// Parses a timeout in seconds. Returns milliseconds. 0 means that the command blocks without a limit.
pub fn timeout(text: &[u8]) -> Result<u64, Fault> {
    let bad = Fault::new("ERR timeout is not a float or out of range");
    let seconds = parse::number(text).ok_or(bad)?;
    let millis = (seconds * 1000.0).ceil();
    // In Redis, a timeout that overflows a signed 64-bit integer becomes negative. The error is therefore the same.
    if millis < 0.0 || millis > i64::MAX as f64 {
        return Err(Fault::new("ERR timeout is negative"));
    }
    // A positive timeout that rounds to 0 becomes 1 ms, because 0 would mean no limit.
    Ok((millis as u64).max(parse::is_lost(text, seconds).into()))
}

fn event(end: End, pushed: bool) -> &'static str {
    match (end, pushed) {
        (Left, true) => "lpush",
        (Right, true) => "rpush",
        (Left, false) => "lpop",
        (Right, false) => "rpop",
    }
}

fn push(change: &mut Change<'_>, args: &Args, end: End, make: bool) -> Answer {
    let Some((list, is_new)) = change.make_if::<List>(&args[1], make)? else { return Ok(Reply::Int(0)) };
    args.from(2).for_each(|element| list.push(end, element));
    let len = list.len();
    if is_new {
        change.ready(&args[1]);
    }
    change.changed(&args[1], b'l', event(end, true));
    Ok(Reply::count(len))
}

fn take(change: &mut Change<'_>, key: &[u8], end: End, count: usize) -> Result<Vec<Vec<u8>>, Fault> {
    let Some(list) = change.get::<List>(key)? else { return Ok(Vec::new()) };
    let taken: Vec<Vec<u8>> = (0..count.min(list.len())).filter_map(|_| list.pop(end)).collect();
    if !taken.is_empty() {
        change.changed_container::<List>(key, b'l', event(end, false));
    }
    Ok(taken)
}

fn pop(change: &mut Change<'_>, args: &Args, end: End) -> Answer {
    if args.len() > 3 {
        return Err(crate::session::wrong_number(event(end, false)));
    }
    let count = args.get(2).map(parse::positive).transpose()?;
    if change.get::<List>(&args[1])?.is_none() {
        return Ok(if count.is_some() { Reply::NullArray } else { Reply::Null });
    }
    match count {
        None => Ok(Reply::optional(take(change, &args[1], end, 1)?.pop())),
        Some(count) => Ok(Reply::bulks(take(change, &args[1], end, usize::try_from(count).unwrap_or(usize::MAX))?)),
    }
}

fn llen(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::count(view.get::<List>(&args[1])?.map_or(0, List::len)))
}

/// Converts an index that may count from the end (negative) to an index from the front. Returns `None` if the index is
/// out of range.
fn place(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

fn lindex(view: &View<'_>, args: &Args) -> Answer {
    let Some(list) = view.get::<List>(&args[1])? else { return Ok(Reply::Null) };
    let index = parse::integer(&args[2])?;
    Ok(Reply::optional(place(index, list.len()).and_then(|index| list.get(index))))
}

/// Converts a range whose ends may count from the end (negative). Returns the first index and the number of elements.
pub fn range(start: i64, end: i64, len: usize) -> (usize, usize) {
    let from_end = |place: i64| if place < 0 { place.saturating_add(len as i64) } else { place };
    let (start, end) = (from_end(start).max(0), from_end(end).min(len as i64 - 1));
    if start > end { (0, 0) } else { (start as usize, (end - start + 1) as usize) }
}

fn lrange(view: &View<'_>, args: &Args) -> Answer {
    let (start, end) = (parse::integer(&args[2])?, parse::integer(&args[3])?);
    let Some(list) = view.get::<List>(&args[1])? else { return Ok(Reply::Array(Vec::new())) };
    let (first, count) = range(start, end, list.len());
    Ok(Reply::bulks(list.iter_from(first).take(count)))
}

fn lpos(view: &View<'_>, args: &Args) -> Answer {
    let (mut rank, mut count, mut most) = (1, None, 0);
    let mut at = 3;
    while at < args.len() {
        if at + 1 >= args.len() {
            return Err(fault::SYNTAX);
        }
        match () {
            () if args.is(at, "RANK") => {
                rank = parse::integer(&args[at + 1])?;
                if rank == 0 {
                    return Err(Fault::new(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative \
                         to start from the end of the list",
                    ));
                }
            }
            () if args.is(at, "COUNT") => {
                let bad = Fault::new("ERR COUNT can't be negative");
                count = Some(u64::try_from(parse::integer_or(&args[at + 1], bad.clone())?).map_err(|_| bad)?);
            }
            () if args.is(at, "MAXLEN") => {
                let bad = Fault::new("ERR MAXLEN can't be negative");
                most = u64::try_from(parse::integer_or(&args[at + 1], bad.clone())?).map_err(|_| bad)?;
            }
            () => return Err(fault::SYNTAX),
        }
        at += 2;
    }
    let Some(list) = view.get::<List>(&args[1])? else {
        return Ok(if count.is_some() { Reply::Array(Vec::new()) } else { Reply::Null });
    };
    let most = if most == 0 { list.len() } else { usize::try_from(most).unwrap_or(usize::MAX) };
    let wanted = count.map_or(1, |count| if count == 0 { usize::MAX } else { count as usize });
    let is = |(_, element): &(usize, &[u8])| **element == args[2];
    // `i64::MIN` has no absolute value in 64 bits. It means the first element from the end here, as in Redis.
    let skip = if rank == i64::MIN { 0 } else { (rank.unsigned_abs() - 1) as usize };
    let told =
        |places: &mut dyn Iterator<Item = usize>| places.skip(skip).take(wanted).map(Reply::count).collect::<Vec<_>>();
    let mut places = if rank > 0 {
        told(&mut list.iter().enumerate().take(most).filter(is).map(|(at, _)| at))
    } else {
        let last = list.len() - 1;
        told(&mut list.iter().rev().enumerate().take(most).filter(is).map(|(at, _)| last - at))
    };
    Ok(if count.is_some() { Reply::Array(places) } else { places.pop().unwrap_or(Reply::Null) })
}

fn lset(change: &mut Change<'_>, args: &Args) -> Answer {
    let Some(list) = change.get::<List>(&args[1])? else { return Err(fault::NO_SUCH_KEY) };
    let index = parse::integer(&args[2])?;
    let index = place(index, list.len()).ok_or(fault::INDEX)?;
    list.set(index, &args[3]);
    change.changed(&args[1], b'l', "lset");
    Ok(Reply::OK)
}

fn linsert(change: &mut Change<'_>, args: &Args) -> Answer {
    let behind = match () {
        () if args.is(2, "AFTER") => 1,
        () if args.is(2, "BEFORE") => 0,
        () => return Err(fault::SYNTAX),
    };
    let Some(list) = change.get::<List>(&args[1])? else { return Ok(Reply::Int(0)) };
    let Some(at) = list.iter().position(|element| *element == args[3]) else { return Ok(Reply::Int(-1)) };
    list.insert(at + behind, &args[4]);
    let len = list.len();
    change.changed(&args[1], b'l', "linsert");
    Ok(Reply::count(len))
}

fn lrem(change: &mut Change<'_>, args: &Args) -> Answer {
    let count = parse::integer(&args[2])?;
    let Some(list) = change.get::<List>(&args[1])? else { return Ok(Reply::Int(0)) };
    let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let removed = list.remove_equal(&args[3], if count < 0 { Right } else { Left }, most);
    if removed > 0 {
        change.changed_container::<List>(&args[1], b'l', "lrem");
    }
    Ok(Reply::count(removed))
}

fn ltrim(change: &mut Change<'_>, args: &Args) -> Answer {
    let (start, end) = (parse::integer(&args[2])?, parse::integer(&args[3])?);
    let Some(list) = change.get::<List>(&args[1])? else { return Ok(Reply::OK) };
    let (first, count) = range(start, end, list.len());
    list.remove(first + count, list.len() - first - count);
    list.remove(0, first);
    change.changed_container::<List>(&args[1], b'l', "ltrim");
    Ok(Reply::OK)
}

fn end_of(text: &[u8]) -> Result<End, Fault> {
    match text.to_ascii_uppercase().as_slice() {
        b"LEFT" => Ok(Left),
        b"RIGHT" => Ok(Right),
        _ => Err(fault::SYNTAX),
    }
}

fn ends(args: &Args) -> Result<(End, End), Fault> {
    Ok((end_of(&args[3])?, end_of(&args[4])?))
}

fn relocate(change: &mut Change<'_>, args: &Args, from: End, to: End) -> Answer {
    if change.get::<List>(&args[1])?.is_none() {
        return Ok(Reply::Null);
    }
    let found = change.get::<List>(&args[2]).map(|list| list.is_some());
    // A blocked client does not wait for the destination to get another type, so this error ends the client's wait.
    let found = found.inspect_err(|fault| change.unblocks(fault.clone()))?;
    let list = change.get::<List>(&args[1])?.expect("it was looked at");
    let element = list.pop(from).expect("no list is empty");
    if args[1] == args[2] {
        list.push(to, &element);
    } else {
        change.make::<List>(&args[2])?.push(to, &element);
    }
    if !found {
        change.ready(&args[2]);
    }
    change.changed(&args[2], b'l', event(to, true));
    change.changed_container::<List>(&args[1], b'l', event(from, false));
    Ok(Reply::Bulk(element))
}

/// Parses the arguments of `LMPOP`, `ZMPOP` and their blocking forms, from the number of keys at `at` on: the keys, the
/// word for the end to pop from, and an optional count. The timeout of a blocking form is checked last, so that its
/// error is reported last.
pub fn mpop<T>(args: &Args, at: usize, word: impl Fn(&[u8]) -> Result<T, Fault>) -> Result<(usize, T, usize), Fault> {
    let keys = counted(args, at, Fault::new("ERR numkeys should be greater than 0"))
        .map_err(|fault| if fault.0.contains("greater than number") { fault::SYNTAX } else { fault })?;
    let behind = at + 1 + keys;
    let which = word(args.get(behind).ok_or(fault::SYNTAX)?)?;
    let bad = Fault::new("ERR count should be greater than 0");
    let (mut count, mut at) = (None, behind + 1);
    while at < args.len() {
        if count.is_some() || !args.is(at, "COUNT") || at + 1 >= args.len() {
            return Err(fault::SYNTAX);
        }
        let number = parse::integer_or(&args[at + 1], bad.clone())?;
        count = Some(usize::try_from(number).ok().filter(|number| *number > 0).ok_or(bad.clone())?);
        at += 2;
    }
    if args[0][0].eq_ignore_ascii_case(&b'b') {
        timeout(&args[1])?;
    }
    Ok((keys, which, count.unwrap_or(1)))
}

fn lmpop(change: &mut Change<'_>, args: &Args, at: usize) -> Answer {
    let (keys, end, count) = mpop(args, at, end_of)?;
    for key in args.from(at + 1).take(keys) {
        if change.get::<List>(key)?.is_some() {
            let taken = take(change, key, end, count)?;
            return Ok(Reply::Array(vec![Reply::bulk(key), Reply::bulks(taken)]));
        }
    }
    Ok(Reply::NullArray)
}

fn blocking_pop(change: &mut Change<'_>, args: &Args, end: End) -> Answer {
    timeout(&args[args.len() - 1])?;
    for key in args.from(1).take(args.len() - 2) {
        if let Some(element) = take(change, key, end, 1)?.pop() {
            return Ok(Reply::Array(vec![Reply::bulk(key), Reply::Bulk(element)]));
        }
    }
    Ok(Reply::NullArray)
}
