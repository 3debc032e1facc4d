//! Operations: the entries of the replicated log. An operation has all that a replica needs to carry it out, so
//! replicas need no clock and no random source.
//!
//! # Encoding
//! An operation is encoded as a tag, followed by its fields in order. Numbers are LEB128, and a byte string follows its
//! length. A command is encoded by its name, so that later versions can read an older log. Malformed bytes are refused.
//! Lengths are checked against the number of bytes left before memory is allocated.

use core::slice;

use archipelago_platform::sync::Arc;

use crate::acl::selector::Selector;
use crate::acl::user::User;
use crate::args::Args;
use crate::command::{self, Command};
use crate::deadline::Deadline;

/// A command with its arguments and all that a replica needs to carry it out.
#[derive(Clone, Debug)]
pub struct Call {
    /// The command. The number of arguments has already been checked against its arity.
    pub command: &'static Command,
    /// The arguments. The command's name is at index 0.
    pub args: Args,
    /// The number of the database.
    pub db: u32,
    /// The time: milliseconds since 1970.
    pub now: u64,
    /// The seed of the command's random numbers.
    pub seed: u64,
    /// Bits of [`wish`].
    pub wishes: u8,
    /// If the command runs a script: the user whose rights limit the script's commands, as they were when the operation
    /// was made. `None` permits every command.
    pub rights: Option<Arc<User>>,
    /// If the command runs a script: its deadline, at which all replicas stop it. `None` means that the time of the
    /// script has no limit. The deadline is not encoded in the log.
    pub deadline: Option<Arc<Deadline>>,
}

/// Bits for the effects that the caller requests in addition to the reply, and for conditions under which the operation
/// is carried out.
pub mod wish {
    /// Keyspace events.
    pub const EVENTS: u8 = 1;
    /// The keys that were changed, for client-side caches.
    pub const CHANGES: u8 = 2;
    /// Events of keys that a reading command looked up and did not find.
    pub const MISSES: u8 = 4;
    /// Carry a read out only if it does not take long. A longer read returns
    /// [`Effects::long`](crate::db::Effects::long) instead of a reply.
    pub const SHORT: u8 = 8;
    /// Memory was short when the operation was made. This bit is not a wish, but information from the caller, for
    /// commands that run scripts. It is a part of the operation, so that all replicas refuse the same commands of the
    /// script.
    pub const FULL: u8 = 16;
    /// The commands that a script calls, for monitors. Only for operations that go through the log.
    pub const CALLS: u8 = 32;
}

/// Returns the indices of the keys that a command reads. If one of these keys is missing, the command causes a
/// `keymiss` event. If the command changes keys, the result has the keys that it only reads and the keys whose old
/// values it returns.
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
    /// A command whose function is [`Run::Read`](crate::command::Run::Read).
    Call(Call),
}

/// A key that a client watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The number of the database.
    pub db: u32,
    /// The key.
    pub key: Vec<u8>,
    /// The number of an operation. Only changes by later operations count. The number is the reply of the operation
    /// that began to watch the key.
    pub since: u64,
}

