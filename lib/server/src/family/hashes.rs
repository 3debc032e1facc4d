//! Commands for hashes.

use std::collections::BTreeMap;

use crate::args::Args;
use crate::command::{Command, ONE_KEY, category, flag};
use crate::db::extended::Extended;
use crate::db::fields::Live;
use crate::db::hash::{Field, Hash};
use crate::db::table::Keyed;
use crate::db::{Change, View};
use crate::family::generic::Scan;
use crate::family::parse;
use crate::family::strings::float_sum;
use crate::reply::{Answer, Fault, Many, Reply, fault, integer};
use crate::session::wrong_number;
use category::HASH;
use flag::{DENYOOM, FAST};

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("hset", -4, DENYOOM | FAST, ONE_KEY, HASH, |c, a| hset(c, a, "hset")),
    Command::write("hmset", -4, DENYOOM | FAST, ONE_KEY, HASH, |c, a| hset(c, a, "hmset")),
    Command::write("hsetnx", 4, DENYOOM | FAST, ONE_KEY, HASH, hsetnx),
    Command::read("hget", 3, FAST, ONE_KEY, HASH, hget),
    Command::read("hmget", -3, FAST, ONE_KEY, HASH, hmget),
    Command::write("hdel", -3, FAST, ONE_KEY, HASH, hdel),
    Command::read("hlen", 2, FAST, ONE_KEY, HASH, hlen),
    Command::read("hstrlen", 3, FAST, ONE_KEY, HASH, hstrlen),
    Command::read("hexists", 3, FAST, ONE_KEY, HASH, hexists),
    Command::read("hkeys", 2, 0, ONE_KEY, HASH, |v, a| all(v, a, true, false)),
    Command::read("hvals", 2, 0, ONE_KEY, HASH, |v, a| all(v, a, false, true)),
    Command::read("hgetall", 2, 0, ONE_KEY, HASH, |v, a| all(v, a, true, true)),
    Command::write("hincrby", 4, DENYOOM | FAST, ONE_KEY, HASH, hincrby),
    Command::write("hincrbyfloat", 4, DENYOOM | FAST, ONE_KEY, HASH, hincrbyfloat),
    Command::read("hscan", -3, 0, ONE_KEY, HASH, hscan),
    Command::read("hrandfield", -2, 0, ONE_KEY, HASH, hrandfield),
];

fn hset(change: &mut Change<'_>, args: &Args, name: &str) -> Answer {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_number(name));
    }
    let new = change.make_fields(&args[1], |fields| {
        let set = |at: &usize| fields.set(&args[*at], &args[*at + 1]);
        (2..args.len()).step_by(2).filter(set).count()
    })?;
    change.changed(&args[1], b'h', "hset");
    Ok(if name == "hset" { Reply::count(new) } else { Reply::OK })
}

fn hsetnx(change: &mut Change<'_>, args: &Args) -> Answer {
    let set = |fields: &mut Live<'_>| fields.deadline(&args[2]).is_none() && fields.set(&args[2], &args[3]);
    if !change.make_fields(&args[1], set)? {
        return Ok(Reply::Int(0));
    }
    change.changed(&args[1], b'h', "hset");
    Ok(Reply::Int(1))
}

fn hget(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::optional(view.fields(&args[1])?.and_then(|hash| hash.get(&args[2]))))
}

fn hmget(view: &View<'_>, args: &Args) -> Answer {
    let hash = view.fields(&args[1])?;
    Ok(Reply::Array(args.from(2).map(|name| Reply::optional(hash.and_then(|hash| hash.get(name)))).collect()))
}

fn hdel(change: &mut Change<'_>, args: &Args) -> Answer {
    let remove = |fields: &mut Live<'_>| args.from(2).filter(|name| fields.remove(name)).count();
    let removed = change.fields(&args[1], remove)?.unwrap_or(0);
    if removed > 0 {
        change.changed_container::<Hash>(&args[1], b'h', "hdel");
    }
    Ok(Reply::count(removed))
}

