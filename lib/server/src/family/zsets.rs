//! Commands for the members, scores and ranks of sorted sets. Ranges are in the module `zranges`, and unions,
//! intersections and differences are in `zjoins`.

use crate::args::Args;
use crate::command::{Command, Keys, ONE_KEY, category, flag};
use crate::db::zset::Zset;
use crate::db::{Change, View};
use crate::family::generic::Scan;
use crate::family::hashes::{FEW, choose, chosen};
use crate::family::lists::{mpop, timeout};
use crate::family::{parse, zranges};
use crate::reply::{Answer, Fault, Reply, double, fault};
use category::SORTED_SET;
use flag::{BLOCKING, DENYOOM, FAST, NOSCRIPT};

const BUT_LAST: Keys = Keys::Range(1, -2, 1);

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("zadd", -4, DENYOOM | FAST, ONE_KEY, SORTED_SET, |c, a| zadd(c, a, false)),
    Command::write("zincrby", 4, DENYOOM | FAST, ONE_KEY, SORTED_SET, |c, a| zadd(c, a, true)),
    Command::write("zrem", -3, FAST, ONE_KEY, SORTED_SET, zrem),
    Command::read("zcard", 2, FAST, ONE_KEY, SORTED_SET, zcard),
    Command::read("zscore", 3, FAST, ONE_KEY, SORTED_SET, zscore),
    Command::read("zmscore", -3, FAST, ONE_KEY, SORTED_SET, zmscore),
    Command::read("zrank", 3, FAST, ONE_KEY, SORTED_SET, |v, a| zrank(v, a, false)),
    Command::read("zrevrank", 3, FAST, ONE_KEY, SORTED_SET, |v, a| zrank(v, a, true)),
    Command::write("zpopmin", -2, FAST, ONE_KEY, SORTED_SET, |c, a| zpop(c, a, false)),
    Command::write("zpopmax", -2, FAST, ONE_KEY, SORTED_SET, |c, a| zpop(c, a, true)),
    Command::write("zmpop", -4, 0, Keys::Counted { first: 0, count: 1 }, SORTED_SET, |c, a| zmpop(c, a, 1)),
    Command::write("bzpopmin", -3, BLOCKING | FAST | NOSCRIPT, BUT_LAST, SORTED_SET, |c, a| blocking_pop(c, a, false)),
    Command::write("bzpopmax", -3, BLOCKING | FAST | NOSCRIPT, BUT_LAST, SORTED_SET, |c, a| blocking_pop(c, a, true)),
    Command::write("bzmpop", -5, BLOCKING, Keys::Counted { first: 0, count: 2 }, SORTED_SET, |c, a| zmpop(c, a, 2)),
    Command::read("zscan", -3, 0, ONE_KEY, SORTED_SET, zscan),
    Command::read("zrandmember", -2, 0, ONE_KEY, SORTED_SET, zrandmember),
];

/// The options of `ZADD`.
#[derive(Default)]
struct Options {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    changed: bool,
    add: bool,
}

fn options(args: &Args) -> (Options, usize) {
    let (mut options, mut at) = (Options::default(), 2);
    loop {
        match () {
            () if args.is(at, "NX") => options.nx = true,
            () if args.is(at, "XX") => options.xx = true,
            () if args.is(at, "CH") => options.changed = true,
            () if args.is(at, "INCR") => options.add = true,
            () if args.is(at, "GT") => options.gt = true,
            () if args.is(at, "LT") => options.lt = true,
            () => return (options, at),
        }
        at += 1;
    }
}