/// An operation that may change the database.
#[derive(Clone, Debug)]
pub enum Write {
    /// A command.
    Call(Call),
    /// A transaction. Carries out all of `calls`, or none of them if a watched key was changed.
    Exec {
        /// The commands in order. All have the same time.
        calls: Vec<Call>,
        /// The keys that the client watches. The client no longer watches them afterwards.
        watched: Vec<Watched>,
        /// The time: milliseconds since 1970.
        now: u64,
    },
    /// Begins to watch keys. The reply is the number for [`Watched::since`].
    Watch {
        /// The number of the database.
        db: u32,
        /// The keys.
        keys: Vec<Vec<u8>>,
        /// The time: milliseconds since 1970.
        now: u64,
    },
    /// Stops watching keys.
    Unwatch {
        /// The keys to stop watching.
        watched: Vec<Watched>,
    },
    /// Stops watching all keys, and resets the numbers of listeners and the limit of sparse HyperLogLogs. Each start
    /// with a log or a snapshot carries it out, because the clients of the earlier process are no longer connected.
    UnwatchAll,
    /// Changes the number of listeners to one kind of effects by one. The database itself counts listeners. While there
    /// are listeners, it records such effects for all operations of all clients.
    Listen {
        /// One bit of [`wish`].
        what: u8,
        /// `true` adds a listener, and `false` removes one.
        begins: bool,
    },
    /// Removes expired keys and due fields, those with the earliest times first. A field is due when its expiry time
    /// has come.
    Expire {
        /// The time: milliseconds since 1970.
        now: u64,
        /// The most keys, and the most fields, that are removed from each database.
        most: u32,
    },
    /// Removes keys because memory is short. One replica has chosen the keys.
    Evict {
        /// The time: milliseconds since 1970.
        now: u64,
        /// The keys, with the numbers of their databases.
        keys: Vec<(u32, Vec<u8>)>,
    },
    /// Begins to count the memory that keys take.
    Meter {
        /// Whether entries record how often they are used (LFU). If not, entries record the time of the last use.
        lfu: bool,
    },
    /// Sets the longest sparse HyperLogLog.
    Sparse {
        /// The most bytes.
        most: u32,
    },
    /// Sets the seed of the databases' hash function, unless they have keys or a seed. A server carries it out when it
    /// starts with neither.
    ///
    /// The seed is logged, rather than kept in a file beside the log: without its seed, the log would be applied with
    /// another order of keys. Earlier versions do not know this operation, and refuse a log that has it.
    Seed {
        /// The seed.
        seed: u64,
    },
}

/// The bit in the byte of the wishes that is set if the rights of a user follow.
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
const SEED: u8 = 23;

impl Write {
    /// Returns the commands in the operation, in order.
    pub fn calls(&self) -> &[Call] {
        match self {
            Self::Call(call) => slice::from_ref(call),
            Self::Exec { calls, .. } => calls,
            _ => &[],
        }
    }

    /// Returns the commands in the operation, in order, for a change.
    pub fn calls_mut(&mut self) -> &mut [Call] {
        match self {
            Self::Call(call) => slice::from_mut(call),
            Self::Exec { calls, .. } => calls,
            _ => &mut [],
        }
    }

    /// Appends the encoding of the operation.
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
            Self::Seed { seed } => {
                out.push(SEED);
                out.extend_from_slice(&seed.to_le_bytes());
            }
            Self::Expire { now, most } => {
                out.push(EXPIRE);
                put_number(*now, out);
                put_number(u64::from(*most), out);
            }
        }
    }

    /// Decodes an operation from all of the bytes. Returns `None` if the bytes are malformed.
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
            SEED => Self::Seed { seed: input.word()? },
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

/// Appends the length of `bytes`, then `bytes`.
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// A reader of bytes. Its methods return `None` if the bytes are malformed or end too early.
pub struct Input<'b>(pub &'b [u8]);

impl<'b> Input<'b> {
    /// Reads one byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Reads a number in LEB128.
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

    /// Reads a number in LEB128 that fits 32 bits.
    pub fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// Reads `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads a length, then this number of bytes.
    pub fn bytes(&mut self) -> Option<&'b [u8]> {
        let count = self.number()?.try_into().ok()?;
        self.take(count)
    }

    /// Reads eight bytes as a little-endian number.
    pub fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Reads a count, then this number of items, each with `one`.
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

    /// Refuses a user without selectors: `User::check` would permit such a user every command.
    fn user(&mut self) -> Option<User> {
        let selectors = (0..self.number()?).map(|_| Selector::read(self.bytes()?).ok()).collect::<Option<Vec<_>>>()?;
        (!selectors.is_empty()).then(|| User::of(selectors))
    }

    fn watched(&mut self) -> Option<Watched> {
        Some(Watched { db: self.small()?, key: self.bytes()?.to_vec(), since: self.number()? })
    }
}
