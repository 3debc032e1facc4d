//! Estimates the cost of a read before the read is carried out. Reads that may take long run on separate threads.
//!
//! The cost is the approximate number of bytes that the command may have to examine. It is computed in O(1) per key,
//! from the size of the key's value and from the arguments. Where an option may occur several times, the command
//! follows the last one, and so does the cost.

use super::hashes::FEW;
use super::parse;
use super::streams::Asked;
use crate::args::Args;
use crate::command::flag;
use crate::db::View;
use crate::db::value::Value;
use crate::operation::Call;

/// The most bytes that an event loop examines itself. Examining them takes about a tenth of a millisecond.
pub const LONG: usize = 256 << 10;

/// The least number of bytes that one element counts as.
const ELEMENT: usize = 64;

/// The most bytes of a key's name that are stored without heap memory.
const NAME: usize = 22;

/// `XINFO` without `FULL` examines only the identifiers of a stream's nodes. Its cost is the stream's size divided by
/// this number.
const NODE: usize = 64;

/// Returns whether a read may take long. A command with the flag `FAST` never does.
pub fn is_long(view: &View<'_>, call: &Call) -> bool {
    !call.command.has(flag::FAST) && of(view, call) > LONG
}

fn of(view: &View<'_>, call: &Call) -> usize {
    let args = &call.args;
    let all = || {
        let keys = call.command.keys.places(args).into_iter();
        keys.filter_map(|place| view.value(&args[place])).map(|value| value.heap()).sum::<usize>()
    };
    // The cost of `count` elements of each key's value, summed over the keys.
    let some = |count: Option<usize>| {
        let keys = call.command.keys.places(args).into_iter();
        let values = keys.filter_map(|place| view.value(&args[place]));
        values.map(|value| some_of(value, count.unwrap_or(usize::MAX))).fold(0, usize::saturating_add)
    };
    match call.command.name {
        "eval_ro" | "evalsha_ro" | "fcall" | "fcall_ro" => usize::MAX,
        "memory" if args.is(1, "STATS") => view.db.spaces.iter().map(|space| space.keys.len() * ELEMENT).sum(),
        "keys" => names(view, view.space().keys.len(), &args[1]),
        "getrange" | "substr" | "lindex" | "object" | "randomkey" => 0,
        "scan" => names(view, after(args, 2, "COUNT").unwrap_or(10), word_after(args, 2, "MATCH").unwrap_or_default()),
        "sscan" | "hscan" | "zscan" => {
            let compared = compared(word_after(args, 3, "MATCH").unwrap_or_default());
            some(Some(after(args, 3, "COUNT").unwrap_or(10))).saturating_mul(compared)
        }
        "srandmember" | "hrandfield" | "zrandmember" => match number(args, 2).map_or(0, i64::unsigned_abs) {
            0..=FEW => 0,
            count => (count as usize).saturating_mul(ELEMENT).saturating_add(all()),
        },
        // A table with a row for each byte of one string and a column for each byte of the other.
        "lcs" => length(view, &args[1]).saturating_mul(length(view, &args[2])),
        // The identifiers of the stream's nodes.
        "xinfo" if !args.is(3, "FULL") => all() / NODE,
        "xread" => Asked::parse(args).map_or(0, |asked| some(Some(asked.count))),
        "lrange" | "zrevrange" => some(window(args)),
        "zrange" if !(4..args.len()).any(|place| args.is(place, "BYSCORE") || args.is(place, "BYLEX")) => {
            some(window(args))
        }
        "zrange" | "zrangebyscore" | "zrevrangebyscore" | "zrangebylex" | "zrevrangebylex" => some(limit(args)),
        "xrange" | "xrevrange" => some(after(args, 4, "COUNT")),
        _ => all(),
    }
}

/// Returns the cost of `count` elements of a value.
fn some_of(value: &Value, count: usize) -> usize {
    let heap = value.heap();
    let len = match value {
        Value::List(list) => list.len(),
        Value::Hash(hash) => hash.len(),
        Value::Set(set) => set.len(),
        Value::Zset(zset) => zset.len(),
        Value::Stream(stream) => stream.len() as usize,
        Value::Str(_) | Value::Raw(_) | Value::Int(_) => 1,
    };
    count.saturating_mul((heap / len.max(1)).max(ELEMENT)).min(heap)
}

