//! Commands for sets.

use std::borrow::Cow;

use crate::args::Args;
use crate::command::{ALL_KEYS, Command, Keys, ONE_KEY, category, flag};
use crate::db::hashing::Hashing;
use crate::db::set::Set;
use crate::db::table::Keyed;
use crate::db::{Change, View};
use crate::family::generic::Scan;
use crate::family::hashes::{FEW, MOST_REPEATED, choose};
use crate::family::parse;
use crate::reply::{Answer, Fault, Many, Reply, fault};
use category::SET;
use flag::{DENYOOM, FAST};

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("sadd", -3, DENYOOM | FAST, ONE_KEY, SET, sadd),
    Command::write("srem", -3, FAST, ONE_KEY, SET, srem),
    Command::read("scard", 2, FAST, ONE_KEY, SET, scard),
    Command::read("sismember", 3, FAST, ONE_KEY, SET, sismember),
    Command::read("smismember", -3, FAST, ONE_KEY, SET, smismember),
    Command::read("smembers", 2, 0, ONE_KEY, SET, smembers),
    Command::write("smove", 4, FAST, Keys::Range(1, 2, 1), SET, smove),
    Command::write("spop", -2, FAST, ONE_KEY, SET, spop),
    Command::read("srandmember", -2, 0, ONE_KEY, SET, srandmember),
    Command::read("sscan", -3, 0, ONE_KEY, SET, sscan),
    Command::read("sinter", -2, 0, ALL_KEYS, SET, |v, a| told(v, a, inter)),
    Command::read("sunion", -2, 0, ALL_KEYS, SET, |v, a| told(v, a, union)),
    Command::read("sdiff", -2, 0, ALL_KEYS, SET, |v, a| told(v, a, diff)),
    Command::write("sinterstore", -3, DENYOOM, ALL_KEYS, SET, |c, a| stored(c, a, inter, "sinterstore")),
    Command::write("sunionstore", -3, DENYOOM, ALL_KEYS, SET, |c, a| stored(c, a, union, "sunionstore")),
    Command::write("sdiffstore", -3, DENYOOM, ALL_KEYS, SET, |c, a| stored(c, a, diff, "sdiffstore")),
    Command::read("sintercard", -3, 0, Keys::Counted { first: 0, count: 1 }, SET, sintercard),
];

fn sadd(change: &mut Change<'_>, args: &Args) -> Answer {
    let hashing = change.db.hashing;
    let set = change.make::<Set>(&args[1])?;
    let added = args.from(2).filter(|member| set.insert(member, hashing)).count();
    if added > 0 {
        change.changed(&args[1], b's', "sadd");
    }
    Ok(Reply::count(added))
}

fn srem(change: &mut Change<'_>, args: &Args) -> Answer {
    let Some(set) = change.get::<Set>(&args[1])? else { return Ok(Reply::Int(0)) };
    let removed = args.from(2).filter(|member| set.remove(member)).count();
    if removed > 0 {
        change.changed_container::<Set>(&args[1], b's', "srem");
    }
    Ok(Reply::count(removed))
}

fn scard(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::count(view.get::<Set>(&args[1])?.map_or(0, Set::len)))
}

fn sismember(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::Int(view.get::<Set>(&args[1])?.is_some_and(|set| set.contains(&args[2])).into()))
}

fn smismember(view: &View<'_>, args: &Args) -> Answer {
    let set = view.get::<Set>(&args[1])?;
    let is = |member: &[u8]| Reply::Int(set.is_some_and(|set| set.contains(member)).into());
    Ok(Reply::Array(args.from(2).map(is).collect()))
}

fn smembers(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::Bulks(Many::Set, view.get::<Set>(&args[1])?.into_iter().flat_map(Set::iter).collect()))
}

fn smove(change: &mut Change<'_>, args: &Args) -> Answer {
    let (from, to, member) = (&args[1], &args[2], &args[3]);
    // The type of the destination is checked only if the source exists.
    if change.find(from).is_none() {
        return Ok(Reply::Int(0));
    }
    let there = change.get::<Set>(from)?.is_some_and(|set| set.contains(member));
    change.get::<Set>(to)?;
    if !there || from == to {
        return Ok(Reply::Int(there.into()));
    }
    change.get::<Set>(from)?.map(|set| set.remove(member));
    change.changed_container::<Set>(from, b's', "srem");
    let hashing = change.db.hashing;
    change.make::<Set>(to)?.insert(member, hashing);
    change.changed(to, b's', "sadd");
    Ok(Reply::Int(1))
}

fn spop(change: &mut Change<'_>, args: &Args) -> Answer {
    if args.len() > 3 {
        return Err(fault::SYNTAX);
    }
    let count = args.get(2).map(parse::positive).transpose()?;
    let mut random = change.random.clone();
    let set = change.get::<Set>(&args[1])?;
    let Some(set) = set else { return Ok(if count.is_some() { Reply::Set(Vec::new()) } else { Reply::Null }) };
    let mut popped = Vec::new();
    while popped.len() < count.map_or(1, |count| usize::try_from(count).unwrap_or(usize::MAX)) {
        let Some(member) = set.choose(&mut random).map(Cow::into_owned) else { break };
        set.remove(&member);
        popped.push(member);
    }
    if !popped.is_empty() {
        change.changed_container::<Set>(&args[1], b's', "spop");
    }
    Ok(match count {
        Some(_) => Reply::Set(popped.into_iter().map(Reply::Bulk).collect()),
        None => Reply::optional(popped.pop()),
    })
}

