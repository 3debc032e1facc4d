//! The registry of commands.
//!
//! The file of each family of commands has a table. This module joins all tables. A row has everything that must be
//! known before the command runs: the number of arguments, which arguments are keys, what the command does to these
//! keys, and the access-control categories.

pub mod catalog;
pub mod help;

use archipelago_platform::sync::LazyLock;
use rustc_hash::FxHashMap;

use crate::args::Args;
use crate::db::{Change, View};
use crate::family;
use crate::reply::Answer;

/// Flags that describe a command, as `COMMAND` reports them.
pub mod flag {
    /// The command may change keys. Commands that run scripts, and `PFCOUNT`, may change keys without this flag.
    pub const WRITE: u32 = 1;
    /// The command changes no key.
    pub const READONLY: u32 = 1 << 1;
    /// The command is refused when memory is short.
    pub const DENYOOM: u32 = 1 << 2;
    /// The command takes constant or logarithmic time.
    pub const FAST: u32 = 1 << 3;
    /// Scripts must not call the command.
    pub const NOSCRIPT: u32 = 1 << 4;
    /// The command may block until a key is ready.
    pub const BLOCKING: u32 = 1 << 5;
    /// The command is for administrators.
    pub const ADMIN: u32 = 1 << 6;
    /// The command belongs to publish and subscribe.
    pub const PUBSUB: u32 = 1 << 7;
    /// The command is permitted before `AUTH`.
    pub const NO_AUTH: u32 = 1 << 8;
    /// The command is not permitted in a transaction.
    pub const NO_MULTI: u32 = 1 << 9;
    /// The command is only used by the server itself. Clients get the error for an unknown command.
    pub const INTERNAL: u32 = 1 << 10;

    /// The flags with the names that `COMMAND` reports.
    pub const NAMES: [(u32, &str); 10] = [
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENYOOM, "denyoom"),
        (FAST, "fast"),
        (NOSCRIPT, "noscript"),
        (BLOCKING, "blocking"),
        (ADMIN, "admin"),
        (PUBSUB, "pubsub"),
        (NO_AUTH, "no_auth"),
        (NO_MULTI, "no_multi"),
    ];
}

/// Categories of access control.
pub mod category {
    /// The names of the categories. The index of a name is the category's bit.
    pub const NAMES: [&str; 21] = [
        "keyspace",
        "read",
        "write",
        "set",
        "sortedset",
        "list",
        "hash",
        "string",
        "bitmap",
        "hyperloglog",
        "geo",
        "stream",
        "pubsub",
        "admin",
        "fast",
        "slow",
        "blocking",
        "dangerous",
        "connection",
        "transaction",
        "scripting",
    ];
    /// Commands for keys of any type.
    pub const KEYSPACE: u32 = 1;
    /// Commands that read keys.
    pub const READ: u32 = 1 << 1;
    /// Commands that change keys.
    pub const WRITE: u32 = 1 << 2;
    /// Commands for sets.
    pub const SET: u32 = 1 << 3;
    /// Commands for sorted sets.
    pub const SORTED_SET: u32 = 1 << 4;
    /// Commands for lists.
    pub const LIST: u32 = 1 << 5;
    /// Commands for hashes.
    pub const HASH: u32 = 1 << 6;
    /// Commands for strings.
    pub const STRING: u32 = 1 << 7;
    /// Commands for the bits of strings.
    pub const BITMAP: u32 = 1 << 8;
    /// Commands for approximate counts of distinct elements.
    pub const HYPERLOGLOG: u32 = 1 << 9;
    /// Commands for geographic positions.
    pub const GEO: u32 = 1 << 10;
    /// Commands for streams.
    pub const STREAM: u32 = 1 << 11;
    /// Commands for publish and subscribe.
    pub const PUBSUB: u32 = 1 << 12;
    /// Commands for administration.
    pub const ADMIN: u32 = 1 << 13;
    /// Commands that take constant or logarithmic time.
    pub const FAST: u32 = 1 << 14;
    /// Commands that may take longer than logarithmic time.
    pub const SLOW: u32 = 1 << 15;
    /// Commands that may block.
    pub const BLOCKING: u32 = 1 << 16;
    /// Commands that may harm other clients.
    pub const DANGEROUS: u32 = 1 << 17;
    /// Commands for the connection itself.
    pub const CONNECTION: u32 = 1 << 18;
    /// Commands for transactions.
    pub const TRANSACTION: u32 = 1 << 19;
    /// Commands for scripts.
    pub const SCRIPTING: u32 = 1 << 20;
}

/// The rule that tells which arguments of a command are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// No argument is a key.
    None,
    /// Each `step`-th argument is a key: the fields are the first index, the last index (a negative one counts from the
    /// end), and the step.
    Range(i32, i32, i32),
    /// An argument is the number of keys, and the keys follow that argument.
    Counted {
        /// The index of an additional key before the count. 0 means that there is none.
        first: usize,
        /// The index of the count.
        count: usize,
    },
    /// The first half of the arguments after the option STREAMS. Arguments of earlier options may be equal to this word.
    Streams,
    /// The first argument, and the arguments after the words STORE and STOREDIST.
    Stores,
}