/// Returns the cost of comparing the names of `count` keys with a pattern.
fn names(view: &View<'_>, count: usize, pattern: &[u8]) -> usize {
    let keys = &view.space().keys;
    let name = NAME + keys.heap() / keys.len().max(1);
    count.saturating_mul(name.saturating_mul(compared(pattern)).max(ELEMENT))
}

/// Returns how many comparisons with a pattern each byte of a text may cause. After a `*`, the whole rest of the
/// pattern may be compared at each position of the text.
fn compared(pattern: &[u8]) -> usize {
    let behind = pattern.iter().position(|byte| *byte == b'*').map_or(0, |star| pattern.len() - star - 1);
    behind.max(1)
}

/// Returns the length of a string; 0 for another value.
fn length(view: &View<'_>, key: &[u8]) -> usize {
    view.value(key).and_then(|value| value.bytes().map(|bytes| bytes.len())).unwrap_or(0)
}

fn number(args: &Args, place: usize) -> Option<i64> {
    parse::integer(args.get(place)?).ok()
}

/// Returns the number of elements between the two indices in the arguments 2 and 3 (the command's name is argument 0).
/// Returns `None` unless both indices count from the same end.
fn window(args: &Args) -> Option<usize> {
    let (from, to) = (number(args, 2)?, number(args, 3)?);
    ((from < 0) == (to < 0)).then(|| usize::try_from(to.saturating_sub(from).saturating_add(1)).unwrap_or(0))
}

/// Returns the value after the last occurrence of a word. Pairs of a word and a value begin at `from`.
fn word_after<'a>(args: &'a Args, from: usize, word: &str) -> Option<&'a [u8]> {
    let place = (from..args.len()).step_by(2).rev().find(|place| args.is(*place, word))?;
    args.get(place + 1)
}

/// Returns the number after the last occurrence of a word.
fn after(args: &Args, from: usize, word: &str) -> Option<usize> {
    usize::try_from(parse::integer(word_after(args, from, word)?).ok()?).ok()
}

