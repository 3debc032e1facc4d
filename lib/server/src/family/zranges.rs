//! Ranges of sorted sets: by rank, by score, or by the bytes of members.

use crate::args::Args;
use crate::command::{Command, Keys, ONE_KEY, category, flag};
use crate::db::zset::{MOST_PACKED, Zset};
use crate::db::{Change, View};
use crate::family::lists;
use crate::family::parse;
use crate::reply::{Answer, Fault, Reply, fault};
use By::{Lex, Rank, Score};
use category::SORTED_SET;
use flag::{DENYOOM, FAST};

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::read("zrange", -4, 0, ONE_KEY, SORTED_SET, |v, a| told(v, a, None, false)),
    Command::read("zrevrange", -4, 0, ONE_KEY, SORTED_SET, |v, a| told(v, a, Some(Rank), true)),
    Command::read("zrangebyscore", -4, 0, ONE_KEY, SORTED_SET, |v, a| told(v, a, Some(Score), false)),
    Command::read("zrevrangebyscore", -4, 0, ONE_KEY, SORTED_SET, |v, a| told(v, a, Some(Score), true)),
    Command::read("zrangebylex", -4, 0, ONE_KEY, SORTED_SET, |v, a| told(v, a, Some(Lex), false)),
    Command::read("zrevrangebylex", -4, 0, ONE_KEY, SORTED_SET, |v, a| told(v, a, Some(Lex), true)),
    Command::write("zrangestore", -5, DENYOOM, Keys::Range(1, 2, 1), SORTED_SET, zrangestore),
    Command::read("zcount", 4, FAST, ONE_KEY, SORTED_SET, |v, a| count(v, a, Score)),
    Command::read("zlexcount", 4, FAST, ONE_KEY, SORTED_SET, |v, a| count(v, a, Lex)),
    Command::write("zremrangebyrank", 4, 0, ONE_KEY, SORTED_SET, |c, a| remove(c, a, Rank, "zremrangebyrank")),
    Command::write("zremrangebyscore", 4, 0, ONE_KEY, SORTED_SET, |c, a| remove(c, a, Score, "zremrangebyscore")),
    Command::write("zremrangebylex", 4, 0, ONE_KEY, SORTED_SET, |c, a| remove(c, a, Lex, "zremrangebylex")),
];

/// The kind of a range: what its two ends are.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// An end of a range by members. The boolean of `At` is `true` if the end itself is excluded.
#[derive(Clone, Copy)]
enum LexEnd<'a> {
    Lowest,
    Highest,
    At(&'a [u8], bool),
}

/// A range with its two ends.
#[derive(Clone, Copy)]
enum Range<'a> {
    Rank(i64, i64),
    /// A boolean is `true` if the end itself is excluded.
    Score((f64, bool), (f64, bool)),
    Lex(LexEnd<'a>, LexEnd<'a>),
}

/// Parses a score as C's `strtod` does: leading blanks are allowed, an empty text is 0, and too large numbers are
/// infinite. A leading "(" excludes the score from the range.
fn score_end(text: &[u8]) -> Result<(f64, bool), Fault> {
    let (text, without) = text.strip_prefix(b"(").map_or((text, false), |text| (text, true));
    let text = text.trim_ascii_start();
    let score = if text.is_empty() { Some(0.0) } else { parse::number(text) };
    Ok((score.ok_or(Fault::new("ERR min or max is not a float"))?, without))
}

fn lex_end(text: &[u8]) -> Result<LexEnd<'_>, Fault> {
    match text.split_first() {
        Some((b'-', [])) => Ok(LexEnd::Lowest),
        Some((b'+', [])) => Ok(LexEnd::Highest),
        Some((b'[', member)) => Ok(LexEnd::At(member, false)),
        Some((b'(', member)) => Ok(LexEnd::At(member, true)),
        _ => Err(Fault::new("ERR min or max not valid string range item")),
    }
}

impl<'a> Range<'a> {
    fn parse(by: By, low: &'a [u8], high: &'a [u8]) -> Result<Self, Fault> {
        Ok(match by {
            Rank => Self::Rank(parse::integer(low)?, parse::integer(high)?),
            Score => Self::Score(score_end(low)?, score_end(high)?),
            Lex => Self::Lex(lex_end(low)?, lex_end(high)?),
        })
    }

    /// Returns the rank of the first member in ascending order, and the number of members. If `reverse` is set, a range
    /// by rank counts from the end.
    fn ranks(self, zset: &Zset, reverse: bool) -> (usize, usize) {
        let (from, to) = match self {
            Self::Rank(start, end) => {
                let (first, count) = lists::range(start, end, zset.len());
                return if reverse { (zset.len() - first - count, count) } else { (first, count) };
            }
            Self::Score((low, without_low), (high, without_high)) => (
                zset.rank(|_, score| score < low || (without_low && score == low)),
                zset.rank(|_, score| score < high || (!without_high && score == high)),
            ),
            Self::Lex(low, high) => {
                (zset.rank(|member, _| before(member, low, false)), zset.rank(|member, _| before(member, high, true)))
            }
        };
        (from, to.saturating_sub(from))
    }
}

