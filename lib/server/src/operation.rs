//! What enters the log: operations that need ask for nothing.
//!
//! # Encoding
//! An operation's bytes are a tag and its fields in order; numbers are LEB128, a run of bytes has its length before it. A
//! command goes by its name, so that a log outlives versions. What is malformed is refused, and lengths are checked against
//! the bytes that are there before room is made.

use core::slice;

use archipelago_platform::sync::Arc;

use crate::acl::selector::Selector;
use crate::acl::user::User;
use crate::args::Args;
use crate::command::{self, Command};
use crate::deadline::Deadline;

/// A command with all that it must not ask for itself.
#[derive(Clone, Debug)]
pub struct Call {
    /// The command. The arity was checked.
    pub command: &'static Command,
    /// Its arguments, the name at 0.
    pub args: Args,
    /// The database's number.
    pub db: u32,
    /// The time: milliseconds since 1970.
    pub now: u64,
    /// Where its randomness comes from.
    pub seed: u64,
    /// Bits of [`wish`].
    pub wishes: u8,
    /// What a script's commands may do: what its user may, as it was when the operation was made. Nothing: all.
    pub rights: Option<Arc<User>>,
    /// How long a script may run, and where the replicas stop it; nothing: without a limit of time. No part of the log.
    pub deadline: Option<Arc<Deadline>>,
}

/// What the caller wants to hear of besides the answer.
pub mod wish {
    /// Keyspace events.
    pub const EVENTS: u8 = 1;
    /// Which keys were changed, for client-side caches.
    pub const CHANGES: u8 = 2;
    /// Events of keys that a reading command did not find.
    pub const MISSES: u8 = 4;
    /// The answer of a read, only if that does not take long: else [`Effects::long`](crate::db::Effects::long).
    pub const SHORT: u8 = 8;
    /// Not a wish, but what the caller knows: memory was short when the operation was made. Of calls that run scripts; a part
    /// of the operation, so that all replicas refuse alike.
    pub const FULL: u8 = 16;
    /// The commands that a script calls, for monitors: of calls that go through the log.
    pub const CALLS: u8 = 32;
}

/// The places of the keys that a command reads, for the event of a key that is not there: of a changing command those that it
/// does not change, or whose old value it answers with.
pub fn sources(call: &Call) -> Vec<usize> {
    let places = call.command.keys.places(&call.args);
    let reads = call.command.has(command::flag::READONLY);
    match call.command.name {
        "object" => Vec::new(),
        "set" if (3..call.args.len()).any(|at| call.args.is(at, "GET")) => places,
        "getex" | "getdel" | "getset" => places,
        "copy" => places[..1].to_vec(),
        "pfmerge" => places,
        name if name.ends_with("store") || name == "bitop" => places[1..].to_vec(),
        _ if reads => places,
        _ => Vec::new(),
    }
}

/// An operation that changes nothing.
#[derive(Clone, Debug)]
pub enum Read {
    /// A command of [`Run::Read`](crate::command::Run::Read).
    Call(Call),
}

/// A key whose changes a client watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The database's number.
    pub db: u32,
    /// The key.
    pub key: Vec<u8>,
    /// The operation up to which it may have changed: what the operation that began to watch answered.
    pub since: u64,
}

/// An operation that may change the database.
#[derive(Clone, Debug)]
pub enum Write {
    /// A command.
    Call(Call),
    /// A transaction: all of `calls`, or nothing if a watched key was changed.
    Exec {
        /// In order. Their times are the same.
        calls: Vec<Call>,
        /// The keys that the client watches. They are let go.
        watched: Vec<Watched>,
        /// The time: milliseconds since 1970.
        now: u64,
    },
    /// Begins to watch keys. Is answered with the number for [`Watched::since`].
    Watch {
        /// The database's number.
        db: u32,
        /// The keys.
        keys: Vec<Vec<u8>>,
        /// The time: milliseconds since 1970.
        now: u64,
    },
    /// Lets watched keys go.
    Unwatch {
        /// What was watched.
        watched: Vec<Watched>,
    },
    /// Lets all watched keys go, and sets what clients had set: at a start, when the clients of the log's past are no more.
    UnwatchAll,
    /// From here on effects are gathered for one listener more, or one fewer. The database keeps count, so that each change
    /// behind this operation is told, whoever made it and whenever.
    Listen {
        /// One bit of [`wish`].
        what: u8,
        /// One more; else one fewer.
        begins: bool,
    },
    /// Removes keys that have expired and fields that are due, those that did first.
    Expire {
        /// The time: milliseconds since 1970.
        now: u64,
        /// The most keys, and the most fields, that are removed of a database.
        most: u32,
    },
    /// Removes keys since memory is short: those that one place has chosen.
    Evict {
        /// The time: milliseconds since 1970.
        now: u64,
        /// The keys, with the numbers of their databases.
        keys: Vec<(u32, Vec<u8>)>,
    },
    /// Begins to count what keys take of memory.
    Meter {
        /// Says whether entries have counts of uses, and not the time of the last.
        lfu: bool,
    },
    /// Sets how long a sparse HyperLogLog may be.
    Sparse {
        /// In bytes.
        most: u32,
    },
}

/// The bit beside the wishes that says that rights follow.
const RIGHTS: u8 = 0x80;

const CALL: u8 = 1;
const EXEC: u8 = 2;
const WATCH: u8 = 3;
const UNWATCH: u8 = 4;
const UNWATCH_ALL: u8 = 5;
const EXPIRE: u8 = 6;
const LISTEN: u8 = 7;
const EVICT: u8 = 20;
const METER: u8 = 21;
const SPARSE: u8 = 22;

