//! The sequential database. Node replication runs one copy of [`Db`] on each replica and adds concurrency.
//!
//! The database does not know threads, sockets, clocks or sources of randomness. A [`Db`] has 16 numbered databases.
//! The function of a command gets one of these databases at the operation's time: as a [`View`] if the command reads,
//! as a [`Change`] if the command writes.
//!
//! # Invariants
//! - The same operations in the same order make equal databases. Nothing in this module depends on addresses, on a
//!   hasher's random keys or on the time of day.
//! - A list, hash, set or sorted set that is a key's value is never empty.
//! - A field of a hash is *due* when its expiry time has come. An expired key or a due field stays in memory until
//!   [`Write::Expire`] removes it, or until a write looks the key up. The write removes the key, or some of the due
//!   fields. No command's function sees an expired key or a due field.

mod change;
pub mod dated;
mod effects;
pub mod evict;
pub mod expiry;
pub mod extended;
pub mod fields;
pub mod functions;
pub mod hash;
pub mod hashing;
pub mod hexadecimal;
pub mod hyperloglog;
pub mod image;
pub mod list;
pub mod listpack;
pub mod meter;
pub mod pack;
mod seen;
pub mod set;
pub mod small;
pub mod stream;
mod stream_group;
pub mod stream_node;
pub mod table;
pub mod tree;
pub mod value;
mod view;
pub mod walk;
pub mod zset;

#[cfg(test)]
mod hash_functions;

use core::slice;
use std::collections::BTreeMap;

use archipelago_replicate::Sequential;

use crate::command::{Run, flag};
use crate::operation::{Call, Read, Watched, Write, wish};
use crate::reply::{Answer, Fault, Reply, fault};
pub use change::Change;
pub use effects::{Effects, Event, Outcome};
use hashing::{Hashing, unseeded};
use seen::{look, wrote};
use table::{Keyed, Table};
use value::Entry;
pub use view::View;

/// How many databases `SELECT` can choose from.
pub const DATABASES: u32 = 16;

/// One of the numbered databases.
#[derive(Clone, Debug)]
pub struct Space {
    pub(crate) keys: Table<Entry>,
    /// How many keys have an expiry time.
    pub(crate) volatile: usize,
    due: expiry::Due,
    /// How many hashes have at least one field with an expiry time.
    pub(crate) dated: usize,
    /// For each hash that `dated` counts: the time at which its first field expires.
    fields: expiry::Due,
    /// Bytes of all values on the heap. 0 before memory is counted.
    heap: usize,
}

impl Space {
    fn new(hashing: Hashing) -> Self {
        let (due, fields) = (expiry::Due::default(), expiry::Due::default());
        Self { keys: Table::new(hashing), volatile: 0, due, dated: 0, fields, heap: 0 }
    }
}

/// The state of a key that at least one client watches (`WATCH`).
#[derive(Clone, Debug)]
struct Watch {
    /// How many clients watch the key.
    watchers: u32,
    /// The number of the last operation that changed the key.
    changed: u64,
}

/// All databases of one replica. See the module.
#[derive(Clone, Debug)]
pub struct Db {
    /// The hash function of all tables: those of keys, of fields and of members.
    pub(crate) hashing: Hashing,
    pub(crate) spaces: Vec<Space>,
    watched: BTreeMap<(u32, Vec<u8>), Watch>,
    /// How many changing operations were carried out.
    serial: u64,
    /// For each of the first three bits of [`wish`]: how many listeners want the effects of this kind.
    listeners: [u32; 3],
    effects: Effects,
    /// The walk over all entries for a snapshot, if a snapshot is being written.
    walker: walk::Walker,
    meter: meter::Meter,
    /// Whether entries record how often they are used (LFU). If not, entries record the time of the last use.
    pub(crate) lfu: bool,
    /// The most bytes of a HyperLogLog in the sparse encoding.
    pub(crate) sparse: usize,
    /// The libraries of functions. All databases share them.
    pub(crate) functions: functions::Functions,
}