fn hlen(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::count(view.fields(&args[1])?.map_or(0, |hash| hash.len())))
}

fn hstrlen(view: &View<'_>, args: &Args) -> Answer {
    let hash = view.fields(&args[1])?;
    Ok(Reply::count(hash.and_then(|hash| hash.get(&args[2])).map_or(0, <[u8]>::len)))
}

fn hexists(view: &View<'_>, args: &Args) -> Answer {
    let hash = view.fields(&args[1])?;
    Ok(Reply::Int(hash.is_some_and(|hash| hash.get(&args[2]).is_some()).into()))
}

fn all(view: &View<'_>, args: &Args, names: bool, values: bool) -> Answer {
    let fields = view.fields(&args[1])?.into_iter().flat_map(|hash| hash.iter());
    let told = fields.flat_map(|(name, value)| [names.then_some(name), values.then_some(value)]).flatten().collect();
    Ok(Reply::Bulks(if names && values { Many::Map } else { Many::Array }, told))
}

fn hincrby(change: &mut Change<'_>, args: &Args) -> Answer {
    let more = parse::integer(&args[3])?;
    let number = |text: &[u8]| parse::integer_or(text, Fault::new("ERR hash value is not an integer"));
    let before = change.fields(&args[1], |fields| fields.get(&args[2]).map_or(Ok(0), number))?.unwrap_or(Ok(0))?;
    let sum = before.checked_add(more).ok_or(Fault::new("ERR increment or decrement would overflow"))?;
    let mut digits = Vec::new();
    integer(sum, &mut digits);
    change.make_fields(&args[1], |fields| fields.keep(&args[2], &digits))?;
    change.changed(&args[1], b'h', "hincrby");
    Ok(Reply::Int(sum))
}

fn hincrbyfloat(change: &mut Change<'_>, args: &Args) -> Answer {
    if Extended::parse(&args[3]).is_none() && parse::float(&args[3])?.is_infinite() {
        return Err(Fault::new("ERR value is NaN or Infinity"));
    }
    let sum = |before: Option<&[u8]>| float_sum(before, &args[3], Fault::new("ERR hash value is not a float"));
    let sum = change.fields(&args[1], |fields| sum(fields.get(&args[2])))?.unwrap_or_else(|| sum(None))?;
    change.make_fields(&args[1], |fields| fields.keep(&args[2], sum.as_bytes()))?;
    change.changed(&args[1], b'h', "hincrbyfloat");
    Ok(Reply::bulk(sum))
}

fn hscan(view: &View<'_>, args: &Args) -> Answer {
    let cursor = Scan::cursor(args, 2)?;
    let Some(hash) = view.fields(&args[1])? else { return Ok(Scan::answer(0, Vec::new())) };
    let scan = Scan::options(args, 2, cursor)?;
    match hash.hash {
        Hash::Table(table) => scan.table(table, tell),
        Hash::Many(many) => scan.table(many.table(), |field, told| {
            if hash.deadline(field.key()).is_some() {
                tell(field, told);
            }
        }),
        Hash::Packed(_) | Hash::Few(_) => {
            let met = hash.iter().filter(|(name, _)| scan.fits(name));
            Ok(Scan::answer(0, met.flat_map(|(name, value)| [Reply::bulk(name), Reply::bulk(value)]).collect()))
        }
    }
}

fn tell(field: &Field, told: &mut Vec<Reply>) {
    told.extend([Reply::bulk(field.key()), Reply::bulk(field.value())]);
}

/// Parses the arguments of a command that chooses random elements: the count, and whether `word` requests the values,
/// too.
pub fn chosen(args: &Args, word: &str) -> Result<(i64, bool), Fault> {
    let count = parse::integer(&args[2])?;
    if args.len() > 4 || (args.len() == 4 && !args.is(3, word)) {
        return Err(fault::SYNTAX);
    }
    let with = args.len() == 4;
    if count < -MOST_REPEATED || (with && count > i64::MAX / 2) {
        return Err(fault::OUT_OF_RANGE);
    }
    Ok((count, with))
}

