//! The catalog: information about commands and subcommands for clients. It has more than the registry needs: flags,
//! hints, rules for finding keys, and the version of Redis.
//!
//! `catalog.txt` has a line for each command and subcommand. The fields of a line are: name; arity; flags; first key,
//! last key and step; categories; hints; key specifications; group; version. The lines have what redis-server 7.0.15
//! answers to `COMMAND` and `COMMAND DOCS`. Lines of newer commands have the answers of later versions.
//!
//! A key specification has three parts, separated by `@`:
//!
//! 1. flags;
//! 2. where the search begins: an index, or a word and the index from which the word is searched;
//! 3. which keys follow: the last index, step and limit of a range; or `n` and the index of the count, the index of the
//!    first key and the step.
//!
//! `?` in place of the second or third part means that no rule can describe the keys.

use core::ops::Range;

use archipelago_platform::sync::LazyLock;

use super::{Command, category};
use crate::args::Args;
use crate::family::generic::unknown_subcommand;
use crate::reply::Fault;
use crate::session::wrong_number;

/// A command, or a subcommand such as `config|get`.
#[derive(Debug)]
pub struct Row {
    /// The name. For a subcommand: the names of the command and of the subcommand.
    pub name: &'static str,
    /// The arity, as that of a [`Command`].
    pub arity: i32,
    /// The names of the flags.
    pub flags: &'static str,
    /// The first index, last index and step of the keys.
    pub keys: [i32; 3],
    /// The names of the categories.
    pub categories: &'static str,
    /// Hints for clients.
    pub tips: &'static str,
    /// The group in Redis's documentation.
    pub group: &'static str,
    /// The first version of Redis with this command.
    pub since: &'static str,
    specs: &'static str,
}

/// The argument at which a key specification begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The argument at this index.
    At(usize),
    /// The argument after this word. The word is searched from this index on. A negative index counts from the end,
    /// and the search goes backwards.
    Behind(&'static str, i32),
    /// Unknown: no rule can describe it.
    Unknown,
}

/// The keys that a key specification finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// All arguments up to the last index, in steps. The fields are: the last index, relative to the first key or
    /// negative from the end; the step; and the limit. With a limit n other than 0, only one n-th of the arguments is
    /// searched.
    Range(i32, usize, i32),
    /// As many keys as an argument states. The fields are: the index of the count, the index of the first key, both
    /// relative to the beginning, and the step.
    Counted(usize, usize, usize),
    /// Unknown: no rule can describe them.
    Unknown,
}

/// A key specification: a rule that finds keys, and what the command does to them.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    flags: &'static str,
    /// The argument at which the search begins.
    pub begin: Begin,
    /// The keys that are found from there.
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

    /// Returns the name of the subcommand, if the row is one.
    pub fn part(&self) -> Option<&'static str> {
        self.name.split_once('|').map(|(_, part)| part)
    }

    /// Returns whether the row's arity permits this number of arguments, including the name.
    pub fn takes(&self, arguments: usize) -> bool {
        super::takes(self.arity, arguments)
    }

    /// Returns whether the row has the flag with this name.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.split(' ').any(|known| known == flag)
    }

    /// Returns the bits of the categories.
    pub fn bits(&self) -> u32 {
        let bit =
            |name| category::NAMES.iter().position(|known| *known == name).expect("the catalog's categories are known");
        self.categories.split(' ').map(|name| 1 << bit(name)).sum()
    }

    /// Returns the key specifications.
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

    /// Returns the names of the flags.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        self.flags.split(',')
    }

    /// Returns whether the argument at index `place` is a key according to this specification.
    pub fn has(&self, args: &Args, place: usize) -> bool {
        self.places(args).is_some_and(|mut places| places.any(|key| key == place))
    }

    /// Returns the indices of the keys. Returns `None` if the specification cannot tell them.
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

/// All rows, and for each command's number the range of its rows. A command's row is followed by the rows of its
/// subcommands.
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

/// Returns the row of a command, followed by the rows of its subcommands. Returns no rows for a command that clients do
/// not see.
pub fn of(command: &'static Command) -> &'static [Row] {
    let (rows, places) = &*CATALOG;
    &rows[places[command.number()].clone()]
}

/// Returns the row for a request: that of the command, or that of the subcommand. The outer option is `None` if the
/// command has subcommands and the request names none of them. The inner option is `None` if clients do not see the
/// command.
pub fn row(command: &'static Command, args: &Args) -> Option<Option<&'static Row>> {
    let [row, parts @ ..] = of(command) else { return Some(None) };
    if parts.is_empty() || args.len() < 2 {
        return Some(Some(row));
    }
    let is = |row: &&Row| row.part().is_some_and(|part| args[1].eq_ignore_ascii_case(part.as_bytes()));
    parts.iter().find(is).map(Some)
}

/// Checks the subcommand of a request.
///
/// # Errors
/// Returns an error if the subcommand is unknown or its number of arguments is wrong.
pub fn check(command: &'static Command, args: &Args) -> Result<(), Fault> {
    match row(command, args) {
        None => Err(unknown_subcommand(args)),
        Some(Some(row)) if !row.takes(args.len()) => Err(wrong_number(row.name)),
        Some(_) => Ok(()),
    }
}

/// Returns the row with this name: the name of a command, or a name such as `config|get`.
pub fn named(name: &[u8]) -> Option<&'static Row> {
    let of_command = name.split(|byte| *byte == b'|').next().unwrap_or_default();
    of(super::find(of_command)?).iter().find(|row| name.eq_ignore_ascii_case(row.name.as_bytes()))
}