impl Default for Db {
    fn default() -> Self {
        Self {
            hashing: Hashing::default(),
            spaces: (0..DATABASES).map(|_| Space::new(Hashing::default())).collect(),
            watched: BTreeMap::new(),
            serial: 0,
            listeners: [0; 3],
            effects: Effects::default(),
            walker: walk::Walker::default(),
            meter: meter::Meter::default(),
            lfu: false,
            sparse: hyperloglog::SPARSE,
            functions: functions::Functions::default(),
        }
    }
}

/// Pseudo-random numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`. `end` is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.draw()) * end as u128) >> 64) as usize
    }
}

impl Db {
    /// Carries out an operation that may change the databases.
    pub fn write(&mut self, operation: &Write) -> Outcome {
        self.serial += 1;
        wrote(slice::from_ref(&self.serial));
        let reply = match operation {
            Write::Call(call) => self.call(call),
            Write::Exec { calls, watched, now } => self.exec(calls, watched, *now),
            Write::Watch { db, keys, now } => self.watch(*db, keys, *now),
            Write::Unwatch { watched } => {
                self.unwatch(watched);
                Reply::OK
            }
            Write::UnwatchAll => {
                self.watched.clear();
                self.listeners = [0; 3];
                self.sparse = hyperloglog::SPARSE;
                Reply::OK
            }
            Write::Listen { what, begins } => {
                for (_, count) in self.listeners.iter_mut().enumerate().filter(|(bit, _)| what >> bit & 1 == 1) {
                    *count = if *begins { *count + 1 } else { count.saturating_sub(1) };
                }
                Reply::OK
            }
            Write::Expire { now, most } => self.expire(*now, *most as usize),
            Write::Evict { now, keys } => self.evict(*now, keys),
            Write::Meter { lfu } => {
                self.lfu = *lfu;
                self.begin_to_count();
                Reply::OK
            }
            Write::Sparse { most } => {
                self.sparse = *most as usize;
                Reply::OK
            }
            Write::Seed { seed } => {
                if self.takes_a_seed() {
                    self.rehash(Hashing::seeded(*seed));
                }
                Reply::OK
            }
        };
        self.settle();
        let is_told = *look(&self.effects) != Effects::default();
        let effects = is_told.then(|| {
            wrote(slice::from_ref(&self.effects));
            Box::new(core::mem::take(&mut self.effects))
        });
        Outcome { reply, effects }
    }

    /// Carries out an operation that only reads.
    pub fn read(&self, operation: &Read) -> Outcome {
        let Read::Call(call) = operation;
        let Some(run) = self.reader(call) else {
            let effects = Effects { writes: true, ..Effects::default() };
            return Outcome { reply: Reply::Null, effects: Some(Box::new(effects)) };
        };
        if call.wishes & wish::SHORT != 0 && crate::family::cost::is_long(&self.view(call), call) {
            let effects = Effects { long: true, ..Effects::default() };
            return Outcome { reply: Reply::Null, effects: Some(Box::new(effects)) };
        }
        let reply: Reply = run(&self.view(call), &call.args).into();
        let mut effects = Effects::default();
        if !reply.is_error() {
            self.misses(call, &mut effects);
        }
        let effects = (!effects.events.is_empty()).then(|| Box::new(effects));
        Outcome { reply, effects }
    }

    /// Returns the function that carries out a call as a read. Returns `None` if the call may change something.
    ///
    /// For an `FCALL` only the database can decide this: the database knows the flags of the function that is called.
    fn reader(&self, call: &Call) -> Option<fn(&View<'_>, &crate::args::Args) -> Answer> {
        let command = match call.command.name {
            "fcall" if self.functions.only_reads(&call.args[1]) => crate::command::find(b"fcall_ro")?,
            _ => call.command,
        };
        if let Run::Read(run) = command.run { Some(run) } else { None }
    }

    /// Returns the bits of [`wish`] that have at least one listener.
    pub(crate) fn wished(&self) -> u8 {
        (0..3).filter(|bit| self.listeners[*bit] > 0).fold(0, |all, bit| all | 1 << bit)
    }

    /// Records a `keymiss` event for each missing key that a command reads. Records no event if nothing listens to
    /// misses.
    fn misses(&self, call: &Call, effects: &mut Effects) {
        if self.wished() & wish::MISSES == 0 {
            return;
        }
        let view = self.view(call);
        let sources = crate::operation::sources(call).into_iter().map(|place| &call.args[place]);
        let missed = sources.filter(|key| view.find(key).is_none());
        missed.for_each(|key| effects.happened(b'm', "keymiss", call.db, key));
    }