/// The most elements that can be chosen with repetition. A larger number is refused, because the answer would fill the
/// memory. Redis does not refuse it.
pub const MOST_REPEATED: i64 = 1 << 24;

/// The most elements that are chosen at random one by one. For a larger number, all elements are collected first.
pub const FEW: u64 = 8;

/// Returns the indices of randomly chosen elements out of `len`. If `count` is positive, all indices differ. If `count`
/// is negative, -`count` indices are chosen independently. O(|`count`| log |`count`|).
pub fn choose(len: usize, count: i64, random: &mut crate::db::Random) -> Vec<usize> {
    if count < 0 {
        return (0..count.unsigned_abs()).map(|_| random.below(len)).collect();
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(len);
    // The first steps of a shuffle of all indices. `moved` has the indices that are not at their own place.
    let mut moved = BTreeMap::new();
    let step = |at| {
        let from = at + random.below(len - at);
        let here = moved.remove(&at).unwrap_or(at);
        if from == at { here } else { moved.insert(from, here).unwrap_or(from) }
    };
    (0..count).map(step).collect()
}

fn hrandfield(view: &View<'_>, args: &Args) -> Answer {
    let mut random = view.random();
    if args.len() == 2 {
        let Some(hash) = view.fields(&args[1])? else { return Ok(Reply::Null) };
        return Ok(Reply::optional(hash.nth(random.below(hash.len())).map(|(name, _)| name)));
    }
    let (count, with) = chosen(args, "WITHVALUES")?;
    let Some(hash) = view.fields(&args[1])? else { return Ok(Reply::Array(Vec::new())) };
    let chosen = choose(hash.len(), count, &mut random).into_iter();
    let chosen: Vec<(&[u8], &[u8])> = if count.unsigned_abs() <= FEW {
        chosen.filter_map(|at| hash.nth(at)).collect()
    } else {
        let all: Vec<(&[u8], &[u8])> = hash.iter().collect();
        chosen.map(|at| all[at]).collect()
    };
    let chosen = chosen.into_iter();
    Ok(if with {
        Reply::Twos(chosen.flat_map(|(name, value)| [Reply::bulk(name), Reply::bulk(value)]).collect())
    } else {
        Reply::bulks(chosen.map(|(name, _)| name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Db, Random};
    use crate::family::cost::tests::call;
    use crate::operation::Write;

    #[test]
    fn indices_are_those_of_a_shuffle() {
        for (len, count) in [(1, 1), (2, 2), (10, 3), (100, 100), (5, 9)] {
            for seed in 0..50 {
                let mut random = Random(seed);
                let mut all: Vec<usize> = (0..len).collect();
                for at in 0..count.min(len) {
                    all.swap(at, at + random.below(len - at));
                }
                all.truncate(count);
                assert_eq!(choose(len, count as i64, &mut Random(seed)), all);
            }
        }
    }

    #[test]
    fn few_are_chosen_as_the_first_of_many() {
        let mut db = Db::default();
        for line in (0..2_000).flat_map(|number| {
            [format!("SADD s m{number}"), format!("HSET h f{number} {number}"), format!("ZADD z {number} m{number}")]
        }) {
            db.write(&Write::Call(call(&line)));
        }
        // The first 8 of 9 indices do not depend on their number.
        for line in ["SRANDMEMBER s", "HRANDFIELD h", "ZRANDMEMBER z"] {
            for sign in ["", "-"] {
                let mut asked = |count| {
                    let reply = db.write(&Write::Call(call(&format!("{line} {sign}{count}")))).reply;
                    let mut bytes = Vec::new();
                    reply.encode(crate::reply::Protocol::Resp2, &mut bytes);
                    bytes
                };
                let (few, many) = (asked(8), asked(9));
                assert!(few.len() > 8 * 7 && many[2..].starts_with(&few[2..]), "{line} {sign}");
            }
        }
    }
}