/// Returns the most elements that a range requests, from the last `LIMIT`.
fn limit(args: &Args) -> Option<usize> {
    let place = (4..args.len()).rev().find(|place| args.is(*place, "LIMIT"))?;
    usize::try_from(number(args, place + 2)?).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::command;
    use crate::db::Db;
    use crate::operation::Write;

    /// Returns a call of the command in this line.
    pub fn call(line: &str) -> Call {
        let args: Args = line.split(' ').collect();
        Call {
            command: command::find(&args[0]).unwrap(),
            args,
            db: 0,
            now: 1,
            seed: 0,
            wishes: 0,
            rights: None,
            deadline: None,
        }
    }

    #[test]
    fn what_is_long_follows_from_what_is_asked_for() {
        let mut db = Db::default();
        for number in 0..30_000 {
            db.write(&Write::Call(call(&format!("ZADD z {number} member:{number}"))));
            db.write(&Write::Call(call(&format!("RPUSH l element:{number:0>32}"))));
            db.write(&Write::Call(call(&format!("SADD {} 1", number % 5))));
            db.write(&Write::Call(call(&format!("SADD s member:{number:0>32}"))));
            db.write(&Write::Call(call(&format!("ZADD limit {number} member:{number}"))));
            db.write(&Write::Call(call(&format!("XADD x {}-0 a {number:0>32}", number + 1))));
            db.write(&Write::Call(call(&format!("XADD count {}-0 a {number:0>32}", number + 1))));
        }
        db.write(&Write::Call(call(&format!("SET text {}", "t".repeat(1000)))));
        for _ in 0..40 {
            db.write(&Write::Call(call(&format!("RPUSH wide {}", "w".repeat(100_000)))));
            db.write(&Write::Call(call(&format!("XADD entries * a {}", "w".repeat(100_000)))));
        }
        db.write(&Write::Call(call("XADD some * a b")));
        db.write(&Write::Call(call("XGROUP CREATE pending g 0 MKSTREAM")));
        (1..9_000).for_each(|id| _ = db.write(&Write::Call(call(&format!("XADD pending {id}-0 a b")))));
        db.write(&Write::Call(call("XREADGROUP GROUP g c STREAMS pending >")));
        db.write(&Write::Call(call("XTRIM pending MAXLEN 1")));
        let view = View { db: &db, index: 0, now: 1, seed: 0, rights: None, deadline: None };
        for (line, long) in [
            ("ZRANGE z 0 -1", true),
            ("ZRANGE z 0 9", false),
            ("ZRANGE z -10 -1 REV", false),
            ("ZRANGE z 0 9000 WITHSCORES", true),
            ("ZRANGE z 0 9 BYSCORE", true),
            ("ZRANGE z 9 0 REV BYSCORE", true),
            ("ZRANGE z 0 0 WITHSCORES BYSCORE", true),
            ("ZRANGE z [a [b WITHSCORES BYLEX", true),
            ("ZRANGE z 0 9 BYSCORE LIMIT 0 10", false),
            ("ZRANGE z 0 9 LIMIT 0 10 BYSCORE LIMIT 0 -1", true),
            ("ZRANGEBYSCORE z -inf +inf LIMIT 0 10 LIMIT 0 -1", true),
            ("ZSCAN z 0 COUNT 1 COUNT 1000000", true),
            ("ZSCAN z 0 COUNT 10", false),
            ("SCAN 0 COUNT 1 COUNT 1000000000", true),
            ("XRANGE x - + COUNT 1 COUNT 1000000", true),
            ("XRANGE entries - + COUNT 2", false),
            ("XRANGE entries - + COUNT 20", true),
            ("XREAD COUNT 20 STREAMS entries 0", true),
            ("XREAD COUNT 1 STREAMS entries some 0 0", false),
            ("XPENDING pending g - + 9000", true),
            ("LRANGE wide 0 1", false),
            ("LRANGE wide 0 19", true),
            ("ZRANGEBYSCORE z -inf +inf", true),
            ("ZRANGEBYSCORE z -inf +inf LIMIT 0 10", false),
            ("ZSCORE z a", false),
            ("LRANGE l 0 -1", true),
            ("LRANGE l 5 10", false),
            ("SMEMBERS 1", false),
            ("SMEMBERS none", false),
            ("ZUNION 2 z none", true),
            ("SRANDMEMBER 1 -100000", true),
            ("SCAN 0 COUNT 100000", true),
            ("SCAN 0", false),
            ("KEYS *", false),
            ("LPOS l missing COUNT 1", true),
            ("SORT_RO z LIMIT 0 1", true),
            ("GEOSEARCH z FROMLONLAT 0 0 BYRADIUS 1 m COUNT 1", true),
            ("SINTERCARD 2 s s LIMIT 1", true),
            ("SINTERCARD 2 limit count LIMIT 1", true),
            ("ZUNION 2 limit 1", true),
            ("SCAN 0 MATCH count COUNT 100000", true),
            ("SRANDMEMBER s 1", false),
            ("SRANDMEMBER s 1000", true),
            ("HRANDFIELD none -1000", false),
            ("ZRANDMEMBER z -8", false),
            ("ZRANDMEMBER z 9", true),
            ("XRANGE x - +", true),
            ("XRANGE x - + COUNT 10", false),
            ("XREAD COUNT 10 STREAMS x 0", false),
            ("XREAD STREAMS x 0", true),
            ("XREAD COUNT 1 STREAMS count 0", false),
            ("XREAD STREAMS count 0", true),
            ("XINFO STREAM x", false),
            ("XINFO STREAM x FULL COUNT 0", true),
            ("LCS text text", true),
            ("LCS text none", false),
        ] {
            assert_eq!(is_long(&view, &call(line)), long, "{line}");
        }
        (0..10_000).for_each(|number| _ = db.write(&Write::Call(call(&format!("SET k{number} v")))));
        assert!(is_long(&View { db: &db, index: 0, now: 1, seed: 0, rights: None, deadline: None }, &call("KEYS *")));
        // The name is compared with the whole pattern at each of its bytes.
        let mut db = Db::default();
        db.write(&Write::Call(call(&format!("SET {} v", "a".repeat(1_000)))));
        let view = View { db: &db, index: 0, now: 1, seed: 0, rights: None, deadline: None };
        for (line, long) in [
            ("KEYS *".to_owned(), false),
            ("KEYS a*".to_owned(), false),
            (format!("KEYS *{}b", "a".repeat(500)), true),
            (format!("SCAN 0 MATCH *{}b", "a".repeat(500)), true),
            (format!("KEYS {}*", "a".repeat(500)), false),
        ] {
            assert_eq!(is_long(&view, &call(&line)), long, "{line}");
        }
    }
}