    fn view<'a>(&'a self, call: &'a Call) -> View<'a> {
        let &Call { db: index, now, seed, .. } = call;
        View { db: self, index, now, seed, rights: call.rights.as_deref(), deadline: call.deadline.as_ref() }
    }

    fn call(&mut self, call: &Call) -> Reply {
        let reply = self.carry_out(call);
        if let Some(deadline) = &call.deadline {
            deadline.finish();
        }
        reply
    }

    fn carry_out(&mut self, call: &Call) -> Reply {
        if call.db >= DATABASES {
            return Reply::Error(fault::DB_INDEX);
        }
        match call.command.run {
            Run::Read(run) => {
                let reply = run(&self.view(call), &call.args).into();
                if call.command.has(flag::BLOCKING) && reply == Reply::NullArray {
                    self.effects.again = crate::family::streams::again(&self.view(call), &call.args);
                }
                reply
            }
            Run::Write(run) => {
                let &Call { db: index, now, seed, wishes, .. } = call;
                let wishes = wishes | self.wished();
                if self.wished() & wish::MISSES != 0 {
                    let mut effects = core::mem::take(&mut self.effects);
                    self.misses(call, &mut effects);
                    self.effects = effects;
                }
                let (rights, deadline) = (call.rights.as_deref(), call.deadline.as_ref());
                let random = Random(seed);
                run(&mut Change { db: self, index, now, random, wishes, rights, deadline }, &call.args).into()
            }
            // A `SELECT` inside a transaction. The session has already set the database of each later call in the
            // transaction. Nothing is watched inside a transaction, so `UNWATCH` below has nothing to do.
            Run::Session if call.command.name == "select" => match crate::family::parse::integer(&call.args[1]) {
                Ok(db) if (0..i64::from(DATABASES)).contains(&db) => Reply::OK,
                Ok(_) => Reply::Error(fault::DB_INDEX),
                Err(fault) => Reply::Error(fault),
            },
            Run::Session if call.command.name == "unwatch" => Reply::OK,
            Run::Session => Reply::Error(Fault::new("ERR not a command of the database")),
        }
    }

    fn exec(&mut self, calls: &[Call], watched: &[Watched], now: u64) -> Reply {
        let changed = watched.iter().any(|watched| self.was_changed(watched, now));
        self.unwatch(watched);
        if changed {
            return Reply::NullArray;
        }
        Reply::Array(calls.iter().map(|call| self.call(call)).collect())
    }

    fn watch(&mut self, db: u32, keys: &[Vec<u8>], now: u64) -> Reply {
        for key in keys {
            // A key that has already expired is removed first. Its removal is then older than the watch and does not
            // fail the client's transaction.
            if db < DATABASES {
                let wishes = self.wished();
                Change { db: self, index: db, now, random: Random(0), wishes, rights: None, deadline: None }.bury(key);
            }
            let watch = self.watched.entry((db, key.clone())).or_insert(Watch { watchers: 0, changed: 0 });
            watch.watchers += 1;
        }
        Reply::Int(self.serial as i64)
    }

    fn unwatch(&mut self, watched: &[Watched]) {
        for Watched { db, key, .. } in watched {
            if let std::collections::btree_map::Entry::Occupied(mut watch) = self.watched.entry((*db, key.clone())) {
                watch.get_mut().watchers -= 1;
                if watch.get().watchers == 0 {
                    watch.remove();
                }
            }
        }
    }

    fn was_changed(&self, watched: &Watched, now: u64) -> bool {
        let Watched { db, key, since } = watched;
        let changed = self.watched.get(&(*db, key.clone())).is_none_or(|watch| watch.changed > *since);
        let space = self.spaces.get(*db as usize);
        let met = |entry: &Entry| entry.is_dead(now) || entry.value.due(now) > 0;
        changed || space.and_then(|space| space.keys.get(key)).is_some_and(met)
    }

