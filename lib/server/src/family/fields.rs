//! Commands for hash fields that expire, as in Redis 7.4 and 8.0.
//!
//! A field is *due* when its expiry time has come. No command sees a due field ([`fields`](crate::db::fields)). The
//! order of checks is that of Redis: the key's type is checked first. `HSETEX` is the exception: it parses its
//! arguments first.

use crate::args::Args;
use crate::command::{Command, ONE_KEY, category, flag};
use crate::db::fields::Live;
use crate::db::hash::Hash;
use crate::db::{Change, View};
use crate::family::generic::{Condition, invalid_expire};
use crate::family::parse;
use crate::reply::{Answer, Fault, Reply};
use crate::session::wrong_number;
use category::HASH;
use flag::{DENYOOM, FAST};

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("hexpire", -6, DENYOOM | FAST, ONE_KEY, HASH, |c, a| hexpire(c, a, true, true)),
    Command::write("hpexpire", -6, DENYOOM | FAST, ONE_KEY, HASH, |c, a| hexpire(c, a, false, true)),
    Command::write("hexpireat", -6, DENYOOM | FAST, ONE_KEY, HASH, |c, a| hexpire(c, a, true, false)),
    Command::write("hpexpireat", -6, DENYOOM | FAST, ONE_KEY, HASH, |c, a| hexpire(c, a, false, false)),
    Command::write("hpersist", -5, FAST, ONE_KEY, HASH, hpersist),
    Command::read("httl", -5, FAST, ONE_KEY, HASH, |v, a| httl(v, a, true, true)),
    Command::read("hpttl", -5, FAST, ONE_KEY, HASH, |v, a| httl(v, a, false, true)),
    Command::read("hexpiretime", -5, FAST, ONE_KEY, HASH, |v, a| httl(v, a, true, false)),
    Command::read("hpexpiretime", -5, FAST, ONE_KEY, HASH, |v, a| httl(v, a, false, false)),
    Command::write("hgetex", -5, FAST, ONE_KEY, HASH, hgetex),
    Command::write("hsetex", -6, DENYOOM | FAST, ONE_KEY, HASH, hsetex),
    Command::write("hgetdel", -5, FAST, ONE_KEY, HASH, hgetdel),
];

/// The latest expiry time of a field, in milliseconds since 1970. The limit is that of Redis.
pub const LAST: i64 = (1 << 46) - 1;

/// The answer for a field that does not exist.
const NO_FIELD: i64 = -2;
/// The answer for a field that does not expire.
const NO_TIME: i64 = -1;

const NOT_POSITIVE: Fault = Fault::new("ERR Number of fields must be a positive integer");

/// Parses an expiry time. Returns milliseconds since 1970.
fn deadline(argument: &[u8], seconds: bool, relative: bool, now: u64, command: &str) -> Result<u64, Fault> {
    let number = parse::integer(argument)?;
    if number < 0 {
        return Err(Fault::new("ERR invalid expire time, must be >= 0"));
    }
    let now = if relative { i64::try_from(now).unwrap_or(i64::MAX) } else { 0 };
    let at = number.checked_mul(if seconds { 1000 } else { 1 }).and_then(|number| number.checked_add(now));
    at.filter(|at| *at <= LAST).map(|at| at as u64).ok_or_else(|| invalid_expire(command))
}

fn name_of(args: &Args) -> String {
    String::from_utf8_lossy(&args[0]).to_ascii_lowercase()
}

