//! What is told of commands and their parts beside what the registry needs: flags, tips, where keys are, since when.
//!
//! `catalog.txt` has a line for each: name; arity; flags; first, last and step of keys; categories; tips; key
//! specifications; group; since. Its lines are what redis-server 7.0.15 answers to `COMMAND` and `COMMAND DOCS`, and later versions
//! for commands of theirs. A specification is flags, where a search begins (a place, or a word and where to look for it from) and
//! what is found there (last, step and limit of a range; or `n`: where the count is, where the first is, and the step), with `@` between.

use core::ops::Range;

use archipelago_platform::sync::LazyLock;

use super::{Command, category};
use crate::args::Args;
use crate::family::generic::unknown_subcommand;
use crate::reply::Fault;
use crate::session::wrong_number;

/// A command, or a part of one: `config|get`.
#[derive(Debug)]
pub struct Row {
    /// The name; of a part, the command's and the part's.
    pub name: &'static str,
    /// As that of a [`Command`].
    pub arity: i32,
    /// Names of flags.
    pub flags: &'static str,
    /// First, last and step of its keys.
    pub keys: [i32; 3],
    /// Names of categories.
    pub categories: &'static str,
    /// Hints for clients.
    pub tips: &'static str,
    /// Of Redis's documentation.
    pub group: &'static str,
    /// The version of Redis that had it first.
    pub since: &'static str,
    specs: &'static str,
}

/// Where a specification's search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this place.
    At(usize),
    /// Behind this word, looked for from this place on; if that is negative, it counts from the end, and the look goes backwards.
    Behind(&'static str, i32),
    /// Nowhere that could be said.
    Unknown,
}

/// Which keys are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Up to the last (from the first; negative: from the end), each of so many; of the rest only a part if there is a limit.
    Range(i32, usize, i32),
    /// As many as an argument says: its place, that of the first key, both from the beginning, and the step.
    Counted(usize, usize, usize),
    /// None that could be said.
    Unknown,
}

/// Where keys are, and what happens to them.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    flags: &'static str,
    /// Where they begin.
    pub begin: Begin,
    /// Which they are.
    pub find: Find,
}

fn numbers<const COUNT: usize>(text: &str) -> [i32; COUNT] {
    let mut all = text.split('/').map(|digits| digits.parse().expect("the catalog has a number there"));
    core::array::from_fn(|_| all.next().expect("the catalog has so many numbers"))
}

impl Row {
    fn new(line: &'static str) -> Self {
        let mut fields = line.split(';');
        let mut next = || fields.next().expect("the catalog's lines have all fields");
        let (name, [arity], flags, keys) = (next(), numbers(next()), next(), numbers(next()));
        let (categories, tips, specs, group, since) = (next(), next(), next(), next(), next());
        Self { name, arity, flags, keys, categories, tips, group, since, specs }
    }

    /// The part's name.
    pub fn part(&self) -> Option<&'static str> {
        self.name.split_once('|').map(|(_, part)| part)
    }

    /// Returns whether this number of arguments, with the name, is right.
    pub fn takes(&self, arguments: usize) -> bool {
        super::takes(self.arity, arguments)
    }

    /// Bits of its categories.
    pub fn bits(&self) -> u32 {
        let bit =
            |name| category::NAMES.iter().position(|known| *known == name).expect("the catalog's categories are known");
        self.categories.split(' ').map(|name| 1 << bit(name)).sum()
    }

    /// Where its keys are.
    pub fn specs(&self) -> impl Iterator<Item = Spec> {
        self.specs.split(' ').filter(|text| !text.is_empty()).map(Spec::new)
    }
}

impl Spec {
    fn new(text: &'static str) -> Self {
        let mut parts = text.split('@');
        let mut next = || parts.next().expect("specifications have three parts");
        let flags = next();
        let begin = match next() {
            "?" => Begin::Unknown,
            place => match place.split_once(':') {
                Some((word, from)) => Begin::Behind(word, numbers::<1>(from)[0]),
                None => Begin::At(numbers::<1>(place)[0] as usize),
            },
        };
        let find = match next() {
            "?" => Find::Unknown,
            text => match text.strip_prefix('n') {
                Some(text) => {
                    let [count, first, step] = numbers(text).map(|number: i32| number as usize);
                    Find::Counted(count, first, step)
                }
                None => {
                    let [last, step, limit] = numbers(text);
                    Find::Range(last, step as usize, limit)
                }
            },
        };
        Self { flags, begin, find }
    }

