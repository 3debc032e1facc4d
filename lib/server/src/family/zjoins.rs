//! Unions, intersections and differences of sorted sets. Sets may take part: all their members have the score 1.

use std::borrow::Cow;

use crate::args::Args;
use crate::command::{Command, Keys, category, flag};
use crate::db::set::Set;
use crate::db::value::Value;
use crate::db::zset::Zset;
use crate::db::{Change, View};
use crate::family::{parse, zranges};
use crate::reply::{Answer, Fault, Reply, fault};
use Join::{Diff, Inter, Union};
use category::SORTED_SET;
use flag::DENYOOM;

const COUNTED: Keys = Keys::Counted { first: 0, count: 1 };
const STORED: Keys = Keys::Counted { first: 1, count: 2 };

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::read("zunion", -3, 0, COUNTED, SORTED_SET, |v, a| told(v, a, Union, "zunion")),
    Command::read("zinter", -3, 0, COUNTED, SORTED_SET, |v, a| told(v, a, Inter, "zinter")),
    Command::read("zdiff", -3, 0, COUNTED, SORTED_SET, |v, a| told(v, a, Diff, "zdiff")),
    Command::write("zunionstore", -4, DENYOOM, STORED, SORTED_SET, |c, a| stored(c, a, Union, "zunionstore")),
    Command::write("zinterstore", -4, DENYOOM, STORED, SORTED_SET, |c, a| stored(c, a, Inter, "zinterstore")),
    Command::write("zdiffstore", -4, DENYOOM, STORED, SORTED_SET, |c, a| stored(c, a, Diff, "zdiffstore")),
    Command::read("zintercard", -3, 0, COUNTED, SORTED_SET, zintercard),
];

#[derive(Clone, Copy, PartialEq)]
enum Join {
    Union,
    Inter,
    Diff,
}

/// The number of members of a source that are looked up at a time.
const BLOCK: usize = 1024;

