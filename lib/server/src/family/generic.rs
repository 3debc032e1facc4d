//! Commands for keys of any type: names, expiry times and databases.

use crate::args::Args;
use crate::command::{ALL_KEYS, Command, Keys, ONE_KEY, category, flag, help};
use crate::db::evict::frequency;
use crate::db::table::{Keyed, Table};
use crate::db::{Change, DATABASES, View};
use crate::family::{glob, parse};
use crate::reply::{Answer, Fault, Reply, fault};
use category::{DANGEROUS, KEYSPACE};
use flag::{DENYOOM, FAST};

const TWO_KEYS: Keys = Keys::Range(1, 2, 1);

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("del", -2, 0, ALL_KEYS, KEYSPACE, del),
    Command::write("unlink", -2, FAST, ALL_KEYS, KEYSPACE, del),
    Command::read("exists", -2, FAST, ALL_KEYS, KEYSPACE, exists),
    Command::read("touch", -2, FAST, ALL_KEYS, KEYSPACE, touch),
    Command::read("type", 2, FAST, ONE_KEY, KEYSPACE, kind),
    Command::read("dbsize", 1, FAST, Keys::None, KEYSPACE, dbsize),
    Command::read("keys", 2, 0, Keys::None, KEYSPACE | DANGEROUS, keys),
    Command::read("scan", -2, 0, Keys::None, KEYSPACE, scan),
    Command::read("randomkey", 1, 0, Keys::None, KEYSPACE, randomkey),
    Command::write("rename", 3, 0, TWO_KEYS, KEYSPACE, rename),
    Command::write("renamenx", 3, FAST, TWO_KEYS, KEYSPACE, renamenx),
    Command::write("copy", -3, DENYOOM, TWO_KEYS, KEYSPACE, copy),
    Command::write("move", 3, FAST, ONE_KEY, KEYSPACE, move_key),
    Command::write("swapdb", 3, FAST, Keys::None, KEYSPACE | DANGEROUS, swapdb),
    Command::write("flushall", -1, 0, Keys::None, KEYSPACE | DANGEROUS, flushall),
    Command::write("flushdb", -1, 0, Keys::None, KEYSPACE | DANGEROUS, flushdb),
    Command::write("expire", -3, FAST, ONE_KEY, KEYSPACE, |c, a| expire(c, a, true, true)),
    Command::write("pexpire", -3, FAST, ONE_KEY, KEYSPACE, |c, a| expire(c, a, false, true)),
    Command::write("expireat", -3, FAST, ONE_KEY, KEYSPACE, |c, a| expire(c, a, true, false)),
    Command::write("pexpireat", -3, FAST, ONE_KEY, KEYSPACE, |c, a| expire(c, a, false, false)),
    Command::write("persist", 2, FAST, ONE_KEY, KEYSPACE, persist),
    Command::read("ttl", 2, FAST, ONE_KEY, KEYSPACE, |v, a| ttl(v, a, true, true)),
    Command::read("pttl", 2, FAST, ONE_KEY, KEYSPACE, |v, a| ttl(v, a, false, true)),
    Command::read("expiretime", 2, FAST, ONE_KEY, KEYSPACE, |v, a| ttl(v, a, true, false)),
    Command::read("pexpiretime", 2, FAST, ONE_KEY, KEYSPACE, |v, a| ttl(v, a, false, false)),
    Command::read("object", -2, 0, Keys::Range(2, 2, 1), KEYSPACE, object),
];

fn del(change: &mut Change<'_>, args: &Args) -> Answer {
    Ok(Reply::count(args.from(1).filter(|key| delete(change, key)).count()))
}

/// Removes a key and records the change. Returns whether the key existed.
pub fn delete(change: &mut Change<'_>, key: &[u8]) -> bool {
    change.bury(key);
    let found = change.remove(key).is_some();
    if found {
        change.changed(key, b'g', "del");
    }
    found
}

fn exists(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::count(args.from(1).filter(|key| view.find(key).is_some()).count()))
}

fn touch(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::count(args.from(1).filter(|key| view.use_of(key).is_some()).count()))
}

fn kind(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::Status(view.value(&args[1]).map_or("none", |value| value.kind())))
}

fn dbsize(view: &View<'_>, _: &Args) -> Answer {
    Ok(Reply::count(view.space().keys.len()))
}

fn keys(view: &View<'_>, args: &Args) -> Answer {
    let all = view.space().keys.iter().filter(|entry| !entry.is_dead(view.now)).map(Keyed::key);
    Ok(Reply::bulks(all.filter(|key| glob::fits(&args[1], key))))
}

/// The options of `SCAN`, `SSCAN`, `HSCAN` and `ZSCAN`.
pub struct Scan<'a> {
    cursor: u64,
    count: usize,
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
}