    /// Removes expired keys and due fields, those with the earliest times first: from each database at most `most` keys
    /// and at most `most` fields.
    fn expire(&mut self, now: u64, most: usize) -> Reply {
        let mut removed = 0;
        for index in 0..DATABASES {
            let dead = self.spaces[index as usize].expired(now, most);
            removed += dead.len();
            let wishes = self.wished();
            let mut change = Change { db: self, index, now, random: Random(0), wishes, rights: None, deadline: None };
            dead.iter().for_each(|key| change.bury(key));
            let mut left = most;
            for key in change.space().keys_of_due_fields(now, most) {
                left -= change.bury_fields(&key, left);
            }
            removed += most - left;
        }
        Reply::count(removed)
    }

    /// Removes the keys that were chosen for eviction because memory was short.
    fn evict(&mut self, now: u64, keys: &[(u32, Vec<u8>)]) -> Reply {
        for (index, key) in keys.iter().filter(|(index, _)| *index < DATABASES) {
            let wishes = wish::EVENTS | wish::CHANGES;
            let mut change =
                Change { db: self, index: *index, now, random: Random(0), wishes, rights: None, deadline: None };
            if change.remove(key).is_some() {
                change.changed(key, b'e', "evicted");
                self.effects.evicted += 1;
            }
        }
        Reply::OK
    }

    /// Returns databases without keys whose tables have this hash function.
    pub fn hashed(hashing: Hashing) -> Self {
        let mut db = Self::default();
        db.rehash(hashing);
        db
    }

    /// Returns the hash function of the databases' tables.
    pub fn hashing(&self) -> Hashing {
        self.hashing
    }

    /// Returns whether the databases have neither keys nor a seed of their hash function.
    pub fn takes_a_seed(&self) -> bool {
        self.hashing == Hashing::default() && self.spaces.iter().all(|space| space.keys.is_empty())
    }

    /// Changes the hash function of databases without keys.
    fn rehash(&mut self, hashing: Hashing) {
        self.hashing = hashing;
        self.spaces.iter_mut().for_each(|space| space.keys = Table::new(hashing));
    }

    /// Returns the number of changing operations that were carried out.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns how many expired keys and due fields are still in memory. If more than about a thousand hashes of a
    /// database have due fields, the fields of the other hashes are not counted. O(log n) if no key has expired and no
    /// field is due.
    pub fn expired(&self, now: u64) -> usize {
        self.spaces.iter().map(|space| space.due.count(now) + space.fields_due(now)).sum()
    }

    /// Records a change of a key for the clients that watch the key.
    pub(crate) fn touch(&mut self, index: u32, key: &[u8]) {
        if !self.watched.is_empty()
            && let Some(watch) = self.watched.get_mut(&(index, key.to_vec()))
        {
            watch.changed = self.serial;
        }
    }

    /// Returns the keys of a database that clients watch.
    pub(crate) fn watched_in(&self, index: u32) -> Vec<Vec<u8>> {
        let all = self.watched.range((index, Vec::new())..(index + 1, Vec::new()));
        all.map(|((_, key), _)| key.clone()).collect()
    }

    /// Returns a digest of all keys with their values and expiry times, in the order of the tables, of the libraries of
    /// functions, and of the number of changing operations. Equal databases have equal digests.
    pub fn digest(&self) -> u64 {
        let mut digest = 0_u64;
        let mut add = |bytes: &[u8]| {
            digest = digest.rotate_left(9).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(unseeded(bytes))
        };
        for (index, space) in self.spaces.iter().enumerate().filter(|(_, space)| !space.keys.is_empty()) {
            add(&index.to_le_bytes());
            for entry in space.keys.iter() {
                add(entry.key());
                add(&entry.expires().unwrap_or(0).to_le_bytes());
                entry.value.digest(&mut add);
            }
        }
        self.functions.digest(&mut add);
        add(&self.serial.to_le_bytes());
        digest
    }
}

impl Sequential for Db {
    type Read = Read;
    type Write = Write;
    type Response = Outcome;

    fn read(&self, operation: &Read) -> Outcome {
        Db::read(self, operation)
    }

    fn write(&mut self, operation: &Write) -> Outcome {
        Db::write(self, operation)
    }
}
