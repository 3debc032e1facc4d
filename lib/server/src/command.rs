//! The registry of commands.
//!
//! Each family's file has a table of its commands; this one joins them. A row says all that is asked about a command before
//! it runs: how many arguments, which of them are keys, what it does to them, which access-control categories it is in.

pub mod catalog;
pub mod help;

use archipelago_platform::sync::LazyLock;
use rustc_hash::FxHashMap;

use crate::args::Args;
use crate::db::{Change, View};
use crate::family;
use crate::reply::Answer;

/// What a command does, as `COMMAND` tells it.
pub mod flag {
    /// May change keys.
    pub const WRITE: u32 = 1;
    /// Changes no key.
    pub const READONLY: u32 = 1 << 1;
    /// Is refused when memory is short.
    pub const DENYOOM: u32 = 1 << 2;
    /// Takes constant or logarithmic time.
    pub const FAST: u32 = 1 << 3;
    /// May not be in a script.
    pub const NOSCRIPT: u32 = 1 << 4;
    /// May wait for a key.
    pub const BLOCKING: u32 = 1 << 5;
    /// Is for administrators.
    pub const ADMIN: u32 = 1 << 6;
    /// Belongs to publish and subscribe.
    pub const PUBSUB: u32 = 1 << 7;
    /// May come before `AUTH`.
    pub const NO_AUTH: u32 = 1 << 8;
    /// May not be in a transaction.
    pub const NO_MULTI: u32 = 1 << 9;
    /// Is there for the server's own use: clients get the error for an unknown command.
    pub const INTERNAL: u32 = 1 << 10;

    /// The names of the flags, as `COMMAND` tells them.
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
    /// Their names; the bit of a category is its place here.
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
    /// Keys of any type.
    pub const KEYSPACE: u32 = 1;
    /// Reads keys.
    pub const READ: u32 = 1 << 1;
    /// Changes keys.
    pub const WRITE: u32 = 1 << 2;
    /// Sets.
    pub const SET: u32 = 1 << 3;
    /// Sorted sets.
    pub const SORTED_SET: u32 = 1 << 4;
    /// Lists.
    pub const LIST: u32 = 1 << 5;
    /// Hashes.
    pub const HASH: u32 = 1 << 6;
    /// Strings.
    pub const STRING: u32 = 1 << 7;
    /// Bits of strings.
    pub const BITMAP: u32 = 1 << 8;
    /// Counts of distinct elements.
    pub const HYPERLOGLOG: u32 = 1 << 9;
    /// Places on the earth.
    pub const GEO: u32 = 1 << 10;
    /// Streams.
    pub const STREAM: u32 = 1 << 11;
    /// Publish and subscribe.
    pub const PUBSUB: u32 = 1 << 12;
    /// Administration.
    pub const ADMIN: u32 = 1 << 13;
    /// Constant or logarithmic time.
    pub const FAST: u32 = 1 << 14;
    /// Other time.
    pub const SLOW: u32 = 1 << 15;
    /// May wait.
    pub const BLOCKING: u32 = 1 << 16;
    /// May harm others.
    pub const DANGEROUS: u32 = 1 << 17;
    /// The connection itself.
    pub const CONNECTION: u32 = 1 << 18;
    /// Transactions.
    pub const TRANSACTION: u32 = 1 << 19;
    /// Scripts.
    pub const SCRIPTING: u32 = 1 << 20;
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// None.
    None,
    /// From the first to the last (negative: from the end), and the step.
    Range(i32, i32, i32),
    /// As many as the argument at this place says, behind it; and the argument at the first place, unless that is 0.
    Counted {
        /// Where the one key before is.
        first: usize,
        /// Where the count is.
        count: usize,
    },
    /// The first half of what stands behind the word STREAMS.
    Streams,
    /// The first argument, and those behind the words STORE and STOREDIST.
    Stores,
}

impl Keys {
    /// The places of the keys in `args`.
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
                let word = (1..end).find(|place| args.is(*place, "STREAMS")).map_or(end, |place| place + 1);
                (word..word + (end - word) / 2).collect()
            }
            Self::Stores => {
                let stored = (2..end).filter(|place| args.is(place - 1, "STORE") || args.is(place - 1, "STOREDIST"));
                (end > 1).then_some(1).into_iter().chain(stored).collect()
            }
        }
    }

    /// First, last and step as `COMMAND` tells them.
    pub fn told(self) -> (i32, i32, i32) {
        match self {
            Self::Range(first, last, step) => (first, last, step),
            Self::Counted { first, .. } if first > 0 => (first as i32, first as i32, 1),
            Self::Stores => (1, 1, 1),
            _ => (0, 0, 0),
        }
    }
}

/// What carries a command out.
#[derive(Clone, Copy)]
pub enum Run {
    /// Reads the database: on the local replica.
    Read(fn(&View<'_>, &Args) -> Answer),
    /// Changes it: through the log, on all replicas.
    Write(fn(&mut Change<'_>, &Args) -> Answer),
    /// Concerns the connection or the server: [`session`](crate::session) and [`server`](crate::server) know it by name.
    Session,
}

/// A row of the registry.
#[derive(Clone, Copy)]
pub struct Command {
    /// The name, in lower case.
    pub name: &'static str,
    /// The number of arguments with the name; negative: the least number.
    pub arity: i32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Which arguments are keys.
    pub keys: Keys,
    /// Bits of [`category`].
    pub categories: u32,
    /// What carries it out.
    pub run: Run,
}

impl core::fmt::Debug for Command {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

/// Keys of commands with one, the first argument.
pub const ONE_KEY: Keys = Keys::Range(1, 1, 1);
/// Keys of commands whose arguments are all keys.
pub const ALL_KEYS: Keys = Keys::Range(1, -1, 1);

impl Command {
    /// A command that reads.
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

    /// A command that changes.
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

    /// A command of the connection or the server.
    pub const fn session(name: &'static str, arity: i32, flags: u32, categories: u32) -> Self {
        Self { name, arity, flags, keys: Keys::None, categories: categories | speed(flags), run: Run::Session }
    }

    /// Returns whether this number of arguments, with the name, is right.
    pub fn takes(&self, arguments: usize) -> bool {
        takes(self.arity, arguments)
    }

    /// Returns whether it has this flag.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Returns whether an arity takes this number of arguments, with the name.
fn takes(arity: i32, arguments: usize) -> bool {
    let least = arity.unsigned_abs() as usize;
    if arity < 0 { arguments >= least } else { arguments == least }
}

/// The categories that follow from flags.
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

/// All rows, in one place: a command's number is its place.
static ALL: LazyLock<Vec<Command>> = LazyLock::new(|| {
    use crate::server::{commands, lacking, saver};
    let servers = [commands::COMMANDS, saver::COMMANDS, lacking::COMMANDS];
    family::TABLES.iter().copied().chain(servers).flatten().copied().collect()
});

/// The longest name.
const LONGEST: usize = 32;

/// All commands, family by family.
pub fn all() -> impl Iterator<Item = &'static Command> {
    ALL.iter()
}

impl Command {
    /// Its place among [`all`].
    pub fn number(&'static self) -> usize {
        (core::ptr::from_ref(self) as usize - ALL.as_ptr() as usize) / size_of::<Self>()
    }
}

/// The command with this name, in upper or lower case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; LONGEST];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}