impl<'a> Scan<'a> {
    /// Parses the cursor at `at`.
    pub fn cursor(args: &Args, at: usize) -> Result<u64, Fault> {
        let text = core::str::from_utf8(&args[at]).ok();
        // As in C, a negative number is converted to an unsigned number by wrapping around.
        let number = |text: &str| text.parse().ok().or_else(|| text.parse::<i64>().ok().map(|number| number as u64));
        text.and_then(|text| if text.is_empty() { Some(0) } else { number(text) })
            .ok_or(Fault::new("ERR invalid cursor"))
    }

    /// Parses the options after the cursor at `at`.
    pub fn options(args: &'a Args, at: usize, cursor: u64) -> Result<Self, Fault> {
        let mut scan = Self { cursor, count: 10, pattern: None, kind: None };
        for at in (at + 1..args.len()).step_by(2) {
            let value = args.get(at + 1).ok_or(fault::SYNTAX)?;
            match () {
                () if args.is(at, "COUNT") => {
                    let count = parse::integer(value)?;
                    scan.count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(fault::SYNTAX)?;
                }
                () if args.is(at, "MATCH") => scan.pattern = Some(value),
                () if args.is(at, "TYPE") && args[0].len() == 4 => scan.kind = Some(value),
                () => return Err(fault::SYNTAX),
            }
        }
        Ok(scan)
    }

    /// Returns whether a name matches the pattern.
    pub fn fits(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::fits(pattern, name))
    }

    /// Continues a scan in a table. The answer has the next cursor and the replies that `tell` adds for each entry.
    pub fn table<E: Keyed>(&self, table: &Table<E>, mut tell: impl FnMut(&E, &mut Vec<Reply>)) -> Answer {
        let mut told = Vec::new();
        let next = table.scan(self.cursor, self.count, |entry| {
            if self.fits(entry.key()) {
                tell(entry, &mut told);
            }
        });
        Ok(Self::answer(next, told))
    }

    /// Returns the reply to a scan.
    pub fn answer(next: u64, told: Vec<Reply>) -> Reply {
        Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(told)])
    }
}

fn scan(view: &View<'_>, args: &Args) -> Answer {
    let scan = Scan::options(args, 1, Scan::cursor(args, 1)?)?;
    scan.table(&view.space().keys, |entry, told| {
        let wanted = scan.kind.is_none_or(|kind| kind.eq_ignore_ascii_case(entry.value.kind().as_bytes()));
        if wanted && !entry.is_dead(view.now) {
            told.push(Reply::bulk(entry.key()));
        }
    })
}

fn randomkey(view: &View<'_>, _: &Args) -> Answer {
    let mut random = view.random();
    for _ in 0..100 {
        match view.space().keys.choose(|| random.draw()) {
            Some(entry) if entry.is_dead(view.now) => {}
            found => return Ok(Reply::optional(found.map(Keyed::key))),
        }
    }
    let alive = view.space().keys.iter().find(|entry| !entry.is_dead(view.now));
    Ok(Reply::optional(alive.map(Keyed::key)))
}

fn rename_to(change: &mut Change<'_>, args: &Args, replace: bool) -> Answer {
    let (from, to) = (&args[1], &args[2]);
    if change.find(from).is_none() {
        return Err(fault::NO_SUCH_KEY);
    }
    if from == to {
        return Ok(if replace { Reply::OK } else { Reply::Int(0) });
    }
    if change.find(to).is_some() && !replace {
        return Ok(Reply::Int(0));
    }
    change.remove(to);
    let entry = change.remove(from).expect("it was found");
    let expires = entry.expires();
    change.set(to, entry.value);
    change.expire_at(to, expires);
    change.ready(to);
    change.changed(from, b'g', "rename_from");
    change.changed(to, b'g', "rename_to");
    Ok(if replace { Reply::OK } else { Reply::Int(1) })
}

fn rename(change: &mut Change<'_>, args: &Args) -> Answer {
    rename_to(change, args, true)
}

fn renamenx(change: &mut Change<'_>, args: &Args) -> Answer {
    rename_to(change, args, false)
}

/// Calls `work` with another database.
fn on<R>(change: &mut Change<'_>, index: u32, work: impl FnOnce(&mut Change<'_>) -> R) -> R {
    let here = core::mem::replace(&mut change.index, index);
    let result = work(change);
    change.index = here;
    result
}