/// Carries out `ZADD` and `ZINCRBY`.
pub fn zadd(change: &mut Change<'_>, args: &Args, zincrby: bool) -> Answer {
    let (mut options, at) = options(args);
    // As in Redis, `ZINCRBY` accepts the options of `ZADD`, too.
    options.add |= zincrby;
    let Options { nx, xx, gt, lt, changed, add } = options;
    let pairs = args.len() - at;
    if pairs == 0 || pairs % 2 == 1 {
        return Err(fault::SYNTAX);
    }
    if nx && xx {
        return Err(Fault::new("ERR XX and NX options at the same time are not compatible"));
    }
    if ((gt || lt) && nx) || (gt && lt) {
        return Err(Fault::new("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if add && pairs > 2 {
        return Err(Fault::new("ERR INCR option supports a single increment-element pair"));
    }
    let scores = (at..args.len()).step_by(2).map(|at| parse::float(&args[at])).collect::<Result<Vec<f64>, Fault>>()?;
    let key = &args[1];
    let hashing = change.db.hashing;
    let Some((zset, _)) = change.make_if::<Zset>(key, !xx)? else {
        return Ok(if add { Reply::Null } else { Reply::Int(0) });
    };
    let (mut added, mut updated, mut sum) = (0, 0, None);
    let mut nan = false;
    for (index, score) in scores.into_iter().enumerate() {
        let member = &args[at + 2 * index + 1];
        let before = zset.score(member);
        let score = before.filter(|_| add).map_or(score, |before| before + score);
        if score.is_nan() {
            nan = true;
            break;
        }
        match before {
            None if xx => {}
            None => {
                zset.set(member, score, hashing);
                (added, sum) = (added + 1, Some(score));
            }
            Some(before) => {
                if nx || (gt && score <= before) || (lt && score >= before) {
                    continue;
                }
                sum = Some(score);
                if score != before {
                    zset.set(member, score, hashing);
                    updated += 1;
                }
            }
        }
    }
    if nan {
        return Err(Fault::new("ERR resulting score is not a number (NaN)"));
    }
    if zset.is_empty() {
        change.remove(key);
    }
    if added + updated > 0 {
        change.changed(key, b'z', if add { "zincr" } else { "zadd" });
        change.ready(key);
    }
    match (add, sum) {
        (true, Some(sum)) => Ok(Reply::Double(sum)),
        (true, None) => Ok(Reply::Null),
        (false, _) => Ok(Reply::Int(added + if changed { updated } else { 0 })),
    }
}

fn zrem(change: &mut Change<'_>, args: &Args) -> Answer {
    let Some(zset) = change.get::<Zset>(&args[1])? else { return Ok(Reply::Int(0)) };
    let removed = args.from(2).filter(|member| zset.remove(member).is_some()).count();
    if removed > 0 {
        change.changed_container::<Zset>(&args[1], b'z', "zrem");
    }
    Ok(Reply::count(removed))
}

fn zcard(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::count(view.get::<Zset>(&args[1])?.map_or(0, Zset::len)))
}

fn score(zset: Option<&Zset>, member: &[u8]) -> Reply {
    zset.and_then(|zset| zset.score(member)).map_or(Reply::Null, Reply::Double)
}

fn zscore(view: &View<'_>, args: &Args) -> Answer {
    Ok(score(view.get::<Zset>(&args[1])?, &args[2]))
}

fn zmscore(view: &View<'_>, args: &Args) -> Answer {
    let zset = view.get::<Zset>(&args[1])?;
    Ok(Reply::Array(args.from(2).map(|member| score(zset, member)).collect()))
}

fn zrank(view: &View<'_>, args: &Args, reverse: bool) -> Answer {
    let Some(zset) = view.get::<Zset>(&args[1])? else { return Ok(Reply::Null) };
    let rank = zset.rank_of(&args[2]).map(|rank| if reverse { zset.len() - 1 - rank } else { rank });
    Ok(rank.map_or(Reply::Null, Reply::count))
}

/// Removes and returns up to `count` members with their scores, from the end with the largest scores if `max` is set.
fn take(change: &mut Change<'_>, key: &[u8], max: bool, count: usize) -> Result<Vec<(Vec<u8>, f64)>, Fault> {
    let Some(zset) = change.get::<Zset>(key)? else { return Ok(Vec::new()) };
    let count = count.min(zset.len());
    let from = if max { zset.len() - count } else { 0 };
    let mut taken: Vec<(Vec<u8>, f64)> =
        zset.range(from, count).into_iter().map(|(member, score)| (member.to_vec(), score)).collect();
    if max {
        taken.reverse();
    }
    taken.iter().for_each(|(member, _)| _ = zset.remove(member));
    if !taken.is_empty() {
        change.changed_container::<Zset>(key, b'z', if max { "zpopmax" } else { "zpopmin" });
    }
    Ok(taken)
}

fn zpop(change: &mut Change<'_>, args: &Args, max: bool) -> Answer {
    if args.len() > 3 {
        return Err(fault::SYNTAX);
    }
    let count = args.get(2).map_or(Ok(1), parse::positive)?;
    let taken = take(change, &args[1], max, usize::try_from(count).unwrap_or(usize::MAX))?;
    let told = taken.into_iter().flat_map(|(member, score)| [Reply::Bulk(member), Reply::Double(score)]).collect();
    // Without a count the reply is one member and its score. With a count it is a list of such pairs.
    Ok(if args.len() == 2 { Reply::Array(told) } else { Reply::Twos(told) })
}

fn zmpop(change: &mut Change<'_>, args: &Args, at: usize) -> Answer {
    let (keys, max, count) = mpop(args, at, |word| match word.to_ascii_uppercase().as_slice() {
        b"MIN" => Ok(false),
        b"MAX" => Ok(true),
        _ => Err(fault::SYNTAX),
    })?;
    for key in args.from(at + 1).take(keys) {
        let taken = take(change, key, max, count)?;
        if !taken.is_empty() {
            let pair = |(member, score)| Reply::Array(vec![Reply::Bulk(member), Reply::Double(score)]);
            return Ok(Reply::Array(vec![Reply::bulk(key), Reply::Array(taken.into_iter().map(pair).collect())]));
        }
    }
    Ok(Reply::NullArray)
}

fn blocking_pop(change: &mut Change<'_>, args: &Args, max: bool) -> Answer {
    timeout(&args[args.len() - 1])?;
    for key in args.from(1).take(args.len() - 2) {
        if let Some((member, score)) = take(change, key, max, 1)?.pop() {
            return Ok(Reply::Array(vec![Reply::bulk(key), Reply::Bulk(member), Reply::Double(score)]));
        }
    }
    Ok(Reply::NullArray)
}

fn zscan(view: &View<'_>, args: &Args) -> Answer {
    let cursor = Scan::cursor(args, 2)?;
    let Some(zset) = view.get::<Zset>(&args[1])? else { return Ok(Scan::answer(0, Vec::new())) };
    let scan = Scan::options(args, 2, cursor)?;
    match zset {
        Zset::Large { table, .. } => scan.table(table, |scored, told| {
            told.extend([Reply::bulk(crate::db::table::Keyed::key(scored)), Reply::bulk(double(scored.score()))]);
        }),
        Zset::Packed(_) => {
            let met = zset.range(0, usize::MAX).into_iter().filter(|(member, _)| scan.fits(member));
            let told = met.flat_map(|(member, score)| [Reply::bulk(member), Reply::bulk(double(score))]);
            Ok(Scan::answer(0, told.collect()))
        }
    }
}

fn zrandmember(view: &View<'_>, args: &Args) -> Answer {
    let mut random = view.random();
    if args.len() == 2 {
        let Some(zset) = view.get::<Zset>(&args[1])? else { return Ok(Reply::Null) };
        return Ok(Reply::optional(zset.range(random.below(zset.len()), 1).first().map(|(member, _)| member)));
    }
    let (count, with) = chosen(args, "WITHSCORES")?;
    let Some(zset) = view.get::<Zset>(&args[1])? else { return Ok(Reply::Array(Vec::new())) };
    let chosen = choose(zset.len(), count, &mut random).into_iter();
    if count.unsigned_abs() <= FEW {
        return Ok(zranges::members(chosen.flat_map(|at| zset.range(at, 1)), with));
    }
    let all = zset.range(0, usize::MAX);
    Ok(zranges::members(chosen.map(|at| all[at]), with))
}