/// Parses the word FIELDS at `at`, the number of fields, and the fields.
fn listed(args: &Args, at: usize, bad: Fault) -> Result<impl ExactSizeIterator<Item = &[u8]> + Clone, Fault> {
    if !args.is(at, "FIELDS") {
        return Err(Fault::new("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    let count = args.get(at + 1).and_then(|count| parse::integer(count).ok()).filter(|count| *count > 0).ok_or(bad)?;
    let fields = args.from(at + 2);
    if usize::try_from(count) != Ok(fields.len()) {
        return Err(Fault::new("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(fields)
}

/// The result of setting the expiry time of a field. The numbers are those of Redis's replies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    NoField = -2,
    Refused = 0,
    Done = 1,
    Removed = 2,
}

/// Sets the expiry time of a field. A time that has already passed removes the field.
fn expire(fields: &mut Live<'_>, name: &[u8], at: u64, allowed: impl Fn(Option<u64>) -> bool) -> Set {
    match fields.deadline(name) {
        None => Set::NoField,
        Some(before) if !allowed(before) => Set::Refused,
        Some(_) if at <= fields.now => {
            fields.remove(name);
            Set::Removed
        }
        Some(_) => {
            fields.expire_at(name, Some(at));
            Set::Done
        }
    }
}

/// Records the change of expiry times. All fields get the same time, so either all changed fields were removed or none
/// was.
fn tell(change: &mut Change<'_>, key: &[u8], sets: &[Set], done: &'static str) {
    if sets.contains(&Set::Removed) {
        change.changed_container::<Hash>(key, b'h', "hdel");
    } else if sets.contains(&Set::Done) {
        change.changed(key, b'h', done);
    }
}

fn hexpire(change: &mut Change<'_>, args: &Args, seconds: bool, relative: bool) -> Answer {
    change.get::<Hash>(&args[1])?;
    let at = deadline(&args[2], seconds, relative, change.now, &name_of(args))?;
    let words = usize::from(["NX", "XX", "GT", "LT"].iter().any(|word| args.is(3, word)));
    let condition = Condition::parse(args.from(3).take(words))?;
    let names = listed(args, 3 + words, Fault::new("ERR Parameter `numFields` should be greater than 0"))?;
    let one = |fields: &mut Live<'_>, name| expire(fields, name, at, |before| condition.allows(before, at as i64));
    let all = change.fields(&args[1], |fields| names.clone().map(|name| one(fields, name)).collect::<Vec<Set>>())?;
    let all = all.unwrap_or_else(|| vec![Set::NoField; names.len()]);
    tell(change, &args[1], &all, "hexpire");
    Ok(Reply::Array(all.into_iter().map(|set| Reply::Int(set as i64)).collect()))
}

/// Removes the expiry time of a field. Returns the number for the reply.
fn persist(fields: &mut Live<'_>, name: &[u8]) -> i64 {
    match fields.deadline(name) {
        None => NO_FIELD,
        Some(None) => NO_TIME,
        Some(Some(_)) => {
            fields.expire_at(name, None);
            1
        }
    }
}

fn hpersist(change: &mut Change<'_>, args: &Args) -> Answer {
    change.get::<Hash>(&args[1])?;
    let names = listed(args, 2, NOT_POSITIVE)?;
    let all =
        change.fields(&args[1], |fields| names.clone().map(|name| persist(fields, name)).collect::<Vec<i64>>())?;
    let all = all.unwrap_or_else(|| vec![NO_FIELD; names.len()]);
    if all.contains(&1) {
        change.changed(&args[1], b'h', "hpersist");
    }
    Ok(Reply::Array(all.into_iter().map(Reply::Int).collect()))
}

fn httl(view: &View<'_>, args: &Args, seconds: bool, relative: bool) -> Answer {
    let fields = view.fields(&args[1])?;
    let told = |at: u64| {
        let left = if relative { at.saturating_sub(view.now) } else { at };
        (if seconds { left.div_ceil(1000) } else { left }) as i64
    };
    let one = |name: &[u8]| match fields.and_then(|fields| fields.deadline(name)) {
        None => NO_FIELD,
        Some(at) => at.map_or(NO_TIME, told),
    };
    Ok(Reply::Array(listed(args, 2, NOT_POSITIVE)?.map(|name| Reply::Int(one(name))).collect()))
}

/// What a command does to the expiry times of the fields that it reads or sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    /// The default of the command, if no word changes it.
    Usual,
    At(u64),
    Persist,
    Keep,
}

/// Parses the words for an expiry time at `at`. Returns the time and the number of words. Returns `None` if there are
/// no such words.
fn times(args: &Args, at: usize, now: u64) -> Result<Option<(Times, usize)>, Fault> {
    let forms = [("EX", true, true), ("PX", false, true), ("EXAT", true, false), ("PXAT", false, false)];
    let Some((_, seconds, relative)) = forms.into_iter().find(|(word, ..)| args.is(at, word)) else {
        return Ok(None);
    };
    let number = args.get(at + 1).ok_or(Fault::new("ERR missing expire time"))?;
    Ok(Some((Times::At(deadline(number, seconds, relative, now, &name_of(args))?), 2)))
}

fn hgetex(change: &mut Change<'_>, args: &Args) -> Answer {
    change.get::<Hash>(&args[1])?;
    let persists = args.is(2, "PERSIST").then_some((Times::Persist, 1));
    let (times, words) = times(args, 2, change.now)?.or(persists).unwrap_or((Times::Usual, 0));
    let names = listed(args, 2 + words, NOT_POSITIVE)?;
    let one = |fields: &mut Live<'_>, name: &[u8]| {
        let value = Reply::optional(fields.get(name));
        let set = match times {
            Times::At(at) => expire(fields, name, at, |_| true),
            Times::Persist if persist(fields, name) == 1 => Set::Done,
            _ => Set::Refused,
        };
        (value, set)
    };
    let all = change.fields(&args[1], |fields| names.clone().map(|name| one(fields, name)).collect::<Vec<_>>())?;
    let (values, sets): (Vec<Reply>, Vec<Set>) =
        all.unwrap_or_else(|| vec![(Reply::Null, Set::NoField); names.len()]).into_iter().unzip();
    tell(change, &args[1], &sets, if times == Times::Persist { "hpersist" } else { "hexpire" });
    Ok(Reply::Array(values))
}

fn hgetdel(change: &mut Change<'_>, args: &Args) -> Answer {
    change.get::<Hash>(&args[1])?;
    let names = listed(args, 2, NOT_POSITIVE)?;
    let one = |fields: &mut Live<'_>, name: &[u8]| {
        let value = Reply::optional(fields.get(name));
        fields.remove(name);
        value
    };
    let all = change.fields(&args[1], |fields| names.clone().map(|name| one(fields, name)).collect::<Vec<Reply>>())?;
    let all = all.unwrap_or_else(|| vec![Reply::Null; names.len()]);
    if all.iter().any(|value| *value != Reply::Null) {
        change.changed_container::<Hash>(&args[1], b'h', "hdel");
    }
    Ok(Reply::Array(all))
}

/// The arguments of `HSETEX` before the fields.
struct Options {
    times: Times,
    /// `FXX` (`true`): set the fields only if all of them exist. `FNX` (`false`): set them only if none exists.
    there: Option<bool>,
    /// The index of the first field in the arguments.
    first: usize,
}

impl Options {
    fn parse(args: &Args, now: u64) -> Result<Self, Fault> {
        let (mut options, mut at) = (Self { times: Times::Usual, there: None, first: 0 }, 2);
        while at < args.len() {
            if args.is(at, "FIELDS") {
                return options.fields(args, at);
            }
            let keeps = args.is(at, "KEEPTTL").then_some((Times::Keep, 1));
            let forms = ["EX", "PX", "EXAT", "PXAT", "KEEPTTL"];
            if options.times != Times::Usual && forms.iter().any(|word| args.is(at, word)) {
                return Err(Fault::new("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"));
            } else if let Some((times, words)) = times(args, at, now)?.or(keeps) {
                options.times = times;
                at += words;
            } else if args.is(at, "FXX") || args.is(at, "FNX") {
                if options.there.replace(args.is(at, "FXX")).is_some() {
                    return Err(Fault::new("ERR Only one of FXX or FNX arguments can be specified"));
                }
                at += 1;
            } else {
                return Err(Fault::made(format!("ERR unknown argument: {}", String::from_utf8_lossy(&args[at]))));
            }
        }
        Err(wrong_number("hsetex"))
    }

    fn fields(mut self, args: &Args, at: usize) -> Result<Self, Fault> {
        if at + 3 >= args.len() {
            return Err(wrong_number("hsetex"));
        }
        let most = i64::from(i32::MAX);
        let count = parse::integer(&args[at + 1]).ok().filter(|count| (1..=most).contains(count));
        let count = count.ok_or(Fault::new("ERR invalid number of fields"))?;
        self.first = at + 2;
        if (args.len() - self.first) as i64 != 2 * count {
            return Err(wrong_number("hsetex"));
        }
        Ok(self)
    }
}

fn hsetex(change: &mut Change<'_>, args: &Args) -> Answer {
    let Options { times, there, first } = Options::parse(args, change.now)?;
    let places = (first..args.len()).step_by(2);
    let found =
        change.fields(&args[1], |fields| places.clone().filter(|at| fields.deadline(&args[*at]).is_some()).count())?;
    let refused = |all: bool| found.unwrap_or(0) != if all { places.len() } else { 0 };
    if there.is_some_and(refused) {
        return Ok(Reply::Int(0));
    }
    let one = |fields: &mut Live<'_>, at: usize| {
        let (name, value) = (&args[at], &args[at + 1]);
        match times {
            Times::At(at) => {
                fields.keep(name, value);
                expire(fields, name, at, |_| true)
            }
            Times::Keep => {
                fields.keep(name, value);
                Set::Refused
            }
            _ => {
                fields.set(name, value);
                Set::Refused
            }
        }
    };
    let sets: Vec<Set> = change.make_fields(&args[1], |fields| places.map(|at| one(fields, at)).collect())?;
    change.changed(&args[1], b'h', "hset");
    tell(change, &args[1], &sets, "hexpire");
    Ok(Reply::Int(1))
}