fn copy(change: &mut Change<'_>, args: &Args) -> Answer {
    let (mut replace, mut target, mut at) = (false, change.index, 3);
    while at < args.len() {
        if args.is(at, "REPLACE") {
            replace = true;
        } else if args.is(at, "DB") && at + 1 < args.len() {
            let index = parse::integer(&args[at + 1])?;
            target = u32::try_from(index).ok().filter(|db| *db < DATABASES).ok_or(fault::DB_INDEX)?;
            at += 1;
        } else {
            return Err(fault::SYNTAX);
        }
        at += 1;
    }
    let (from, to) = (&args[1], &args[2]);
    if target == change.index && from == to {
        return Err(Fault::new("ERR source and destination objects are the same"));
    }
    let Some(entry) = change.find(from).map(|entry| entry.clone()) else { return Ok(Reply::Int(0)) };
    on(change, target, |change| {
        if change.find(to).is_some() && !replace {
            return Ok(Reply::Int(0));
        }
        let expires = entry.expires();
        change.remove(to);
        change.set(to, entry.value);
        change.expire_at(to, expires);
        change.ready(to);
        change.changed(to, b'g', "copy_to");
        Ok(Reply::Int(1))
    })
}

fn move_key(change: &mut Change<'_>, args: &Args) -> Answer {
    let index = parse::integer(&args[2])?;
    i32::try_from(index).map_err(|_| fault::NOT_SHORT)?;
    let target = u32::try_from(index).ok().filter(|db| *db < DATABASES).ok_or(fault::DB_INDEX)?;
    if target == change.index {
        return Err(Fault::new("ERR source and destination objects are the same"));
    }
    let key = &args[1];
    let taken = change.find(key).is_none() || on(change, target, |change| change.find(key).is_some());
    if taken {
        return Ok(Reply::Int(0));
    }
    let entry = change.remove(key).expect("it was found");
    on(change, target, |change| {
        let expires = entry.expires();
        change.set(key, entry.value);
        change.expire_at(key, expires);
        change.ready(key);
    });
    change.changed(key, b'g', "move_from");
    on(change, target, |change| change.changed(key, b'g', "move_to"));
    Ok(Reply::Int(1))
}

fn swapdb(change: &mut Change<'_>, args: &Args) -> Answer {
    let index = |at: usize, text| parse::integer_or(&args[at], Fault::new(text));
    let one = index(1, "ERR invalid first DB index")?;
    let other = index(2, "ERR invalid second DB index")?;
    let valid = |index: i64| u32::try_from(index).ok().filter(|db| *db < DATABASES).ok_or(fault::DB_INDEX);
    let (one, other) = (valid(one)?, valid(other)?);
    if one != other {
        // A watched key counts as changed if it exists before or after the swap.
        touch_all(change, one, &[one, other]);
        touch_all(change, other, &[one, other]);
        change.swap(one, other);
        change.flushed();
        for index in [one, other] {
            on(change, index, |change| change.replaced());
        }
    }
    Ok(Reply::OK)
}

/// Records a change for each watched key of a database that exists in any of `spaces`.
fn touch_all(change: &mut Change<'_>, index: u32, spaces: &[u32]) {
    for key in change.db.watched_in(index) {
        if spaces.iter().any(|space| change.db.spaces[*space as usize].keys.contains(&key)) {
            change.db.touch(index, &key);
        }
    }
}

fn flush(change: &mut Change<'_>, args: &Args, spaces: core::ops::Range<u32>) -> Answer {
    if args.len() > 2 || (args.len() == 2 && !args.is(1, "ASYNC") && !args.is(1, "SYNC")) {
        return Err(fault::SYNTAX);
    }
    for index in spaces {
        touch_all(change, index, &[index]);
        on(change, index, |change| {
            change.clear();
            change.replaced();
        });
    }
    change.flushed();
    Ok(Reply::OK)
}

fn flushall(change: &mut Change<'_>, args: &Args) -> Answer {
    flush(change, args, 0..DATABASES)
}

fn flushdb(change: &mut Change<'_>, args: &Args) -> Answer {
    let index = change.index;
    flush(change, args, index..index + 1)
}

/// Returns the error for an invalid expiry time.
pub fn invalid_expire(command: &str) -> Fault {
    Fault::made(format!("ERR invalid expire time in '{command}' command"))
}

/// Converts an expiry time to milliseconds since 1970. `number` is in seconds if `seconds` is set, else in
/// milliseconds. It counts from now if `relative` is set, else from 1970.
pub fn deadline(number: i64, seconds: bool, relative: bool, now: u64, command: &str) -> Result<i64, Fault> {
    let number = if seconds { number.checked_mul(1000) } else { Some(number) };
    let now = if relative { now as i64 } else { 0 };
    number.and_then(|number| number.checked_add(now)).ok_or_else(|| invalid_expire(command))
}