fn srandmember(view: &View<'_>, args: &Args) -> Answer {
    if args.len() > 3 {
        return Err(fault::SYNTAX);
    }
    let mut random = view.random();
    if args.len() == 2 {
        let set = view.get::<Set>(&args[1])?;
        return Ok(Reply::optional(set.and_then(|set| set.choose(&mut random))));
    }
    let count = parse::integer(&args[2])?;
    if count < -MOST_REPEATED {
        return Err(fault::OUT_OF_RANGE);
    }
    let Some(set) = view.get::<Set>(&args[1])? else { return Ok(Reply::Array(Vec::new())) };
    let chosen = choose(set.len(), count, &mut random).into_iter();
    if count.unsigned_abs() <= FEW {
        return Ok(Reply::bulks(chosen.filter_map(|at| set.nth(at))));
    }
    let all: Vec<Cow<'_, [u8]>> = set.iter().collect();
    Ok(Reply::bulks(chosen.map(|at| &all[at])))
}

fn sscan(view: &View<'_>, args: &Args) -> Answer {
    let cursor = Scan::cursor(args, 2)?;
    let Some(set) = view.get::<Set>(&args[1])? else { return Ok(Scan::answer(0, Vec::new())) };
    let scan = Scan::options(args, 2, cursor)?;
    match set {
        Set::Table(table) => scan.table(table, |member, told| told.push(Reply::bulk(member.key()))),
        Set::Integers(_) => {
            Ok(Scan::answer(0, set.iter().filter(|member| scan.fits(member)).map(Reply::bulk).collect()))
        }
    }
}

type Sets<'d> = [Option<&'d Set>];

fn inter(sets: &Sets<'_>, most: usize, hashing: Hashing) -> Set {
    let mut result = Set::default();
    let Some(sets) = sets.iter().copied().collect::<Option<Vec<&Set>>>() else { return result };
    let least = sets.iter().min_by_key(|set| set.len()).expect("there is a key");
    let common = least.iter().filter(|member| sets.iter().all(|set| set.contains(member)));
    common.take(most).for_each(|member| _ = result.insert(&member, hashing));
    result
}

fn union(sets: &Sets<'_>, _: usize, hashing: Hashing) -> Set {
    let mut result = Set::default();
    sets.iter().flatten().flat_map(|set| set.iter()).for_each(|member| _ = result.insert(&member, hashing));
    result
}

fn diff(sets: &Sets<'_>, _: usize, hashing: Hashing) -> Set {
    let mut result = Set::default();
    let only = |member: &Cow<'_, [u8]>| !sets[1..].iter().flatten().any(|set| set.contains(member));
    sets[0].into_iter().flat_map(Set::iter).filter(only).for_each(|member| _ = result.insert(&member, hashing));
    result
}

type Combine = fn(&Sets<'_>, usize, Hashing) -> Set;

fn sets<'d>(view: &View<'d>, keys: impl Iterator<Item = impl AsRef<[u8]>>) -> Result<Vec<Option<&'d Set>>, Fault> {
    keys.map(|key| view.get::<Set>(key.as_ref())).collect()
}

fn told(view: &View<'_>, args: &Args, combine: Combine) -> Answer {
    let sets = sets(view, args.from(1))?;
    Ok(Reply::Bulks(Many::Set, combine(&sets, usize::MAX, view.db.hashing).iter().collect()))
}

fn stored(change: &mut Change<'_>, args: &Args, combine: Combine, event: &'static str) -> Answer {
    let result = combine(&sets(&change.view(), args.from(2))?, usize::MAX, change.db.hashing);
    let len = result.len();
    change.store(&args[1], result, b's', event);
    Ok(Reply::count(len))
}

/// Parses the number of keys at `at`. Returns the error `bad` if the number is not positive, and another error if fewer
/// arguments follow.
pub fn counted(args: &Args, at: usize, bad: Fault) -> Result<usize, Fault> {
    let count = parse::integer_or(&args[at], bad.clone())?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(bad)?;
    if count > args.len() - at - 1 {
        return Err(Fault::new("ERR Number of keys can't be greater than number of args"));
    }
    Ok(count)
}

fn sintercard(view: &View<'_>, args: &Args) -> Answer {
    let count = counted(args, 1, Fault::new("ERR numkeys should be greater than 0"))?;
    let (mut limit, mut at) = (0, 2 + count);
    while at < args.len() {
        if !args.is(at, "LIMIT") || at + 1 >= args.len() {
            return Err(fault::SYNTAX);
        }
        let bad = Fault::new("ERR LIMIT can't be negative");
        limit = parse::integer_or(&args[at + 1], bad.clone())?;
        if limit < 0 {
            return Err(bad);
        }
        at += 2;
    }
    let sets = sets(view, args.from(2).take(count))?;
    let limit = if limit == 0 { usize::MAX } else { limit as usize };
    Ok(Reply::count(inter(&sets, limit, view.db.hashing).len()))
}
