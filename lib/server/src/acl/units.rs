//! Units: the smallest sets of requests that a rule can allow. A command without subcommands is one unit. If a command
//! has subcommands, each subcommand in the catalog is one unit. One more unit is the command with any other subcommand.
//! This unit is allowed only if the whole command is allowed.

use archipelago_platform::sync::LazyLock;
use std::collections::HashMap;

use crate::args::Args;
use crate::command::{self, Command, catalog, category, flag};

/// A unit that a rule can allow.
pub struct Unit {
    /// The command's name.
    pub command: &'static str,
    /// The subcommand's name, if the unit is a subcommand.
    pub part: Option<&'static str>,
    /// Bits of [`category()`].
    pub categories: u32,
}

static UNITS: LazyLock<Vec<Unit>> = LazyLock::new(|| {
    let mut units = Vec::new();
    for command in command::all().filter(|command| !command.has(flag::INTERNAL)) {
        units.push(Unit { command: command.name, part: None, categories: command.categories });
        let parts = catalog::of(command).iter().filter(|row| row.part().is_some());
        units.extend(parts.map(|row| Unit { command: command.name, part: row.part(), categories: row.bits() }));
    }
    units
});

/// The range of each command's units in `UNITS`.
static PLACES: LazyLock<HashMap<&'static str, (usize, usize)>> = LazyLock::new(|| {
    let mut places = HashMap::new();
    for (at, unit) in UNITS.iter().enumerate() {
        places.entry(unit.command).or_insert((at, at)).1 = at + 1;
    }
    places
});

/// Returns all units.
pub fn all() -> &'static [Unit] {
    &UNITS
}

/// Returns the indices of a command's units. The first is the unit of the command itself.
pub fn of(command: &str) -> Option<core::ops::Range<usize>> {
    PLACES.get(command).map(|(start, end)| *start..*end)
}

/// Returns the index of a subcommand's unit.
pub fn part(command: &str, part: &[u8]) -> Option<usize> {
    of(command)?.find(|at| UNITS[*at].part.is_some_and(|name| part.eq_ignore_ascii_case(name.as_bytes())))
}

/// Returns the index of the unit that a request needs. Returns `None` for the server's internal commands.
pub fn asked(command: &Command, args: &Args) -> Option<usize> {
    let whole = of(command.name)?;
    args.get(1).and_then(|word| part(command.name, word)).or(Some(whole.start))
}

/// Returns the category of this name.
pub fn category(name: &[u8]) -> Option<u32> {
    category::NAMES.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes())).map(|bit| 1 << bit)
}

impl Unit {
    /// Returns the unit's name in the format of errors.
    pub fn name(&self) -> String {
        self.part.map_or_else(|| self.command.to_owned(), |part| format!("{}|{part}", self.command))
    }
}
