//! `SORT` and `SORT_RO`: return the elements of a list, a set or a sorted set in another order.

use core::cmp::Ordering;

use crate::args::Args;
use crate::command::{Command, Keys, ONE_KEY, category, flag};
use crate::db::list::{End, List};
use crate::db::value::Value;
use crate::db::{Change, View};
use crate::family::parse;
use crate::reply::{Answer, Fault, Reply, fault};
use category::{LIST, SET, SORTED_SET};

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("sort", -2, flag::DENYOOM, Keys::Stores, SET | SORTED_SET | LIST | category::DANGEROUS, sort),
    Command::read("sort_ro", -2, 0, ONE_KEY, SET | SORTED_SET | LIST | category::DANGEROUS, sort_ro),
];

/// The options of the command.
#[derive(Default)]
struct Asked<'a> {
    descending: bool,
    alpha: bool,
    limit: Option<(i64, i64)>,
    by: Option<&'a [u8]>,
    get: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
}

impl<'a> Asked<'a> {
    fn parse(args: &'a Args, stores: bool) -> Result<Self, Fault> {
        let (mut asked, mut at) = (Self::default(), 2);
        while at < args.len() {
            let left = args.len() - at - 1;
            let mut step = 2;
            match () {
                () if args.is(at, "ASC") => (asked.descending, step) = (false, 1),
                () if args.is(at, "DESC") => (asked.descending, step) = (true, 1),
                () if args.is(at, "ALPHA") => (asked.alpha, step) = (true, 1),
                () if args.is(at, "LIMIT") && left >= 2 => {
                    asked.limit = Some((parse::integer(&args[at + 1])?, parse::integer(&args[at + 2])?));
                    step = 3;
                }
                () if stores && args.is(at, "STORE") && left >= 1 => asked.store = Some(&args[at + 1]),
                () if args.is(at, "BY") && left >= 1 => asked.by = Some(&args[at + 1]),
                () if args.is(at, "GET") && left >= 1 => asked.get.push(&args[at + 1]),
                () => return Err(fault::SYNTAX),
            }
            at += step;
        }
        Ok(asked)
    }

    /// Returns the range of indices that `LIMIT` selects from `len` elements.
    fn range(&self, len: usize) -> core::ops::Range<usize> {
        let (from, count) = self.limit.unwrap_or((0, -1));
        let from = usize::try_from(from).unwrap_or(0).min(len);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        from..from.saturating_add(count).min(len)
    }
}

/// Returns what a pattern refers to for an element. "#" refers to the element itself. Another pattern has "*" replaced
/// by the element: it names a string, or a field of a hash if "->" and a field name follow.
fn looked_up(view: &View<'_>, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let star = pattern.iter().position(|byte| *byte == b'*')?;
    let (before, behind) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = behind.windows(2).position(|pair| pair == b"->").filter(|arrow| arrow + 2 < behind.len());
    let key = [before, element, &behind[..arrow.unwrap_or(behind.len())]].concat();
    match (view.use_of(&key)?, arrow) {
        (value, Some(arrow)) => Some(view.fields_of(value)?.get(&behind[arrow + 2..])?.to_vec()),
        (value, None) => value.bytes().map(|bytes| bytes.into_owned()),
    }
}

/// Parses a number as C does: leading blanks are allowed, and an empty text is 0.
fn number(text: &[u8]) -> Result<f64, Fault> {
    let bad = Fault::new("ERR One or more scores can't be converted into double");
    if text.is_empty() { Ok(0.0) } else { parse::float_or(text.trim_ascii_start(), bad) }
}

/// Returns the elements in the requested order. If `GET` patterns are given, returns for each element one value per
/// pattern, in order.
fn sorted(view: &View<'_>, args: &Args, asked: &Asked<'_>) -> Result<Vec<Option<Vec<u8>>>, Fault> {
    let mut elements: Vec<Vec<u8>> = match view.use_of(&args[1]) {
        None => Vec::new(),
        Some(Value::List(list)) => list.iter().map(<[u8]>::to_vec).collect(),
        Some(Value::Set(set)) => set.iter().map(|member| member.into_owned()).collect(),
        Some(Value::Zset(zset)) => zset.range(0, usize::MAX).into_iter().map(|(member, _)| member.to_vec()).collect(),
        Some(_) => return Err(fault::WRONG_TYPE),
    };
    // `SORT` with `STORE` always sorts the members of a set, even if `BY` requests no order. The stored list is then
    // the same on every replica.
    let is_set = matches!(view.value(&args[1]), Some(Value::Set(_)));
    let unsorted = asked.by.is_some_and(|by| !by.contains(&b'*'));
    let forced = unsorted && is_set && asked.store.is_some();
    let by = asked.by.filter(|_| !forced);
    if unsorted && !forced {
        if asked.descending && !is_set {
            elements.reverse();
        }
    } else if asked.alpha || forced {
        let mut keyed: Vec<(Option<Vec<u8>>, Vec<u8>)> = elements
            .into_iter()
            .map(|element| (by.map_or_else(|| Some(element.clone()), |by| looked_up(view, by, &element)), element))
            .collect();
        keyed.sort_by(|one, other| directed(one.0.cmp(&other.0), asked.descending));
        elements = keyed.into_iter().map(|(_, element)| element).collect();
    } else {
        let score = |element: &[u8]| match by {
            None => number(element),
            Some(by) => looked_up(view, by, element).map_or(Ok(0.0), |found| number(&found)),
        };
        let mut scored = elements
            .into_iter()
            .map(|element| Ok((score(&element)?, element)))
            .collect::<Result<Vec<(f64, Vec<u8>)>, Fault>>()?;
        scored.sort_by(|one, other| {
            let order = one.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal).then_with(|| one.1.cmp(&other.1));
            directed(order, asked.descending)
        });
        elements = scored.into_iter().map(|(_, element)| element).collect();
    }
    let chosen = elements[asked.range(elements.len())].iter();
    if asked.get.is_empty() {
        return Ok(chosen.map(|element| Some(element.clone())).collect());
    }
    Ok(chosen.flat_map(|element| asked.get.iter().map(|pattern| looked_up(view, pattern, element))).collect())
}

fn directed(order: Ordering, descending: bool) -> Ordering {
    if descending { order.reverse() } else { order }
}

fn sort_ro(view: &View<'_>, args: &Args) -> Answer {
    let asked = Asked::parse(args, false)?;
    Ok(Reply::Array(sorted(view, args, &asked)?.into_iter().map(Reply::optional).collect()))
}

fn sort(change: &mut Change<'_>, args: &Args) -> Answer {
    let asked = Asked::parse(args, true)?;
    let rows = sorted(&change.view(), args, &asked)?;
    let Some(key) = asked.store else {
        return Ok(Reply::Array(rows.into_iter().map(Reply::optional).collect()));
    };
    let mut list = List::default();
    rows.into_iter().for_each(|row| list.push(End::Right, &row.unwrap_or_default()));
    let count = list.len();
    change.store(key, list, b'l', "sortstore");
    Ok(Reply::count(count))
}