impl Write {
    /// The calls of commands in it, in order.
    pub fn calls(&self) -> &[Call] {
        match self {
            Self::Call(call) => slice::from_ref(call),
            Self::Exec { calls, .. } => calls,
            _ => &[],
        }
    }

    /// The same, to be changed.
    pub fn calls_mut(&mut self) -> &mut [Call] {
        match self {
            Self::Call(call) => slice::from_mut(call),
            Self::Exec { calls, .. } => calls,
            _ => &mut [],
        }
    }

    /// Appends the operation's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Call(call) => {
                out.push(CALL);
                put_call(call, out);
            }
            Self::Exec { calls, watched, now } => {
                out.push(EXEC);
                put_number(calls.len() as u64, out);
                calls.iter().for_each(|call| put_call(call, out));
                put_watched(watched, out);
                put_number(*now, out);
            }
            Self::Watch { db, keys, now } => {
                out.push(WATCH);
                put_number(u64::from(*db), out);
                put_number(keys.len() as u64, out);
                keys.iter().for_each(|key| put_bytes(key, out));
                put_number(*now, out);
            }
            Self::Unwatch { watched } => {
                out.push(UNWATCH);
                put_watched(watched, out);
            }
            Self::UnwatchAll => out.push(UNWATCH_ALL),
            Self::Listen { what, begins } => out.extend([LISTEN, *what, u8::from(*begins)]),
            Self::Evict { now, keys } => {
                out.push(EVICT);
                put_number(*now, out);
                put_number(keys.len() as u64, out);
                for (db, key) in keys {
                    put_number(u64::from(*db), out);
                    put_bytes(key, out);
                }
            }
            Self::Meter { lfu } => out.extend_from_slice(&[METER, u8::from(*lfu)]),
            Self::Sparse { most } => {
                out.push(SPARSE);
                put_number(u64::from(*most), out);
            }
            Self::Expire { now, most } => {
                out.push(EXPIRE);
                put_number(*now, out);
                put_number(u64::from(*most), out);
            }
        }
    }

    /// The operation of these bytes, all of them. Returns `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Input(bytes);
        let operation = match input.byte()? {
            CALL => Self::Call(input.call()?),
            EXEC => Self::Exec {
                calls: input.many(Input::call)?,
                watched: input.many(Input::watched)?,
                now: input.number()?,
            },
            WATCH => Self::Watch {
                db: input.small()?,
                keys: input.many(|input| input.bytes().map(<[u8]>::to_vec))?,
                now: input.number()?,
            },
            UNWATCH => Self::Unwatch { watched: input.many(Input::watched)? },
            UNWATCH_ALL => Self::UnwatchAll,
            LISTEN => Self::Listen { what: input.byte()?, begins: input.byte()? != 0 },
            EVICT => Self::Evict {
                now: input.number()?,
                keys: input.many(|input| Some((input.small()?, input.bytes()?.to_vec())))?,
            },
            METER => Self::Meter { lfu: input.byte()? != 0 },
            SPARSE => Self::Sparse { most: input.small()? },
            EXPIRE => Self::Expire { now: input.number()?, most: input.small()? },
            _ => return None,
        };
        input.0.is_empty().then_some(operation)
    }
}

fn put_call(call: &Call, out: &mut Vec<u8>) {
    put_bytes(call.command.name.as_bytes(), out);
    put_number(u64::from(call.db), out);
    put_number(call.now, out);
    out.extend_from_slice(&call.seed.to_le_bytes());
    out.push(call.wishes | if call.rights.is_some() { RIGHTS } else { 0 });
    if let Some(user) = &call.rights {
        put_number(user.selectors.len() as u64, out);
        user.selectors.iter().for_each(|selector| put_bytes(&selector.line(), out));
    }
    put_number(call.args.len() as u64, out);
    call.args.from(0).for_each(|argument| put_bytes(argument, out));
}

fn put_watched(watched: &[Watched], out: &mut Vec<u8>) {
    put_number(watched.len() as u64, out);
    for Watched { db, key, since } in watched {
        put_number(u64::from(*db), out);
        put_bytes(key, out);
        put_number(*since, out);
    }
}

/// Appends a number in LEB128.
pub fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a length and bytes.
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Bytes that are read from the front.
pub struct Input<'b>(pub &'b [u8]);

impl<'b> Input<'b> {
    /// One byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A number in LEB128.
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return None;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A number of 32 bits.
    pub fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// So many bytes.
    pub fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A length and as many bytes.
    pub fn bytes(&mut self) -> Option<&'b [u8]> {
        let count = self.number()?.try_into().ok()?;
        self.take(count)
    }

    /// Eight bytes.
    pub fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A count and as many of what `one` reads.
    pub fn many<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.number()?).map(|_| one(self)).collect()
    }

    fn call(&mut self) -> Option<Call> {
        let command = command::find(self.bytes()?)?;
        let (db, now, seed, wishes) = (self.small()?, self.number()?, self.word()?, self.byte()?);
        let rights = match wishes & RIGHTS {
            0 => None,
            _ => Some(Arc::new(self.user()?)),
        };
        let mut args = Args::default();
        for _ in 0..self.number()? {
            args.push(self.bytes()?);
        }
        let wishes = wishes & !RIGHTS;
        command.takes(args.len()).then_some(Call { command, args, db, now, seed, wishes, rights, deadline: None })
    }

    /// A user without a selector would be asked by none.
    fn user(&mut self) -> Option<User> {
        let selectors = (0..self.number()?).map(|_| Selector::read(self.bytes()?).ok()).collect::<Option<Vec<_>>>()?;
        (!selectors.is_empty()).then(|| User::of(selectors))
    }

    fn watched(&mut self) -> Option<Watched> {
        Some(Watched { db: self.small()?, key: self.bytes()?.to_vec(), since: self.number()? })
    }
}