/// A source of members. Sources are not copied, because a request can name the same large key very many times.
#[derive(Clone, Copy)]
enum Source<'d> {
    Nothing,
    Zset(&'d Zset),
    Set(&'d Set),
}

impl<'d> Source<'d> {
    fn of(view: &View<'d>, key: &[u8]) -> Result<Self, Fault> {
        match view.use_of(key) {
            None => Ok(Self::Nothing),
            Some(Value::Zset(zset)) => Ok(Self::Zset(zset)),
            Some(Value::Set(set)) => Ok(Self::Set(set)),
            Some(_) => Err(fault::WRONG_TYPE),
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Zset(zset) => zset.len(),
            Self::Set(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Nothing => None,
            Self::Zset(zset) => zset.score(member),
            Self::Set(set) => set.contains(member).then_some(1.0),
        }
    }

    /// Returns the members with their scores.
    fn members(self) -> Box<dyn Iterator<Item = (Cow<'d, [u8]>, f64)> + 'd> {
        match self {
            Self::Nothing => Box::new(core::iter::empty()),
            Self::Zset(zset) => {
                let blocks = (0..zset.len()).step_by(BLOCK).flat_map(move |from| zset.range(from, BLOCK));
                Box::new(blocks.map(|(member, score)| (Cow::Borrowed(member), score)))
            }
            Self::Set(set) => Box::new(set.iter().map(|member| (member, 1.0))),
        }
    }
}

/// Reads the number of keys at `at` and the keys after it. Returns the source of each key.
fn sources<'d>(view: &View<'d>, args: &Args, at: usize, name: &str) -> Result<Vec<Source<'d>>, Fault> {
    let count = parse::integer(&args[at])?;
    if count < 1 {
        return Err(Fault::made(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    if count as u64 > (args.len() - at - 1) as u64 {
        return Err(fault::SYNTAX);
    }
    args.from(at + 1).take(count as usize).map(|key| Source::of(view, key)).collect()
}

fn join(view: &View<'_>, args: &Args, at: usize, how: Join, name: &str) -> Result<(Zset, bool), Fault> {
    let sources = sources(view, args, at, name)?;
    let (mut weights, mut aggregate, mut with_scores) = (vec![1.0; sources.len()], 0, false);
    let mut at = at + 1 + sources.len();
    while at < args.len() {
        let left = args.len() - at - 1;
        if how != Diff && args.is(at, "WEIGHTS") && left >= weights.len() {
            for weight in &mut weights {
                at += 1;
                *weight = parse::float_or(&args[at], Fault::new("ERR weight value is not a float"))?;
            }
        } else if how != Diff && args.is(at, "AGGREGATE") && left >= 1 {
            at += 1;
            aggregate = ["SUM", "MIN", "MAX"].iter().position(|word| args.is(at, word)).ok_or(fault::SYNTAX)?;
        } else if !name.ends_with("store") && args.is(at, "WITHSCORES") {
            with_scores = true;
        } else {
            return Err(fault::SYNTAX);
        }
        at += 1;
    }
    let combine = |one: f64, other: f64| match aggregate {
        // The sum of positive and negative infinity is 0 here.
        0 => Some(one + other).filter(|sum| !sum.is_nan()).unwrap_or(0.0),
        // Of two zeros with different signs the first one stays, as in Redis.
        1 if other < one => other,
        2 if other > one => other,
        _ => one,
    };
    let mut sources: Vec<(Source<'_>, f64)> = sources.into_iter().zip(weights).collect();
    // A product of score and weight may be NaN (infinity times 0). NaN becomes 0 for the first source that has the
    // member. For a later source, NaN makes the sum 0.
    let first_met = |score: f64| if score.is_nan() { 0.0 } else { score };
    let (mut result, hashing) = (Zset::default(), view.db.hashing);
    if how == Inter {
        // The smallest source comes first, as in Redis, because sums of floating-point scores depend on the order.
        sources.sort_by_key(|(source, _)| source.len());
    }
    let ((first, weight), others) = sources.split_first().expect("there is a key");
    match how {
        Union => {
            for (source, weight) in &sources {
                for (member, score) in source.members() {
                    let score = first_met(score * weight);
                    let score = result.score(&member).map_or(score, |before| combine(before, score));
                    result.add(&member, score, hashing);
                }
            }
        }
        Inter | Diff => {
            for (member, score) in first.members() {
                let score = score * weight;
                let mut met = others.iter().map(|(source, weight)| source.score(&member).map(|score| score * weight));
                let score = match how {
                    Diff => met.flatten().next().is_none().then_some(score),
                    _ => met.try_fold(first_met(score), |sum, other| Some(combine(sum, other?))),
                };
                score.map(|score| result.add(&member, score, hashing));
            }
        }
    }
    Ok((result, with_scores))
}

fn told(view: &View<'_>, args: &Args, how: Join, name: &str) -> Answer {
    let (result, with_scores) = join(view, args, 1, how, name)?;
    Ok(zranges::members(result.range(0, usize::MAX).into_iter(), with_scores))
}

fn stored(change: &mut Change<'_>, args: &Args, how: Join, name: &'static str) -> Answer {
    let (result, _) = join(&change.view(), args, 2, how, name)?;
    let len = result.len();
    change.store(&args[1], result.made(), b'z', name);
    Ok(Reply::count(len))
}

fn zintercard(view: &View<'_>, args: &Args) -> Answer {
    let mut sources = sources(view, args, 1, "zintercard")?;
    let (mut limit, mut at) = (0, 2 + sources.len());
    while at < args.len() {
        if !args.is(at, "LIMIT") || at + 1 >= args.len() {
            return Err(fault::SYNTAX);
        }
        let bad = Fault::new("ERR LIMIT can't be negative");
        limit = usize::try_from(parse::integer_or(&args[at + 1], bad.clone())?).map_err(|_| bad)?;
        at += 2;
    }
    sources.sort_by_key(|source| source.len());
    let (first, others) = sources.split_first().expect("there is a key");
    let common = first.members().filter(|(member, _)| others.iter().all(|source| source.score(member).is_some()));
    Ok(Reply::count(common.take(if limit == 0 { usize::MAX } else { limit }).count()))
}
