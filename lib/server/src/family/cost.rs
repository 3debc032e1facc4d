//! Estimates the cost of a read before the read is carried out. Reads that may take long run on separate threads.
//!
//! The cost is the approximate number of bytes that the command may have to examine. It is computed in O(1) per key,
//! from the size of the key's value and from the arguments.

use super::hashes::FEW;
use super::parse;
use super::streams::Asked;
use crate::args::Args;
use crate::command::flag;
use crate::db::View;
use crate::operation::Call;

/// The most bytes that an event loop examines itself. Examining them takes about a tenth of a millisecond.
pub const LONG: usize = 256 << 10;

/// The number of bytes that one element counts as.
const ELEMENT: usize = 64;

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
    match call.command.name {
        "eval_ro" | "evalsha_ro" | "fcall" | "fcall_ro" => usize::MAX,
        "memory" if args.is(1, "STATS") => view.db.spaces.iter().map(|space| space.keys.len() * ELEMENT).sum(),
        "keys" => view.space().keys.len() * ELEMENT,
        "getrange" | "substr" | "lindex" | "object" | "randomkey" => 0,
        "scan" => after(args, 2, "COUNT").unwrap_or(10).saturating_mul(ELEMENT),
        "sscan" | "hscan" | "zscan" => after(args, 3, "COUNT").unwrap_or(10).saturating_mul(ELEMENT),
        "srandmember" | "hrandfield" | "zrandmember" => match number(args, 2).map_or(0, i64::unsigned_abs) {
            0..=FEW => 0,
            count => (count as usize).saturating_mul(ELEMENT).saturating_add(all()),
        },
        // A table with a row for each byte of one string and a column for each byte of the other.
        "lcs" => length(view, &args[1]).saturating_mul(length(view, &args[2])),
        // The identifiers of the stream's nodes.
        "xinfo" if !args.is(3, "FULL") => all() / NODE,
        "xread" => match Asked::parse(args) {
            Ok(asked) => asked.count.saturating_mul(asked.keys.1 * ELEMENT).min(all()),
            Err(_) => 0,
        },
        "lrange" | "zrevrange" => window(args).unwrap_or(usize::MAX).saturating_mul(ELEMENT).min(all()),
        "zrange" if args.len() == 4 || args.is(4, "WITHSCORES") || args.is(4, "REV") => {
            window(args).unwrap_or(usize::MAX).saturating_mul(ELEMENT).min(all())
        }
        "zrange" | "zrangebyscore" | "zrevrangebyscore" | "zrangebylex" | "zrevrangebylex" | "xrange" | "xrevrange" => {
            limit(args).unwrap_or(usize::MAX).saturating_mul(ELEMENT).min(all())
        }
        _ => all(),
    }
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

/// Returns the number after a word. Pairs of a word and a value begin at `from`.
fn after(args: &Args, from: usize, word: &str) -> Option<usize> {
    let place = (from..args.len()).step_by(2).find(|place| args.is(*place, word))?;
    usize::try_from(number(args, place + 1)?).ok()
}

/// Returns the most elements that a range requests, from `LIMIT` or `COUNT`.
fn limit(args: &Args) -> Option<usize> {
    match (4..args.len()).find(|place| args.is(*place, "LIMIT")) {
        Some(place) => usize::try_from(number(args, place + 2)?).ok(),
        None => after(args, 4, "COUNT"),
    }
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
        let view = View { db: &db, index: 0, now: 1, seed: 0, rights: None, deadline: None };
        for (line, long) in [
            ("ZRANGE z 0 -1", true),
            ("ZRANGE z 0 9", false),
            ("ZRANGE z -10 -1 REV", false),
            ("ZRANGE z 0 9000 WITHSCORES", true),
            ("ZRANGE z 0 9 BYSCORE", true),
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
    }
}