impl Keys {
    /// Returns the indices of the keys in `args`.
    pub fn places(self, args: &Args) -> Vec<usize> {
        let end = args.len();
        match self {
            Self::None => Vec::new(),
            Self::Range(first, last, step) => {
                let last = if last < 0 { end as i64 + i64::from(last) } else { i64::from(last) };
                (first as usize..)
                    .step_by(step as usize)
                    .take_while(|place| *place as i64 <= last && *place < end)
                    .collect()
            }
            Self::Counted { first, count } => {
                let keys = args.get(count).and_then(|digits| core::str::from_utf8(digits).ok()?.parse::<usize>().ok());
                let keys = keys.unwrap_or(0).min(end.saturating_sub(count + 1));
                (first > 0).then_some(first).into_iter().chain(count + 1..count + 1 + keys).collect()
            }
            Self::Streams => {
                let mut at = 1;
                while at < end && !args.is(at, "STREAMS") {
                    at += match () {
                        () if args.is(at, "GROUP") => 3,
                        () if args.is(at, "BLOCK") || args.is(at, "COUNT") => 2,
                        () => 1,
                    };
                }
                let first = (at + 1).min(end);
                (first..first + (end - first) / 2).collect()
            }
            Self::Stores => {
                let stored = (2..end).filter(|place| args.is(place - 1, "STORE") || args.is(place - 1, "STOREDIST"));
                (end > 1).then_some(1).into_iter().chain(stored).collect()
            }
        }
    }

    /// Returns the first index, the last index and the step that `COMMAND` reports.
    pub fn told(self) -> (i32, i32, i32) {
        match self {
            Self::Range(first, last, step) => (first, last, step),
            Self::Counted { first, .. } if first > 0 => (first as i32, first as i32, 1),
            Self::Stores => (1, 1, 1),
            _ => (0, 0, 0),
        }
    }
}

/// The function that carries out a command.
#[derive(Clone, Copy)]
pub enum Run {
    /// The command reads the database. It runs on the local replica, unless it is part of an operation of the log (of a
    /// transaction, for example).
    Read(fn(&View<'_>, &Args) -> Answer),
    /// The command may change the database. It goes through the log and runs on all replicas.
    Write(fn(&mut Change<'_>, &Args) -> Answer),
    /// The command concerns the connection or the server. [`session`](crate::session) or [`server`](crate::server)
    /// carries it out by its name.
    Session,
}

/// A command: a row of the registry.
#[derive(Clone, Copy)]
pub struct Command {
    /// The name in lower case.
    pub name: &'static str,
    /// The number of arguments, including the name. A negative number is the least number.
    pub arity: i32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Which arguments are keys.
    pub keys: Keys,
    /// Bits of [`category`].
    pub categories: u32,
    /// The function that carries the command out.
    pub run: Run,
}

impl core::fmt::Debug for Command {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

/// The rule for commands whose first argument is their only key.
pub const ONE_KEY: Keys = Keys::Range(1, 1, 1);
/// The rule for commands whose arguments are all keys.
pub const ALL_KEYS: Keys = Keys::Range(1, -1, 1);

impl Command {
    /// Returns the row of a command that reads the database.
    pub const fn read(
        name: &'static str,
        arity: i32,
        flags: u32,
        keys: Keys,
        categories: u32,
        run: fn(&View<'_>, &Args) -> Answer,
    ) -> Self {
        let categories = categories | category::READ | speed(flags);
        Self { name, arity, flags: flags | flag::READONLY, keys, categories, run: Run::Read(run) }
    }

    /// Returns the row of a command that may change the database.
    pub const fn write(
        name: &'static str,
        arity: i32,
        flags: u32,
        keys: Keys,
        categories: u32,
        run: fn(&mut Change<'_>, &Args) -> Answer,
    ) -> Self {
        let categories = categories | category::WRITE | speed(flags);
        Self { name, arity, flags: flags | flag::WRITE, keys, categories, run: Run::Write(run) }
    }

    /// Returns the row of a command that concerns the connection or the server.
    pub const fn session(name: &'static str, arity: i32, flags: u32, categories: u32) -> Self {
        Self { name, arity, flags, keys: Keys::None, categories: categories | speed(flags), run: Run::Session }
    }

    /// Returns whether the command accepts this number of arguments, including the name.
    pub fn takes(&self, arguments: usize) -> bool {
        takes(self.arity, arguments)
    }

    /// Returns whether the command has this flag.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Returns whether an arity permits this number of arguments, including the name.
fn takes(arity: i32, arguments: usize) -> bool {
    let least = arity.unsigned_abs() as usize;
    if arity < 0 { arguments >= least } else { arguments == least }
}

/// Returns the categories that follow from the flags.
const fn speed(flags: u32) -> u32 {
    let mut categories = if flags & flag::FAST != 0 { category::FAST } else { category::SLOW };
    if flags & flag::BLOCKING != 0 {
        categories |= category::BLOCKING;
    }
    if flags & flag::ADMIN != 0 {
        categories |= category::ADMIN | category::DANGEROUS;
    }
    if flags & flag::PUBSUB != 0 {
        categories |= category::PUBSUB;
    }
    categories
}

static BY_NAME: LazyLock<FxHashMap<&'static [u8], &'static Command>> =
    LazyLock::new(|| all().map(|command| (command.name.as_bytes(), command)).collect());

/// All rows in one vector. The index of a row is the command's number.
static ALL: LazyLock<Vec<Command>> = LazyLock::new(|| {
    use crate::server::{commands, lacking, saver};
    let servers = [commands::COMMANDS, saver::COMMANDS, lacking::COMMANDS];
    family::TABLES.iter().copied().chain(servers).flatten().copied().collect()
});

/// The most bytes of a command's name.
const LONGEST: usize = 32;

/// Returns all commands, family by family.
pub fn all() -> impl Iterator<Item = &'static Command> {
    ALL.iter()
}

impl Command {
    /// Returns the index of the command in [`all`].
    pub fn number(&'static self) -> usize {
        (core::ptr::from_ref(self) as usize - ALL.as_ptr() as usize) / size_of::<Self>()
    }
}

/// Returns the command with this name, in upper or lower case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; LONGEST];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}