    /// The names of its flags.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        self.flags.split(',')
    }

    /// Returns whether it says that an argument is used as a key.
    pub fn has(&self, args: &Args, place: usize) -> bool {
        self.places(args).is_some_and(|mut places| places.any(|key| key == place))
    }

    /// The places of the keys, if it can say them.
    fn places(&self, args: &Args) -> Option<core::iter::StepBy<Range<usize>>> {
        let first = match self.begin {
            Begin::At(place) => place,
            Begin::Behind(word, from) => {
                let start =
                    if from < 0 { args.len().saturating_sub(from.unsigned_abs() as usize) } else { from as usize };
                let is = |place: &usize| args.is(*place, word);
                let found = if from < 0 { (1..=start).rev().find(is) } else { (start..args.len()).find(is) };
                found? + 1
            }
            Begin::Unknown => return None,
        };
        let (first, end, step) = match self.find {
            Find::Range(last, step, _) if last >= 0 => (first, first + last as usize + 1, step),
            Find::Range(last, step, 0) => (first, (args.len() + 1).saturating_sub(last.unsigned_abs() as usize), step),
            Find::Range(last, step, limit) => {
                let some = args.len().saturating_sub(first) / limit.unsigned_abs() as usize;
                (first, (first + some + 1).saturating_sub(last.unsigned_abs() as usize), step)
            }
            Find::Counted(count, behind, step) => {
                let keys: usize = core::str::from_utf8(args.get(first + count)?).ok()?.parse().ok()?;
                let keys = keys.min(args.len());
                (first + behind, first + behind + keys * step, step)
            }
            Find::Unknown => return None,
        };
        Some((first..end.min(args.len()).max(first)).step_by(step))
    }
}

/// Rows, those of a command's parts behind its own; and where they are, by commands' numbers.
type Catalog = (Vec<Row>, Vec<Range<usize>>);

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    let rows: Vec<Row> = include_str!("catalog.txt").lines().map(Row::new).collect();
    let of = |row: &Row, name: &str| row.name.split('|').next() == Some(name);
    let places = super::all().map(|command| {
        let start = rows.iter().position(|row| row.name == command.name).unwrap_or(rows.len());
        start..start + rows[start..].iter().take_while(|row| of(row, command.name)).count()
    });
    let places = places.collect();
    (rows, places)
});

/// A command's row, and behind it those of its parts: nothing of one that clients do not see.
pub fn of(command: &'static Command) -> &'static [Row] {
    let (rows, places) = &*CATALOG;
    &rows[places[command.number()].clone()]
}

/// The row of what a request asks for, of the command or of its part; of a command that clients do not see none. Returns `None` if the
/// command has parts, and this is none of them.
pub fn row(command: &'static Command, args: &Args) -> Option<Option<&'static Row>> {
    let [row, parts @ ..] = of(command) else { return Some(None) };
    if parts.is_empty() || args.len() < 2 {
        return Some(Some(row));
    }
    let is = |row: &&Row| row.part().is_some_and(|part| args[1].eq_ignore_ascii_case(part.as_bytes()));
    parts.iter().find(is).map(Some)
}

/// Checks a request for a part of a command.
///
/// # Errors
/// If the part is none, or has another number of arguments.
pub fn check(command: &'static Command, args: &Args) -> Result<(), Fault> {
    match row(command, args) {
        None => Err(unknown_subcommand(args)),
        Some(Some(row)) if !row.takes(args.len()) => Err(wrong_number(row.name)),
        Some(_) => Ok(()),
    }
}

/// The row of this name: a command's, or `config|get`.
pub fn named(name: &[u8]) -> Option<&'static Row> {
    let of_command = name.split(|byte| *byte == b'|').next().unwrap_or_default();
    of(super::find(of_command)?).iter().find(|row| name.eq_ignore_ascii_case(row.name.as_bytes()))
}