/// Returns whether a member is before a range that starts at `end`. If `behind` is set, `end` is the end of the range:
/// returns whether the member is not after the range.
fn before(member: &[u8], end: LexEnd<'_>, behind: bool) -> bool {
    match end {
        LexEnd::Lowest => false,
        LexEnd::Highest => true,
        LexEnd::At(at, without) => member < at || (member == at && without != behind),
    }
}

struct Wanted<'a> {
    range: Range<'a>,
    reverse: bool,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

fn wanted(args: &Args, first: usize, by: Option<By>, reverse: bool, store: bool) -> Result<Wanted<'_>, Fault> {
    let (fixed, mut by, mut reverse) = (by.is_some(), by.unwrap_or(Rank), reverse);
    let (mut with_scores, mut limit, mut at) = (false, None, first + 2);
    while at < args.len() {
        match () {
            () if !store && args.is(at, "WITHSCORES") => with_scores = true,
            () if args.is(at, "LIMIT") && at + 2 < args.len() => {
                limit = Some((parse::integer(&args[at + 1])?, parse::integer(&args[at + 2])?));
                at += 2;
            }
            // Each word may occur once. As in Redis, a second one is a syntax error.
            () if !fixed && !reverse && args.is(at, "REV") => reverse = true,
            () if !fixed && by == Rank && args.is(at, "BYLEX") => by = Lex,
            () if !fixed && by == Rank && args.is(at, "BYSCORE") => by = Score,
            () => return Err(fault::SYNTAX),
        }
        at += 1;
    }
    if limit.is_some_and(|(_, limit)| limit != -1) && by == Rank {
        return Err(Fault::new(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    if with_scores && by == Lex {
        return Err(Fault::new("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
    }
    let swapped = reverse && by != Rank;
    let (low, high) = if swapped { (first + 1, first) } else { (first, first + 1) };
    let range = Range::parse(by, &args[low], &args[high])?;
    let (offset, limit) = if by == Rank { (0, -1) } else { limit.unwrap_or((0, -1)) };
    Ok(Wanted { range, reverse, with_scores, offset, limit })
}

impl Wanted<'_> {
    /// Returns the members in the order of the answer.
    fn of<'z>(&self, zset: &'z Zset) -> Vec<(&'z [u8], f64)> {
        let (from, count) = self.range.ranks(zset, self.reverse);
        let skipped = usize::try_from(self.offset).unwrap_or(usize::MAX).min(count);
        let left = (count - skipped).min(usize::try_from(self.limit).unwrap_or(usize::MAX));
        let from = if self.reverse { from + count - skipped - left } else { from + skipped };
        let mut all = zset.range(from, left);
        if self.reverse {
            all.reverse();
        }
        all
    }
}

fn told(view: &View<'_>, args: &Args, by: Option<By>, reverse: bool) -> Answer {
    let wanted = wanted(args, 2, by, reverse, false)?;
    let Some(zset) = view.get::<Zset>(&args[1])? else { return Ok(Reply::Array(Vec::new())) };
    Ok(members(wanted.of(zset).into_iter(), wanted.with_scores))
}

/// Returns a reply with members, and with their scores if `with_scores` is set.
pub fn members<'z>(all: impl Iterator<Item = (&'z [u8], f64)>, with_scores: bool) -> Reply {
    if with_scores {
        Reply::Twos(all.flat_map(|(member, score)| [Reply::bulk(member), Reply::Double(score)]).collect())
    } else {
        Reply::bulks(all.map(|(member, _)| member))
    }
}

fn zrangestore(change: &mut Change<'_>, args: &Args) -> Answer {
    let wanted = wanted(args, 3, None, false, true)?;
    let (mut result, hashing) = (Zset::default(), change.db.hashing);
    if let Some(zset) = change.get::<Zset>(&args[2])? {
        let found = wanted.of(zset);
        // As in Redis, a large result is large from the start, so that its zeros keep their signs.
        if found.len() > MOST_PACKED {
            result.unpack(hashing);
        }
        found.into_iter().for_each(|(member, score)| _ = result.set(member, score, hashing));
    }
    let len = result.len();
    change.store(&args[1], result, b'z', "zrangestore");
    Ok(Reply::count(len))
}

fn count(view: &View<'_>, args: &Args, by: By) -> Answer {
    let range = Range::parse(by, &args[2], &args[3])?;
    Ok(Reply::count(view.get::<Zset>(&args[1])?.map_or(0, |zset| range.ranks(zset, false).1)))
}

fn remove(change: &mut Change<'_>, args: &Args, by: By, event: &'static str) -> Answer {
    let range = Range::parse(by, &args[2], &args[3])?;
    let Some(zset) = change.get::<Zset>(&args[1])? else { return Ok(Reply::Int(0)) };
    let (from, count) = range.ranks(zset, false);
    let members: Vec<Vec<u8>> = zset.range(from, count).into_iter().map(|(member, _)| member.to_vec()).collect();
    members.iter().for_each(|member| _ = zset.remove(member));
    if !members.is_empty() {
        change.changed_container::<Zset>(&args[1], b'z', event);
    }
    Ok(Reply::count(members.len()))
}