/// Conditions on the expiry time that is to be replaced.
pub struct Condition {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Condition {
    /// Parses the words of the conditions.
    pub fn parse<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Self, Fault> {
        let mut condition = Self { nx: false, xx: false, gt: false, lt: false };
        for word in words {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" => condition.nx = true,
                b"XX" => condition.xx = true,
                b"GT" => condition.gt = true,
                b"LT" => condition.lt = true,
                _ => return Err(Fault::made(format!("ERR Unsupported option {}", String::from_utf8_lossy(word)))),
            }
        }
        let Self { nx, xx, gt, lt } = condition;
        if nx && (xx || gt || lt) {
            return Err(Fault::new("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if gt && lt {
            return Err(Fault::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(condition)
    }

    /// Returns whether the conditions permit the new expiry time `at`. `before` is the previous expiry time, if there
    /// was one.
    pub fn allows(&self, before: Option<u64>, at: i64) -> bool {
        let before = before.map(|before| before as i64);
        !(self.nx && before.is_some()
            || self.xx && before.is_none()
            || self.gt && before.is_none_or(|before| at <= before)
            || self.lt && before.is_some_and(|before| at >= before))
    }
}

fn expire(change: &mut Change<'_>, args: &Args, seconds: bool, relative: bool) -> Answer {
    let name = String::from_utf8_lossy(&args[0]).to_ascii_lowercase();
    let condition = Condition::parse(args.from(3))?;
    let at = deadline(parse::integer(&args[2])?, seconds, relative, change.now, &name)?;
    let key = &args[1];
    let Some(before) = change.find(key).map(|entry| entry.expires()) else { return Ok(Reply::Int(0)) };
    if !condition.allows(before, at) {
        return Ok(Reply::Int(0));
    }
    if at <= change.now as i64 {
        change.remove(key);
        change.changed(key, b'g', "del");
    } else {
        change.expire_at(key, Some(at as u64));
        change.changed(key, b'g', "expire");
    }
    Ok(Reply::Int(1))
}

fn persist(change: &mut Change<'_>, args: &Args) -> Answer {
    let key = &args[1];
    if change.find(key).is_none_or(|entry| entry.expires().is_none()) {
        return Ok(Reply::Int(0));
    }
    change.expire_at(key, None);
    change.changed(key, b'g', "persist");
    Ok(Reply::Int(1))
}

fn ttl(view: &View<'_>, args: &Args, seconds: bool, relative: bool) -> Answer {
    let Some(entry) = view.find(&args[1]) else { return Ok(Reply::Int(-2)) };
    let Some(at) = entry.expires() else { return Ok(Reply::Int(-1)) };
    let left = if relative { at.saturating_sub(view.now) } else { at };
    Ok(Reply::Int(if seconds { (left + 500) / 1000 } else { left } as i64))
}

/// Returns the error for an unknown subcommand.
pub fn unknown_subcommand(args: &Args) -> Fault {
    // At most 128 bytes are shown.
    let word = parse::before_zero(&args[1]);
    let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
    let name = String::from_utf8_lossy(&args[0]).to_ascii_uppercase();
    Fault::made(format!("ERR unknown subcommand '{word}'. Try {name} HELP."))
}

/// Checks the number of arguments of a subcommand.
pub fn arity(args: &Args, name: &str, least: usize, most: usize) -> Result<(), Fault> {
    if (least..=most).contains(&args.len()) { Ok(()) } else { Err(crate::session::wrong_number(name)) }
}

/// Checks a subcommand of `OBJECT`. This check takes place before a transaction queues the command, like the check of a
/// command's number of arguments.
///
/// # Errors
/// Returns an error if the subcommand is unknown or its number of arguments is wrong.
pub fn object_part(args: &Args) -> Result<&'static str, Fault> {
    if args.is(1, "HELP") {
        arity(args, "object|help", 2, 2)?;
        return Ok("help");
    }
    let names = ["encoding", "refcount", "idletime", "freq"];
    let name = names.into_iter().find(|name| args.is(1, name)).ok_or_else(|| unknown_subcommand(args))?;
    arity(args, &format!("object|{name}"), 3, 3)?;
    Ok(name)
}

/// Returns whether a request of `OBJECT` shows records of uses, which differ between replicas.
pub fn shows_uses(args: &Args) -> bool {
    args.is(1, "IDLETIME") || args.is(1, "FREQ")
}

fn object(view: &View<'_>, args: &Args) -> Answer {
    let name = object_part(args)?;
    if name == "help" {
        return Ok(help::of("object"));
    }
    let Some(entry) = view.find(&args[2]) else { return Ok(Reply::Null) };
    match name {
        "encoding" => Ok(Reply::bulk(entry.value.encoding())),
        "refcount" => Ok(Reply::Int(1)),
        "idletime" if view.db.lfu => Err(Fault::new(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
             policies at runtime LRU and LFU data will take some time to adjust.",
        )),
        "idletime" => Ok(Reply::Int((view.now / 1000).saturating_sub(entry.access().into()) as i64)),
        "freq" if view.db.lfu => Ok(Reply::Int(frequency(entry.access(), view.now).into())),
        _ => Err(Fault::new(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
             between policies at runtime LRU and LFU data will take some time to adjust.",
        )),
    }
}
